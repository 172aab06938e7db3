"""The client on asyncio: the same classes, with futures in the place of Deferreds.

    async with connect("127.0.0.1:9876") as client:
        producer = await client.producer()
        await producer.send(Message("TopicA", b"hello"))

It runs in the event loop that is running already. A cancelled future cancels its call. Listeners
may be `async def` and await anything of asyncio.
"""

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Coroutine, Sequence
from inspect import iscoroutine
from sys import modules
from typing import Any, TypeVar, Unpack

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.loop import LoopReactor
from rmq_ha.base.host.real import make_host
from rmq_ha.base.host.std_logging import begin_logging
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.aio_pull import (
    Futures,
    Life,
    LitePullConsumer,
    PullConsumer,
    SimpleConsumer,
    as_future,
)
from rmq_ha.client.aio_push import PushConsumer
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.connection.hooks import DeliveryHook, SendHook
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume import (
    lite_pull_consumer,
    pull_consumer,
    push_consumer,
    simple_consumer,
)
from rmq_ha.client.consume.consume_service import ConsumeHook
from rmq_ha.client.consume.offsets import OffsetStore
from rmq_ha.client.consume.pull_api import Filter
from rmq_ha.client.lookup.asking import Asking
from rmq_ha.client.rebalance.strategies import AllocateStrategy
from rmq_ha.client.rules.consumer_settings import (
    LitePullConsumerConfig,
    PullConsumerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from rmq_ha.client.rules.listening import Listener
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.rules.options import (
    ClientOptions,
    LitePullConsumerOptions,
    ProducerOptions,
    PushConsumerOptions,
    SimpleConsumerOptions,
    client_settings,
)
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.send import producer, transactions
from rmq_ha.client.send.transactions import TransactionListener

__all__ = [
    "Client",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "SimpleConsumer",
    "TransactionProducer",
    "connect",
]

T = TypeVar("T")


class Client:
    """
    One client of a cluster, in the running event loop; make it inside `async def`.

    :ivar instance: the `ClientInstance`, for calls that this class lacks; wrap them in `future`.
    :ivar loop: the client's event loop.
    """

    def __init__(
        self,
        settings: ClientConfig | str = "",
        *,
        host: Host | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """
        :param settings: settings, or only the name servers as `host:port;host:port`.
        :param host: clock, network and disk; None for this machine's. See `rmq_ha.testing`.
        :param options: settings of `ClientConfig`; they override those of `settings`.
        :raises ConfigurationError: no event loop of asyncio runs here, no name server is set, or a
            `tls.*` key is not valid.
        """
        settings = client_settings(settings, options)
        self.loop: AbstractEventLoop = _running_loop()
        if host is None:
            begin_logging()
        self._reactor = LoopReactor(self.loop) if host is None else None
        self._futures = Futures(self.loop)
        self._parts: list[
            Producer | PushConsumer | LitePullConsumer | PullConsumer | SimpleConsumer
        ] = []
        try:
            self.instance = ClientInstance(host or make_host(self._reactor), settings)
        except BaseException:
            self._close()
            raise

    async def __aenter__(self) -> "Client":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the client; connections are made with the first request."""
        await self.future(self.instance.start())

    async def stop(self) -> None:
        """Stop producers and consumers in an orderly way, then close the connections."""
        parts, self._parts = self._parts, []
        parts.sort(key=lambda part: isinstance(part, Producer))  # handlers may send
        try:
            for part in parts:
                await part.stop()
            await self.future(self.instance.stop())
        finally:
            self._close()

    async def producer(
        self,
        config: ProducerConfig | None = None,
        *,
        hooks: Sequence[SendHook | DeliveryHook] = (),
        **options: Unpack[ProducerOptions],
    ) -> "Producer":
        """
        Make and start a producer.

        :param hooks: hooks of attempts (`SendHook`), of deliveries (`DeliveryHook`), or of both.
        :param options: settings of `ProducerConfig`; they override those of `config`.
        """
        made = producer.Producer(self.instance, config, hooks, **options)
        return await self._start_part(Producer(self, made))

    async def transaction_producer(
        self,
        listener: TransactionListener,
        config: ProducerConfig | None = None,
        *,
        hooks: Sequence[SendHook | DeliveryHook] = (),
        **options: Unpack[ProducerOptions],
    ) -> "TransactionProducer":
        """
        Make and start a producer of messages in transactions.

        :param listener: does the sender's own work; its methods may be `async def`.
        :param options: settings of `ProducerConfig`; they override those of `config`.
        """
        made = transactions.TransactionProducer(
            self.instance, _Transactions(self.loop, listener), config, hooks, **options
        )
        return await self._start_part(TransactionProducer(self, made))

    def push_consumer(
        self,
        consumer_group: str,
        config: PushConsumerConfig | None = None,
        *,
        orderly: bool = False,
        strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[Filter] = (),
        **options: Unpack[PushConsumerOptions],
    ) -> "PushConsumer":
        """
        Make a push consumer. Subscribe to topics, and start it, for example by `async with`.

        The other parameters are those of `rmq_ha.client.PushConsumer`.

        :param orderly: whether `async for` gets the messages of each queue one after the other.
        :param options: settings of `PushConsumerConfig`; they override those of `config`.
        """
        made = push_consumer.PushConsumer(
            self.instance,
            consumer_group,
            config,
            strategy=strategy,
            offset_store=offset_store,
            hooks=hooks,
            filters=filters,
            **options,
        )
        consumer = PushConsumer(self, made, orderly=orderly)
        self._parts.append(consumer)
        return consumer

    def lite_pull_consumer(
        self,
        consumer_group: str,
        config: LitePullConsumerConfig | None = None,
        *,
        strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        filters: Sequence[Filter] = (),
        **options: Unpack[LitePullConsumerOptions],
    ) -> LitePullConsumer:
        """
        Make a lite pull consumer. Call `subscribe` or `assign`, start it, and call `poll`.

        :param options: settings of `LitePullConsumerConfig`; they override those of `config`.
        """
        made = lite_pull_consumer.LitePullConsumer(
            self.instance,
            consumer_group,
            config,
            strategy=strategy,
            offset_store=offset_store,
            filters=filters,
            **options,
        )
        lite = LitePullConsumer(self._futures, made)
        self._parts.append(lite)
        return lite

    def pull_consumer(
        self,
        consumer_group: str,
        config: PullConsumerConfig | None = None,
        *,
        strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        filters: Sequence[Filter] = (),
    ) -> PullConsumer:
        """Make a pull consumer. Start it, and pull from any queue and offset."""
        made = pull_consumer.PullConsumer(
            self.instance,
            consumer_group,
            config,
            strategy=strategy,
            offset_store=offset_store,
            filters=filters,
        )
        consumer = PullConsumer(self._futures, made)
        self._parts.append(consumer)
        return consumer

    def simple_consumer(
        self,
        consumer_group: str,
        config: SimpleConsumerConfig | None = None,
        **options: Unpack[SimpleConsumerOptions],
    ) -> SimpleConsumer:
        """
        Make a simple consumer. Subscribe to topics, start it, and call `receive`.

        :param options: settings of `SimpleConsumerConfig`; they override those of `config`.
        """
        made = simple_consumer.SimpleConsumer(self.instance, consumer_group, config, **options)
        consumer = SimpleConsumer(self._futures, made)
        self._parts.append(consumer)
        return consumer

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic; raises `NoRoute`, `NoNameServer` or `BrokerRefused`."""
        return await self.future(self.instance.route(topic))

    async def ask(self, asking: Asking[T]) -> T:
        """Run an `Asking` of `rmq_ha.client.lookups` or `groups`: offsets, messages, lag."""
        return await self.future(Asker(self.instance).run(asking))

    def future(self, later: "Deferred[T] | Coroutine[Any, Any, T]") -> "Future[T]":
        """Make a future of this loop from a Deferred, or from a coroutine that awaits Deferreds."""
        return self._futures.make(later)

    def listener(self, function: Listener) -> Listener:
        """Make a listener of an `async def`, whose calls run as tasks of this loop."""

        def listen(messages: Sequence[MessageExt], context: Any) -> Any:
            return _task(self.loop, function(messages, context))

        return listen

    def _close(self) -> None:
        if self._reactor is not None:
            self._reactor.close()

    async def _start_part(self, part: "AnyProducer") -> "AnyProducer":
        await part.start()
        self._parts.append(part)
        return part


def _running_loop() -> AbstractEventLoop:
    try:
        return get_running_loop()
    except RuntimeError:
        trio = modules.get("trio")
        is_trio = trio is not None and trio.lowlevel.in_trio_run()
    raise ConfigurationError(
        "rmq_ha.client.aio needs a loop of asyncio, and trio runs here: call"
        " rmq_ha.client.BlockingClient in trio.to_thread.run_sync(), or run the program on asyncio"
        if is_trio
        else "rmq_ha.client.aio needs a running loop of asyncio: call connect() inside an"
        " `async def` that asyncio.run() runs; without asyncio use rmq_ha.client.BlockingClient"
    )


def connect(settings: ClientConfig | str = "", **options: Unpack[ClientOptions]) -> Client:
    """
    Make a client for `async with`, which starts the client and stops it at the end.

    :param settings: settings, or only the name servers as `host:port;host:port`.
    :param options: settings of `ClientConfig`; they override those of `settings`.
    """
    return Client(settings, **options)


class Producer(Life):
    """
    A `rmq_ha.client.Producer` for asyncio, with futures in the place of Deferreds.

    :ivar deferred: the producer with Deferreds.
    """

    def __init__(self, client: Client, deferred: producer.Producer) -> None:
        self.deferred = deferred
        self._futures = Futures(client.loop)

    async def start(self) -> None:
        """Register the group with the client; the first send makes the connections."""
        await self._futures.make(self.deferred.start())

    async def stop(self) -> None:
        """Wait for sends under way, up to `stop_timeout_ms`, and leave the group."""
        await self._futures.make(self.deferred.stop())

    def ready(self) -> "Future[None]":
        """
        Wait until a send would not have to wait for a place in flight.

        If you await this before each send, the waiting sends stay within `max_in_flight`, and so
        does their memory.
        """
        return self._futures.make(self.deferred.ready())

    send = as_future(producer.Producer.send, "Send one message; done when it is stored.")

    send_oneway = as_future(
        producer.Producer.send_oneway, "Send one message; done when a connection has it."
    )

    send_batch = as_future(
        producer.Producer.send_batch,
        "Send messages of one topic together; one result for each request that it took.",
    )

    request = as_future(
        producer.Producer.request,
        "Send a message; done with the reply that a consumer of it sends.",
    )

    recall = as_future(
        producer.Producer.recall,
        "Take back a message with a timer, before it is due; done with its unique id.",
    )

    fetch_publish_message_queues = as_future(
        producer.Producer.fetch_publish_message_queues,
        "Return the queues to which messages of a topic can go.",
    )


AnyProducer = TypeVar("AnyProducer", bound=Producer)


class TransactionProducer(Producer):
    """A `rmq_ha.client.TransactionProducer` whose methods are coroutines of asyncio."""

    deferred: transactions.TransactionProducer

    send_in_transaction = as_future(
        transactions.TransactionProducer.send_in_transaction,
        "Send a half message, do the listener's work; done when the broker was told.",
    )


class _Transactions:
    """A listener whose methods may be coroutines of asyncio."""

    def __init__(self, loop: AbstractEventLoop, inner: TransactionListener) -> None:
        self._loop = loop
        self._inner = inner

    def execute_local_transaction(self, message: Message, arg: Any) -> Any:
        return _task(self._loop, self._inner.execute_local_transaction(message, arg))

    def check_local_transaction(self, message: MessageExt) -> Any:
        return _task(self._loop, self._inner.check_local_transaction(message))


def _task(loop: AbstractEventLoop, outcome: Any) -> Any:
    """Run a coroutine as a task, and return a Deferred of it; return any other value unchanged."""
    if iscoroutine(outcome):
        return Deferred.fromFuture(loop.create_task(outcome))
    return outcome
