"""Extension points of the client: who wants to see sends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.messages import Message, SendResult


@dataclass(slots=True)
class SendContext:
    """
    One attempt to send, as hooks see it.

    :ivar messages: one, or those of a batch.
    :ivar queue: where it goes; topic without namespace.
    :ivar result: None before, and when it failed.
    :ivar error: why it failed.
    :ivar elapsed_ms: how long it took.
    :ivar notes: for the hook itself.
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
    """Sees every attempt to send (SendMessageHook)."""

    def before_send(self, context: SendContext) -> None:
        """
        :raises Exception: the message is not sent; the caller gets it.
        """

    def after_send(self, context: SendContext) -> None:
        """What it raises is logged."""


@dataclass(slots=True)
class Delivery:
    """
    One call of `send`, with all its attempts, as hooks see it.

    :ivar messages: one, or those of a batch.
    :ivar results: empty before, when it failed, and of one-way sends.
    :ivar error: what the caller gets.
    :ivar elapsed_ms: how long it took.
    :ivar notes: for the hook itself.
    """

    producer_group: str
    client_id: str
    messages: Sequence[Message]
    results: Sequence[SendResult] = ()
    error: BaseException | None = None
    elapsed_ms: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


class DeliveryHook(Protocol):
    """Sees a send as its caller does: from the call to the outcome."""

    def before_delivery(self, delivery: Delivery) -> None:
        """
        In the caller's context; properties that it adds to the messages are sent with them.

        :raises Exception: the message is not sent; the caller gets it.
        """

    def after_delivery(self, delivery: Delivery) -> None:
        """What it raises is logged."""


class Deliveries:
    """
    Tells hooks of deliveries.

    :ivar hooks: those among them who want to know.
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
        :param seconds: the clock.
        :param failed: logs what a hook raises; called while it is being handled.
        """
        self.hooks: list[Any] = [hook for hook in hooks if hasattr(hook, "before_delivery")]
        self._group = group
        self._client_id = client_id
        self._seconds = seconds
        self._failed = failed

    def begin(self, messages: Sequence[Message]) -> tuple[Delivery, float]:
        """
        :returns: for `end`.
        :raises Exception: a hook does not want it.
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
        """It is over."""
        delivery, since = begun
        delivery.results, delivery.error = results, error
        delivery.elapsed_ms = (self._seconds() - since) * 1000
        for hook in self.hooks:
            try:
                hook.after_delivery(delivery)
            except Exception:
                self._failed()
