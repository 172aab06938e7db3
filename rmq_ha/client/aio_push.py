"""The push consumer on asyncio; `rmq_ha.client.aio.Client` makes it."""

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


class _Client(Protocol):
    """What is used of a `rmq_ha.client.aio.Client`."""

    loop: AbstractEventLoop

    def future(self, later: "Deferred[T]", /) -> "Future[T]":
        """A Deferred as a future of this loop."""

    def listener(self, function: Listener, /) -> Listener:
        """A listener of one that may be `async def`."""


class PushConsumer(Life):
    """
    See `rmq_ha.client.consume.push_consumer.PushConsumer`.

    Without a listener its messages are for `async for message in consumer`, in as many loops as
    you like: each message goes to one of them. A message counts as consumed when its loop asks for
    the next one, or with `ack`. When an exception or a `break` leaves the loop, its message comes
    again, as after `reconsume_later`, and after `max_reconsume_times` goes to the dead letters.

    :ivar deferred: that one.
    """

    def __init__(
        self,
        client: _Client,
        deferred: push_consumer.PushConsumer,
        *,
        orderly: bool = False,
    ) -> None:
        self.deferred = deferred
        self._client = client
        self._orderly = orderly
        self._hand_over: HandOver | None = None

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """:raises NotStarted: it is not started, or has a listener."""
        return Messages(self._loops())

    def batches(self, most: int = 32, *, wait_ms: int = 0) -> AsyncIterator[list[MessageExt]]:
        """
        Loop over lists of messages: `async for batch in consumer.batches(32)`.

        A batch counts as consumed when its loop asks for the next one; `ack` and `reconsume_later`
        answer for one message of it. An ordered queue gives one message at a time.

        :param most: messages of a batch; `consume_concurrency` has to be as large.
        :param wait_ms: how long a batch that is not full waits for more.
        :raises ConfigurationError: `consume_concurrency` is smaller.
        :raises NotStarted: it is not started, or has a listener.
        """
        return Batches(self._loops(), batch_size(most, self.deferred.config), wait_ms / 1000)

    def processing(self, message: MessageExt) -> MessageBlock:
        """
        Answer for a message of a loop by how its handling ends: `async with
        consumer.processing(message):`.

        At the end of the block the message is consumed. After an exception, which goes on to you,
        it comes again as after `reconsume_later`; after a cancellation the next loop has it, and
        that is no attempt.
        """
        return MessageBlock(message, self._loops().ended)

    def ack(self, message: MessageExt) -> None:
        """A message of a loop is consumed, though no next one is asked for; twice is harmless."""
        self._loops().consumed(message)

    def reconsume_later(self, message: MessageExt, delay_level: int = 0) -> None:
        """
        A message of a loop is to come again; the loop may go on.

        :param delay_level: when; 0: the broker decides, longer each time; -1: not again, to the
            dead letters. Without meaning for ordered messages, whose queue rests a moment.
        :raises MQClientError: it was consumed already.
        """
        self._loops().reconsume_later(message, delay_level)

    def _loops(self) -> HandOver:
        if self._hand_over is None:
            raise NotStarted("`async for` needs a consumer that is started and has no listener")
        return self._hand_over

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Consume a topic too, or another choice of it; before or after `start`."""
        self.deferred.subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Consume it no more."""
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
        Say who consumes.

        :param listener: `listener(messages, context)`, plain or `async def`.
        :param orderly: the messages of each queue one after the other.
        """
        self._listen(self._client.listener(listener), orderly=orderly)

    def suspend(self) -> None:
        """Pull nothing; what is cached is still consumed."""
        self.deferred.suspend()

    def resume(self) -> None:
        """The reverse."""
        self.deferred.resume()

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self.deferred.assignment()

    async def start(self) -> None:
        """
        Join the group and begin to consume.

        :raises ConfigurationError: without a listener, `consume_message_batch_max_size` above 1.
        """
        if not self.deferred.has_listener:
            refuse_batches(self.deferred.config)
            self._hand_over = HandOver(self._client.loop, orderly=self._orderly, answerer=self)
            self._listen(self._hand_over.listen, orderly=self._orderly)
        await self._client.future(self.deferred.start())

    async def stop(self) -> None:
        """
        Leave: listeners and loops end, offsets are kept, brokers are told.

        It waits for the messages in hand, up to `await_termination_when_shutdown_ms`; what is
        not answered by then is another member's, and that was no attempt. A message in the hand of
        the task that calls this comes again, as after `reconsume_later`: answer it before.
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
    Itself, if a consumer can have so many messages in hand.

    :raises ConfigurationError: it cannot.
    """
    if most < 1:
        raise ConfigurationError(f"a batch has at least 1 message, not {most}")
    if most > config.consume_concurrency:
        raise ConfigurationError(
            f"a batch of {most} messages needs consume_concurrency={most} at least, and it is"
            f" {config.consume_concurrency}: each message in hand holds one place"
        )
    return most
