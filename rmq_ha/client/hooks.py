"""Extension points of the client: who wants to see sends."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from rmq_ha.client.messages import Message, SendResult
from rmq_ha.wire.bodies import MessageQueue


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
