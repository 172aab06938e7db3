"""What time it is, for the jobs."""

import time


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def seconds() -> float:
    """A clock that never goes back, for durations."""
    return time.monotonic()
