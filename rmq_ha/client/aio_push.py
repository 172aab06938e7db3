"""The push consumer for asyncio; `rmq_ha.client.aio.Client` makes it."""

from asyncio import AbstractEventLoop, Future
from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeVar, overload

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.subscription import SUB_ALL
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.aio_pull import Life
from rmq_ha.client.consume import push_consumer
from rmq_ha.client.consume.hand_over import (
    Batches,
    HandOver,
    MessageBlock,
    Messages,
    refuse_batches,
)
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.errors import NotStarted
from rmq_ha.client.rules.listening import ConcurrentListener, Listener, OrderlyListener
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.subscriptions import MessageSelector

T = TypeVar("T")


class _AioClient(Protocol):
    """The part of a `rmq_ha.client.aio.Client` that this module uses."""

    loop: AbstractEventLoop

    def future(self, later: "Deferred[T]", /) -> "Future[T]":
        """Make a future of this loop from a Deferred."""

    def listener(self, function: Listener, /) -> Listener:
        """Make a listener of a function that may be `async def`."""


class PushConsumer(Life):
    """
    A `rmq_ha.client.PushConsumer` for asyncio, with futures in the place of Deferreds.

    Without a listener, `async for message in consumer` gets its messages. Several loops may run:
    each message goes to one of them. A message counts as consumed when its loop asks for the next
    one, or with `ack`. When an exception or a `break` leaves the loop, the loop's message comes
    again, as after `reconsume_later`. After `max_reconsume_times` it goes to the dead-letter queue.

    :ivar deferred: the consumer with Deferreds.
    """

    def __init__(
        self,
        client: _AioClient,
        deferred: push_consumer.PushConsumer,
        *,
        orderly: bool = False,
    ) -> None:
        self.deferred = deferred
        self._client = client
        self._orderly = orderly
        self._hand_over: HandOver | None = None

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """:raises NotStarted: the consumer is not started, or has a listener."""
        return Messages(self._loops())

    def batches(self, most: int = 32, *, wait_ms: int = 0) -> AsyncIterator[list[MessageExt]]:
        """
        Loop over lists of messages: `async for batch in consumer.batches(32)`.

        A batch counts as consumed when its loop asks for the next one; `ack` and `reconsume_later`
        answer for one message of it. An ordered queue gives one message at a time.

        :param most: most messages of a batch; `consume_concurrency` must be at least as large.
        :param wait_ms: how long a batch that is not full waits for more messages, in ms.
        :raises ConfigurationError: `consume_concurrency` is smaller.
        :raises NotStarted: the consumer is not started, or has a listener.
        """
        return Batches(self._loops(), batch_size(most, self.deferred.config), wait_ms / 1000)

    def processing(self, message: MessageExt) -> MessageBlock:
        """
        Return a context manager that answers a message when its block ends: `async with
        consumer.processing(message):`.

        At the end of the block the message is consumed. After an exception, which the block raises
        again, the message comes again as after `reconsume_later`. After a cancellation the next
        loop gets the message, and the cancelled handling does not count as an attempt.
        """
        return MessageBlock(message, self._loops().ended)

    def ack(self, message: MessageExt) -> None:
        """
        Answer that a message of a loop is consumed, before the loop asks for the next one. A second
        call changes nothing.
        """
        self._loops().consumed(message)

    def reconsume_later(self, message: MessageExt, delay_level: int = 0) -> None:
        """
        Answer that a message of a loop is to come again; the loop may go on.

        :param delay_level: the delay level after which it comes again. 0 lets the broker decide,
            longer each time; -1 sends it to the dead-letter queue. Ignored for ordered messages,
            whose queue rests a moment.
        :raises MQClientError: the message was answered already.
        """
        self._loops().reconsume_later(message, delay_level)

    def _loops(self) -> HandOver:
        if self._hand_over is None:
            raise NotStarted("`async for` needs a consumer that is started and has no listener")
        return self._hand_over

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Consume a topic, or change which of its messages are consumed; also after `start`."""
        self.deferred.subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; the next rebalance gives its queues up."""
        self.deferred.unsubscribe(topic)

    @overload
    def register_message_listener(
        self, listener: ConcurrentListener, *, orderly: Literal[False] = False
    ) -> None: ...

    @overload
    def register_message_listener(
        self, listener: OrderlyListener, *, orderly: Literal[True]
    ) -> None: ...

    def register_message_listener(self, listener: Listener, *, orderly: bool = False) -> None:
        """
        Set the listener.

        :param listener: `listener(messages, context)`, a plain function or an `async def`.
        :param orderly: whether the listener gets the messages of each queue one after the other.
        """
        self._listen(self._client.listener(listener), orderly=orderly)

    def suspend(self) -> None:
        """Stop pulling until `resume`; cached messages are still consumed."""
        self.deferred.suspend()

    def resume(self) -> None:
        """Go on pulling after `suspend`, within a second."""
        self.deferred.resume()

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this member has now."""
        return self.deferred.assignment()

    async def start(self) -> None:
        """
        Join the group and begin to consume.

        :raises ConfigurationError: no topic is subscribed; or the consumer has no listener, and its
            `consume_message_batch_max_size` is larger than 1.
        """
        if not self.deferred.has_listener:
            refuse_batches(self.deferred.config)
            self._hand_over = HandOver(self._client.loop, orderly=self._orderly, answerer=self)
            self._listen(self._hand_over.listen, orderly=self._orderly)
        await self._client.future(self.deferred.start())

    async def stop(self) -> None:
        """
        Leave the group: end listeners and loops, persist offsets, and unregister at the brokers.

        It waits for messages that were taken, up to `await_termination_when_shutdown_ms`. Another
        member gets those that are not answered by then, and the attempt does not count. A message
        that the calling task has taken and not answered comes again, as after `reconsume_later`.
        """
        if self._hand_over is not None:
            self._hand_over.close()
        await self._client.future(self.deferred.stop())

    def _listen(self, listener: Listener, *, orderly: bool) -> None:
        if orderly:
            self.deferred.register_message_listener(listener, orderly=True)
        else:
            self.deferred.register_message_listener(listener)


def batch_size(most: int, config: PushConsumerConfig) -> int:
    """
    Return the size of a batch after a check.

    :raises ConfigurationError: the size is below 1, or larger than `consume_concurrency`.
    """
    if most < 1:
        raise ConfigurationError(f"a batch has at least 1 message, not {most}")
    if most > config.consume_concurrency:
        raise ConfigurationError(
            f"a batch of {most} messages needs consume_concurrency={most} at least, and it is"
            f" {config.consume_concurrency}: each message in hand holds one place"
        )
    return most
