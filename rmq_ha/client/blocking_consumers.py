"""Consumers for programs without an event loop: Django, Celery, scripts, threads.

The client for asyncio runs in one thread of the consumer. Any threads of the application take its
messages.
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


class _ThreadedConsumer(BlockingPart, Generic[Inner]):
    """
    A consumer in a thread of its own; `stop` ends its loops and persists its offsets.

    :ivar consumer_group: the group's name, as the application gave it.
    """

    def __init__(self, consumer_group: str, settings: ClientConfig | str) -> None:
        super().__init__(consumer_group, settings)
        self.consumer_group = consumer_group
        self._subscriptions: dict[str, str | MessageSelector | None] = {}
        self._consumer: Inner | None = None

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Consume a topic, or change which of its messages are consumed; also after `start`."""
        self._subscriptions[topic] = expression
        if self._thread is not None:
            self._ask(lambda consumer: consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; the next rebalance gives its queues up."""
        self._subscriptions.pop(topic, None)
        if self._thread is not None:
            self._ask(lambda consumer: consumer.unsubscribe(topic))

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this member has now."""
        return self._ask(lambda consumer: consumer.assignment())

    @abstractmethod
    def _consumer_of(self, client: Client) -> Inner:
        """Make the consumer without starting it; called in the thread's event loop."""

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


class BlockingConsumer(_ThreadedConsumer[PushConsumer]):
    """
    A member of a group whose messages the application's threads take one by one::

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
        :param settings: settings, or only the name servers as `host:port;host:port`.
        :param orderly: whether the messages of each queue are handed out one after the other; any
            thread may get the next one.
        :param hooks: called when a message can be taken, and when it is answered; in the consumer's
            own thread.
        :param options: settings of `PushConsumerConfig`; they override those of `config`.
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
        Loop over messages until `stop`.

        :raises NotStarted: the consumer was never started.
        """
        for batch in self._loop_over(1, 0.0):
            yield from batch

    def batches(self, most: int = 32, *, wait_ms: int = 0) -> Iterator[list[MessageExt]]:
        """
        Loop over lists of messages, until `stop`.

        A batch counts as consumed when its loop asks for the next one; `ack` and `reconsume_later`
        answer for one message of it. An ordered queue gives one message at a time.

        :param most: most messages of a batch; `consume_concurrency` must be at least as large.
        :param wait_ms: how long a batch that is not full waits for more messages, in ms.
        :raises ConfigurationError: `consume_concurrency` is smaller.
        :raises NotStarted: the consumer was never started.
        """
        return self._loop_over(batch_size(most, self._config), wait_ms / 1000)

    def processing(self, message: MessageExt) -> MessageBlock:
        """
        Return a context manager that answers a message when its block ends: `with
        consumer.processing(message):`.

        At the end of the block the message is consumed. After an exception, which the block raises
        again, the message comes again as after `reconsume_later`. After a KeyboardInterrupt the
        next loop gets the message, and the interrupted handling does not count as an attempt.
        """
        return MessageBlock(message, self._ended)

    def poll(self, timeout_ms: int = 5_000) -> MessageExt | None:
        """
        Wait for the next message; answer it by `ack` or `reconsume_later`.

        :param timeout_ms: how long to wait, in ms.
        :returns: None if no message came in time.
        """
        return next(iter(self._take([], 1, 0.0, timeout_ms / 1000)), None)

    def consume(self, handle: Callable[[MessageExt], object]) -> None:
        """
        Call a function for each message in this thread, until `stop`.

        :param handle: the function; after an exception, which is logged, the message comes again.
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
        Leave the group: end loops, persist offsets, and unregister at the brokers.

        It waits for messages that other threads have taken, up to
        `await_termination_when_shutdown_ms`. Another member gets those that are not answered by
        then, and the attempt does not count. Messages that this thread took by `poll` and did not
        answer are sent back, as after `reconsume_later`. Inside a loop, or in a signal handler of
        its thread, this method returns at once: the consumer stops when the loop is done with its
        message.
        """
        if this_thread() in self._looping:
            self._stops_later = True
            with suppress(NotStarted, ThreadStopped):
                self._ask(lambda _: self._loops().close(lambda owner: False))
            return
        self._stops_later = False
        super().stop()

    def ack(self, message: MessageExt) -> None:
        """
        Answer that a message is consumed, before its loop asks for the next one. A second call
        changes nothing.
        """
        self._ask(lambda _: self._loops().consumed(message))

    def reconsume_later(self, message: MessageExt, delay_level: int = 0) -> None:
        """
        Answer that a message is to come again; its loop may go on.

        :param delay_level: the delay level after which it comes again. 0 lets the broker decide,
            longer each time; -1 sends it to the dead-letter queue. Ignored for ordered messages,
            whose queue rests a moment.
        :raises MQClientError: the message was answered already.
        """
        self._ask(lambda _: self._loops().reconsume_later(message, delay_level))

    def suspend(self) -> None:
        """Stop pulling until `resume`; cached messages are still consumed."""
        self._ask(lambda consumer: consumer.suspend())

    def resume(self) -> None:
        """Go on pulling after `suspend`, within a second."""
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
        """
        Yield batches to the loop of this thread. When the loop ends, its last messages are given
        back, and the consumer is stopped if `stop` was called inside the loop.
        """
        thread, last = this_thread(), list[MessageExt]()
        try:
            while last := self._take(last, most, wait_s, None):
                self._looping.add(thread)
                try:
                    yield last
                finally:
                    self._looping.discard(thread)
        finally:  # the messages have ended, or an exception or `break` has left the loop
            with suppress(NotStarted, ThreadStopped):
                for message in reversed(last):
                    self._leave_message(message)
            if self._stops_later:
                self.stop()

    def _leave_message(self, message: MessageExt) -> None:
        self._ask(lambda _: self._loops().leave_message(message))

    def _ended(self, message: MessageExt, error: BaseException | None) -> None:
        with suppress(NotStarted, ThreadStopped):  # the message comes again
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


class BlockingPullConsumer(_ThreadedConsumer[LitePullConsumer]):
    """
    A consumer of topics or of assigned queues, which the application polls::

        with BlockingPullConsumer("reports", "a:9876") as consumer:
            consumer.subscribe("Orders")
            while messages := consumer.poll():
                store(messages)
                consumer.commit_sync()

    It has no retries and no dead-letter queue. Use it from one thread at a time. See
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
        :param settings: settings, or only the name servers as `host:port;host:port`.
        :param options: settings of `LitePullConsumerConfig`; they override those of `config`.
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
        """Read exactly these queues, even if other members do too; instead of `subscribe`."""
        self._assigned = list(queues)
        if self._thread is not None:
            self._ask(lambda consumer: consumer.assign(self._assigned))

    def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """Wait for the next messages; the list is empty if none came in time."""
        return self._wait(lambda consumer: consumer.poll(timeout_ms))

    def commit_sync(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the given offsets or, if None, the positions that `poll` has come to."""
        self._wait(lambda consumer: consumer.commit_sync(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed in a queue; None if it has none."""
        return self._wait(lambda consumer: consumer.committed(queue))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Ask for all queues of a topic."""
        return self._wait(lambda consumer: consumer.fetch_message_queues(topic))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading a queue at another offset."""
        self._wait(lambda consumer: consumer.seek(queue, offset))

    def _wait(self, question: Callable[[LitePullConsumer], Awaitable[T]]) -> T:
        return self._run(self._await(question))

    async def _await(self, question: Callable[[LitePullConsumer], Awaitable[T]]) -> T:
        return await (await self._answer(question))
