"""Frames of HTTP/2: cuts them out of received bytes, and makes them.

It follows RFC 9113, sections 4 and 6.
"""

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from rmq_ha.base.errors import ProtocolViolation

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME = 16384
"""The largest frame that this side takes: the size with which every peer begins."""
MOST_WINDOW = 2**31 - 1
FIRST_WINDOW = 65535

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

_HEAD = Struct(">BHBBI")
_WORD = Struct(">I")
_SETTING = Struct(">HI")
_TWO_WORDS = Struct(">II")


class Http2Setting(IntEnum):
    """The settings that a SETTINGS frame may have (RFC 9113, section 6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2Error(IntEnum):
    """The codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Http2Violation(ProtocolViolation):
    """
    A peer broke a rule of HTTP/2, or a budget is used up, so the connection ends.

    :param code: goes into the GOAWAY frame.
    :param budget: the name of the budget that is used up; empty if a rule was broken.
    """

    def __init__(self, code: Http2Error, text: str, budget: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.budget = budget


class Http2Frame(NamedTuple):
    """A received frame. `kind` is one of the constants above, or a number without a meaning."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class FrameCutter:
    """
    Cuts received bytes into frames; the first bytes must be the preface.

    :ivar unfinished: bytes of a frame that is not whole yet.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needs_preface = True

    @property
    def unfinished(self) -> int:
        return len(self._buffer)

    def cut(self, data: bytes) -> Iterable[Http2Frame]:
        """
        Yield the frames that are whole now.

        :raises Http2Violation: the preface is wrong, or a frame is too large. Frames before it were
            yielded.
        """
        buffer = self._buffer
        buffer += data
        if self._needs_preface:
            size = min(len(buffer), len(PREFACE))
            if buffer[:size] != PREFACE[:size]:
                raise Http2Violation(Http2Error.PROTOCOL_ERROR, _other_protocol(buffer[0]))
            if size < len(PREFACE):
                return
            del buffer[:size]
            self._needs_preface = False
        at, end = 0, len(buffer)
        try:
            while end - at >= 9:
                high, low, kind, flags, stream = _HEAD.unpack_from(buffer, at)
                size = high << 16 | low
                if size > MAX_FRAME:
                    raise Http2Violation(
                        Http2Error.FRAME_SIZE_ERROR,
                        f"a frame of {size} bytes is larger than {MAX_FRAME}",
                    )
                if end - at < 9 + size:
                    break
                at += 9 + size
                yield Http2Frame(kind, flags, stream & MOST_WINDOW, bytes(buffer[at - size : at]))
        finally:
            del buffer[:at]


def _other_protocol(first: int) -> str:
    """Return why a connection is refused that begins with this byte, and not with the preface."""
    if first == 0:
        return "it speaks remoting, as clients of RocketMQ 4 do, which connect to listenPort"
    return "it does not speak HTTP/2"


def encode_head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the nine bytes before a payload."""
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream)


def encode_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return encode_head(len(payload), kind, flags, stream) + payload


def encode_settings(values: dict[Http2Setting, int]) -> bytes:
    payload = b"".join(_SETTING.pack(key, value) for key, value in values.items())
    return encode_frame(SETTINGS, 0, 0, payload)


def encode_window_update(stream: int, size: int) -> bytes:
    return encode_frame(WINDOW_UPDATE, 0, stream, _WORD.pack(size))


def encode_reset(stream: int, code: Http2Error) -> bytes:
    return encode_frame(RST_STREAM, 0, stream, _WORD.pack(code))


def encode_goaway(last_stream: int, code: Http2Error, text: str) -> bytes:
    said = text.encode()[:512]
    return encode_frame(GOAWAY, 0, 0, _TWO_WORDS.pack(last_stream, code) + said)


def decode_settings(payload: bytes) -> dict[int, int]:
    """
    Return the last value of each setting.

    :raises Http2Violation: the size of the payload or a value is wrong.
    """
    if len(payload) % _SETTING.size:
        raise Http2Violation(Http2Error.FRAME_SIZE_ERROR, "a SETTINGS frame has a wrong size")
    values = dict(_SETTING.iter_unpack(payload))
    if values.get(Http2Setting.ENABLE_PUSH, 0) > 1:
        raise Http2Violation(Http2Error.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
    if not MAX_FRAME <= values.get(Http2Setting.MAX_FRAME_SIZE, MAX_FRAME) < 1 << 24:
        raise Http2Violation(Http2Error.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range")
    if values.get(Http2Setting.INITIAL_WINDOW_SIZE, 0) > MOST_WINDOW:
        raise Http2Violation(Http2Error.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
    return values


def decode_word(payload: bytes, kind: str) -> int:
    """
    Return the number that is all of a payload.

    :raises Http2Violation: the size of the payload is wrong.
    """
    if len(payload) != _WORD.size:
        raise Http2Violation(Http2Error.FRAME_SIZE_ERROR, f"a {kind} frame has a wrong size")
    number: int = _WORD.unpack(payload)[0]
    return number


def strip_padding(frame: Http2Frame) -> bytes:
    """
    Return the payload of a DATA or HEADERS frame without padding and priority.

    :raises Http2Violation: the frame is too small for them.
    """
    payload = frame.payload
    start, end = 0, len(payload)
    if frame.flags & PADDED:
        if not payload:
            raise Http2Violation(Http2Error.FRAME_SIZE_ERROR, "a padded frame is empty")
        start, end = 1, end - payload[0]
    if frame.kind == HEADERS and frame.flags & HAS_PRIORITY:
        start += 5
    if start > end:
        raise Http2Violation(Http2Error.PROTOCOL_ERROR, "the padding of a frame is too large")
    return payload[start:end] if start or end < len(payload) else payload
