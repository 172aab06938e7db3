"""Bodies that are compressed: with zlib, LZ4 or ZSTD, as Java's clients do.

What a body is compressed with is said by bits of its system flag; brokers pass both on as they are.

The libraries for LZ4 and ZSTD are loaded by the first body that needs them: most programs have
none.

Spec: remoting.md, section 5.3.
"""

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.flags import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from rmq_ha.client.rules.errors import MQClientError

MAX_INFLATED = 64 << 20
_ZSTD_SLICE = 512
"""A block of four bytes may become 128 KiB: so many of them are decompressed before we look."""
_HOW_TO_GET = "pip install 'rmq-ha[compression]'"

Deflate = Callable[[bytes], bytes]


class UndecodableBody(MQClientError):
    """A body that cannot be decompressed, or read as what it should be."""


class Compression(NamedTuple):
    """
    How a producer compresses.

    :ivar sys_flag: what consumers are told.
    """

    sys_flag: int
    deflate: Deflate


def compression_of(kind: str, level: int) -> Compression:
    """
    What RocketMQ calls `compressType` and `compressLevel`.

    :param kind: ZLIB, LZ4 or ZSTD.
    :raises ConfigurationError: it is none of them, its library is missing, or it has no such level.
    """
    name = kind.strip().upper() if isinstance(kind, str) else ""
    if name not in _MAKERS:
        raise ConfigurationError(f"compress_type={kind!r}: one of {', '.join(_MAKERS)}")
    levels = _MAKERS[name][2]
    if type(level) is not int or level not in levels:
        raise ConfigurationError(
            f"compress_level={level!r}: {name} has {levels.start} to {levels.stop - 1}"
        )
    return _made(name, level)


@lru_cache(maxsize=64)
def _made(name: str, level: int) -> Compression:
    flag, make, _ = _MAKERS[name]
    return Compression(COMPRESSED | flag, make(level))


def inflate(body: bytes, sys_flag: int) -> bytes:
    """
    Decompress a body.

    :raises UndecodableBody: it is damaged, would be larger than 64 MiB, is compressed in a way that
        nobody knows, or the library for it is missing.
    """
    kind = sys_flag & COMPRESSION_MASK
    opener = _OPENERS.get(kind)
    if opener is None:
        raise UndecodableBody(
            f"a body is compressed in the way {kind >> 8}; known are 0 and 3 (zlib), 1 (LZ4),"
            " 2 (ZSTD)"
        )
    return opener(body)


def _zlib(level: int) -> Deflate:
    return lambda body: zlib.compress(body, level)


def _lz4(level: int) -> Deflate:
    """Java reads no frames whose blocks depend on each other, and has no levels here."""
    try:
        from lz4 import frame as lz4_frame
    except ImportError:
        raise ConfigurationError(
            f"compress_type=LZ4 needs the library lz4: {_HOW_TO_GET}"
        ) from None
    compress, size = lz4_frame.compress, lz4_frame.BLOCKSIZE_MAX4MB
    return lambda body: bytes(compress(body, block_linked=False, store_size=False, block_size=size))


def _zstd(level: int) -> Deflate:
    try:
        import zstandard
    except ImportError:
        raise ConfigurationError(
            f"compress_type=ZSTD needs the library zstandard: {_HOW_TO_GET}"
        ) from None
    made = zstandard.ZstdCompressor
    return lambda body: made(level=level).compress(body)  # one for each: threads share producers


def _open_zlib(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, MAX_INFLATED)
    except zlib.error as error:
        raise _damaged(error) from None
    return _refuse_cut(data, is_whole=stream.eof)


def _open_lz4(body: bytes) -> bytes:
    try:
        from lz4 import frame as lz4_frame
    except ImportError:
        raise UndecodableBody(
            f"a body is compressed with LZ4, and lz4 is missing: {_HOW_TO_GET}"
        ) from None
    stream = lz4_frame.LZ4FrameDecompressor()
    try:
        data = stream.decompress(body, MAX_INFLATED)
    except RuntimeError as error:
        raise _damaged(error) from None
    return _refuse_cut(data, is_whole=stream.eof)


def _open_zstd(body: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise UndecodableBody(
            f"a body is compressed with ZSTD, and zstandard is missing: {_HOW_TO_GET}"
        ) from None
    stream = zstandard.ZstdDecompressor(max_window_size=MAX_INFLATED).decompressobj()
    pieces: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(body), _ZSTD_SLICE):
            piece = stream.decompress(body[start : start + _ZSTD_SLICE])
            size += len(piece)
            pieces.append(piece)
            if stream.eof or size > MAX_INFLATED:
                break
    except zstandard.ZstdError as error:
        raise _damaged(error) from None
    return _refuse_cut(b"".join(pieces), is_whole=stream.eof and size <= MAX_INFLATED)


def _damaged(error: Exception) -> UndecodableBody:
    return UndecodableBody(f"a compressed body is damaged: {error}")


def _refuse_cut(data: bytes, *, is_whole: bool) -> bytes:
    if not is_whole:
        raise UndecodableBody("a compressed body is cut short, or larger than 64 MiB")
    return data


_OPENERS = {
    0: _open_zlib,
    COMPRESSION_LZ4: _open_lz4,
    COMPRESSION_ZSTD: _open_zstd,
    COMPRESSION_ZLIB: _open_zlib,
}
_MAKERS = {
    "ZLIB": (COMPRESSION_ZLIB, _zlib, range(10)),
    "LZ4": (COMPRESSION_LZ4, _lz4, range(10)),
    "ZSTD": (COMPRESSION_ZSTD, _zstd, range(1, 23)),
}
