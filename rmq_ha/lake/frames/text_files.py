"""Reads lines of text files, as Spark does: a file or a directory, compressed or not."""

import bz2
import gzip
from collections.abc import Callable, Iterator
from typing import Any

from rmq_ha.base.host.files import listing, read_small


def _zstd(data: bytes) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        whole: bytes = stream.read()
    return whole


_OPEN: dict[str, Callable[[bytes], Any]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".zst": _zstd,
}


def lines_of(path: str) -> Iterator[bytes]:
    """
    Yield the lines that are not blank.

    :param path: a file, or a directory of files.
    :raises OSError: a file cannot be read.
    """
    below = [entry for entry in listing(path) if not entry.name.startswith(("_", "."))]
    if below:
        for entry in below:
            yield from lines_of(f"{path.rstrip('/')}/{entry.name}")
        return
    data = read_small(path)
    opened = next((made for ending, made in _OPEN.items() if path.endswith(ending)), bytes)
    yield from (line for line in opened(data).splitlines() if line.strip())
