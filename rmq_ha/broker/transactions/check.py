"""One round over a half queue: every open transaction is looked at once.

A half message that stays open moves to the end of the queue as a copy, so that the head of the
queue can go on. Behind the copy goes an op message for the original: a broker that did not get to
write its progress, or a slave with an older one, finds what was dealt with in the log itself.

Spec: store.md, section 11.3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.broker.transactions.ledger import Ledger
from rmq_ha.broker.transactions.messages import GROUP, discarded, op_mark, put_back, read_mark
from rmq_ha.broker.transactions.verdict import (
    CheckLimits,
    Verdict,
    judge,
    next_check_times,
    number_of,
)
from rmq_ha.errors import CorruptRecord
from rmq_ha.interfaces import IMessageFilter
from rmq_ha.model.message import Address, AppendResult, GetMessageResult, Message, PutMessageResult
from rmq_ha.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
)
from rmq_ha.model.status import GetMessageStatus, PutMessageStatus
from rmq_ha.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.store.format.commitlog import Record, decode_record

MAX_ROUND_MS = 60_000
_SLICE = 128
_READ = 32
_OP_READS_A_TURN = 16
_DISPATCH_TURNS = 200
_AT_THE_END = (GetMessageStatus.NO_MESSAGE_IN_QUEUE, GetMessageStatus.OFFSET_OVERFLOW_ONE)
_UNFIT = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class HalfStore(Protocol):
    """What a round reads."""

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult | None:
        """Messages from a queue offset on; None while the store cannot be read."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first queue offset that can be read."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next message gets."""


class Asker(Protocol):
    """Asks producers."""

    def is_overloaded(self, group: str) -> bool:
        """There are producers, and none of them reads what it is sent."""

    def ask(self, group: str, copy: Message, append: AppendResult, stored_ms: int) -> None:
        """Ask one producer of the group about a half message; harmless without any."""


@dataclass(frozen=True)
class CheckParts:
    """
    What a round works with.

    :ivar put: stores a message; its Deferred fires with a `PutMessageResult`.
    :ivar pause: fires in a later turn.
    :ivar is_dispatched: brings the queues up to the end of the log; whether they are.
    :ivar is_wanted: false: end the round soon.
    :ivar host: this broker's address for clients.
    :ivar make_discard_topic: makes sure that there is one.
    """

    store: HalfStore
    put: Callable[[Message], "Deferred[PutMessageResult]"]
    asker: Asker
    offsets: ConsumerOffsetManager
    now_ms: Callable[[], int]
    pause: Callable[[], "Deferred[None]"]
    is_dispatched: Callable[[], bool]
    is_wanted: Callable[[], bool]
    host: Address
    make_discard_topic: Callable[[], object]


class _Outcome(Enum):
    """How a slice, or a pass, ended."""

    MORE = 1
    WINDOW_IS_FULL = 2
    OVER = 3


async def check_queue(parts: CheckParts, queue_id: int, limits: CheckLimits) -> None:
    """
    Look at the open half messages of a queue, for 60 s at most.

    :raises StoreError: the disk refuses; the next round begins where this one did.
    """
    began_ms = parts.now_ms()
    while await _Pass(parts, queue_id, limits, began_ms).run():
        pass


class _Pass:
    """One pass over as many half messages as a ledger holds."""

    log = Logger()

    def __init__(
        self, parts: CheckParts, queue_id: int, limits: CheckLimits, began_ms: int
    ) -> None:
        self._parts = parts
        self._queue_id = queue_id
        self._limits = limits
        self._began_ms = began_ms
        self._head, self._op_next = self._starts()
        self._ledger = Ledger(self._head, self._op_next, self._may_have_resting_copy)
        self._head_stored_ms = 0
        self._ahead: list[Record] = []
        self._missed = False
        self._moved: list[Record] = []

    # ------------------------------------------------------------ where to begin, where to go on

    def _starts(self) -> tuple[int, int]:
        """Committed offsets, moved into their queues."""
        half, half_low, half_high = self._committed(HALF_TOPIC)
        op, op_low, op_high = self._committed(OP_HALF_TOPIC)
        if half > half_high or op > op_high:
            self.log.warn(
                "the log has lost what the progress of the transaction checks is about "
                "(half {half} of {half_high}, op {op} of {op_high}): every half message in it "
                "is looked at again",
                half=half,
                half_high=half_high,
                op=op,
                op_high=op_high,
            )
            return half_low, op_low
        return max(half, half_low), max(op, op_low)

    def _committed(self, topic: str) -> tuple[int, int, int]:
        store, queue_id = self._parts.store, self._queue_id
        return (
            self._parts.offsets.query(GROUP, topic, queue_id),
            store.min_offset_in_queue(topic, queue_id),
            store.max_offset_in_queue(topic, queue_id),
        )

    def _commit(self) -> None:
        stored_ms = self._head_stored_ms
        for topic, offset in (
            (HALF_TOPIC, self._head),
            (OP_HALF_TOPIC, self._ledger.op_progress(self._head, stored_ms)),
        ):
            known = self._parts.offsets.query(GROUP, topic, self._queue_id)
            if offset != max(known, 0):
                self._parts.offsets.commit(GROUP, topic, self._queue_id, offset)

    # ------------------------------------------------------------ walking

    async def run(self) -> bool:
        """Walk and commit; whether another pass may find more at once."""
        parts, outcome = self._parts, _Outcome.MORE
        while outcome is _Outcome.MORE and self._has_time():
            try:
                outcome = await self._slice()
            finally:
                await self._mark_moved()
            await parts.pause()
        self._commit()
        return outcome is _Outcome.WINDOW_IS_FULL and self._has_time()

    def _has_time(self) -> bool:
        if not self._parts.is_wanted():
            return False
        if self._parts.now_ms() - self._began_ms <= MAX_ROUND_MS:
            return True
        self.log.info(
            "the transaction check of queue {queue_id} goes on in the next round",
            queue_id=self._queue_id,
        )
        return False

    async def _slice(self) -> _Outcome:
        """Look at some half messages; what the op messages say is known to their very end."""
        if not await self._read_marks():
            return _Outcome.OVER
        for _ in range(_SLICE):
            self._head = self._ledger.next_open(self._head)
            if self._head >= self._ledger.end:
                return _Outcome.WINDOW_IS_FULL
            half = self._half_at_head()
            if half is None:
                return _Outcome.OVER
            self._head = half.queue_offset
            if self._ledger.is_settled(self._head):
                continue
            outcome = await self._treat(half)
            if outcome is not None:
                return outcome
        return _Outcome.MORE

    def _half_at_head(self) -> Record | None:
        """The half message at the head, or the next one; None at the end of the queue."""
        while True:
            while self._ahead:
                half = self._ahead.pop()
                if half.queue_offset >= self._head:
                    return half
            result = self._get(HALF_TOPIC, self._head)
            if result is None:
                return None
            if result.status is GetMessageStatus.FOUND:
                self._ahead = self._records(result)[::-1]
                if self._ahead:
                    continue
            elif result.status in _AT_THE_END:
                self._head_stored_ms = self._parts.now_ms()
                return None
            elif self._missed:
                return None
            else:
                self._missed = True
            if result.next_begin_offset <= self._head:
                return None
            self._head = result.next_begin_offset

    def _get(self, topic: str, offset: int) -> GetMessageResult | None:
        return self._parts.store.get_message(GROUP, topic, self._queue_id, offset, _READ, None)

    def _records(self, result: GetMessageResult) -> list[Record]:
        records = []
        for data in result.messages:
            try:
                records.append(decode_record(data))
            except CorruptRecord as error:
                self.log.error("a transaction check leaves out a record: {error}", error=error)
        return records

    def _may_have_resting_copy(self, half_offset: int) -> bool:
        result = self._parts.store.get_message(
            GROUP, HALF_TOPIC, self._queue_id, half_offset, 1, None
        )
        if result is None or result.status is not GetMessageStatus.FOUND:
            return False
        return any(
            record.queue_offset == half_offset
            and CHECK_IMMUNITY_TIME_IN_SECONDS in record.properties
            for record in self._records(result)
        )

    # ------------------------------------------------------------ op messages

    async def _read_marks(self) -> bool:
        """Read the op queue to its end; false when that cannot be done now."""
        reads = waits = 0
        while True:
            if not self._parts.is_dispatched():
                waits += 1
                if waits > _DISPATCH_TURNS or not self._has_time():
                    return False
                await self._parts.pause()
            elif not self._read_some_marks():
                return True
            else:
                reads += 1
                if reads % _OP_READS_A_TURN == 0:
                    if not self._has_time():
                        return False
                    await self._parts.pause()

    def _read_some_marks(self) -> bool:
        result = self._get(OP_HALF_TOPIC, self._op_next)
        if result is None or result.next_begin_offset <= self._op_next:
            return False
        for record in self._records(result):
            self._ledger.add(read_mark(record))
        self._op_next = result.next_begin_offset
        return True

    # ------------------------------------------------------------ open half messages

    async def _treat(self, half: Record) -> _Outcome | None:
        """What its verdict asks for; None: go on with the next one."""
        properties = half.properties
        origin = number_of(properties.get(TRAN_PREPARED_QUEUE_OFFSET))
        if origin >= 0 and self._ledger.take_ended(origin):
            self._head += 1
            return None
        now_ms, began_ms = self._parts.now_ms(), self._began_ms
        verdict = judge(
            properties, half.born_timestamp, half.store_timestamp, began_ms, now_ms, self._limits
        )
        if verdict is Verdict.LATER:
            self._head_stored_ms = half.store_timestamp
            return _Outcome.OVER
        if verdict is Verdict.DISCARD:
            return await self._discard(half, "it was checked too often or is too old")
        group = properties.get(PGROUP, "")
        if verdict is Verdict.IMMUNE:
            first = origin if origin >= 0 else half.queue_offset
            return await self._move(half, {TRAN_PREPARED_QUEUE_OFFSET: str(first)})
        if self._parts.asker.is_overloaded(group):
            return await self._move(half, {})  # nobody is asked, and it does not count
        times = {TRANSACTION_CHECK_TIMES: str(next_check_times(properties))}
        return await self._move(half, times, group)

    async def _move(
        self, half: Record, changes: dict[str, str], asked: str | None = None
    ) -> _Outcome | None:
        """Put a copy at the end of the queue, and ask about it if it is to be asked about."""
        copy = put_back(half, changes)
        later = self._parts.put(copy)
        is_now = bool(later.called)
        status, append = await later
        if status in _UNFIT:
            return await self._discard(half, f"it cannot be put back: {status.name}")
        if append is None or not status.is_stored:
            return self._refused(half, status)
        self._head += 1
        self._moved.append(half)
        if asked is not None:
            self._parts.asker.ask(asked, copy, append, half.store_timestamp)
        return None if is_now else _Outcome.MORE

    async def _discard(self, half: Record, why: str) -> _Outcome | None:
        self._parts.make_discard_topic()
        later = self._parts.put(discarded(half))
        is_now = bool(later.called)
        status = (await later).status
        if not status.is_stored and status not in _UNFIT:
            return self._refused(half, status)
        self.log.error(
            "the transaction of half message {half_offset} ({msg_id}) stays open: {why}; {fate}",
            half_offset=half.queue_offset,
            msg_id=half.msg_id,
            why=why,
            fate="it is in TRANS_CHECK_MAX_TIME_TOPIC now" if status.is_stored else status.name,
        )
        self._head += 1
        self._moved.append(half)
        return None if is_now else _Outcome.MORE

    def _refused(self, half: Record, status: PutMessageStatus) -> _Outcome:
        self._head_stored_ms = half.store_timestamp
        self.log.error(
            "the transaction check stops at half message {half_offset} until the next round: "
            "the store refuses its copy: {status}",
            half_offset=half.queue_offset,
            status=status.name,
        )
        return _Outcome.OVER

    async def _mark_moved(self) -> None:
        """The originals are settled; the last mark waits for flush and replica, for all of them."""
        moved, self._moved = self._moved, []
        now_ms, host = self._parts.now_ms(), self._parts.host
        results: list[Any] = []
        for half in moved:
            mark = op_mark(half, host, now_ms, is_moved=True, wait=half is moved[-1])
            later = self._parts.put(mark)
            results.append(await later)
        failed = [result.status.name for result in results if not result.status.is_stored]
        if failed:
            self.log.warn(
                "{count} op messages of moved half messages are not stored ({status}): after a "
                "crash they would be checked again",
                count=len(failed),
                status=failed[0],
            )
