"""BlockingClient: send, pull and look things up from scripts, threads and Spark executors.

It imports no reactor, and none of Twisted: plain sockets, one for each address. A process that is
forked with a client in it can go on using it: the child makes connections of its own. It can be
pickled too; what arrives is a new client with the same settings.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from logging import getLogger
from math import inf
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from rmq_ha.base.host.blocking import BlockingCalls, http_get, now_ms, seconds, sleep
from rmq_ha.base.host.process import process_id, this_process
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import ClusterInfo, TopicRoute
from rmq_ha.client.connection.hooks import Deliveries, DeliveryHook
from rmq_ha.client.lookup.asking import Ask, Asking, InTurn, drive_at_once, expect
from rmq_ha.client.lookup.groups import GroupLag, Reset, consume_stats, reset_offset
from rmq_ha.client.lookup.lookups import (
    KeyQuery,
    PlaceId,
    PullTerms,
    addresses_in,
    cluster_info,
    commit_offset,
    committed_offset,
    message_at,
    messages_by_key,
    pull,
    queue_number,
    topic_route,
)
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import MQClientError, NoNameServer
from rmq_ha.client.rules.messages import Message, MessageExt, PullResult, PullStatus, SendResult
from rmq_ha.client.rules.namespaces import unwrap, wrap
from rmq_ha.client.rules.options import (
    BlockingClientOptions,
    client_settings,
    settings_of,
    split_options,
)
from rmq_ha.client.rules.queue_choice import Selector
from rmq_ha.client.rules.routes import publish_info, subscribe_queues
from rmq_ha.client.rules.settings import (
    ADDRESSES_SECONDS,
    ClientConfig,
    ProducerConfig,
    client_id,
    name_servers_in,
)
from rmq_ha.client.rules.subscriptions import MessageSelector
from rmq_ha.client.send.send_asking import SendAsking

if TYPE_CHECKING:
    from rmq_ha.client.blocking_consumers import BlockingConsumer as BlockingConsumer
    from rmq_ha.client.blocking_consumers import BlockingPullConsumer as BlockingPullConsumer
    from rmq_ha.client.blocking_transactions import (
        BlockingTransactionListener as BlockingTransactionListener,
    )
    from rmq_ha.client.blocking_transactions import (
        BlockingTransactionProducer as BlockingTransactionProducer,
    )
else:

    def __getattr__(name):
        """Members of groups have a loop, and so Twisted: imported when they are asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "blocking_transactions" if "Transaction" in name else "blocking_consumers"
        return getattr(import_module(f"rmq_ha.client.{home}"), name)


__all__ = [
    "BlockingClient",
    "BlockingConsumer",
    "BlockingPullConsumer",
    "BlockingTransactionListener",
    "BlockingTransactionProducer",
]

T = TypeVar("T")
READER_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has, for reads in nobody's name."""
_FORWARD = 100


class BlockingClient:
    """
    One cluster. Threads may share it; calls to one broker wait for each other.

    Every call raises `MQClientError` or `RemotingError` when it cannot be done, within
    `mq_client_api_timeout_ms` for each address that is asked; sends within `delivery_timeout_ms`.

    :ivar settings: as given.
    :ivar producer: as given.
    """

    def __init__(
        self,
        settings: ClientConfig | str = "",
        producer: ProducerConfig | None = None,
        *,
        hooks: Sequence[DeliveryHook] = (),
        **options: Unpack[BlockingClientOptions],
    ) -> None:
        """
        :param settings: or only the name servers, `host:port`, `;` between them.
        :param options: settings of `ClientConfig` and `ProducerConfig`, over those that are given.
        :param hooks: see deliveries; what is pickled has none.
        :raises ConfigurationError: there is no name server, or a `tls.*` key does not fit.
        """
        of_client, of_producer = split_options(options, ClientConfig)
        self.settings = settings = client_settings(settings, of_client)
        self.producer = settings_of(ProducerConfig, producer, of_producer).checked()
        process = settings.process or this_process()
        self._turn = InTurn(settings.servers(process.environ), 0)
        self._address_server = "" if self._turn.addresses else settings.address_server()
        self._looked_up = -inf
        self._calls = BlockingCalls(
            use_tls=settings.use_tls,
            tls=settings.tls_options(),
            tls_demanded_by=settings.tls_demanded_by(),
            ssl_context=settings.context(),
            connect_timeout_ms=settings.connect_timeout_ms,
            sign=self._sign if settings.credentials else None,
        )
        self._deliveries = Deliveries(
            hooks,
            wrap(settings.namespace, self.producer.producer_group),
            client_id(settings, process, now_ms()),
            seconds,
            lambda: getLogger(__name__).exception("a hook after a delivery"),
        )
        self._begin()

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockingClient, (self.settings, self.producer)

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the client cannot be used any more. Twice is harmless."""
        self._calls.close()

    # Sends

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> SendResult:
        """
        Send, and wait until it is stored; another broker is tried if need be.

        :param queue: put it there, and try only once.
        :param selector: `selector(queues, message, arg)` chooses the queue (`select_by_hash`).
        :raises IllegalMessage: it breaks a rule of RocketMQ; no broker was asked.
        :raises SendFailed: it is not stored for certain.
        """
        return self._watched(
            (message,), lambda: self.run(self._sender().send(message, queue, selector, arg))
        )

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send, and do not ask what became of it; raises as `send`."""

        def go() -> None:
            address, command = self.run(self._sender().oneway(message, queue))
            self._calls.oneway(address, command)

        self._watched((message,), go)

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """
        Send messages of one topic to one queue, in as few requests as fit.

        :returns: one result for each request.
        :raises BatchFailed: some requests went through, one did not; else as `send`.
        """
        sending = self._sender()
        sends = sending.in_parts(messages, queue)
        return self._watched(
            messages, lambda: drive_at_once(sends, lambda send: self.run(sending.deliver(send)))
        )

    # Queues and offsets

    def route(self, topic: str) -> TopicRoute:
        """Where a topic is; at most `poll_name_server_interval_ms` old. Raises NoRoute."""
        return self.run(self._route(self._full(topic)))

    def cluster(self) -> ClusterInfo:
        """All brokers, as a name server knows them."""
        return self.run(cluster_info())

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages can go to."""
        return list(publish_info(topic, self.route(topic)).queues)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages can be pulled from, sorted."""
        return subscribe_queues(topic, self.route(topic))

    def max_offset(self, queue: MessageQueue) -> int:
        """Behind its last message."""
        return self._number(RequestCode.GET_MAX_OFFSET, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """Of its first message."""
        return self._number(RequestCode.GET_MIN_OFFSET, queue)

    def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """:param timestamp: ms since the epoch; the message stored closest to it is found."""
        return self._number(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, timestamp=str(timestamp))

    def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """Of its first message, ms since the epoch; -1 unknown."""
        return self._number(RequestCode.GET_EARLIEST_MSG_STORETIME, queue, "timestamp")

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """A group's offset, as its broker has it; None when it has none."""
        full = self._full_queue(queue)
        offset = self.run(committed_offset(self._addresses(full), self._full(group), full))
        return None if offset < 0 else offset

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Have the broker keep a group's offset; consumers of the group may overwrite it."""
        full = self._full_queue(queue)
        self.run(commit_offset(self._addresses(full), self._full(group), full, offset))

    # Messages

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_nums: int = 32,
        selector: str | MessageSelector = "*",
        *,
        hold_ms: int = 0,
        group: str = READER_GROUP,
    ) -> PullResult:
        """
        Messages from an offset on; a slave is asked when the master does not answer.

        :param hold_ms: how long the broker may wait for a message.
        :param group: in whose name; nothing is committed.
        """
        full = self._full_queue(queue)
        terms = PullTerms(self._full(group), max_nums, selector, hold_ms)
        asking = pull(self._choice, self._addresses(full), full, offset, terms)
        result = self.run(asking)
        for message in result.msg_found_list:
            message.topic = queue.topic
        return result

    def messages(
        self,
        queue: MessageQueue,
        start: int,
        stop: int,
        selector: str | MessageSelector = "*",
        *,
        group: str = READER_GROUP,
    ) -> Iterator[MessageExt]:
        """
        All messages of a range of offsets that are there, in order: a task of a Spark executor.

        :param stop: the first offset that is not wanted, at most the queue's `max_offset`.
        :raises MQClientError: the queue begins behind `start`: messages are gone. Or it ends before
            `stop` where it was read: on a slave that is behind, while its master is away.
        """
        while start < stop:
            result = self.pull(queue, start, min(_FORWARD, stop - start), selector, group=group)
            for message in result.msg_found_list:
                if message.queue_offset < stop:
                    yield message
            if result.pull_status is PullStatus.OFFSET_ILLEGAL and start < result.min_offset:
                raise MQClientError(
                    f"{queue} begins at {result.min_offset}: the messages from {start} on were"
                    " deleted; raise fileReservedTime of the broker, or read sooner"
                )
            if result.next_begin_offset <= start:
                raise MQClientError(
                    f"{queue} ends at {result.max_offset} where it was read, {stop} was wanted: a"
                    " slave is behind (read again when its master is back), or the end is wrong"
                )
            start = result.next_begin_offset

    def view_message(self, offset_msg_id: str) -> MessageExt:
        """
        The message with an offsetMsgId (`SendResult.offset_msg_id`).

        :raises BrokerRefused: it is not there any more.
        """
        place = PlaceId.parse(offset_msg_id)
        if place is None:
            raise MQClientError(f"{offset_msg_id!r} is no offsetMsgId")
        return self._without_namespace(self.run(message_at(place)))

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int = 32,
        begin_ms: int = 0,
        end_ms: int = (1 << 63) - 1,
    ) -> list[MessageExt]:
        """
        Messages with a key, of all brokers.

        :param max_num: of each broker.
        :param begin_ms: stored since, ms since the epoch.
        """
        query = KeyQuery(self._full(topic), key, False, max_num, begin_ms, end_ms)
        messages = self.run(messages_by_key(query, self.route(topic)))
        return [self._without_namespace(message) for message in messages]

    def query_message_by_unique_key(self, topic: str, msg_id: str) -> MessageExt | None:
        """The message with the id that its producer gave it; None when no broker has it."""
        query = KeyQuery(self._full(topic), msg_id, True)
        messages = self.run(messages_by_key(query, self.route(topic)))
        return self._without_namespace(messages[0]) if messages else None

    # Groups

    def consume_stats(self, group: str, topic: str = "") -> GroupLag:
        """How far a group is, queue by queue."""
        return self.run(consume_stats(self._full(group), self._full(topic)))

    def reset_offset(self, group: str, topic: str, timestamp: int) -> Reset:
        """
        Have a group go on at a time: its consumers are told, or if there are none, the brokers.

        :param timestamp: ms since the epoch; 0: at the beginning; -1: at the end.
        """
        return self.run(reset_offset(self._full(group), self._full(topic), timestamp))

    # Anything else

    def call(self, address: str, command: RemotingCommand, timeout_ms: int = 0) -> RemotingCommand:
        """
        Ask a broker (or, with an empty address, a name server) anything; raises BrokerRefused.

        :param timeout_ms: `mq_client_api_timeout_ms` when 0.
        """
        return self.run(expect(Ask(command, address, timeout_ms)))

    def run(self, asking: Asking[T]) -> T:
        """Drive an `Asking`: see `rmq_ha.client.lookup.lookups` and `groups`."""
        return drive_at_once(asking, self._ask)

    # Parts

    def _begin(self) -> None:
        """What a forked process must not share with its parent."""
        self._pid = process_id()
        random = SystemRandom()
        known = self._turn.addresses
        self._turn = InTurn(known, random.randrange(max(1, len(known))))
        self._routes: dict[str, tuple[TopicRoute, float]] = {}
        self._choice = BrokerChoice(seconds)
        self._signer = self.settings.signer(now_ms, random)
        process = self.settings.process or this_process()
        self._sending = SendAsking(
            self.settings,
            self.producer,
            process,
            self._route,
            self._stale,
            seconds,
            sleep,
            now_ms,
            random,
        )

    def _sender(self) -> SendAsking:
        if self._pid != process_id():
            self._begin()
        return self._sending

    def _watched(self, messages: Sequence[Message], go: Callable[[], T]) -> T:
        """With hooks that see deliveries."""
        if not self._deliveries.hooks:
            return go()
        begun = self._deliveries.begin(messages)
        try:
            outcome = go()
        except BaseException as error:
            self._deliveries.end(begun, (), error)
            raise
        results: Any = outcome
        if not isinstance(results, list):
            results = () if results is None else (results,)
        self._deliveries.end(begun, results)
        return outcome

    def _sign(self, command: RemotingCommand, address: str) -> RemotingCommand:
        self._sender()  # a forked process has numbers of its own
        assert self._signer is not None
        return self._signer.sign(command, address)

    def _ask(self, ask: Ask) -> RemotingCommand:
        command = ask.command
        command.language = "PYTHON"
        timeout_ms = ask.timeout_ms or self.settings.mq_client_api_timeout_ms
        if ask.address:
            return self._calls.invoke(ask.address, command, timeout_ms)
        if self._address_server:
            self._look_up()
        return self.run(self._turn.ask(command, timeout_ms))

    def _look_up(self) -> None:
        """Where the name servers are by now; what cannot be had stays as it was."""
        url, now = self._address_server, seconds()
        if now < self._looked_up + ADDRESSES_SECONDS:
            return
        try:
            status, body = http_get(url, self.settings.mq_client_api_timeout_ms)
            self._turn.addresses = tuple(name_servers_in(url, status, body))
            self._looked_up = now
        except (OSError, NoNameServer) as error:
            if not self._turn.addresses:
                raise NoNameServer(f"{url} does not say where name servers are: {error}") from None

    def _route(self, topic: str) -> Asking[TopicRoute]:
        now = seconds()
        known = self._routes.get(topic)
        if known is not None and known[1] > now:
            return known[0]
        try:
            route = yield from topic_route(topic)
        except NoNameServer:
            if known is None:
                raise
            route = known[0]  # brokers may well be there while name servers are not
        self._routes[topic] = route, now + self.settings.poll_name_server_interval_ms / 1000
        return route

    def _stale(self, topic: str) -> None:
        """Ask for its route next time; while no name server answers it is better than none."""
        known = self._routes.get(topic)
        if known is not None:
            self._routes[topic] = known[0], -inf

    def _full(self, name: str) -> str:
        return wrap(self.settings.namespace, name)

    def _full_queue(self, queue: MessageQueue) -> MessageQueue:
        return msgspec.structs.replace(queue, topic=self._full(queue.topic))

    def _without_namespace(self, message: MessageExt) -> MessageExt:
        message.topic = unwrap(self.settings.namespace, message.topic)
        return message

    def _addresses(self, queue: MessageQueue) -> dict[int, str]:
        return addresses_in(self.run(self._route(queue.topic)), queue.broker_name)

    def _number(self, code: int, queue: MessageQueue, field: str = "offset", **more: str) -> int:
        full = self._full_queue(queue)
        return self.run(queue_number(code, self._addresses(full), full, field, **more))
