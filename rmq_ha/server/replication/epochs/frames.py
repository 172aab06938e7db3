"""The bytes of a replication connection in controller mode. Big-endian.

===================  ==================================================================
slave's handshake    int32 1; int16 syncFromLastFile; int16 asyncLearner; int64 its id
master's handshake   int32 1; int32 12k; int64 end of its log; int32 its last epoch;
                     k times (int32 epoch, int64 start)
slave's report       int32 2; int64 end of its log
master's transfer    int32 2; int32 size (0: heartbeat); int64 offset of the body;
                     int32 epoch; int64 its start; int64 confirm offset; the body
master's tables      int32 100; int32 size; int32 epoch; int64 number; the body
===================  ==================================================================

Only rmq-ha masters send the last frame, and only to slaves that wrote 2 as asyncLearner. A Java
master treats 2 like 0.

Spec: controller.md, chapter 6.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from rmq_ha.base.errors import ProtocolViolation, ReplicationError
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs

_STATE = Struct(">i")
_SLAVE = Struct(">ihhq")
_HEAD = Struct(">ii")
_MASTER = Struct(">iiqi")
_ENTRY = Struct(">iq")
_REPORT = Struct(">iq")
_TRANSFER = Struct(">iiqiqq")
_TABLES = Struct(">iiiq")
SLAVE_SIZE, MASTER_SIZE, ENTRY_SIZE, REPORT_SIZE, TRANSFER_SIZE = 16, 20, 12, 12, 36
assert (_SLAVE.size, _MASTER.size, _ENTRY.size) == (SLAVE_SIZE, MASTER_SIZE, ENTRY_SIZE)
assert (_REPORT.size, _TRANSFER.size) == (REPORT_SIZE, TRANSFER_SIZE)
TABLES_SIZE = _TABLES.size

MAX_BODY_SIZE = 4 * 1024 * 1024 - TRANSFER_SIZE
"""The largest body: a Java slave's buffer has to hold the whole frame."""
MAX_TABLES_SIZE = 16 * 1024 * 1024
"""The largest piece of the tables in bytes; a larger frame is refused."""
NOWHERE = -1
"""The offset in heartbeats of a master whose log has no file yet."""


class FrameState(IntEnum):
    """The first number of a frame; no other number occurs."""

    HANDSHAKE = 1
    TRANSFER = 2
    TABLES = 100


class _Learner(IntEnum):
    """The values that a slave writes as asyncLearner."""

    NO = 0
    YES = 1
    TAKES_TABLES = 2


class SlaveHandshake(NamedTuple):
    """
    A slave's handshake, which begins the connection.

    :ivar broker_id: the id that its controller gave.
    :ivar syncs_from_last_file: whether an empty slave wants only the last file.
    :ivar is_learner: whether the slave never joins the set.
    :ivar takes_tables: whether the slave can read frames with tables; a learner cannot say so.
    """

    broker_id: int
    syncs_from_last_file: bool = False
    is_learner: bool = False
    takes_tables: bool = False


class MasterHandshake(NamedTuple):
    """
    A master's answer to a slave's handshake.

    :ivar max_offset: end of the part of its log that the slave can have.
    :ivar last_epoch: the epoch that the master writes now.
    """

    max_offset: int
    last_epoch: int
    epochs: Epochs


class Transfer(NamedTuple):
    """
    A piece of the log, or a heartbeat.

    :ivar offset: offset of the body's first byte; in a heartbeat that of the next byte, or
        `NOWHERE`.
    :ivar epoch: the epoch in which the body was written. A Java master may send a start after
        `offset`.
    :ivar confirm_offset: all brokers that have to keep the log have it up to this offset.
    """

    offset: int
    epoch: Epoch
    confirm_offset: int
    body: bytes = b""


class TablePiece(NamedTuple):
    """
    A piece of the master's tables.

    :ivar epoch: the epoch in which the master leads.
    :ivar number: 1, 2, 3, ... on one connection.
    """

    epoch: int
    number: int
    body: bytes


def encode_slave_handshake(handshake: SlaveHandshake) -> bytes:
    """
    Encode a handshake in sixteen bytes, for one write: Java reads the id as soon as twelve bytes
    are there.
    """
    learner = _Learner.TAKES_TABLES if handshake.takes_tables else _Learner.NO
    if handshake.is_learner:
        learner = _Learner.YES
    from_last = int(handshake.syncs_from_last_file)
    return _SLAVE.pack(FrameState.HANDSHAKE, from_last, learner, handshake.broker_id)


def encode_master_handshake(handshake: MasterHandshake) -> bytes:
    """Encode the answer to a slave's handshake."""
    entries = b"".join(_ENTRY.pack(*entry) for entry in handshake.epochs.entries)
    head = _MASTER.pack(
        FrameState.HANDSHAKE, len(entries), handshake.max_offset, handshake.last_epoch
    )
    return head + entries


def encode_report(physical_offset: int) -> bytes:
    """
    Encode a report of the end of the slave's log; the first report also asks for the log from there
    on.
    """
    return _REPORT.pack(FrameState.TRANSFER, physical_offset)


def encode_transfer(frame: Transfer) -> bytes:
    """
    Encode a transfer frame.

    :param frame: its body has at most MAX_BODY_SIZE bytes.
    """
    return (
        _TRANSFER.pack(
            FrameState.TRANSFER, len(frame.body), frame.offset, *frame.epoch, frame.confirm_offset
        )
        + frame.body
    )


def encode_piece(piece: TablePiece) -> bytes:
    """
    Encode a frame with tables.

    :raises ReplicationError: the frame is larger than any slave accepts.
    """
    size = len(piece.body)
    if size > MAX_TABLES_SIZE:
        raise ReplicationError(f"{size} bytes of tables do not fit into one frame")
    return _TABLES.pack(FrameState.TABLES, size, piece.epoch, piece.number) + piece.body


class SlaveReader:
    """
    Finds a slave's handshakes and reports in the bytes that arrive; keeps at most fifteen bytes.
    """

    def __init__(self) -> None:
        self._rest = b""

    def receive_data(self, data: bytes) -> Iterator[SlaveHandshake | int]:
        """
        Yield the slave's handshakes, and the offsets that it reports, in order.

        :raises ReplicationError: no slave of controller mode sends these bytes. A slave of a 4.9
            pair sends such bytes first.
        """
        data = self._rest + data
        position = 0
        while len(data) - position >= _STATE.size:
            (state,) = _STATE.unpack_from(data, position)
            if state not in (FrameState.HANDSHAKE, FrameState.TRANSFER):
                raise ReplicationError(
                    f"a slave begins with {state}, which is not of controller mode; all brokers "
                    "of a set have to be in it"
                )
            size = SLAVE_SIZE if state == FrameState.HANDSHAKE else REPORT_SIZE
            if len(data) - position < size:
                break
            if state == FrameState.HANDSHAKE:
                _, from_last, learner, broker_id = _SLAVE.unpack_from(data, position)
                yield SlaveHandshake(
                    broker_id,
                    from_last == 1,
                    learner == _Learner.YES,
                    learner == _Learner.TAKES_TABLES,
                )
            else:
                offset: int = _REPORT.unpack_from(data, position)[1]
                yield offset
            position += size
        self._rest = data[position:]


class MasterReader:
    """
    Finds a master's frames in the bytes that arrive; keeps at most one frame.

    :param takes_tables: whether frames with tables are accepted.
    """

    def __init__(self, takes_tables: bool = False) -> None:
        self._held = bytearray()
        self._most = {FrameState.HANDSHAKE: MAX_BODY_SIZE, FrameState.TRANSFER: MAX_BODY_SIZE}
        if takes_tables:
            self._most[FrameState.TABLES] = MAX_TABLES_SIZE

    def receive_data(self, data: bytes) -> None:
        """Keep the bytes that arrived."""
        self._held += data

    def next_frame(self) -> MasterHandshake | Transfer | TablePiece | None:
        """
        Return the next whole frame, once; None until more bytes have come.

        :raises ReplicationError: no master of controller mode sends these bytes.
        """
        held = self._held
        if len(held) < MASTER_SIZE:
            return None
        state, size = _HEAD.unpack_from(held)
        if state not in self._most or not 0 <= size <= self._most[state]:
            raise ReplicationError(
                f"the master begins with {state} and {size}, which is not of controller mode; "
                "all brokers of a set have to be in it"
            )
        head, decode = _DECODERS[state]
        if len(held) < head + size:
            return None
        frame = decode(held, size)
        del held[: head + size]
        return frame


def _handshake(data: bytearray, size: int) -> MasterHandshake:
    _, _, end, last = _MASTER.unpack_from(data)
    if size % ENTRY_SIZE:
        raise ReplicationError(f"the master announces {size} bytes of epochs")
    entries = _ENTRY.iter_unpack(memoryview(data)[MASTER_SIZE : MASTER_SIZE + size])
    try:
        epochs = Epochs(Epoch(*entry) for entry in entries)
    except ProtocolViolation as error:
        raise ReplicationError(f"the master's handshake: {error}") from None
    return MasterHandshake(end, last, epochs)


def _transfer(data: bytearray, size: int) -> Transfer:
    _, _, offset, epoch, start, confirm = _TRANSFER.unpack_from(data)
    if offset < NOWHERE or (size and offset < 0):
        raise ReplicationError(f"the master announces {size} bytes at {offset}")
    body = bytes(memoryview(data)[TRANSFER_SIZE : TRANSFER_SIZE + size])
    return Transfer(offset, Epoch(epoch, start), confirm, body)


def _piece(data: bytearray, size: int) -> TablePiece:
    _, _, epoch, number = _TABLES.unpack_from(data)
    return TablePiece(epoch, number, bytes(memoryview(data)[TABLES_SIZE : TABLES_SIZE + size]))


_Decoder = Callable[[bytearray, int], MasterHandshake | Transfer | TablePiece]
_DECODERS: dict[int, tuple[int, _Decoder]] = {
    FrameState.HANDSHAKE: (MASTER_SIZE, _handshake),
    FrameState.TRANSFER: (TRANSFER_SIZE, _transfer),
    FrameState.TABLES: (TABLES_SIZE, _piece),
}
"""
For each first number of a frame: the size of the frame's head, and the function that decodes the
frame.
"""
