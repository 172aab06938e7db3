"""Frames: a length, a header with its kind, and a body.

    ======  ====  ==========================================================
    offset  size  meaning
    ======  ====  ==========================================================
    0       4     number of bytes after this field
    4       1     kind of the header: 0 JSON, 1 ROCKETMQ
    5       3     length n of the header
    8       n     header
    8+n           body, to the end
    ======  ====  ==========================================================

Numbers are big-endian. Spec: remoting.md, section 1.2.
"""

from collections.abc import Callable
from struct import Struct
from typing import Protocol

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire import binary_header, json_header
from rmq_ha.base.wire.command import RemotingCommand

MAX_FRAME_SIZE = 16777216
JSON = 0
ROCKETMQ = 1
_WORD = Struct(">i")
_WORDS = Struct(">iI")
_WORDS_SIZE = 8
_LENGTH_SIZE = 4
_HTTP2 = int.from_bytes(b"PRI ")
"""The first bytes of HTTP/2, read as the length of a frame."""
_HEADER_SIZE_MASK = 0xFFFFFF

Frame = tuple[int, bytes, bytes]
"""Kind of the header, header, body."""


class FrameRun(Protocol):
    """
    Whole frames of requests that follow each other and are handled together.

    :ivar end: position behind them in the bytes that they were cut from.
    :ivar size: their bytes.
    """

    @property
    def end(self) -> int: ...

    @property
    def size(self) -> int: ...

    def __len__(self) -> int: ...

    def part(self, first: int, end: int) -> "FrameRun":
        """Return the frames from number `first` up to, without, number `end`: at least one."""

    def frames(self) -> list[Frame]:
        """Return the frames one by one."""


Cut = Callable[[bytes, int, int], FrameRun | None]
"""Returns the run at a position of some bytes, where a frame begins, if one is there. The last
parameter is the number of bytes that a header may have."""


class FrameReader:
    """
    Cuts frames out of a stream of bytes.

    Frames before a malformed one in the same chunk are still returned; `fault` is then set.

    :ivar fault: why nothing can be read any more; None: reading goes on.
    :ivar unfinished: number of bytes that wait for the rest of their frame.
    """

    def __init__(
        self,
        max_frame_size: int = MAX_FRAME_SIZE,
        max_header_size: int = MAX_FRAME_SIZE,
        cut: Cut | None = None,
    ) -> None:
        """
        :param max_frame_size: most bytes of a frame, with the length field.
        :param max_header_size: most bytes of a header. The reader never waits for a longer one.
        :param cut: looks for runs; None: all frames are returned one by one.
        """
        self._cut_run = cut
        self._max_length = max_frame_size - _LENGTH_SIZE
        self._max_header = max_header_size
        self._rest: bytes | bytearray = b""
        self._needed = _LENGTH_SIZE
        self.fault: ProtocolViolation | None = None
        self.unfinished = 0

    @property
    def missing(self) -> int:
        """
        How many bytes of the unfinished frame are still to come, as far as its length is known.
        """
        return max(0, self._needed - self.unfinished) if self.unfinished else 0

    def give_up(self, fault: ProtocolViolation) -> None:
        """Forget the unfinished frame, and read nothing more."""
        self.fault = fault
        self._rest, self.unfinished = b"", 0

    def receive_data(self, data: bytes) -> list[Frame | FrameRun]:
        """
        Take bytes that arrived.

        :returns: kind, header and body of each frame that is whole now, or runs of such frames.
        :raises ProtocolViolation: no further frame can be read; close the connection.
        """
        if self.fault is not None:
            raise self.fault
        rest = self._rest
        if rest:
            if len(rest) + len(data) < self._needed:
                # A bytearray grows in place: many small chunks cost no more than one large.
                self._rest = rest if isinstance(rest, bytearray) else bytearray(rest)
                self._rest += data
                self.unfinished += len(data)
                return []
            data = b"".join((rest, data))
        cut = self._cut_run
        run = None if cut is None else cut(data, 0, self._max_header)
        frames: list[Frame | FrameRun] = [] if run is None else [run]
        position = 0 if run is None else run.end
        if position == len(data):
            self._needed, self._rest, self.unfinished = _LENGTH_SIZE, b"", 0
            return frames
        try:
            position = self._cut(data, position, frames)
        except ProtocolViolation as fault:
            self.give_up(fault)
            if not frames:
                raise
            return frames
        self._rest = data[position:] if position else data
        self.unfinished = len(self._rest)
        return frames

    def _cut(self, data: bytes, position: int, frames: list[Frame | FrameRun]) -> int:
        """
        Append all whole frames to `frames`; return the position of the first frame that is not
        whole.

        :param position: where a frame begins that is in no run.
        """
        unpack, cut = _WORDS.unpack_from, self._cut_run
        max_length = self._max_length
        size = len(data)
        while size - position >= _WORDS_SIZE:
            length, word = unpack(data, position)
            if not _LENGTH_SIZE <= length <= max_length:
                raise self._bad_length(length)
            end = position + _LENGTH_SIZE + length
            header_size = word & _HEADER_SIZE_MASK
            if header_size > self._max_header:
                raise ProtocolViolation(
                    f"a header of {header_size} bytes; maxHeaderSize allows {self._max_header}"
                )
            if end > size:
                self._needed = end - position
                return position
            body = position + _WORDS_SIZE + header_size
            kind = word >> 24
            if body > end:
                raise ProtocolViolation("a header is longer than its frame")
            if kind > ROCKETMQ:
                raise ProtocolViolation(f"unknown header serialisation {kind}")
            frames.append((kind, data[position + _WORDS_SIZE : body], data[body:end]))
            position = end
            if cut is not None and (run := cut(data, position, self._max_header)) is not None:
                frames.append(run)
                position = run.end
        self._needed = _LENGTH_SIZE
        if size - position >= _LENGTH_SIZE:
            (length,) = _WORD.unpack_from(data, position)
            if not _LENGTH_SIZE <= length <= max_length:
                raise self._bad_length(length)
        return position

    def _bad_length(self, length: int) -> ProtocolViolation:
        if length == _HTTP2:
            return ProtocolViolation(
                "it speaks HTTP/2, as gRPC clients of RocketMQ 5 do, and this port serves remoting"
            )
        if length > self._max_length:
            return ProtocolViolation(
                f"a frame of {length + _LENGTH_SIZE} bytes; at most "
                f"{self._max_length + _LENGTH_SIZE} are allowed (is this remoting at all?)"
            )
        return ProtocolViolation(f"a frame length of {length}")


def decode_frame(kind: int, header: bytes, body: bytes) -> RemotingCommand:
    """
    Return the command in a frame.

    :raises ProtocolViolation: the header cannot be read.
    """
    if kind == JSON:
        plain = json_header.decode_plain_header(header)  # nearly all are
        command = plain or json_header.decode_odd_header(header)
    else:
        command = binary_header.decode_header(header)
    command.body = body or None
    return command


def encode_frame(command: RemotingCommand) -> bytes:
    """
    Return the bytes of a command.

    :raises ProtocolViolation: the frame would be too large for any peer, or a number does not fit
        into a binary header.
    """
    if command.binary:
        header = binary_header.encode_header(command)
        kind = ROCKETMQ
    else:
        header = json_header.encode_header(command)
        kind = JSON
    body = command.body or b""
    length = _LENGTH_SIZE + len(header) + len(body)
    if length > MAX_FRAME_SIZE - _LENGTH_SIZE:
        raise ProtocolViolation(f"a frame of {length + _LENGTH_SIZE} bytes cannot be sent")
    return b"".join((_WORDS.pack(length, kind << 24 | len(header)), header, body))
