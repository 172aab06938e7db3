"""Members of groups for programs without a loop: Django, Celery, scripts, threads.

What they do is the work of the client on asyncio, in one thread of ours; what they find is taken by
whatever threads the application has.
"""

from abc import abstractmethod
from asyncio import timeout
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Generic, TypeVar, Unpack

from twisted.logger import Logger

from rmq_ha.base.host.loop_thread import LoopThread, ThreadStopped, this_thread
from rmq_ha.base.model.subscription import SUB_ALL
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.aio import Client, LitePullConsumer, PushConsumer
from rmq_ha.client.aio_push import batch_size
from rmq_ha.client.blocking_part import BlockingPart
from rmq_ha.client.consume.consume_service import ConsumeHook
from rmq_ha.client.consume.hand_over import HandOver, MessageBlock, refuse_batches
from rmq_ha.client.rules.consumer_settings import LitePullConsumerConfig, PushConsumerConfig
from rmq_ha.client.rules.errors import ForkedClient, NotStarted
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.options import (
    LitePullConsumerOptions,
    PushConsumerOptions,
    settings_of,
)
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.client.rules.subscriptions import MessageSelector

T = TypeVar("T")
Inner = TypeVar("Inner", PushConsumer, LitePullConsumer)


class _Member(BlockingPart, Generic[Inner]):
    """
    A consumer in the thread; `stop` ends its loops and keeps its offsets.

    :ivar consumer_group: as given.
    """

    def __init__(self, consumer_group: str, settings: ClientConfig | str) -> None:
        super().__init__(consumer_group, settings)
        self.consumer_group = consumer_group
        self._subscriptions: dict[str, str | MessageSelector | None] = {}
        self._consumer: Inner | None = None

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
    def _consumer_of(self, client: Client) -> Inner:
        """Inside the thread's loop; not started."""

    async def _make(self, client: Client) -> None:
        self._consumer = self._consumer_of(client)
        for topic, expression in self._subscriptions.items():
            self._consumer.subscribe(topic, expression)
        await self._consumer.start()

    def _ask(self, question: Callable[[Inner], T]) -> T:
        return self._run(self._answer(question))

    async def _answer(self, question: Callable[[Inner], T]) -> T:
        assert self._consumer is not None
        return question(self._consumer)


class BlockingConsumer(_Member[PushConsumer]):
    """
    A member of a group whose messages are taken by threads of yours, one by one::

        consumer = BlockingConsumer("payments", "a:9876;b:9876")
        consumer.subscribe("Orders", "paid")
        with consumer:
            for message in consumer:
                handle(message)

    Any number of threads may loop over one consumer: each message goes to one of them. A message
    counts as consumed when its loop asks for the next one, or with `ack`. When an exception or a
    `break` leaves the loop, its message comes again later, and after `max_reconsume_times` goes to
    the dead letters.
    """

    log = Logger()

    def __init__(
        self,
        consumer_group: str,
        settings: ClientConfig | str = "",
        config: PushConsumerConfig | None = None,
        *,
        orderly: bool = False,
        hooks: Sequence[ConsumeHook] = (),
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        """
        :param settings: or only the name servers, `host:port`, `;` between them.
        :param orderly: the messages of each queue one after the other, in whatever threads.
        :param hooks: see each message from when it could be taken until it is answered, in our
            thread.
        :param options: settings of `PushConsumerConfig`, over those of `config`.
        """
        super().__init__(consumer_group, settings)
        self._config = settings_of(PushConsumerConfig, config, options)
        self._orderly = orderly
        self._hooks = hooks
        self._hand: HandOver | None = None
        self._looping: set[int] = set()
        self._stops_later = False
        self._stopper = 0

    def __iter__(self) -> Iterator[MessageExt]:
        """
        Until `stop`.

        :raises NotStarted: it never was started.
        """
        for batch in self._loop_over(1, 0.0):
            yield from batch

    def batches(self, most: int = 32, *, wait_ms: int = 0) -> Iterator[list[MessageExt]]:
        """
        Loop over lists of messages, until `stop`.

        A batch counts as consumed when its loop asks for the next one; `ack` and `reconsume_later`
        answer for one message of it. An ordered queue gives one message at a time.

        :param most: messages of a batch; `consume_concurrency` has to be as large.
        :param wait_ms: how long a batch that is not full waits for more.
        :raises ConfigurationError: `consume_concurrency` is smaller.
        :raises NotStarted: it never was started.
        """
        return self._loop_over(batch_size(most, self._config), wait_ms / 1000)

    def processing(self, message: MessageExt) -> MessageBlock:
        """
        Answer for a message by how its handling ends: `with consumer.processing(message):`.

        At the end of the block the message is consumed. After an exception, which goes on to you,
        it comes again as after `reconsume_later`; after a KeyboardInterrupt the next loop has it,
        and that is no attempt.
        """
        return MessageBlock(message, self._ended)

    def poll(self, timeout_ms: int = 5_000) -> MessageExt | None:
        """The next message, to be answered by `ack` or `reconsume_later`; None: none came."""
        return next(iter(self._take([], 1, 0.0, timeout_ms / 1000)), None)

    def consume(self, handle: Callable[[MessageExt], object]) -> None:
        """
        Have a function consume in this thread until `stop`.

        :param handle: what it raises is logged, and the message comes again later.
        """
        for message in self:
            try:
                with self.processing(message):
                    handle(message)
            except Exception:
                self.log.failure(
                    "{group}: {id} failed", group=self.consumer_group, id=message.msg_id
                )

    def stop(self) -> None:
        """
        Leave: loops end, offsets are kept, brokers are told.

        It waits for the messages that other threads have in hand, up to
        `await_termination_when_shutdown_ms`; what is not answered by then is another member's,
        and that was no attempt. Inside a loop, or in a signal handler of its thread, it only asks
        for the end: the consumer stops when this loop is done with its message.
        """
        if this_thread() in self._looping:
            self._stops_later = True
            with suppress(NotStarted, ThreadStopped):
                self._ask(lambda _: self._loops().close(lambda owner: False))
            return
        self._stops_later = False
        super().stop()

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

    def _consumer_of(self, client: Client) -> PushConsumer:
        consumer = client.push_consumer(self.consumer_group, self._config, hooks=self._hooks)
        refuse_batches(consumer.deferred.config)
        hand = self._hand = HandOver(client.loop, orderly=self._orderly, answerer=self)
        if self._orderly:
            consumer.register_message_listener(hand.listen, orderly=True)
        else:
            consumer.register_message_listener(hand.listen)
        return consumer

    def _stop(self, thread: LoopThread) -> None:
        self._stopper = this_thread()
        super()._stop(thread)

    async def _end(self) -> None:
        if self._hand is not None:
            self._hand.close(lambda owner: owner == self._stopper)
        await super()._end()

    def _loops(self) -> HandOver:
        assert self._hand is not None
        return self._hand

    def _loop_over(self, most: int, wait_s: float) -> Iterator[list[MessageExt]]:
        """Loop in this thread: it may be left by an exception, and may have to stop us at last."""
        thread, last = this_thread(), list[MessageExt]()
        try:
            while last := self._take(last, most, wait_s, None):
                self._looping.add(thread)
                try:
                    yield last
                finally:
                    self._looping.discard(thread)
        finally:  # no message is left, or the loop is: by an exception, a `break`
            with suppress(NotStarted, ThreadStopped):
                for message in reversed(last):
                    self._leave_message(message)
            if self._stops_later:
                self.stop()

    def _leave_message(self, message: MessageExt) -> None:
        self._ask(lambda _: self._loops().leave_message(message))

    def _ended(self, message: MessageExt, error: BaseException | None) -> None:
        with suppress(NotStarted, ThreadStopped):  # then it comes again
            self._ask(lambda _: self._loops().ended(message, error))

    def _take(
        self, last: list[MessageExt], most: int, wait_s: float, limit_s: float | None
    ) -> list[MessageExt]:
        try:
            return self._run(self._next(last, most, wait_s, limit_s, this_thread()))
        except ForkedClient:
            raise
        except (NotStarted, ThreadStopped):
            if not self._was_stopped:
                raise
            return []

    async def _next(
        self,
        last: list[MessageExt],
        most: int,
        wait_s: float,
        limit_s: float | None,
        thread: int,
    ) -> list[MessageExt]:
        hand = self._loops()
        for message in last:
            hand.consumed(message)
        try:
            async with timeout(limit_s):
                return await hand.take_many(most, wait_s, thread)
        except TimeoutError:
            return []


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
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        """
        :param settings: or only the name servers, `host:port`, `;` between them.
        :param options: settings of `LitePullConsumerConfig`, over those of `config`.
        """
        super().__init__(consumer_group, settings)
        self._config = settings_of(LitePullConsumerConfig, config, options)
        self._assigned: list[MessageQueue] = []

    def _consumer_of(self, client: Client) -> LitePullConsumer:
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
