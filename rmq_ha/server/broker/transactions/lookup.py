"""Finds the half message to which a producer's END applies now: the one it names, its newest copy,
or none.

Facts that memory does not have are in the log. The op queue says which half messages are settled. A
copy comes after its original in the half queue, and has all that identifies the original.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.model.properties import PGROUP, UNIQ_KEY
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.server.broker.transactions.context import HalfStore
from rmq_ha.server.broker.transactions.fates import Fates, HalfMessageFate, HalfPlace
from rmq_ha.server.broker.transactions.messages import GROUP, read_mark

_READ = 32
_READS_A_TURN = 16
_DISPATCH_TURNS = 200


class HalfMessages:
    """
    Finds the half message to which an END applies.

    :param record_at: returns the bytes of the record at a physical offset; None if there is none.
    :param pause: fires in a later turn.
    :param is_dispatched: brings the queues up to the end of the log; returns whether they are.
    """

    def __init__(
        self,
        fates: Fates,
        store: HalfStore,
        record_at: Callable[[int], bytes | None],
        pause: Callable[[], "Deferred[None]"],
        is_dispatched: Callable[[], bool],
    ) -> None:
        self._fates = fates
        self._store = store
        self._record_at = record_at
        self._pause = pause
        self._is_dispatched = is_dispatched

    async def claim(self, half: Record) -> Record | None:
        """
        Return the half message that represents this one now: itself or its newest copy. It is
        claimed until `release`, so that nobody else settles it. None: the transaction has ended.

        :raises StoreError: the disk refuses to read its fate.
        """
        current: Record | None = half
        while current is not None:
            while (busy := self._fates.claim(current)) is not None:
                await busy
            try:
                successor = await self._successor(current)
            except BaseException:
                self._fates.release(current)
                raise
            if successor is current:
                return current
            self._fates.release(current)
            current = successor
        return None

    def release(self, half: Record, fate: HalfMessageFate, copy: HalfPlace | None = None) -> None:
        """
        End the claim of a half message and note its fate; if it is still open, it may be settled
        later.
        """
        if fate is not HalfMessageFate.OPEN:
            self._fates.note(half.queue_id, half.queue_offset, fate)
        if copy is not None:
            self._fates.note_copy(half, copy)
        self._fates.release(half)

    def half_at(self, queue_id: int, queue_offset: int) -> Record | None:
        """Return the half message at a queue offset; None if it cannot be read now."""
        result = self._store.get_message(GROUP, HALF_TOPIC, queue_id, queue_offset, 1, None)
        if result is None or result.status is not GetMessageStatus.FOUND:
            return None
        return self._decode(result.messages[0])

    async def _successor(self, half: Record) -> Record | None:
        """
        Return the half message that represents this one: itself if it is open or was given up, its
        copy if it was moved, None if its transaction has ended.
        """
        if not self._fates.knows(half):
            fate = await self._read_fate(half)
        else:
            fate = self._fates.fate_of(half.queue_id, half.queue_offset)
        if fate is HalfMessageFate.OPEN:
            return half
        if fate is HalfMessageFate.ENDED:
            return None
        place = self._fates.copy_of(half)
        if place is not None:
            copy = self._decode(self._record_at(place.physical_offset))
            if copy is not None and is_copy(copy, half):
                return copy
        return await self._newest_copy(half) or half

    # ------------------------------------------------------------ reading the log

    async def _read_fate(self, half: Record) -> HalfMessageFate:
        """
        Return a half message's fate, read from the op messages that came after it. Note this fate,
        and those of later half messages.

        :raises StoreError: the op queue cannot be read now.
        """
        queue_id, half_offset = half.queue_id, half.queue_offset
        outcome = HalfMessageFate.OPEN

        def look(op: Record) -> None:
            nonlocal outcome
            mark = read_mark(op)
            if mark.half_offset >= half_offset:
                fate = HalfMessageFate.MOVED if mark.is_moved else HalfMessageFate.ENDED
                self._fates.note(queue_id, mark.half_offset, fate)
                if mark.half_offset == half_offset:
                    outcome = max(outcome, fate)

        life = self._fates.lives
        await self._dispatched()
        first = self._first_behind(OP_HALF_TOPIC, queue_id, half.physical_offset)
        await self._walk(OP_HALF_TOPIC, queue_id, first, look)
        self._fates.knows_from(half, life)
        return outcome

    async def _newest_copy(self, half: Record) -> Record | None:
        """Return the last copy of a half message in the half queue; None if there is none."""
        newest = None

        def look(record: Record) -> None:
            nonlocal newest
            if is_copy(record, half):
                newest = record

        await self._dispatched()
        await self._walk(HALF_TOPIC, half.queue_id, half.queue_offset + 1, look)
        return newest

    async def _dispatched(self) -> None:
        for _ in range(_DISPATCH_TURNS):
            if self._is_dispatched():
                return
            await self._pause()
        raise StoreError("the queues are behind the log")

    def _first_behind(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """
        Return the queue offset of the first message whose record is at or after a physical offset;
        if some records cannot be read, perhaps of an earlier message.
        """
        low = self._store.min_offset_in_queue(topic, queue_id)
        high = self._store.max_offset_in_queue(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            records, _ = self._read(topic, queue_id, middle, 1)
            if records and records[0].physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    async def _walk(
        self, topic: str, queue_id: int, offset: int, look: Callable[[Record], None]
    ) -> None:
        """Call `look` with all readable records from a queue offset on, to the very end."""
        reads = 0
        while True:
            records, next_offset = self._read(topic, queue_id, offset, _READ)
            for record in records:
                look(record)
            if next_offset <= offset:
                return
            offset = next_offset
            reads += 1
            if reads % _READS_A_TURN == 0:
                await self._pause()

    def _read(self, topic: str, queue_id: int, offset: int, count: int) -> tuple[list[Record], int]:
        result = self._store.get_message(GROUP, topic, queue_id, offset, count, None)
        if result is None:
            raise StoreError(f"{topic} cannot be read now")
        messages = result.messages if result.status is GetMessageStatus.FOUND else []
        records = [record for data in messages if (record := self._decode(data)) is not None]
        return records, result.next_begin_offset

    def _decode(self, data: bytes | None) -> Record | None:
        try:
            return decode_record(data) if data else None
        except CorruptRecord:
            return None


def is_copy(record: Record, half: Record) -> bool:
    """Return whether a later half message is a copy of this one: all that a copy keeps is equal."""
    return (
        record.topic == HALF_TOPIC
        and record.born_timestamp == half.born_timestamp
        and record.born_host == half.born_host
        and record.body_crc == half.body_crc
        and _identity(record) == _identity(half)
    )


def _identity(record: Record) -> tuple[str | None, str | None]:
    properties = record.properties
    return properties.get(UNIQ_KEY), properties.get(PGROUP)
