"""Header blocks: decodes those of the peer, and writes those of this side.

This side's blocks use no table of earlier headers, so they are constants or nearly so.

It follows RFC 7541; RFC 9113, section 8.
"""

from collections.abc import Iterable

from hpack.exceptions import HPACKError

from rmq_ha.server.grpc.http2.budget import HEADER_BLOCKS
from rmq_ha.server.grpc.http2.frames import (
    END_HEADERS,
    HEADERS,
    Http2Error,
    Http2Frame,
    Http2Violation,
    strip_padding,
)
from rmq_ha.server.grpc.http2.header_decoder import OVERHEAD, Header, HeaderDecoder

MAX_BLOCK = 16384
"""Most bytes of a header block as it is sent."""
MAX_LIST = 8192
"""Most bytes of the headers of a request: RocketMQ's limit."""
_MOST_DECODED = 4 * MAX_LIST
_MAX_TABLE = 4096
_NO_TABLE = b"\x20"
"""The first byte of each block of this side: no table of earlier headers is used."""

_STATIC_NAMES = {b"content-type": 31}
_STATUSES = {b"200": 8, b"204": 9, b"206": 10, b"304": 11, b"400": 12, b"404": 13, b"500": 14}
_MOST_CONTINUATIONS = 16
_LENGTH = "content-length"
_MOST_DIGITS = 18
_PSEUDO = (":method", ":path", ":scheme")
_OF_A_CONNECTION = frozenset(
    ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
)

HeaderList = list[Header]


class HeaderReader:
    """Decodes the header blocks of one connection, in their order."""

    def __init__(self) -> None:
        self._decoder = HeaderDecoder(_MAX_TABLE, _MOST_DECODED)
        self._block = bytearray()
        self._first: Http2Frame | None = None
        self._continuations = 0

    @property
    def has_begun(self) -> bool:
        """Whether a block has begun, whose last frame has not come yet."""
        return self._first is not None

    def take(self, frame: Http2Frame) -> tuple[Http2Frame, HeaderList] | None:
        """
        Take a frame of HEADERS or CONTINUATION.

        :returns: the HEADERS frame and its headers, once the block is whole.
        :raises Http2Violation: the block is too large or wrong, or none has begun on the stream.
        """
        first = self._first
        if frame.kind == HEADERS:
            if frame.stream % 2 == 0:
                raise Http2Violation(Http2Error.PROTOCOL_ERROR, "a request has an even stream")
            first, block = frame, strip_padding(frame)
            if frame.flags & END_HEADERS:
                return first, self.read(block)
            self._first, self._block, self._continuations = first, bytearray(block), 0
            return None
        if first is None or frame.stream != first.stream:
            text = "a CONTINUATION frame continues nothing"
            raise Http2Violation(Http2Error.PROTOCOL_ERROR, text)
        self._block += frame.payload
        self._continuations += 1
        if len(self._block) > MAX_BLOCK or self._continuations > _MOST_CONTINUATIONS:
            text = "a header block is too large"
            raise Http2Violation(Http2Error.ENHANCE_YOUR_CALM, text, HEADER_BLOCKS)
        if not frame.flags & END_HEADERS:
            return None
        self._first = None
        return first, self.read(bytes(self._block))

    def read(self, block: bytes) -> HeaderList:
        """
        Decode a block.

        :raises Http2Violation: the block is wrong or far too large. Later blocks of the connection
            cannot be decoded then, because they refer to earlier ones.
        """
        try:
            return self._decoder.decode(block)
        except HPACKError as error:
            raise Http2Violation(
                Http2Error.COMPRESSION_ERROR, f"its headers cannot be read: {error}"
            ) from None


def size_of(headers: HeaderList) -> int:
    """Return the size of headers, as the limit of a header list counts it."""
    return sum(len(name) + len(value) + OVERHEAD for name, value in headers)


def fault_of(headers: HeaderList) -> str:
    """Return why a request with these headers is malformed; empty if it is well formed."""
    seen: set[str] = set()
    is_after = False
    for name, value in headers:
        if name.startswith(":"):
            if is_after or name in seen or name not in (*_PSEUDO, ":authority"):
                return f"the header {name} is not allowed here"
            seen.add(name)
            if not value and name != ":authority":
                return f"the header {name} is empty"
        else:
            is_after = True
            if name != name.lower() or name in _OF_A_CONNECTION or not name:
                return f"the header {name!r} is not allowed in HTTP/2"
            if (name == "te" and value != "trailers") or (name == _LENGTH and not is_size(value)):
                return f"the header {name} has a wrong value"
    missing = [name for name in _PSEUDO if name not in seen]
    return f"the header {missing[0]} is missing" if missing else ""


def is_size(text: str) -> bool:
    """Return whether a text is a number of at most 18 digits, as `content-length` has it."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def announced_size(headers: HeaderList) -> int | None:
    """Return the `content-length` of a well-formed request; None if it does not have one."""
    return next((int(value) for name, value in headers if name == _LENGTH), None)


def encode_headers(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the block for headers of this side; the peer has to remember none of them."""
    return _NO_TABLE + b"".join(_encode(name, value) for name, value in headers)


def _encode(name: bytes, value: bytes) -> bytes:
    if name == b":status" and value in _STATUSES:
        return bytes([0x80 | _STATUSES[value]])
    if name == b":status":
        return _integer(8, 4) + _integer(len(value), 7) + value
    index = _STATIC_NAMES.get(name)
    if index is not None:
        return _integer(index, 4) + _integer(len(value), 7) + value
    return b"\x00" + _integer(len(name), 7) + name + _integer(len(value), 7) + value


def _integer(number: int, bits: int) -> bytes:
    """Encode a number by HPACK. It begins in the lowest `bits` bits of the first byte."""
    most = (1 << bits) - 1
    if number < most:
        return bytes([number])
    encoded = bytearray([most])
    number -= most
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
