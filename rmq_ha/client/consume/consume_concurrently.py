"""ConsumeConcurrently: shows a listener many messages at a time, in no order.

Spec: remoting.md, section 11.5.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.consume.consume_service import (
    CALLS_PER_TURN,
    Caller,
    ConsumeParts,
    FailedMessageFate,
    ListenerCall,
    directly_result,
    fate_of,
)
from rmq_ha.client.consume.pop_ends import PopEnds
from rmq_ha.client.rules.lease_queue import LeaseQueue
from rmq_ha.client.rules.listening import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.process_queue import ProcessQueue

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
AGAIN_SECONDS = 5.0
TIMEOUT_LEVEL = 3
_RESULTS = {None: "CR_SUCCESS", SUCCESS: "CR_SUCCESS", LATER: "CR_LATER"}


class ConsumeConcurrently:
    """
    Shows a listener the pulled messages, in at most `consume_concurrency` calls at a time.

    The flow control of the queues bounds how many messages wait for a call.

    :ivar pop_ends: ends the leases of popped messages; None in a consumer that only pulls.
    """

    log = Logger()
    is_orderly = False

    def __init__(self, parts: ConsumeParts) -> None:
        self._parts = parts
        self._config = parts.config
        self._clock = parts.instance.host.clock
        self._steady_ms = parts.instance.host.steady_ms
        self._caller = Caller(parts, SUCCESS, LATER, self._fate)
        self._waiting: deque[tuple[ProcessQueue, MessageQueue, list[MessageExt]]] = deque()
        self._again: set[IDelayedCall] = set()
        self._turn: IDelayedCall | None = None
        self.pop_ends: PopEnds | None = None
        self._working = False
        self._stopped = False

    def start(self) -> None:
        """Do nothing: queues that are consumed concurrently have no locks to renew."""

    def stop(self, within_ms: int) -> "Deferred[None]":
        """
        Begin no more calls. The Deferred fires when the running calls have ended.

        :param within_ms: after this time, in ms, the running calls are cancelled.
        """
        self._stopped = True
        self._waiting.clear()
        for timer in self._again:
            timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
        return self._caller.finish(within_ms)

    def submit(
        self, process_queue: ProcessQueue, queue: MessageQueue, messages: list[MessageExt]
    ) -> None:
        """Take pulled messages, in their order, and begin calls with them while there is room."""
        size = self._config.consume_message_batch_max_size
        for start in range(0, len(messages), size):
            self._waiting.append((process_queue, queue, messages[start : start + size]))
        if not self._working:
            self._work()

    def leave(self, process_queue: ProcessQueue, queue: MessageQueue) -> "Deferred[None] | None":
        """
        Forget the waiting messages of a queue that another member gets now.

        :returns: None, since nothing has to be waited for: results of calls that still run for a
            dropped queue are ignored.
        """
        self.take_waiting(process_queue)
        return None

    def take_waiting(self, process_queue: ProcessQueue) -> list[MessageExt]:
        """Forget the messages of a queue that wait for a call, and return them."""
        waiting = self._waiting
        taken = [item[2] for item in waiting if item[0] is process_queue]
        if taken:  # while a listener hangs, they would pile up
            kept = [item for item in waiting if item[0] is not process_queue]
            waiting.clear()
            waiting.extend(kept)
        return [message for messages in taken for message in messages]

    def owned(self, queues: "Mapping[MessageQueue, ProcessQueue]") -> None:
        """Do nothing: queues that are consumed concurrently have no locks to renew."""

    def clean_expired(self) -> None:
        """Cancel calls that have run longer than `consume_timeout_ms`; their messages go back."""
        expired = self._steady_ms() - self._config.consume_timeout_ms
        for call in list(self._caller.running):
            if call.started_ms < expired and call.running is not None:
                self.log.warn(
                    "the listener has had {id} of {queue} for more than {limit} ms"
                    " (consume_timeout_ms): it goes back",
                    id=call.messages[0].msg_id,
                    queue=call.queue,
                    limit=self._config.consume_timeout_ms,
                )
                call.context.delay_level_when_next_consume = TIMEOUT_LEVEL
                call.running.cancel()

    async def consume_directly(self, message: MessageExt) -> dict[str, Any]:
        context = ConsumeConcurrentlyContext(message.queue)
        tried = await self._caller.try_once(message, context)
        return directly_result(
            tried["outcome"], tried["spent"], _RESULTS, order=False, auto_commit=True
        )

    def _work(self) -> None:
        """Begin calls while there is room; a listener that answers at once is called in a loop."""
        if self._stopped or self._turn is not None:
            return
        self._working = True
        waiting, running = self._waiting, self._caller.running
        left = CALLS_PER_TURN
        try:
            while waiting and len(running) < self._config.consume_concurrency:
                if not left:
                    self._turn = self._clock.callLater(0, self._next_turn)
                    break
                process_queue, queue, messages = waiting.popleft()
                if process_queue.dropped:
                    continue
                if isinstance(process_queue, LeaseQueue):
                    messages = process_queue.still_leased(messages, self._steady_ms())
                    if not messages:
                        continue
                left -= 1
                context = ConsumeConcurrentlyContext(queue)
                call = ListenerCall(process_queue, queue, messages, context, self._steady_ms())
                self._caller.call(call, self._answered)
        finally:
            self._working = False
        if waiting:
            self._caller.watch_places()

    def _next_turn(self) -> None:
        self._turn = None
        self._work()

    def _answered(self, call: ListenerCall, status: Any) -> None:
        messages, context = call.messages, call.context
        failed = messages[max(0, context.ack_index + 1) :] if status is SUCCESS else messages
        if isinstance(call.process_queue, LeaseQueue):
            assert self.pop_ends is not None
            level = context.delay_level_when_next_consume
            self.pop_ends.answered(call.process_queue, messages, failed, level)
            self._end_call(call)
        elif call.process_queue.dropped:
            self.log.debug(
                "{queue} is not this consumer's any more: its result is void", queue=call.queue
            )
            self._end_call(call)
        elif not failed:
            self._consumed(call.process_queue, call.queue, messages)
            self._end_call(call)
        elif not self._config.is_clustering:
            for message in failed:
                self.log.warn("broadcasting: {id} failed and is dropped", id=message.msg_id)
            self._consumed(call.process_queue, call.queue, messages)
            self._end_call(call)
        else:
            back = Deferred.fromCoroutine(self._give_back(call, failed))
            back.addErrback(lambda failure: self.log.failure("giving back failed", failure))
            back.addBoth(lambda _: self._end_call(call))

    def _fate(self, call: ListenerCall) -> FailedMessageFate:
        if not self._config.is_clustering:
            return FailedMessageFate("it is dropped, as groups that broadcast know no retries")
        times = call.messages[0].reconsume_times if call.messages else 0
        if call.context.delay_level_when_next_consume < 0:
            return fate_of(times, 0, self._parts.group)
        return fate_of(times, self._parts.send_back.max_reconsume_times, self._parts.group)

    def _end_call(self, call: ListenerCall) -> None:
        self._caller.end_call(call)
        if not self._working:
            self._work()

    def _consumed(
        self, process_queue: ProcessQueue, queue: MessageQueue, messages: list[MessageExt]
    ) -> None:
        offset = process_queue.remove(messages)
        if offset >= 0 and not process_queue.dropped:
            self._parts.offsets.update_offset(queue, offset, True)

    async def _give_back(self, call: ListenerCall, failed: list[MessageExt]) -> None:
        """
        Send failed messages back to a broker. A message that no broker takes back is shown to the
        listener again after `AGAIN_SECONDS`.
        """
        level = call.context.delay_level_when_next_consume
        send_back = self._parts.send_back
        kept = []
        for message in failed:
            if not await send_back.give_back(message, level, call.queue.broker_name):
                message.reconsume_times += 1
                kept.append(message)
        ours = {message.queue_offset for message in kept}
        gone = [message for message in call.messages if message.queue_offset not in ours]
        self._consumed(call.process_queue, call.queue, gone)
        if kept and not self._stopped:
            self._submit_later(call, kept)

    def _submit_later(self, call: ListenerCall, messages: list[MessageExt]) -> None:
        def submit_again() -> None:
            self._again.discard(timer)
            self.submit(call.process_queue, call.queue, messages)

        timer = self._clock.callLater(AGAIN_SECONDS, submit_again)
        self._again.add(timer)
