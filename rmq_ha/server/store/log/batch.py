"""Lays out the records of a batch before their place in the log is known.

The costly work is done member by member, over as many turns as it takes. The turn of the append
only fills in queue offsets, physical offsets and times.

Spec: store.md, sections 2.1 to 2.8.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, error
from zlib import crc32

from rmq_ha.base.model.flags import TRANSACTION_MASK
from rmq_ha.base.model.message import AppendResult, MessageBatch
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.store_format.commitlog import (
    CRC_MASK,
    HEADS,
    MESSAGE_MAGIC,
)
from rmq_ha.base.store_format.delay_levels import delay_level_in
from rmq_ha.base.wire.batch import MEMBER_OVERHEAD

_SHORT = Struct(">H")
_NUMBER_AND_PLACE = Struct(">qq")
_NUMBER_AT = 20
_STAMP = Struct(">q")
_STAMP_AT = 52
"""Position of the store timestamp in a record, without the bytes of the born host's address."""
_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
MEMBERS_A_TURN = 500
"""How many members are read and laid out in one turn of the reactor."""


class BatchLayout:
    """
    The records of a batch, which are stored side by side, all or none.

    :param batch: the values that all members share; its own members are not read.
    :param sys_flag: sysFlag of each record.
    :param topic: the topic as stored, after its length; empty if it must not be stored.
    :param id_prefix: the first part of each message id, which names the store host.
    :param largest: most bytes of a record.
    :param max_message_size: most bytes of all members' bodies.
    :ivar fault: why the batch must not be stored; None if no reason is known.
    :ivar sizes: bytes of each record.
    :ivar size: bytes of all records.
    """

    def __init__(
        self,
        batch: MessageBatch,
        sys_flag: int,
        topic: bytes,
        id_prefix: str,
        largest: int,
        max_message_size: int,
    ) -> None:
        self.batch = batch
        self.fault: PutMessageStatus | None = None
        if not topic or batch.sys_flag & TRANSACTION_MASK:
            self.fault = _ILLEGAL
        self._sys_flag = sys_flag
        self._topic = topic
        self._id_prefix = id_prefix
        self._largest = largest
        self._max_message_size = max_message_size
        self._asked = 0
        self._head = HEADS[sys_flag >> 4 & 3]
        self._records = bytearray()
        self.sizes: list[int] = []

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return len(self._records)

    def add(self, members: Iterable[tuple[int, bytes, str]]) -> None:
        """Lay out more members, and set `fault` at the first that must not be stored."""
        if self.fault is not None:
            return
        batch, pack, topic, sizes = self.batch, self._head.pack, self._topic, self.sizes
        queue_id, sys_flag, born = batch.queue_id, self._sys_flag, batch.born_timestamp
        born_ip, born_port = batch.born_host
        store_ip, store_port = batch.store_host
        reconsumed, largest, asked = batch.reconsume_times, self._largest, self._asked
        fixed = self._head.size + len(topic) + _SHORT.size
        parts: list[bytes] = []
        for flag, body, text in members:
            stored = text.encode("utf-8", "replace")
            length = len(body)
            size = fixed + length + len(stored)
            asked += MEMBER_OVERHEAD + length
            if len(stored) > MAX_PROPERTIES_SIZE:
                is_long = len(text) > MAX_PROPERTIES_SIZE
                self.fault = _ILLEGAL if is_long else PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
            elif size > largest or asked > self._max_message_size or delay_level_in(text) != 0:
                self.fault = _ILLEGAL
            if self.fault is not None:
                return
            try:
                head = pack(
                    size, MESSAGE_MAGIC, crc32(body) & CRC_MASK, queue_id, flag, 0, 0, sys_flag,
                    born, born_ip, born_port, 0, store_ip, store_port, reconsumed, 0, length,
                )  # fmt: skip
            except error:  # a value that does not fit its field
                self.fault = _ILLEGAL
                return
            parts += (head, body, topic, _SHORT.pack(len(stored)), stored)
            sizes.append(size)
        self._asked = asked
        self._records += b"".join(parts)

    def add_in_slices(self, members: Sequence[tuple[int, bytes, str]]) -> Iterator[None]:
        """Do what `add` does, a slice in each step."""
        for start in range(0, len(members), MEMBERS_A_TURN):
            self.add(members[start : start + MEMBERS_A_TURN])
            yield

    def place(self, positions: Sequence[int], number: int, stamp: int) -> AppendResult:
        """
        Write the records' offsets and stamps into them, and return the append's result.

        :param positions: physical offset of each record.
        :param number: queue offset of the first record.
        :param stamp: store time of all records, ms.
        """
        records, put_stamp, put_number = (
            self._records,
            _STAMP.pack_into,
            _NUMBER_AND_PLACE.pack_into,
        )
        at, following = _NUMBER_AT, number
        to_stamp = _STAMP_AT + len(self.batch.born_host.ip) - _NUMBER_AT
        for position, size in zip(positions, self.sizes, strict=True):
            put_number(records, at, following, position)
            put_stamp(records, at + to_stamp, stamp)
            following += 1
            at += size
        prefix = self._id_prefix
        ids = ",".join([f"{prefix}{position:016X}" for position in positions])
        return AppendResult(positions[0], self.size, stamp, number, len(positions), ids)

    def data(self) -> bytes:
        """Return the bytes of all records, side by side."""
        return bytes(self._records)

    def records(self) -> list[bytes]:
        """Return the bytes of each record, for a log that writes headers between them."""
        data, at = self.data(), 0
        records: list[bytes] = []
        for size in self.sizes:
            records.append(data[at : at + size])
            at += size
        return records
