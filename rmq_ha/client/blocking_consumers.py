"""Members of groups for programs without a loop: Django, Celery, scripts, threads.

What they do is the work of the client on asyncio, in one thread of ours; what they find is taken by
whatever threads the application has.
"""

from abc import ABC, abstractmethod
from asyncio import timeout
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from twisted.logger import Logger

from rmq_ha.client.aio import Client, LitePullConsumer, PushConsumer
from rmq_ha.client.consumer_settings import LitePullConsumerConfig, PushConsumerConfig
from rmq_ha.client.errors import ForkedClient, MQClientError, NotStarted
from rmq_ha.client.hand_over import HandOver
from rmq_ha.client.messages import MessageExt
from rmq_ha.client.settings import ClientConfig
from rmq_ha.client.subscriptions import MessageSelector
from rmq_ha.host.loop_thread import LoopThread, ThreadStopped, new_lock
from rmq_ha.model.subscription import SUB_ALL
from rmq_ha.wire.bodies import MessageQueue

T = TypeVar("T")
Inner = TypeVar("Inner", PushConsumer, LitePullConsumer)


class _Member(ABC, Generic[Inner]):
    """
    What begins with `start`, or a `with`: not before, so it may be made before a fork.

    :ivar consumer_group: as given.
    """

    def __init__(self, consumer_group: str, settings: ClientConfig | str) -> None:
        self.consumer_group = consumer_group
        self._settings = settings
        self._subscriptions: dict[str, str | MessageSelector | None] = {}
        self._thread: LoopThread | None = None
        self._client: Client | None = None
        self._consumer: Inner | None = None
        self._was_stopped = False
        self._lock = new_lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """
        Join the group and begin; harmless when it is done already.

        :raises ConfigurationError: there is no name server, or a setting makes no sense.
        """
        with self._lock:
            if self._thread is not None:
                return
            thread = LoopThread(f"rmq-ha-{self.consumer_group}")
            try:
                thread.run(self._begin())
            except BaseException:
                thread.stop()
                raise
            self._thread = thread
            self._was_stopped = False

    def stop(self) -> None:
        """
        Leave: loops end, offsets are kept, what is in hand comes again.

        Of any thread; twice is harmless. In a forked process it leaves its parent's alone.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            self._was_stopped = thread is not None or self._was_stopped
        if thread is None or not thread.is_ours:
            return
        try:
            thread.run(self._end())
        except ThreadStopped:
            pass
        finally:
            thread.stop()

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Consume a topic too, or another choice of it; before or after `start`."""
        self._subscriptions[topic] = expression
        if self._thread is not None:
            self._ask(lambda consumer: consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Consume it no more."""
        self._subscriptions.pop(topic, None)
        if self._thread is not None:
            self._ask(lambda consumer: consumer.unsubscribe(topic))

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._ask(lambda consumer: consumer.assignment())

    @abstractmethod
    def _make(self, client: Client) -> Inner:
        """Inside the thread's loop; not started."""

    async def _begin(self) -> None:
        client = self._client = Client(self._settings)
        try:
            await client.start()
            self._consumer = self._make(client)
            for topic, expression in self._subscriptions.items():
                self._consumer.subscribe(topic, expression)
            await self._consumer.start()
        except BaseException:
            await client.stop()
            raise

    async def _end(self) -> None:
        if self._client is not None:
            await self._client.stop()

    def _run(self, steps: Coroutine[Any, Any, T]) -> T:
        thread = self._thread
        try:
            if thread is None:
                raise NotStarted(f"{self.consumer_group}: call `start()` first, or use `with`")
            if not thread.is_ours:
                raise ForkedClient(
                    f"{self.consumer_group} was started before this process was forked: start a"
                    " consumer in each process"
                )
        except NotStarted:
            steps.close()
            raise
        return thread.run(steps)

    def _ask(self, question: Callable[[Inner], T]) -> T:
        return self._run(self._answer(question))

    async def _answer(self, question: Callable[[Inner], T]) -> T:
        assert self._consumer is not None
        return question(self._consumer)


class BlockingConsumer(_Member[PushConsumer]):
    """
    A member of a group whose messages are taken by threads of yours, one by one::

        with BlockingConsumer("payments", "a:9876;b:9876") as consumer:
            consumer.subscribe("Orders", "paid")
            for message in consumer:
                handle(message)

    Any number of threads may loop over one consumer: each message goes to one of them. It counts as
    consumed when its loop asks for the next one, or with `ack`. At which a loop was left when the
    consumer stops, it comes again, and after `max_reconsume_times` goes to the dead letters.
    """

    log = Logger()

    def __init__(
        self,
        consumer_group: str,
        settings: ClientConfig | str = "",
        config: PushConsumerConfig | None = None,
        *,
        orderly: bool = False,
    ) -> None:
        """
        :param settings: or only the name servers, `host:port`, `;` between them.
        :param orderly: the messages of each queue one after the other, in whatever threads.
        """
        super().__init__(consumer_group, settings)
        self._config = config
        self._orderly = orderly
        self._hand: HandOver | None = None

    def __iter__(self) -> Iterator[MessageExt]:
        """
        Until `stop`.

        :raises NotStarted: it never was started.
        """
        last: MessageExt | None = None
        while True:
            last = self._take(last, None)
            if last is None:
                return
            yield last

    def poll(self, timeout_ms: int = 5_000) -> MessageExt | None:
        """The next message, to be answered by `ack` or `reconsume_later`; None: none came."""
        return self._take(None, timeout_ms / 1000)

    def consume(self, handle: Callable[[MessageExt], object]) -> None:
        """
        Have a function consume in this thread until `stop`.

        :param handle: what it raises is logged, and the message comes again later.
        """
        for message in self:
            try:
                handle(message)
            except Exception:
                self.log.failure(
                    "{group}: {id} failed", group=self.consumer_group, id=message.msg_id
                )
                with suppress(
                    MQClientError, ThreadStopped
                ):  # when it is stopped it comes back, too
                    self.reconsume_later(message)

    def ack(self, message: MessageExt) -> None:
        """A message is consumed, though no next one is asked for; twice is harmless."""
        self._ask(lambda _: self._loops().consumed(message))

    def reconsume_later(self, message: MessageExt, delay_level: int = 0) -> None:
        """
        A message is to come again; its loop may go on.

        :param delay_level: when; 0: the broker decides, longer each time; -1: not again, to the
            dead letters. Without meaning for ordered messages, whose queue rests a moment.
        :raises MQClientError: it was answered already.
        """
        self._ask(lambda _: self._loops().reconsume_later(message, delay_level))

    def suspend(self) -> None:
        """Pull nothing; what is cached is still consumed."""
        self._ask(lambda consumer: consumer.suspend())

    def resume(self) -> None:
        """The reverse."""
        self._ask(lambda consumer: consumer.resume())

    def _make(self, client: Client) -> PushConsumer:
        consumer = client.push_consumer(self.consumer_group, self._config)
        hand = self._hand = HandOver(client.loop, orderly=self._orderly)
        if self._orderly:
            consumer.register_message_listener(hand.listen, orderly=True)
        else:
            consumer.register_message_listener(hand.listen)
        return consumer

    async def _end(self) -> None:
        if self._hand is not None:
            self._hand.close()
        await super()._end()

    def _loops(self) -> HandOver:
        assert self._hand is not None
        return self._hand

    def _take(self, last: MessageExt | None, seconds: float | None) -> MessageExt | None:
        try:
            return self._run(self._next(last, seconds))
        except ForkedClient:
            raise
        except (NotStarted, ThreadStopped):
            if not self._was_stopped:
                raise
            return None

    async def _next(self, last: MessageExt | None, seconds: float | None) -> MessageExt | None:
        hand = self._loops()
        if last is not None:
            hand.consumed(last)
        try:
            async with timeout(seconds):
                return await hand.take()
        except TimeoutError:
            return None


class BlockingPullConsumer(_Member[LitePullConsumer]):
    """
    A member of a group, or a reader of queues that it was given, that asks for messages::

        with BlockingPullConsumer("reports", "a:9876") as consumer:
            consumer.subscribe("Orders")
            while messages := consumer.poll():
                store(messages)
                consumer.commit_sync()

    It knows no retries and no dead letters; one thread at a time is right. See
    `rmq_ha.client.LitePullConsumer`.
    """

    def __init__(
        self,
        consumer_group: str,
        settings: ClientConfig | str = "",
        config: LitePullConsumerConfig | None = None,
    ) -> None:
        """:param settings: or only the name servers, `host:port`, `;` between them."""
        super().__init__(consumer_group, settings)
        self._config = config
        self._assigned: list[MessageQueue] = []

    def _make(self, client: Client) -> LitePullConsumer:
        consumer = client.lite_pull_consumer(self.consumer_group, self._config)
        if self._assigned:
            consumer.assign(self._assigned)
        return consumer

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Take these queues, whatever others do; instead of `subscribe`."""
        self._assigned = list(queues)
        if self._thread is not None:
            self._ask(lambda consumer: consumer.assign(self._assigned))

    def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """The next messages; none when none come in time."""
        return self._wait(lambda consumer: consumer.poll(timeout_ms))

    def commit_sync(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what `poll` returned, or what is given."""
        self._wait(lambda consumer: consumer.commit_sync(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """How far the group is; None: it never was there."""
        return self._wait(lambda consumer: consumer.committed(queue))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        return self._wait(lambda consumer: consumer.fetch_message_queues(topic))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on there."""
        self._wait(lambda consumer: consumer.seek(queue, offset))

    def _wait(self, question: Callable[[LitePullConsumer], Awaitable[T]]) -> T:
        return self._run(self._awaited(question))

    async def _awaited(self, question: Callable[[LitePullConsumer], Awaitable[T]]) -> T:
        return await (await self._answer(question))
