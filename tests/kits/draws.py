"""How many examples the dear properties draw."""

import os

EXPLORES = os.environ.get("RMQ_HA_EXPLORE") == "1"


def draws(many: int) -> int:
    """
    `many` when new examples are drawn; CI, which draws the same ones in each run, takes a quarter.

    For properties that take a second and more.
    """
    return many if EXPLORES else many // 4
