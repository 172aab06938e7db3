"""What both ways of consuming share: calling the listener, and knowing what still runs.

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

from rmq_ha.base.model.properties import RETRY_TOPIC
from rmq_ha.base.model.topics import DLQ_PREFIX, RETRY_PREFIX
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.held_places import HeldPlaces
from rmq_ha.client.consume.offsets import OffsetStore
from rmq_ha.client.consume.send_back import SendBack
from rmq_ha.client.rules.consume_stats import ConsumeStats
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.listening import Listener, NotTaken, as_deferred
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.namespaces import unwrap
from rmq_ha.client.rules.process_queue import ProcessQueue

CALLS_PER_TURN = 64
"""Listener calls in one reactor turn, when they take no time; others want the reactor too."""


@dataclass(slots=True)
class ConsumeMessageContext:
    """
    What hooks see of one call of the listener.

    :ivar status: what it answered, by name; `EXCEPTION`, `TIMEOUT`; empty before the call.
    :ivar success: all is consumed.
    :ivar properties: the hook's own, from before to after.
    :ivar elapsed_ms: how long the listener had it.
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
    """Around every call of a listener (ConsumeMessageHook); what it raises is logged."""

    def before_consume(self, context: ConsumeMessageContext) -> None:
        """The listener is about to be called; in the context that it is called in."""

    def after_consume(self, context: ConsumeMessageContext) -> None:
        """It has answered."""


@dataclass(frozen=True)
class ConsumeParts:
    """
    What a consume service works with.

    :ivar group: with its namespace.
    :ivar listener: see `rmq_ha.client.rules.listening`.
    """

    instance: ClientInstance
    group: str
    config: PushConsumerConfig
    listener: Listener
    offsets: OffsetStore
    send_back: SendBack
    stats: ConsumeStats
    hooks: Sequence[ConsumeHook] = ()


class ListenerCall:
    """
    One call of the listener.

    :ivar started_ms: when, ms of a clock that nobody sets.
    :ivar context: the listener's own.
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


class Fate(NamedTuple):
    """
    What becomes of a message that was not consumed.

    :ivar is_last: its group does not see it again.
    """

    text: str
    is_last: bool = False


def fate_of(times: int, most: int, group: str) -> Fate:
    """
    Of a message that is tried again, or not.

    :param times: how often it was tried before.
    :param most: how often it is tried again.
    """
    if times < most:
        return Fate(f"it will come again (attempt {times + 1} of {most + 1})")
    tried = f"that was attempt {times + 1} of {most + 1}, and "
    return Fate(f"{tried if most else ''}it goes to {DLQ_PREFIX}{group}", is_last=True)


class Caller:
    """
    Calls the listener and keeps the books: what runs, statistics, hooks.

    :ivar running: calls that the listener has not answered, and those whose answer is not carried
        out.
    :ivar watch_places: see `HeldPlaces.watch`.
    """

    log = Logger()

    def __init__(
        self,
        parts: ConsumeParts,
        success: Any,
        later: Any,
        fate: "Callable[[ListenerCall], Fate]",
    ) -> None:
        """
        :param success: what None from a listener means.
        :param later: what an exception in it means.
        :param fate: what becomes of messages that are not consumed now.
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

        :param answered: gets the call and what the listener made of it.
        """
        self.running[call] = None
        call.process_queue.last_consume_ms = call.started_ms
        if self._namespace or call.queue.topic == self._retry_topic:
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
        """The answer is carried out."""
        self.running.pop(call, None)
        if not self.running:
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)

    def runs_of(self, process_queue: ProcessQueue) -> list[ListenerCall]:
        """Calls with messages of a queue."""
        return [call for call in self.running if call.process_queue is process_queue]

    def finish(self, within_ms: int) -> "Deferred[None]":
        """
        Wait for what runs.

        :param within_ms: then cancel it; what it had counts as not consumed.
        """
        self._places.stop()
        done: Deferred[None] = Deferred(self._give_up)  # who stops waits no longer
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
        Consume one message on an operator's behalf (code 309), touching no offset.

        :returns: what the listener answered, exceptions as `Failure`, and how long it took, ms.
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
        """Its context holds nonsense, say: without an answer the queue would stand still."""
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
        """A listener that asks for another try does not know that there is none."""
        if not isinstance(outcome, type(self._success)):
            return  # said already
        fate = self._fate(call)
        if fate.is_last:
            first = call.messages[0].msg_id if call.messages else ""
            self.log.warn("{id} of {queue}: {fate}", id=first, queue=call.queue, fate=fate.text)

    def _make_visible(self, message: MessageExt) -> None:
        """A retried message shows its first topic; the namespace is nobody's business."""
        topic = message.topic
        if topic == self._retry_topic:
            topic = message.properties.get(RETRY_TOPIC, topic)
        if self._namespace:
            topic = unwrap(self._namespace, topic)
        message.topic = topic

    def _listen(self, call: ListenerCall) -> "tuple[Any, Deferred[Any] | None]":
        outcome = self._parts.listener(call.messages, call.context)
        return outcome, None if outcome is None else as_deferred(outcome)

    def _listen_seen(self, call: ListenerCall) -> "tuple[Any, Deferred[Any] | None]":
        """What hooks make current is so for this call alone."""
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
    ConsumeMessageDirectlyResult (B15).

    :param results: status to its name there; the one of None among them.
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
