"""The process that a client lives in."""

from collections.abc import Mapping
from typing import NamedTuple


class Process(NamedTuple):
    """
    The process that a client lives in, as values.

    :ivar pid: the low 16 bits go into message ids.
    :ivar address: an IP address of this machine that others could know it by.
    :ivar environ: `NAMESRV_ADDR` counts.
    :ivar home: the user's home directory, for offsets in files.
    """

    pid: int
    address: str
    environ: Mapping[str, str] = {}
    home: str = ""
