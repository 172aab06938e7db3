"""Calls of the listener and the hooks around them, for concurrent and for orderly consuming.

Spec: remoting.md, section 11.5.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.model.pop_topics import original_topic
from rmq_ha.base.model.properties import RETRY_TOPIC
from rmq_ha.base.model.topics import DLQ_PREFIX, RETRY_PREFIX
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.held_places import HeldPlaces
from rmq_ha.client.consume.offsets import OffsetStore
from rmq_ha.client.consume.send_back import SendBack
from rmq_ha.client.rules.consume_stats import ConsumeRates
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.listening import Listener, NotTaken, as_deferred
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.namespaces import unwrap
from rmq_ha.client.rules.process_queue import ProcessQueue

CALLS_PER_TURN = 64
"""Most listener calls that begin in one reactor turn, so that other work gets its turns too."""


@dataclass(slots=True)
class ConsumeMessageContext:
    """
    One call of the listener, as consume hooks see it.

    :ivar status: the name of the status that the listener answered, or `EXCEPTION`; empty before
        the call.
    :ivar success: whether all messages are consumed.
    :ivar properties: values that a hook keeps from `before_consume` to `after_consume`.
    :ivar elapsed_ms: how long the call took, in ms.
    """

    consumer_group: str
    namespace: str
    message_queue: MessageQueue
    messages: Sequence[MessageExt]
    status: str = ""
    success: bool = False
    properties: dict[str, Any] = field(default_factory=dict)
    elapsed_ms: float = 0.0


class ConsumeHook(Protocol):
    """
    A hook around every call of a listener (RocketMQ's ConsumeMessageHook). An exception that the
    hook raises is logged and changes nothing else.
    """

    def before_consume(self, context: ConsumeMessageContext) -> None:
        """Called before the listener, in the `contextvars` context of the listener's call."""

    def after_consume(self, context: ConsumeMessageContext) -> None:
        """Called when the listener has answered or failed."""


@dataclass(frozen=True)
class ConsumeParts:
    """
    The parts of a consumer that a consume service uses.

    :ivar group: the consumer group, with its namespace.
    :ivar listener: see `rmq_ha.client.rules.listening`.
    """

    instance: ClientInstance
    group: str
    config: PushConsumerConfig
    listener: Listener
    offsets: OffsetStore
    send_back: SendBack
    stats: ConsumeRates
    hooks: Sequence[ConsumeHook] = ()


class ListenerCall:
    """
    One call of the listener.

    :ivar started_ms: when the call began, in ms of a steady clock.
    :ivar context: the context object that is passed to the listener.
    """

    __slots__ = (
        "context",
        "hook_context",
        "messages",
        "process_queue",
        "queue",
        "running",
        "started_ms",
    )

    def __init__(
        self,
        process_queue: ProcessQueue,
        queue: MessageQueue,
        messages: list[MessageExt],
        context: Any,
        started_ms: int,
    ) -> None:
        self.process_queue = process_queue
        self.queue = queue
        self.messages = messages
        self.context = context
        self.started_ms = started_ms
        self.running: Deferred[Any] | None = None
        self.hook_context: ConsumeMessageContext | None = None


class FailedMessageFate(NamedTuple):
    """
    What happens next with a message that was not consumed.

    :ivar text: the next step in words, for log lines.
    :ivar is_last: whether the group will not see the message again.
    """

    text: str
    is_last: bool = False


def fate_of(times: int, most: int, group: str) -> FailedMessageFate:
    """
    Return whether a message is tried again or goes to the dead-letter queue.

    :param times: how many times the message was tried before the attempt that just failed.
    :param most: how many times a message is tried again at most.
    """
    if times < most:
        return FailedMessageFate(f"it will come again (attempt {times + 1} of {most + 1})")
    tried = f"that was attempt {times + 1} of {most + 1}, and "
    return FailedMessageFate(f"{tried if most else ''}it goes to {DLQ_PREFIX}{group}", is_last=True)


class Caller:
    """
    Calls the listener and its hooks, counts the results, and knows which calls still run.

    :ivar running: calls that the listener has not answered yet, and calls whose answer has no
        effect yet, as their messages are still being committed or given back.
    :ivar watch_places: see `HeldPlaces.watch`.
    """

    log = Logger()

    def __init__(
        self,
        parts: ConsumeParts,
        success: Any,
        later: Any,
        fate: "Callable[[ListenerCall], FailedMessageFate]",
    ) -> None:
        """
        :param success: the status that stands for None from a listener.
        :param later: the status that stands for an exception in the listener.
        :param fate: says what happens next with the messages of a failed call.
        """
        self.running: dict[ListenerCall, None] = {}
        self._parts = parts
        self._success = success
        self._later = later
        self._fate = fate
        self._steady_ms = parts.instance.host.steady_ms
        self._namespace = parts.instance.settings.namespace
        self._retry_topic = RETRY_PREFIX + parts.group
        self._idle: list[Deferred[None]] = []
        self._places = HeldPlaces(
            parts.instance.host.clock, parts.group, self.running, parts.config.consume_concurrency
        )
        self.watch_places = self._places.watch

    def call(self, call: ListenerCall, answered: Callable[[ListenerCall, Any], None]) -> None:
        """
        Call the listener.

        :param answered: called with the call and the listener's status when the listener is done.
        """
        self.running[call] = None
        call.process_queue.last_consume_ms = call.started_ms
        if self._namespace or call.queue.topic[0] == "%":
            for message in call.messages:
                self._make_visible(message)
        try:
            if self._parts.hooks:
                outcome, later = copy_context().run(self._listen_seen, call)
            else:
                outcome, later = self._listen(call)
        except Exception:
            outcome, later = Failure(), None  # type: ignore[no-untyped-call]
        if later is None:
            self._answer(outcome, call, answered)
            return
        call.running = later
        later.addBoth(self._answer, call, answered)

    def end_call(self, call: ListenerCall) -> None:
        """Forget a call whose answer has taken effect: its place is free for another call."""
        self.running.pop(call, None)
        if not self.running:
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)

    def runs_of(self, process_queue: ProcessQueue) -> list[ListenerCall]:
        """Return the running calls with messages of a queue."""
        return [call for call in self.running if call.process_queue is process_queue]

    def finish(self, within_ms: int) -> "Deferred[None]":
        """
        Wait for the running calls.

        :param within_ms: after this time, in ms, cancel the calls that still run; their messages
            count as not consumed.
        """
        self._places.stop()
        done: Deferred[None] = Deferred(self._give_up)  # cancelling `done` ends the calls at once
        if not self.running:
            done.callback(None)
            return done
        self._idle.append(done)
        clock = self._parts.instance.host.clock
        timer: IDelayedCall = clock.callLater(within_ms / 1000, self._give_up, done)

        def finished(_: object) -> None:
            if timer.active():
                timer.cancel()

        return done.addCallback(finished)

    async def try_once(self, message: MessageExt, context: Any) -> dict[str, Any]:
        """
        Consume one message on an operator's behalf (request code 309), and change no offset.

        :returns: "outcome", the listener's answer or a `Failure` of its exception, and "spent", the
            time that it took in ms.
        """
        self._make_visible(message)
        started = self._steady_ms()
        try:
            outcome = self._parts.listener([message], context)
            later = as_deferred(outcome)
            if later is not None:
                outcome = await later
        except Exception:
            outcome = Failure()  # type: ignore[no-untyped-call]
        return {"outcome": outcome, "spent": self._steady_ms() - started}

    def _give_up(self, done: "Deferred[None]") -> None:
        self.log.warn(
            "{count} calls of the listener do not end: their messages will come again",
            count=len(self.running),
        )
        for call in list(self.running):
            call.process_queue.dropped = True
            if call.running is not None:
                call.running.cancel()
        if done in self._idle:
            self._idle.remove(done)
            done.callback(None)

    def _answer(
        self, outcome: Any, call: ListenerCall, answered: Callable[[ListenerCall, Any], None]
    ) -> None:
        call.running = None
        if outcome is None:
            status = self._success
        elif isinstance(outcome, Failure) and isinstance(outcome.value, NotTaken):
            self.end_call(call)
            return
        else:
            status = self._status(outcome, call)
        now = self._steady_ms()
        topic = call.queue.topic
        if status is self._later:
            self._parts.stats.failed(topic, len(call.messages), now)
            self._tell_the_end(call, outcome)
        else:
            took = now - call.started_ms
            self._parts.stats.consumed(topic, len(call.messages), took, now)
        if call.hook_context is not None:
            call.hook_context.elapsed_ms = now - call.started_ms
            self._call_hooks_after(call.hook_context, outcome, status)
        try:
            answered(call, status)
        except Exception:
            self.log.failure("after consuming of {queue}: it will come again", queue=call.queue)
            if call in self.running:
                self._answer_again(call, answered)

    def _answer_again(
        self, call: ListenerCall, answered: Callable[[ListenerCall, Any], None]
    ) -> None:
        """
        Treat a call as failed after the handling of its answer raised an exception, for example
        because the listener set nonsense in the context. Else the queue would stand still.
        """
        try:
            answered(call, self._later)
        except Exception:
            self.log.failure("after consuming of {queue}", queue=call.queue)
            self.end_call(call)

    def _status(self, outcome: Any, call: ListenerCall) -> Any:
        if isinstance(outcome, type(self._success)):
            return outcome
        first = call.messages[0].msg_id if call.messages else ""
        if isinstance(outcome, Failure):
            if isinstance(outcome.value, CancelledError):
                self.log.warn("the listener was cancelled with {id} of {q}", id=first, q=call.queue)
            else:
                self.log.failure(
                    "the listener failed with {id} of {queue}: {fate}",
                    outcome,
                    id=first,
                    queue=call.queue,
                    fate=self._fate(call).text,
                )
        else:
            self.log.error(
                "the listener answered {outcome!r} for {id} of {queue}, not a {kind}: {fate}",
                outcome=outcome,
                id=first,
                queue=call.queue,
                kind=type(self._success).__name__,
                fate=self._fate(call).text,
            )
        return self._later

    def _tell_the_end(self, call: ListenerCall, outcome: Any) -> None:
        """Log that a message is not tried again, although its listener asked for that."""
        if not isinstance(outcome, type(self._success)):
            return  # `_status` has logged the fate
        fate = self._fate(call)
        if fate.is_last:
            first = call.messages[0].msg_id if call.messages else ""
            self.log.warn("{id} of {queue}: {fate}", id=first, queue=call.queue, fate=fate.text)

    def _make_visible(self, message: MessageExt) -> None:
        """Give a retried message its original topic, and take the namespace off the topic."""
        topic = message.topic
        if topic == self._retry_topic:
            topic = message.properties.get(RETRY_TOPIC, topic)
        if topic.startswith(RETRY_PREFIX):  # it was out when a group turned from pops to pulls
            topic = original_topic(self._parts.group, topic)
        if self._namespace:
            topic = unwrap(self._namespace, topic)
        message.topic = topic

    def _listen(self, call: ListenerCall) -> "tuple[Any, Deferred[Any] | None]":
        outcome = self._parts.listener(call.messages, call.context)
        return outcome, None if outcome is None else as_deferred(outcome)

    def _listen_seen(self, call: ListenerCall) -> "tuple[Any, Deferred[Any] | None]":
        """Call hooks and listener; context variables that a hook sets hold for this call alone."""
        self._call_hooks_before(call)
        return self._listen(call)

    def _call_hooks_before(self, call: ListenerCall) -> None:
        parts = self._parts
        context = call.hook_context = ConsumeMessageContext(
            parts.group, self._namespace, call.queue, call.messages
        )
        for hook in parts.hooks:
            try:
                hook.before_consume(context)
            except Exception:
                self.log.failure("a consume hook failed")

    def _call_hooks_after(self, context: ConsumeMessageContext, outcome: Any, status: Any) -> None:
        context.status = "EXCEPTION" if isinstance(outcome, Failure) else status.name
        context.success = status is self._success
        for hook in self._parts.hooks:
            try:
                hook.after_consume(context)
            except Exception:
                self.log.failure("a consume hook failed")


def directly_result(
    outcome: Any, spent_ms: int, results: Mapping[Any, str], *, order: bool, auto_commit: bool
) -> dict[str, Any]:
    """
    Return the fields of a ConsumeMessageDirectlyResult (spec: B15).

    :param results: from the listener's status, or None, to its name in that result.
    """
    remark = None
    if isinstance(outcome, Failure):
        result, remark = "CR_THROW_EXCEPTION", outcome.getErrorMessage()
    else:
        result = results.get(outcome, "CR_LATER")
    return {
        "autoCommit": auto_commit,
        "consumeResult": result,
        "order": order,
        "remark": remark,
        "spentTimeMills": spent_ms,
    }
