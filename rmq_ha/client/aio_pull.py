"""The consumers that are asked for messages, on asyncio; `rmq_ha.client.aio.Client` makes them."""

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, Future, wait
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from typing import Any, Self, TypeVar

from twisted.internet.defer import Deferred

from rmq_ha.client import lite_pull_consumer, pull_consumer
from rmq_ha.client.messages import MessageExt, PullResult
from rmq_ha.client.subscriptions import MessageSelector
from rmq_ha.model.subscription import SUB_ALL
from rmq_ha.wire.bodies import MessageQueue

T = TypeVar("T")


class Futures:
    """Makes futures of one loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop

    def of(self, later: "Deferred[T] | Coroutine[Any, Any, T]") -> "Future[T]":
        """Of a Deferred, or of a coroutine that awaits Deferreds."""
        if not isinstance(later, Deferred):
            later = Deferred.fromCoroutine(later)
        return later.asFuture(self.loop)


class Life(ABC):
    """What starts at the beginning of an `async with`, and stops at its end."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @abstractmethod
    async def start(self) -> None:
        """Begin."""

    @abstractmethod
    async def stop(self) -> None:
        """End."""


class LitePullConsumer(Life):
    """
    See `rmq_ha.client.lite_pull_consumer.LitePullConsumer`.

    `async for message in consumer` goes on until `stop`, where it was left before. With
    `auto_commit` a message counts as consumed when a later one is asked for, so one loop at a time
    is right; without it when `commit_sync` says so.

    :ivar deferred: that one.
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
            await wait([asked])  # a loop that is cancelled here leaves the answer to the next one
            if self._asked is asked:
                self._asked = None
                self._polled.extend(asked.result())
        return self._polled.popleft()

    async def start(self) -> None:
        """Join the group, or take the queues that were assigned."""
        await self._futures.of(self.deferred.start())

    async def stop(self) -> None:
        """Leave; offsets are kept, loops end."""
        self._stopped = True
        self._polled.clear()
        await self._futures.of(self.deferred.stop())

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Share the queues of a topic with the group."""
        self.deferred.subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """The reverse."""
        self.deferred.unsubscribe(topic)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Take these queues, whatever others do."""
        self.deferred.assign(queues)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self.deferred.assignment()

    def fetch_message_queues(self, topic: str) -> "Future[list[MessageQueue]]":
        """All queues of a topic."""
        return self._futures.of(self.deferred.fetch_message_queues(topic))

    def poll(self, timeout_ms: int | None = None) -> "Future[list[MessageExt]]":
        """The next messages; none when none come in time. What a loop left is not among them."""
        return self._futures.of(self.deferred.poll(timeout_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """`poll` leaves them out."""
        self.deferred.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """The reverse."""
        self.deferred.resume(queues)

    def seek(self, queue: MessageQueue, offset: int) -> "Future[None]":
        """Go on there."""
        self._forget(queue)
        return self._futures.of(self.deferred.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> "Future[None]":
        """Go on at the first message."""
        self._forget(queue)
        return self._futures.of(self.deferred.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> "Future[None]":
        """Go on behind the last message."""
        self._forget(queue)
        return self._futures.of(self.deferred.seek_to_end(queue))

    def commit_sync(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, persist: bool = True
    ) -> "Future[None]":
        """Commit what `poll` returned, or what is given."""
        return self._futures.of(self.deferred.commit_sync(offsets, persist=persist))

    def committed(self, queue: MessageQueue) -> "Future[int | None]":
        """How far the group is; None: it never was there."""
        return self._futures.of(self.deferred.committed(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp: int) -> "Future[int]":
        """:param timestamp: ms since the epoch."""
        return self._futures.of(self.deferred.offset_for_timestamp(queue, timestamp))

    def _forget(self, queue: MessageQueue) -> None:
        """A loop goes on elsewhere in this queue."""
        left = [message for message in self._polled if message.queue != queue]
        self._polled.clear()
        self._polled.extend(left)


class PullConsumer(Life):
    """
    See `rmq_ha.client.pull_consumer.PullConsumer`.

    :ivar deferred: that one.
    """

    def __init__(self, futures: Futures, deferred: pull_consumer.PullConsumer) -> None:
        self.deferred = deferred
        self._futures = futures

    async def start(self) -> None:
        """Join the client."""
        await self._futures.of(self.deferred.start())

    async def stop(self) -> None:
        """Leave; offsets are kept."""
        await self._futures.of(self.deferred.stop())

    def pull(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector | None,
        offset: int,
        max_nums: int,
        timeout_ms: int = 0,
    ) -> "Future[PullResult]":
        """Messages of a queue, as many as are there."""
        return self._futures.of(self.deferred.pull(queue, expression, offset, max_nums, timeout_ms))

    def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector | None,
        offset: int,
        max_nums: int,
    ) -> "Future[PullResult]":
        """As `pull`, but the broker waits for a message."""
        return self._futures.of(
            self.deferred.pull_block_if_not_found(queue, expression, offset, max_nums)
        )

    def fetch_subscribe_message_queues(self, topic: str) -> "Future[list[MessageQueue]]":
        """All queues of a topic."""
        return self._futures.of(self.deferred.fetch_subscribe_message_queues(topic))

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Everything below is consumed."""
        self.deferred.update_consume_offset(queue, offset)

    def fetch_consume_offset(
        self, queue: MessageQueue, *, from_store: bool = False
    ) -> "Future[int | None]":
        """How far the group is; None: it never was there."""
        return self._futures.of(self.deferred.fetch_consume_offset(queue, from_store=from_store))

    def persist(self, queue: MessageQueue) -> "Future[None]":
        """Write down its offset now."""
        return self._futures.of(self.deferred.persist(queue))

    def max_offset(self, queue: MessageQueue) -> "Future[int]":
        """Behind its last message."""
        return self._futures.of(self.deferred.max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> "Future[int]":
        """Of its first message."""
        return self._futures.of(self.deferred.min_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp: int) -> "Future[int]":
        """:param timestamp: ms since the epoch."""
        return self._futures.of(self.deferred.search_offset(queue, timestamp))
