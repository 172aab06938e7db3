"""
The bytes of a replication connection.

Slave to master, the report: the end of the slave's log; the first report also asks for the log
from there on.

======  ====  =====  ==================================================================
offset  size  type   meaning
======  ====  =====  ==================================================================
0       8     int64  end of the slave's commit log, bytes
======  ====  =====  ==================================================================

Master to slave, the transfer frame: a piece of the commit log, or (size 0) a heartbeat.

======  ====  =====  ==================================================================
offset  size  type   meaning
======  ====  =====  ==================================================================
0       8     int64  physical offset of the body's first byte
8       4     int32  size of the body
12      size  bytes  commit log; cut anywhere, but never across the end of a file
======  ====  =====  ==================================================================

Big-endian. Spec: ha.md, section 3.
"""

from collections.abc import Iterator
from struct import Struct, error

from rmq_ha.base.errors import ReplicationError

_REPORT = Struct(">q")
_HEADER = Struct(">qi")
REPORT_SIZE = 8
HEADER_SIZE = 12
assert (_REPORT.size, _HEADER.size) == (REPORT_SIZE, HEADER_SIZE)

MAX_BODY_SIZE = 4 * 1024 * 1024 - HEADER_SIZE
"""The largest body: a Java slave's buffer has to hold the whole frame."""


def encode_report(physical_offset: int) -> bytes:
    """Encode a slave's report in eight bytes."""
    return _REPORT.pack(physical_offset)


def encode_frame(physical_offset: int, body: bytes = b"") -> bytes:
    """
    Encode a transfer frame; without a body, a heartbeat.

    :param body: at most MAX_BODY_SIZE bytes.
    """
    return _HEADER.pack(physical_offset, len(body)) + body


class ReportReader:
    """Finds the newest report in the bytes that arrive; keeps at most seven bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def receive_data(self, data: bytes) -> int | None:
        """
        Return the last complete report, which replaces the earlier ones; None if none is complete.
        """
        offset: int
        if not self._rest:
            try:
                (offset,) = _REPORT.unpack(data)  # nearly always one report
                return offset
            except error:
                pass
        words = self._whole_words(data)
        if not words:
            return None
        (offset,) = _REPORT.unpack_from(words, len(words) - REPORT_SIZE)
        return offset

    def receive_all(self, data: bytes) -> list[int]:
        """Return the offsets of all complete reports, in the order in which they came."""
        return [offset for (offset,) in _REPORT.iter_unpack(self._whole_words(data))]

    def _whole_words(self, data: bytes) -> bytes:
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % REPORT_SIZE
        self._rest = data[whole:]
        return data[:whole]


FramePiece = tuple[int, memoryview, int | None, bool]
"""
A part of one frame:

- the physical offset of the first byte of the body;
- the body, a view of the received bytes, which must not be kept;
- the size that the header announced, on the first piece of a frame; otherwise None;
- whether the frame is complete.
"""


class FramePieceReader:
    """Cuts a master's stream into pieces of frames; keeps at most eleven bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._offset = 0
        self._left = 0

    def receive_data(self, data: bytes) -> Iterator[FramePiece]:
        """
        Yield the pieces in order; exhaust the iterator. The first piece of a frame comes as soon as
        its header of twelve bytes is complete, with the part of the body that has arrived.

        :raises ReplicationError: a header that no master sends.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        view = memoryview(data)
        position, end = 0, len(data)
        while position < end:
            size = None
            if not self._left:
                if end - position < HEADER_SIZE:
                    self._rest = data[position:]
                    return
                self._offset, size = _HEADER.unpack_from(data, position)
                if self._offset < 0 or not 0 <= size <= MAX_BODY_SIZE:
                    raise ReplicationError(
                        f"the master announces {size} bytes at {self._offset}; is it a RocketMQ "
                        "HA port?"
                    )
                self._left = size
                position += HEADER_SIZE
            body = view[position : position + self._left]
            start, taken = self._offset, len(body)
            position += taken
            self._offset += taken
            self._left -= taken
            yield start, body, size, not self._left
