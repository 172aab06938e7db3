"""ConsumeOrderly: shows a listener the messages of a queue in order, under a lock at the broker.

Spec: remoting.md, sections 7.3 and 11.5.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.model.properties import RECONSUME_TIME
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.consume.consume_service import (
    CALLS_PER_TURN,
    Caller,
    ConsumeParts,
    FailedMessageFate,
    ListenerCall,
    directly_result,
    fate_of,
)
from rmq_ha.client.rules.listening import MAX_INT, ConsumeOrderlyContext, ConsumeOrderlyStatus
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.process_queue import ProcessQueue

SUCCESS = ConsumeOrderlyStatus.SUCCESS
COMMIT = ConsumeOrderlyStatus.COMMIT
ROLLBACK = ConsumeOrderlyStatus.ROLLBACK
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
RENEW_SECONDS = 20.0
FIRST_RENEWAL_SECONDS = 1.0
LOCK_AGAIN_SECONDS = 0.1
_SHORTEST_REST_MS = 10
_LONGEST_REST_MS = 30_000
_RESULTS = {
    None: "CR_SUCCESS",
    SUCCESS: "CR_SUCCESS",
    COMMIT: "CR_COMMIT",
    ROLLBACK: "CR_ROLLBACK",
    SUSPEND: "CR_LATER",
}


class _QueueLane:
    """
    The state of one queue, for which at most one call of the listener runs at a time.

    :ivar busy: whether a call of the listener has the queue's messages, the queue waits for its
        turn, or it rests.
    :ivar left: a Deferred, set when the queue was given up during a call; it fires when that call
        has ended.
    """

    __slots__ = ("busy", "left", "process_queue", "queue", "timer")

    def __init__(self, process_queue: ProcessQueue, queue: MessageQueue) -> None:
        self.process_queue = process_queue
        self.queue = queue
        self.busy = False
        self.timer: IDelayedCall | None = None
        self.left: Deferred[None] | None = None


class ConsumeOrderly:
    """Shows a listener the pulled messages: those of one queue in order, of several in parallel."""

    log = Logger()
    is_orderly = True

    def __init__(self, parts: ConsumeParts, calls: QueueCalls) -> None:
        self._parts = parts
        self._config = parts.config
        self._calls = calls
        self._clock = parts.instance.host.clock
        self._steady_ms = parts.instance.host.steady_ms
        self._caller = Caller(parts, SUCCESS, SUSPEND, self._fate)
        self._lanes: dict[ProcessQueue, _QueueLane] = {}
        self._ready: deque[_QueueLane] = deque()
        self._queues: Mapping[MessageQueue, ProcessQueue] = {}
        self._turn: IDelayedCall | None = None
        self._working = False
        self._stopped = False
        self._renewing = Periodic(
            self._clock,
            "renewing queue locks",
            lambda: Deferred.fromCoroutine(self.renew_locks()),
            RENEW_SECONDS,
            FIRST_RENEWAL_SECONDS,
        )

    def start(self) -> None:
        """Begin to renew the locks of the queues; a group that broadcasts has none."""
        if self._config.is_clustering:
            self._renewing.start()

    def stop(self, within_ms: int) -> "Deferred[None]":
        """
        Begin no more calls. The Deferred fires when the running calls have ended.

        :param within_ms: after this time, in ms, the running calls are cancelled.
        """
        self._stopped = True
        self._ready.clear()
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
                lane.timer = None
        if self._turn is not None:
            self._turn.cancel()
        renewed = self._renewing.stop()
        return renewed.addCallback(lambda _: self._caller.finish(within_ms))

    def owned(self, queues: Mapping[MessageQueue, ProcessQueue]) -> None:
        """
        Renew the locks of these queues from now on. The mapping is read at each renewal, so that
        it may change.
        """
        self._queues = queues

    def submit(
        self, process_queue: ProcessQueue, queue: MessageQueue, messages: list[MessageExt]
    ) -> None:
        """Note that the queue's cache got messages, and let the queue wait for its next call."""
        lane = self._lanes.get(process_queue)
        if lane is None:
            lane = self._lanes[process_queue] = _QueueLane(process_queue, queue)
        if not lane.busy:
            self._enter(lane)

    def leave(self, process_queue: ProcessQueue, queue: MessageQueue) -> "Deferred[None] | None":
        """
        Forget a queue that another member gets now.

        :returns: None if no call runs for the queue; else it fires when that call has ended.
        """
        lane = self._lanes.pop(process_queue, None)
        if lane is None:
            return None
        if lane.timer is not None:
            lane.timer.cancel()
        if self._caller.runs_of(process_queue):
            lane.left = Deferred()
        return lane.left

    def clean_expired(self) -> None:
        """Do nothing: giving back a message that takes long would break the order of its queue."""

    async def renew_locks(self) -> None:
        """Have the brokers confirm all locks; a queue whose lock is not confirmed rests."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue, process_queue in self._queues.items():
            if not process_queue.dropped:
                by_broker.setdefault(queue.broker_name, []).append(queue)
        for broker_name, all_queues in by_broker.items():
            # While another broker was asked, some queues may have been given up and unlocked.
            queues = [queue for queue in all_queues if queue in self._queues]
            locked = set(await self._lock(broker_name, queues)) if queues else set()
            for queue in queues:
                still = self._queues.get(queue)
                if still is not None:
                    self._note_lock(still, queue, queue in locked)

    async def consume_directly(self, message: MessageExt) -> dict[str, Any]:
        context = ConsumeOrderlyContext(message.queue)
        tried = await self._caller.try_once(message, context)
        auto_commit = context.auto_commit
        return directly_result(
            tried["outcome"], tried["spent"], _RESULTS, order=True, auto_commit=auto_commit
        )

    def _enter(self, lane: _QueueLane) -> None:
        lane.busy = True
        self._ready.append(lane)
        self._work()

    def _work(self) -> None:
        if self._working or self._stopped or self._turn is not None:
            return
        self._working = True
        left = CALLS_PER_TURN
        try:
            while self._ready and len(self._caller.running) < self._config.consume_concurrency:
                if not left:
                    self._turn = self._clock.callLater(0, self._next_turn)
                    break
                left -= 1
                self._serve(self._ready.popleft())
        finally:
            self._working = False
        if self._ready:
            self._caller.watch_places()

    def _next_turn(self) -> None:
        self._turn = None
        self._work()

    def _serve(self, lane: _QueueLane) -> None:
        """Begin the next call for one queue, if it has messages and its lock is valid."""
        process_queue = lane.process_queue
        if process_queue.dropped:
            return
        if self._config.is_clustering and (
            not process_queue.locked or process_queue.is_lock_expired(self._steady_ms())
        ):
            self._rest(lane, LOCK_AGAIN_SECONDS, self._lock_again)
            return
        messages = process_queue.take(self._config.consume_message_batch_max_size)
        if not messages:
            lane.busy = False
            return
        context = ConsumeOrderlyContext(lane.queue)
        call = ListenerCall(process_queue, lane.queue, messages, context, self._steady_ms())
        self._caller.call(call, lambda call, status: self._answered(lane, call, status))

    def _rest(self, lane: _QueueLane, seconds: float, then: Any) -> None:
        def go_on() -> None:
            lane.timer = None
            then(lane)

        lane.timer = self._clock.callLater(seconds, go_on)

    def _lock_again(self, lane: _QueueLane) -> None:
        Deferred.fromCoroutine(self._lock_one(lane)).addErrback(
            lambda failure: self.log.failure("locking failed", failure)
        ).addBoth(lambda _: self._enter(lane))

    async def _lock_one(self, lane: _QueueLane) -> None:
        locked = await self._lock(lane.queue.broker_name, [lane.queue])
        if not lane.process_queue.dropped:
            self._note_lock(lane.process_queue, lane.queue, bool(locked))

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        client_id = self._parts.instance.client_id
        return await self._calls.lock(self._parts.group, client_id, broker_name, queues)

    def _note_lock(self, process_queue: ProcessQueue, queue: MessageQueue, locked: bool) -> None:
        if locked:
            process_queue.last_lock_ms = self._steady_ms()
        elif process_queue.locked:
            self.log.warn("the lock of {queue} is lost: it rests", queue=queue)
        process_queue.locked = locked

    # Answers

    def _answered(self, lane: _QueueLane, call: ListenerCall, status: Any) -> None:
        if call.process_queue.dropped:
            self.log.debug(
                "{queue} is not this consumer's any more: its result is void", queue=call.queue
            )
            self._end_call(lane, call, None)
        elif status in (SUCCESS, COMMIT) or (status is ROLLBACK and call.context.auto_commit):
            if call.context.auto_commit or status is COMMIT:
                self._commit(call)
            self._end_call(lane, call, None)
        elif status is ROLLBACK:
            call.process_queue.rollback()
            self._end_call(lane, call, self._rest_seconds(call.context))
        else:
            again = Deferred.fromCoroutine(self._suspend(call))
            again.addErrback(self._suspend_failed)
            again.addCallback(lambda rest: self._end_call(lane, call, rest))

    def _fate(self, call: ListenerCall) -> FailedMessageFate:
        times = call.messages[0].reconsume_times if call.messages else 0
        most = self._parts.send_back.max_reconsume_times
        if most >= MAX_INT:
            return FailedMessageFate("its queue waits for it, and it comes again")
        return fate_of(times, most, self._parts.group)

    def _suspend_failed(self, failure: Any) -> float:
        self.log.failure("suspending a queue failed", failure)
        return self._config.suspend_current_queue_time_ms / 1000

    async def _suspend(self, call: ListenerCall) -> float | None:
        """
        End a failed call. Messages that have been tried often enough are sent to the dead-letter
        queue. If that fails, or at least one message may be tried again, all messages of the call
        go back into the cache of their queue.

        :returns: how long the queue rests, in seconds; None if all messages were sent away.
        """
        rests = False
        for message in call.messages:
            times = message.reconsume_times
            message.reconsume_times += 1
            if times < self._parts.send_back.max_reconsume_times:
                rests = True
                continue
            message.properties[RECONSUME_TIME] = str(times)
            message.reconsume_times = times
            if not await self._parts.send_back.send_copy(message):
                message.reconsume_times += 1
                rests = True
        if rests:
            call.process_queue.give_back(call.messages)
            return self._rest_seconds(call.context)
        if not call.process_queue.dropped:
            self._commit(call)
        return None

    def _commit(self, call: ListenerCall) -> None:
        offset = call.process_queue.commit()
        if offset >= 0:
            self._parts.offsets.update_offset(call.queue, offset, False)

    def _rest_seconds(self, context: ConsumeOrderlyContext) -> float:
        millis = context.suspend_current_queue_time_ms
        if millis == -1:
            millis = self._config.suspend_current_queue_time_ms
        return min(max(millis, _SHORTEST_REST_MS), _LONGEST_REST_MS) / 1000

    def _end_call(self, lane: _QueueLane, call: ListenerCall, rest: float | None) -> None:
        self._caller.end_call(call)
        if lane.left is not None:
            lane.left.callback(None)
        elif not self._stopped:
            if rest is None:
                self._enter(lane)
            else:
                self._rest(lane, rest, self._enter)
        self._work()
