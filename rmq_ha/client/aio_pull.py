"""Simple, pull and lite pull consumers for asyncio; `rmq_ha.client.aio.Client` makes them."""

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, Future, _get_running_loop, wait
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.subscription import SUB_ALL
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.consume import lite_pull_consumer, pull_consumer, simple_consumer
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.subscriptions import MessageSelector

P = ParamSpec("P")
T = TypeVar("T")


class _DeferredFuture(Future[T]):
    """A future with the result of a Deferred; cancelling the future cancels the Deferred."""

    def __init__(self, later: "Deferred[T]", loop: AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._later = later
        later.addCallbacks(self._succeeded, self._failed)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future and its Deferred."""
        if not super().cancel(msg):
            return False
        self._later.cancel()
        return True

    def _succeeded(self, result: T) -> None:
        if not self.done():
            self.set_result(result)

    def _failed(self, failure: Failure) -> None:
        error: Any = failure.value
        if not self.done():
            self.set_exception(error)


class Futures:
    """Makes futures of one event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop

    def make(self, later: "Deferred[T] | Coroutine[Any, Any, T]") -> "Future[T]":
        """
        Make a future of a Deferred, or of a coroutine that awaits Deferreds.

        :raises ConfigurationError: another event loop runs than that of the client.
        """
        if _get_running_loop() not in (None, self.loop):
            if not isinstance(later, Deferred):
                later.close()
            raise ConfigurationError(
                "this client belongs to another event loop, in which connect() was called: call"
                " connect() once in each asyncio.run(), or run everything in one loop"
            )
        if not isinstance(later, Deferred):
            later = Deferred.fromCoroutine(later)
        return _DeferredFuture(later, self.loop)


def as_future(
    method: "Callable[Concatenate[Any, P], Deferred[T]]", says: str
) -> "Callable[Concatenate[Any, P], Future[T]]":
    """
    Make a method of an asyncio class from a method that returns a Deferred.

    The new method calls that method of `self.deferred`, and returns an asyncio future.

    :param says: the docstring of the new method.
    """

    name = method.__name__

    @wraps(method)
    def ask(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        return _DeferredFuture(getattr(self.deferred, name)(*args, **kwargs), self._futures.loop)

    ask.__doc__ = says
    return ask


class Life(ABC):
    """Base class of clients' parts that `async with` starts, and stops at its end."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @abstractmethod
    async def start(self) -> None:
        """Start, at the beginning of an `async with`."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop, at the end of an `async with`."""


class LitePullConsumer(Life):
    """
    A `rmq_ha.client.LitePullConsumer` for asyncio, with futures in the place of Deferreds.

    `async for message in consumer` goes on until `stop`; a new loop continues with the message
    after the last loop's. With `auto_commit` a message counts as consumed when a later message is
    asked for, so use one loop at a time. Without `auto_commit` call `commit_sync`.

    :ivar deferred: the consumer with Deferreds.
    """

    def __init__(self, futures: Futures, deferred: lite_pull_consumer.LitePullConsumer) -> None:
        self.deferred = deferred
        self._futures = futures
        self._polled: deque[MessageExt] = deque()
        self._asked: Future[list[MessageExt]] | None = None
        self._stopped = False

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self

    async def __anext__(self) -> MessageExt:
        while not self._polled:
            if self._stopped:
                raise StopAsyncIteration
            asked = self._asked = self._asked or self.poll()
            await wait([asked])  # if this loop is cancelled here, the next has the answer
            if self._asked is asked:
                self._asked = None
                self._polled.extend(asked.result())
        return self._polled.popleft()

    async def start(self) -> None:
        """Join the group, or take the queues that were assigned."""
        await self._futures.make(self.deferred.start())

    async def stop(self) -> None:
        """Persist the offsets and leave the group; loops end."""
        self._stopped = True
        self._polled.clear()
        await self._futures.make(self.deferred.stop())

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Read this member's share of a topic's queues."""
        self.deferred.subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; the next rebalance gives its queues up."""
        self.deferred.unsubscribe(topic)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, even if other members read them too."""
        self.deferred.assign(queues)

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer reads now."""
        return self.deferred.assignment()

    fetch_message_queues = as_future(
        lite_pull_consumer.LitePullConsumer.fetch_message_queues, "Return all queues of a topic."
    )

    poll = as_future(
        lite_pull_consumer.LitePullConsumer.poll,
        "Return the next messages; an empty list if none come in time. Messages that a loop has"
        " fetched already are not among them.",
    )

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading these queues until `resume`; they stay with this consumer."""
        self.deferred.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on reading queues after `pause`, each from the message at which it was paused."""
        self.deferred.resume(queues)

    def seek(self, queue: MessageQueue, offset: int) -> "Future[None]":
        """Go on reading a queue at another offset."""
        self._forget(queue)
        return self._futures.make(self.deferred.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> "Future[None]":
        """Go on at a queue's first message."""
        self._forget(queue)
        return self._futures.make(self.deferred.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> "Future[None]":
        """Go on after a queue's last message."""
        self._forget(queue)
        return self._futures.make(self.deferred.seek_to_end(queue))

    commit_sync = as_future(
        lite_pull_consumer.LitePullConsumer.commit_sync,
        "Commit the offsets of the messages that `poll` returned, or the given offsets.",
    )

    committed = as_future(
        lite_pull_consumer.LitePullConsumer.committed,
        "Return the offset that the group has committed; None: it committed none.",
    )

    offset_for_timestamp = as_future(
        lite_pull_consumer.LitePullConsumer.offset_for_timestamp,
        "Ask the broker for the offset that belongs to a time, `timestamp` in ms since the epoch.",
    )

    def _forget(self, queue: MessageQueue) -> None:
        """Drop a queue's messages that no loop has got, as loops go on at another offset."""
        left = [message for message in self._polled if message.queue != queue]
        self._polled.clear()
        self._polled.extend(left)


class PullConsumer(Life):
    """
    A `rmq_ha.client.PullConsumer` for asyncio, with futures in the place of Deferreds.

    :ivar deferred: the consumer with Deferreds.
    """

    def __init__(self, futures: Futures, deferred: pull_consumer.PullConsumer) -> None:
        self.deferred = deferred
        self._futures = futures

    async def start(self) -> None:
        """Join the group: heartbeats tell brokers of this member from now on."""
        await self._futures.make(self.deferred.start())

    async def stop(self) -> None:
        """Persist the offsets and leave the group."""
        await self._futures.make(self.deferred.stop())

    pull = as_future(
        pull_consumer.PullConsumer.pull,
        "Return messages of a queue, at most as many as were asked for; none if there are none.",
    )

    pull_block_if_not_found = as_future(
        pull_consumer.PullConsumer.pull_block_if_not_found,
        "Pull; if the queue has no message, the broker waits `broker_suspend_max_time_ms` for one.",
    )

    fetch_subscribe_message_queues = as_future(
        pull_consumer.PullConsumer.fetch_subscribe_message_queues, "Return all queues of a topic."
    )

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note that all messages of a queue below an offset are consumed."""
        self.deferred.update_consume_offset(queue, offset)

    fetch_consume_offset = as_future(
        pull_consumer.PullConsumer.fetch_consume_offset,
        "Return the offset that the group has committed; None: it committed none.",
    )

    persist = as_future(
        pull_consumer.PullConsumer.persist, "Send the offset of a queue to the broker now."
    )

    max_offset = as_future(
        pull_consumer.PullConsumer.max_offset,
        "Return the offset after the last message of a queue.",
    )

    min_offset = as_future(
        pull_consumer.PullConsumer.min_offset, "Return the offset of the first message of a queue."
    )

    search_offset = as_future(
        pull_consumer.PullConsumer.search_offset,
        "Ask the broker for the offset that belongs to a time, `timestamp` in ms since the epoch.",
    )


class SimpleConsumer(Life):
    """
    A `rmq_ha.client.SimpleConsumer` for asyncio, with futures in the place of Deferreds.

    :ivar deferred: the consumer with Deferreds.
    """

    def __init__(self, futures: Futures, deferred: simple_consumer.SimpleConsumer) -> None:
        self.deferred = deferred
        self._futures = futures

    async def start(self) -> None:
        """Join the group; `receive` may be called from now on."""
        await self._futures.make(self.deferred.start())

    async def stop(self) -> None:
        """Leave the group; messages that are out come again when their time is over."""
        await self._futures.make(self.deferred.stop())

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Receive messages of a topic, or change which of them."""
        self.deferred.subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic."""
        self.deferred.unsubscribe(topic)

    receive = as_future(
        simple_consumer.SimpleConsumer.receive,
        "Return messages that are only yours for a time; none if none come in `await_duration`.",
    )

    ack = as_future(
        simple_consumer.SimpleConsumer.ack, "Answer that a message is consumed, for ever."
    )

    ack_all = as_future(
        simple_consumer.SimpleConsumer.ack_all,
        "Answer that messages are consumed, by one request to each broker.",
    )

    change_invisible_duration = as_future(
        simple_consumer.SimpleConsumer.change_invisible_duration,
        "Have a message come again at another time, counted from now.",
    )
