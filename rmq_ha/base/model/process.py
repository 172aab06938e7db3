"""The process in which a client runs, as values."""

from collections.abc import Mapping
from typing import NamedTuple


class Process(NamedTuple):
    """
    The process in which a client runs, as values.

    :ivar pid: its low 16 bits go into message ids.
    :ivar address: an IP address of this machine by which others could know it.
    :ivar environ: the environment, of which `NAMESRV_ADDR` counts.
    :ivar home: the user's home directory, for offsets in files.
    """

    pid: int
    address: str
    environ: Mapping[str, str] = {}
    home: str = ""
