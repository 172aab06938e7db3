"""Sets how many examples hypothesis draws for slow properties."""

import os

EXPLORES = os.environ.get("RMQ_HA_EXPLORE") == "1"


def draws(many: int) -> int:
    """
    Return `many`, or in CI a quarter of it, because CI draws the same examples in each run.

    Use it for properties that take a second or more.
    """
    return many if EXPLORES else many // 4
