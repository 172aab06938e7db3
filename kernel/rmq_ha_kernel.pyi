"""The face of this package is `rmq_ha.base.runs.face.Maker`, to which rmq-ha casts it."""

from typing import Any

VERSION: int

def cut(data: bytes, at: int, max_header: int, /) -> Any: ...
def walk(
    data: bytes,
    at: int,
    position: int,
    max_count: int,
    max_work: int,
    check_crc: bool,
    gap: int = 0,
    /,
) -> Any: ...
def concat(parts: Any, /) -> Any: ...
def faults() -> dict[str, int]: ...
