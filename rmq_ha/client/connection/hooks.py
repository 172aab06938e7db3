"""Extension points of the client: hooks that see sends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.messages import Message, SendResult


@dataclass(slots=True)
class SendContext:
    """
    One attempt to send, as hooks see it.

    :ivar messages: one message, or the messages of a batch.
    :ivar queue: the queue of the attempt; its topic is without namespace.
    :ivar started_ms: when the attempt began, in ms since the epoch.
    :ivar result: None before the answer, and if the attempt failed.
    :ivar error: why the attempt failed.
    :ivar elapsed_ms: how long the attempt took, in ms.
    :ivar notes: values that the hook keeps from `before_send` to `after_send`.
    """

    producer_group: str
    messages: tuple[Message, ...]
    queue: MessageQueue
    broker_address: str
    client_id: str
    started_ms: int
    result: SendResult | None = None
    error: BaseException | None = None
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


class SendHook(Protocol):
    """A hook around every attempt to send (RocketMQ's SendMessageHook)."""

    def before_send(self, context: SendContext) -> None:
        """
        Called before an attempt.

        :raises Exception: the message is not sent, and the caller of `send` gets the exception.
        """

    def after_send(self, context: SendContext) -> None:
        """Called after an attempt; an exception of the hook is logged."""


@dataclass(slots=True)
class Delivery:
    """
    One call of `send`, with all its attempts, as hooks see it.

    :ivar messages: one message, or the messages of a batch.
    :ivar results: the results; empty before the end, after a failure, and for one-way sends.
    :ivar error: the exception that the caller gets.
    :ivar elapsed_ms: how long the call took, in ms.
    :ivar notes: values that the hook keeps from `before_delivery` to `after_delivery`.
    """

    producer_group: str
    client_id: str
    messages: Sequence[Message]
    results: Sequence[SendResult] = ()
    error: BaseException | None = None
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


class DeliveryHook(Protocol):
    """A hook around every call of `send`, from the call to its result or error."""

    def before_delivery(self, delivery: Delivery) -> None:
        """
        Called when `send` is called, in its caller's `contextvars` context. Properties that the
        hook adds to the messages are sent with them.

        :raises Exception: the message is not sent, and the caller of `send` gets the exception.
        """

    def after_delivery(self, delivery: Delivery) -> None:
        """Called when the send has ended; an exception of the hook is logged."""


class Deliveries:
    """
    Calls the hooks of deliveries.

    :ivar hooks: the given hooks that have a `before_delivery`.
    """

    def __init__(
        self,
        hooks: Sequence[SendHook | DeliveryHook],
        group: str,
        client_id: str,
        seconds: Callable[[], float],
        failed: Callable[[], object],
    ) -> None:
        """
        :param seconds: returns the time of a steady clock, in seconds.
        :param failed: logs a hook's exception; called while the exception is being handled.
        """
        self.hooks: list[Any] = [hook for hook in hooks if hasattr(hook, "before_delivery")]
        self._group = group
        self._client_id = client_id
        self._seconds = seconds
        self._failed = failed

    def begin(self, messages: Sequence[Message]) -> tuple[Delivery, float]:
        """
        Call the hooks before a delivery.

        :returns: the first argument for `end`.
        :raises Exception: a hook refuses the delivery.
        """
        delivery = Delivery(self._group, self._client_id, messages)
        begun = delivery, self._seconds()
        for hook in self.hooks:
            hook.before_delivery(delivery)
        return begun

    def end(
        self,
        begun: tuple[Delivery, float],
        results: Sequence[SendResult],
        error: BaseException | None = None,
    ) -> None:
        """Call the hooks after a delivery."""
        delivery, since = begun
        delivery.results, delivery.error = results, error
        delivery.elapsed_ms = (self._seconds() - since) * 1000
        for hook in self.hooks:
            try:
                hook.after_delivery(delivery)
            except Exception:
                self._failed()
