"""Compression of bodies with zlib, LZ4 or ZSTD, as in Java's clients.

Bits of the system flag name the compression of a body; brokers pass flag and body on unchanged.

The libraries for LZ4 and ZSTD are imported with the first body that needs them, as most programs
need neither.

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
"""Compressed bytes between two checks of the decompressed size. Four bytes may become 128 KiB."""
_HOW_TO_GET = "pip install 'rmq-ha[compression]'"

Deflate = Callable[[bytes], bytes]


class UndecodableBody(MQClientError):
    """A body could not be decompressed, or could not be decoded as the expected type."""


class Compression(NamedTuple):
    """
    The compression of a producer.

    :ivar sys_flag: the bits of the system flag that tell consumers of the compression.
    :ivar deflate: compresses a body.
    """

    sys_flag: int
    deflate: Deflate


def compression_of(kind: str, level: int) -> Compression:
    """
    Return the compression of RocketMQ's settings `compressType` and `compressLevel`.

    :param kind: ZLIB, LZ4 or ZSTD.
    :raises ConfigurationError: the kind is unknown, has no such level, or its library is missing.
    """
    name = kind.strip().upper() if isinstance(kind, str) else ""
    if name not in _MAKERS:
        raise ConfigurationError(f"compress_type={kind!r}: one of {', '.join(_MAKERS)}")
    levels = _MAKERS[name][2]
    if type(level) is not int or level not in levels:
        raise ConfigurationError(
            f"compress_level={level!r}: {name} has {levels.start} to {levels.stop - 1}"
        )
    return _make_compression(name, level)


@lru_cache(maxsize=64)
def _make_compression(name: str, level: int) -> Compression:
    flag, make, _ = _MAKERS[name]
    return Compression(COMPRESSED | flag, make(level))


def inflate(body: bytes, sys_flag: int) -> bytes:
    """
    Decompress a body.

    :raises UndecodableBody: the body is damaged, would be larger than 64 MiB, has an unknown
        compression, or the library for its compression is missing.
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
    """
    Make a function that compresses in independent blocks: Java cannot read linked ones. The level
    is ignored, as Java has no levels for LZ4.
    """
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
    return lambda body: made(level=level).compress(body)  # new ones: threads share producers


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
