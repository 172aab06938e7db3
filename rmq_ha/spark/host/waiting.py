"""Waiting, for those who ask brokers again and again."""

import time


def pause(ms: float) -> None:
    """:param ms: nothing happens when 0 or less."""
    if ms > 0:
        time.sleep(ms / 1000)
