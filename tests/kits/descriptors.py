"""Lists the open file descriptors of this process."""

import gc
import os


def open_descriptors() -> list[str]:
    """
    Return the numbers of the open descriptors.

    Garbage of earlier tests is collected first. Otherwise it may be closed between two calls, and
    the second call returns fewer numbers.
    """
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))


def open_files() -> list[str]:
    """Return the files of the open descriptors: paths, and names of sockets."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sorted(os.readlink(link) for link in links if os.path.islink(link))
