"""What this process has open."""

import gc
import os


def open_descriptors() -> list[str]:
    """
    Their numbers.

    What earlier tests left is collected first: else it is closed at some moment in between, and
    there are fewer than before.
    """
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))
