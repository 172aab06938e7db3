"""Runs one round over a half queue, which looks at every open transaction once.

A half message that stays open moves to the end of the queue as a copy, so that the head of the
queue can advance. The copy is followed by an op message for the original. So a broker that could
not write its progress, or a slave with an older one, finds in the log itself which half messages
are settled.

Spec: store.md, section 11.3.
"""

from enum import Enum
from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import BrokerMessage, GetMessageResult, PutMessageResult
from rmq_ha.base.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
)
from rmq_ha.base.model.status import GetMessageStatus, PutMessageStatus
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.server.broker.transactions.context import CheckContext
from rmq_ha.server.broker.transactions.fates import HalfMessageFate, HalfPlace
from rmq_ha.server.broker.transactions.messages import (
    GROUP,
    discarded,
    op_mark,
    put_back,
    read_mark,
)
from rmq_ha.server.broker.transactions.op_marks import OpMarks
from rmq_ha.server.broker.transactions.verdict import (
    CheckLimits,
    Verdict,
    judge,
    next_check_times,
    number_of,
)

MAX_ROUND_MS = 60_000
_SLICE = 128
_SLICE_BYTES = 1 << 20
_LOOKS_A_SLICE = 2048
_READ = 32
_OP_READS_A_TURN = 16
_DISPATCH_TURNS = 200
_AT_THE_END = (GetMessageStatus.NO_MESSAGE_IN_QUEUE, GetMessageStatus.OFFSET_OVERFLOW_ONE)


class _CheckStep(NamedTuple):
    """
    The decision about one half message.

    :ivar half: the half message.
    :ivar message: the message that is stored in its place; None if none is: it is too large to be
        stored again, or its transaction has ended.
    :ivar asked: producer group that is asked about the message; None for none.
    :ivar is_ended: whether its producer ended it, but the op message that says so was not stored.
    """

    half: Record
    message: BrokerMessage | None
    asked: str | None = None
    is_ended: bool = False


class _PassOutcome(Enum):
    """The end of a slice or of a pass."""

    MORE = 1
    WINDOW_IS_FULL = 2
    OVER = 3


async def check_queue(context: CheckContext, queue_id: int, limits: CheckLimits) -> None:
    """
    Run one round over a half queue: look at its open half messages, for 60 s at most.

    :raises StoreError: the disk refuses; the next round begins where this round began.
    """
    # A half message in the log now is from before this round, whatever its stamp says. The log's
    # stamps never decrease. So after a clock was set back, no half message would be looked at until
    # the clock caught up with them.
    began_ms = max(context.times.now_ms(), context.halves.newest_ms() + 1)
    until_ms = context.times.steady_ms() + MAX_ROUND_MS
    while await _Pass(context, queue_id, limits, began_ms, until_ms).run():
        pass


def starts_of(context: CheckContext, queue_id: int) -> tuple[int, int]:
    """
    Return where to begin in a half queue and its op queue: their progress, moved into their bounds.

    Progress beyond the ends belongs to a log that was longer, and is set back for good. Otherwise
    new half messages would be before it, and no producer would ever be asked about them.
    """
    half, half_low, half_high = _offset_and_bounds(context, HALF_TOPIC, queue_id)
    op, op_low, op_high = _offset_and_bounds(context, OP_HALF_TOPIC, queue_id)
    if half <= half_high and op <= op_high:
        return max(half, half_low), max(op, op_low)
    _Pass.log.warn(
        "the log has lost what the progress of the transaction checks is about "
        "(half {half} of {half_high}, op {op} of {op_high}): every half message in it "
        "is looked at again",
        half=half,
        half_high=half_high,
        op=op,
        op_high=op_high,
    )
    context.progress.set_back(queue_id, {HALF_TOPIC: half_low, OP_HALF_TOPIC: op_low})
    return half_low, op_low


def _offset_and_bounds(context: CheckContext, topic: str, queue_id: int) -> tuple[int, int, int]:
    store = context.halves.store
    return (
        context.progress.query(topic, queue_id),
        store.min_offset_in_queue(topic, queue_id),
        store.max_offset_in_queue(topic, queue_id),
    )


class _Pass:
    """One pass over as many half messages as `OpMarks` can hold."""

    log = Logger()

    def __init__(
        self,
        context: CheckContext,
        queue_id: int,
        limits: CheckLimits,
        began_ms: int,
        until_ms: int,
    ) -> None:
        self._context = context
        self._queue_id = queue_id
        self._limits = limits
        self._began_ms = began_ms
        self._until_ms = until_ms
        self._head, self._op_next = starts_of(context, queue_id)
        self._marks = OpMarks(self._head, self._op_next, self._may_have_resting_copy)
        self._head_stored_ms = 0
        self._ahead: list[Record] = []
        self._is_refused = False

    # ------------------------------------------------------------ where to go on

    def _commit(self) -> None:
        progress = {HALF_TOPIC: self._head}
        if not self._is_refused:  # planned steps may have used up op messages after the head
            used = self._marks.op_progress(self._head, self._head_stored_ms)
            progress[OP_HALF_TOPIC] = used
        self._context.progress.commit(self._queue_id, progress, self._context.halves.log_end())

    # ------------------------------------------------------------ walking

    async def run(self) -> bool:
        """
        Look at half messages slice by slice, and commit the progress.

        :returns: whether another pass may find more at once.
        """
        outcome = _PassOutcome.MORE
        while outcome is _PassOutcome.MORE and self._has_time():
            outcome = await self._slice()
            await self._context.pace.pause()
        self._commit()
        return outcome is _PassOutcome.WINDOW_IS_FULL and self._has_time()

    def _has_time(self) -> bool:
        if not self._context.pace.is_wanted():
            return False
        if self._context.times.steady_ms() <= self._until_ms:
            return True
        self.log.info(
            "the transaction check of queue {queue_id} goes on in the next round",
            queue_id=self._queue_id,
        )
        return False

    async def _slice(self) -> _PassOutcome:
        """Read all op messages, then decide about some half messages, and carry that out."""
        if not await self._read_marks():
            return _PassOutcome.OVER
        steps: list[_CheckStep] = []
        outcome = self._plan(steps)
        if steps and not await self._carry_out(steps):
            return _PassOutcome.OVER
        return outcome

    def _plan(self, steps: list[_CheckStep]) -> _PassOutcome:
        """
        Walk along the half queue, add a step for each open half message, and move the head behind
        it. Stop before a half message that is claimed or too young, or when the slice is full.

        :param steps: gets the steps to carry out.
        """
        size = 0
        for _ in range(_LOOKS_A_SLICE):
            if len(steps) >= _SLICE or size > _SLICE_BYTES:
                break
            self._head = self._marks.next_open(self._head)
            if self._head >= self._marks.end:
                return _PassOutcome.WINDOW_IS_FULL
            if not self._ahead:
                outcome = self._read_on()
                if outcome is not None:
                    return outcome
            half = self._ahead.pop()
            self._head = half.queue_offset
            if self._marks.is_settled(self._head):
                continue
            if self._context.fates.is_claimed(half):
                self._head_stored_ms = half.store_timestamp
                return _PassOutcome.OVER
            properties = half.properties
            origin = number_of(properties.get(TRAN_PREPARED_QUEUE_OFFSET))
            if origin < 0 or not self._marks.take_ended(origin):
                step = self._step_for(half, properties, origin)
                if step is None:
                    self._head_stored_ms = half.store_timestamp
                    return _PassOutcome.OVER
                steps.append(step)
                size += half.size
            self._head += 1
        return _PassOutcome.MORE

    def _read_on(self) -> _PassOutcome | None:
        """
        Read half messages from the head on into `_ahead`.

        :returns: None if there are some; else the end of this slice.
        """
        result = self._get(HALF_TOPIC, self._head)
        if result is None:
            return _PassOutcome.OVER
        if result.status in _AT_THE_END:
            self._head_stored_ms = self._context.times.now_ms()
            return _PassOutcome.OVER
        self._ahead = self._records(result)[::-1]
        if self._ahead:
            return None
        if result.next_begin_offset > self._head:
            self._head = result.next_begin_offset  # after messages that nobody can read
            return _PassOutcome.MORE
        return _PassOutcome.OVER

    def _get(self, topic: str, offset: int) -> GetMessageResult | None:
        return self._context.halves.store.get_message(
            GROUP, topic, self._queue_id, offset, _READ, None
        )

    def _records(self, result: GetMessageResult) -> list[Record]:
        records = []
        for data in result.messages:
            try:
                records.append(decode_record(data))
            except CorruptRecord as error:
                self.log.error("a transaction check leaves out a record: {error}", error=error)
        return records

    def _may_have_resting_copy(self, half_offset: int) -> bool:
        result = self._context.halves.store.get_message(
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
        """
        Read the op queue to its end, over several turns.

        :returns: False if that cannot be done now: the queues stay behind the log, or the round's
            time is over.
        """
        reads = waits = 0
        while True:
            if not self._context.halves.is_dispatched():
                waits += 1
                if waits > _DISPATCH_TURNS or not self._has_time():
                    return False
                await self._context.pace.pause()
            elif not self._read_some_marks():
                return True
            else:
                reads += 1
                if reads % _OP_READS_A_TURN == 0:
                    if not self._has_time():
                        return False
                    await self._context.pace.pause()

    def _read_some_marks(self) -> bool:
        result = self._get(OP_HALF_TOPIC, self._op_next)
        if result is None or result.next_begin_offset <= self._op_next:
            return False
        for record in self._records(result):
            self._marks.add(read_mark(record))
        self._op_next = result.next_begin_offset
        return True

    # ------------------------------------------------------------ open half messages

    def _step_for(self, half: Record, properties: dict[str, str], origin: int) -> _CheckStep | None:
        """
        Return the step that the verdict on a half message demands; None if the half message, and so
        all later ones, are too young.

        :param origin: queue offset of the original, if this is a copy whose producer asked for a
            time without checks; else -1.
        """
        if self._context.fates.fate_of(self._queue_id, half.queue_offset) is HalfMessageFate.ENDED:
            return _CheckStep(half, None, is_ended=True)
        now_ms, began_ms = self._context.times.now_ms(), self._began_ms
        verdict = judge(
            properties, half.born_timestamp, half.store_timestamp, began_ms, now_ms, self._limits
        )
        if verdict is Verdict.LATER:
            return None
        if verdict is Verdict.DISCARD:
            return self._discard(half)
        group = None
        changes: dict[str, str] = {}  # a check without a producer to ask does not count
        if verdict is Verdict.IMMUNE:
            first = origin if origin >= 0 else half.queue_offset
            changes = {TRAN_PREPARED_QUEUE_OFFSET: str(first)}
        elif not self._context.asker.is_overloaded(properties.get(PGROUP, "")):
            group = properties.get(PGROUP, "")
            changes = {TRANSACTION_CHECK_TIMES: str(next_check_times(properties))}
        copy = put_back(half, changes)
        if not self._context.copies.is_storable(copy):
            return self._discard(half)
        return _CheckStep(half, copy, group)

    def _discard(self, half: Record) -> _CheckStep:
        self._context.copies.make_discard_topic()
        message = discarded(half)
        fits = self._context.copies.is_storable(message)
        self.log.error(
            "nobody ends the transaction of half message {half_offset} ({msg_id}): {fate}",
            half_offset=half.queue_offset,
            msg_id=half.msg_id,
            fate="it goes to TRANS_CHECK_MAX_TIME_TOPIC" if fits else "it is dropped, too large",
        )
        return _CheckStep(half, message if fits else None)

    async def _carry_out(self, steps: list[_CheckStep]) -> bool:
        """
        Store the messages that replace half messages, then the op messages for these, and ask
        producers.

        :returns: False if not all of them were stored. If the replacement of a half message was
            refused, the head goes back to that half message.
        """
        context = self._context
        messages = [step.message for step in steps if step.message is not None]
        now_ms = context.times.now_ms()
        marks = [
            op_mark(step.half, context.copies.host, now_ms, is_moved=not step.is_ended)
            for step in steps
        ]
        for message in [*messages, *marks]:
            message.wait_store_ok = True
        for step in steps:
            context.fates.claim(step.half)
        try:
            results = await context.copies.put([*messages, *marks])
            self._note(steps, results)
        finally:
            for step in steps:
                context.fates.release(step.half)
        replaced = [(step, step.message) for step in steps if step.message is not None]
        for (step, message), result in zip(replaced, results, strict=False):
            if (stored := result.stored) is None:
                self._refused(step.half, result.status)
                return False
            if step.asked is not None:
                context.asker.ask(step.asked, message, stored, step.half.store_timestamp)
        unmarked = [result for result in results[len(messages) :] if not result.status.is_stored]
        if unmarked:
            self.log.warn(
                "{count} op messages of moved half messages are not stored ({status}): after a "
                "crash they would be checked again",
                count=len(unmarked),
                status=unmarked[0].status.name,
            )
        return not unmarked

    def _note(self, steps: list[_CheckStep], results: list[PutMessageResult]) -> None:
        """
        Note the half messages that were replaced, and their copies, so that an END for one of them
        now applies to its copy.
        """
        fates, places = self._context.fates, iter(results)
        for half, message, *_ in steps:
            if message is not None:
                stored = next(places).stored
                if stored is None:
                    return  # no message after it is stored either
                if message.topic == HALF_TOPIC:
                    fates.note_copy(half, HalfPlace(stored.queue_offset, stored.physical_offset))
            fates.note(self._queue_id, half.queue_offset, HalfMessageFate.MOVED)

    def _refused(self, half: Record, status: PutMessageStatus) -> None:
        self._head = half.queue_offset
        self._is_refused = True
        self.log.error(
            "the transaction check stops at half message {half_offset} until the next round: "
            "the store refuses what takes its place: {status}",
            half_offset=half.queue_offset,
            status=status.name,
        )
