"""
The bytes of a replication connection in controller mode. Big-endian.

===================  ==================================================================
slave's handshake    int32 1; int16 syncFromLastFile; int16 asyncLearner; int64 its id
master's handshake   int32 1; int32 12k; int64 end of its log; int32 its last epoch;
                     k times (int32 epoch, int64 start)
slave's report       int32 2; int64 end of its log
master's transfer    int32 2; int32 size (0: heartbeat); int64 offset of the body;
                     int32 epoch; int64 its start; int64 confirm offset; the body
===================  ==================================================================

Spec: controller.md, chapter 6.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from rmq_ha.autoswitch.epochs import Epoch, Epochs
from rmq_ha.errors import ProtocolViolation, ReplicationError

_STATE = Struct(">i")
_SLAVE = Struct(">ihhq")
_HEAD = Struct(">ii")
_MASTER = Struct(">iiqi")
_ENTRY = Struct(">iq")
_REPORT = Struct(">iq")
_TRANSFER = Struct(">iiqiqq")
SLAVE_SIZE, MASTER_SIZE, ENTRY_SIZE, REPORT_SIZE, TRANSFER_SIZE = 16, 20, 12, 12, 36
assert (_SLAVE.size, _MASTER.size, _ENTRY.size) == (SLAVE_SIZE, MASTER_SIZE, ENTRY_SIZE)
assert (_REPORT.size, _TRANSFER.size) == (REPORT_SIZE, TRANSFER_SIZE)

MAX_BODY_SIZE = 4 * 1024 * 1024 - TRANSFER_SIZE
"""A Java slave's buffer has to hold the whole frame."""
NOWHERE = -1
"""The offset in heartbeats of a master whose log has no file yet."""


class State(IntEnum):
    """The first number of every frame; others never occur."""

    HANDSHAKE = 1
    TRANSFER = 2


class SlaveHandshake(NamedTuple):
    """
    How a slave begins.

    :ivar broker_id: as its controller gave it.
    :ivar syncs_from_last_file: an empty slave that wants no more than the last file.
    :ivar is_learner: it never joins the set.
    """

    broker_id: int
    syncs_from_last_file: bool = False
    is_learner: bool = False


class MasterHandshake(NamedTuple):
    """
    What a master answers.

    :ivar max_offset: end of its log.
    :ivar last_epoch: of what it writes now.
    """

    max_offset: int
    last_epoch: int
    epochs: Epochs


class Transfer(NamedTuple):
    """
    A piece of the log, or a heartbeat.

    :ivar offset: of the first byte of the body; of a heartbeat, of the next one, or `NOWHERE`.
    :ivar epoch: in which the body was written; its start may lie behind the offset in Java's.
    :ivar confirm_offset: what lies below it is kept by all that have to.
    """

    offset: int
    epoch: Epoch
    confirm_offset: int
    body: bytes = b""


def encode_slave_handshake(handshake: SlaveHandshake) -> bytes:
    """Sixteen bytes, for one write: Java reads the id of whatever is there after twelve."""
    flags = int(handshake.syncs_from_last_file), int(handshake.is_learner)
    return _SLAVE.pack(State.HANDSHAKE, *flags, handshake.broker_id)


def encode_master_handshake(handshake: MasterHandshake) -> bytes:
    """The answer."""
    entries = b"".join(_ENTRY.pack(*entry) for entry in handshake.epochs.entries)
    head = _MASTER.pack(State.HANDSHAKE, len(entries), handshake.max_offset, handshake.last_epoch)
    return head + entries


def encode_report(physical_offset: int) -> bytes:
    """What a slave holds, and at first what it asks for."""
    return _REPORT.pack(State.TRANSFER, physical_offset)


def encode_transfer(frame: Transfer) -> bytes:
    """
    A transfer frame.

    :ivar frame: its body has at most MAX_BODY_SIZE bytes.
    """
    return (
        _TRANSFER.pack(
            State.TRANSFER, len(frame.body), frame.offset, *frame.epoch, frame.confirm_offset
        )
        + frame.body
    )


class SlaveReader:
    """Finds what a slave says in what arrives; holds back at most fifteen bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def receive_data(self, data: bytes) -> Iterator[SlaveHandshake | int]:
        """
        Its handshakes, and the offsets that it reports, in order.

        :raises ReplicationError: no slave of controller mode says this; one of 4.9 begins so.
        """
        data = self._rest + data
        position = 0
        while len(data) - position >= _STATE.size:
            (state,) = _STATE.unpack_from(data, position)
            if state not in (State.HANDSHAKE, State.TRANSFER):
                raise ReplicationError(
                    f"a slave begins with {state}, which is not of controller mode; all brokers "
                    "of a set have to be in it"
                )
            size = SLAVE_SIZE if state == State.HANDSHAKE else REPORT_SIZE
            if len(data) - position < size:
                break
            if state == State.HANDSHAKE:
                _, from_last, learner, broker_id = _SLAVE.unpack_from(data, position)
                yield SlaveHandshake(broker_id, from_last == 1, learner == 1)
            else:
                offset: int = _REPORT.unpack_from(data, position)[1]
                yield offset
            position += size
        self._rest = data[position:]


class MasterReader:
    """Finds a master's frames in what arrives; holds back at most one frame."""

    def __init__(self) -> None:
        self._held = bytearray()

    def receive_data(self, data: bytes) -> None:
        """Take what arrived."""
        self._held += data

    def next_frame(self) -> MasterHandshake | Transfer | None:
        """
        The next whole frame, once; None where more has to come.

        :raises ReplicationError: no master of controller mode says this.
        """
        held = self._held
        if len(held) < MASTER_SIZE:
            return None
        state, size = _HEAD.unpack_from(held)
        if state not in (State.HANDSHAKE, State.TRANSFER) or not 0 <= size <= MAX_BODY_SIZE:
            raise ReplicationError(
                f"the master begins with {state} and {size}, which is not of controller mode; "
                "all brokers of a set have to be in it"
            )
        head = MASTER_SIZE if state == State.HANDSHAKE else TRANSFER_SIZE
        if len(held) < head + size:
            return None
        frame = _handshake(held, size) if state == State.HANDSHAKE else _transfer(held, size)
        del held[: head + size]
        return frame


def _handshake(data: bytearray, size: int) -> MasterHandshake:
    _, _, end, last = _MASTER.unpack_from(data)
    if size % ENTRY_SIZE:
        raise ReplicationError(f"the master announces {size} bytes of epochs")
    found = _ENTRY.iter_unpack(memoryview(data)[MASTER_SIZE : MASTER_SIZE + size])
    try:
        epochs = Epochs(Epoch(*entry) for entry in found)
    except ProtocolViolation as error:
        raise ReplicationError(f"the master's handshake: {error}") from None
    return MasterHandshake(end, last, epochs)


def _transfer(data: bytearray, size: int) -> Transfer:
    _, _, offset, epoch, start, confirm = _TRANSFER.unpack_from(data)
    if offset < NOWHERE or (size and offset < 0):
        raise ReplicationError(f"the master announces {size} bytes at {offset}")
    body = bytes(memoryview(data)[TRANSFER_SIZE : TRANSFER_SIZE + size])
    return Transfer(offset, Epoch(epoch, start), confirm, body)
