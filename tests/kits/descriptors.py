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


def open_files() -> list[str]:
    """What they lead to: paths, and names of sockets."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sorted(os.readlink(link) for link in links if os.path.islink(link))
