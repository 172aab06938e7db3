"""TimerRecalls: takes timer messages back before they are due.

A recall is a record behind its message in the log. It is put only for a message that waits, and
that message is not delivered meanwhile. So a recall that was answered with success is final.

Spec: timer.md, sections 6 and 13.5.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, DeferredList

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import BrokerMessage, PutMessageResult
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.wire.recall_handle import RecallHandle
from rmq_ha.server.store.timer.sources import TimerSource, parse_source
from rmq_ha.server.store.timer.timers import TimerMessage, TimerMessageService, TimerState

MakeRecord = Callable[[TimerMessage], BrokerMessage]
"""Returns the recall record for a waiting message."""
_MOST_UNSURE = 10_000
_REFUSED = PutMessageResult(PutMessageStatus.UNKNOWN_ERROR)


class RecallOutcome(Enum):
    """The end of a recall."""

    RECALLED = auto()
    NOT_WAITING = auto()
    """Consumers have the message, or will have it; or this broker never had it."""
    NOT_STORED = auto()
    """A recall record could not be stored, or nobody confirmed in time that it is safe."""
    NOT_NOW = auto()
    """The message may wait. This broker is not the master any more, or its queues lack a part."""


class RecallEnd(NamedTuple):
    """
    How a recall ended.

    :ivar put: the result of the put of the first recall record; None if none was put.
    """

    outcome: RecallOutcome
    put: PutMessageResult | None = None


class TimerRecalls:
    """
    Recalls waiting messages.

    :param front: stores messages: the store, wrapped by the plugins.
    """

    def __init__(self, timers: TimerMessageService, front: Any) -> None:
        self._timers = timers
        self._front = front
        self._under_way: dict[TimerSource, list[Deferred[RecallOutcome]]] = {}
        self._unsure: set[TimerSource] = set()

    async def by_handle(self, handle: RecallHandle, make: MakeRecord) -> RecallEnd:
        """
        Recall the message that a handle names. If it is not found there, recall all messages with
        the handle's topic, unique key and time.

        A message that was stored a moment ago is looked for when the queues have it.

        :param make: makes the recall record for a message.
        :raises StoreError: the disk refuses to be read.
        """
        source = parse_source(handle.source)
        if source is not None:
            if not await self._timers.until_dispatched(source):
                return RecallEnd(RecallOutcome.NOT_NOW)
            message = await self._timers.find_source(source)
            # A later copy may have replaced a settled message. Its key finds the copy.
            if (
                message is not None
                and message.state is not TimerState.SETTLED
                and (message.topic, message.unique_key) == (handle.topic, handle.unique_key)
            ):
                return await self.take_back([message], make)
        if not (handle.time.isascii() and handle.time.isdigit() and len(handle.time) < 19):
            return RecallEnd(RecallOutcome.NOT_WAITING)
        return await self.by_key(handle.topic, handle.unique_key, int(handle.time), make)

    async def by_key(
        self, topic: str, unique_key: str, deliver_ms: int, make: MakeRecord
    ) -> RecallEnd:
        """
        Recall all messages of a topic with a unique key and a time.

        :param deliver_ms: TIMER_OUT_MS + 1 of the messages.
        :raises StoreError: the disk refuses.
        """
        is_level = await self._timers.until_dispatched()
        messages = await self._timers.find_key(topic, unique_key, deliver_ms)
        end = await self.take_back(messages, make)
        if end.outcome is RecallOutcome.NOT_WAITING and not is_level:
            return RecallEnd(RecallOutcome.NOT_NOW)  # the message may come to the queues yet
        return end

    async def take_back(self, messages: Sequence[TimerMessage], make: MakeRecord) -> RecallEnd:
        """
        Recall those of some messages that still wait. If none waits, return how the recall of them
        by another request ends, or why nothing can be recalled.

        :raises StoreError: the disk refuses to be read.
        """
        begun: list[TimerMessage] = []
        try:
            for item in messages:
                if self._timers.begin_recall(item.source):
                    begun.append(item)
        except StoreError:
            for item in begun:
                self._timers.undo_recall(item.source)
            raise
        if begun:
            return await self._put(begun, make)
        for item in messages:
            if item.source in self._under_way:
                ended: Deferred[RecallOutcome] = Deferred()
                self._under_way[item.source].append(ended)
                return RecallEnd(await ended)
        states = {item.state for item in messages}
        if TimerState.RECALLED in states:
            return RecallEnd(RecallOutcome.RECALLED)
        if TimerState.RECALLING in states:  # the record is stored, and no queue has it yet
            is_unsure = any(item.source in self._unsure for item in messages)
            return RecallEnd(RecallOutcome.NOT_STORED if is_unsure else RecallOutcome.RECALLED)
        if TimerState.WAITING in states:
            return RecallEnd(RecallOutcome.NOT_NOW)
        return RecallEnd(RecallOutcome.NOT_WAITING)

    async def _put(self, begun: Sequence[TimerMessage], make: MakeRecord) -> RecallEnd:
        """
        Put a recall record for each message in this turn. A message whose record is refused waits
        on as before.
        """
        waiters: list[Deferred[RecallOutcome]] = []
        for item in begun:
            self._under_way[item.source] = waiters
        puts = [self._front.put_message(make(item)) for item in begun]
        results: list[PutMessageResult] = []
        for item, (is_good, result) in zip(begun, await DeferredList(puts), strict=True):
            results.append(result if is_good else _REFUSED)
            if results[-1].append is None:
                self._timers.undo_recall(item.source)
            elif not results[-1].status.is_stored:
                self._unsure_about(item.source)
            del self._under_way[item.source]
        is_stored = all(result.status.is_stored for result in results)
        outcome = RecallOutcome.RECALLED if is_stored else RecallOutcome.NOT_STORED
        for waiter in waiters:
            waiter.callback(outcome)
        return RecallEnd(outcome, results[0])

    def _unsure_about(self, source: TimerSource) -> None:
        """Note a recall whose record is in the log, and was not flushed and replicated in time."""
        if len(self._unsure) >= _MOST_UNSURE:
            self._unsure.clear()
        self._unsure.add(source)
