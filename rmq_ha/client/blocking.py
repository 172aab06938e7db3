"""BlockingClient: send, pull and look things up from scripts, threads and Spark executors.

It imports neither a reactor nor anything else of Twisted, and has one plain socket for each
address. A forked child can go on using its parent's client, as it makes connections of its own. A
pickled client is unpickled as a new client with the same settings.
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
from rmq_ha.client.lookup.recall import recall
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
from rmq_ha.client.send.send_asking import SendAsking, ThreadTimes

if TYPE_CHECKING:
    from rmq_ha.client.blocking_consumers import BlockingConsumer as BlockingConsumer
    from rmq_ha.client.blocking_consumers import BlockingPullConsumer as BlockingPullConsumer
    from rmq_ha.client.blocking_simple import BlockingSimpleConsumer as BlockingSimpleConsumer
    from rmq_ha.client.blocking_transactions import (
        BlockingTransactionListener as BlockingTransactionListener,
    )
    from rmq_ha.client.blocking_transactions import (
        BlockingTransactionProducer as BlockingTransactionProducer,
    )
else:

    def __getattr__(name):
        """Import members of groups on demand, as their event loop needs Twisted."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "BlockingSimpleConsumer":
            home = "blocking_simple"
        else:
            home = "blocking_transactions" if "Transaction" in name else "blocking_consumers"
        return getattr(import_module(f"rmq_ha.client.{home}"), name)


__all__ = [
    "BlockingClient",
    "BlockingConsumer",
    "BlockingPullConsumer",
    "BlockingSimpleConsumer",
    "BlockingTransactionListener",
    "BlockingTransactionProducer",
]

T = TypeVar("T")
READER_GROUP = "TOOLS_CONSUMER"
"""A group that every broker has, for reads that belong to no application's group."""
_FORWARD = 100


class BlockingClient:
    """
    A client of one cluster. Threads may share it; calls to one broker wait for each other.

    A call that cannot be carried out raises `MQClientError` or `RemotingError`. It does so within
    `mq_client_api_timeout_ms` for each address that is asked; a send within `delivery_timeout_ms`.

    :ivar settings: the settings of the client.
    :ivar producer: the settings of its sends.
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
        :param settings: settings, or only the name servers as `host:port;host:port`.
        :param options: settings of `ClientConfig` and `ProducerConfig`; they override those of
            `settings` and `producer`.
        :param hooks: called before and after each send; pickling leaves them out.
        :raises ConfigurationError: no name server is set, or a `tls.*` key is not valid.
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
        """
        Close the connections; the client cannot be used any more. A second call changes nothing.
        """
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
        Send a message, and wait until it is stored; other brokers are tried if one fails.

        :param queue: the queue to send to; no other queue is tried.
        :param selector: `selector(queues, message, arg)` chooses the queue (`select_by_hash`).
        :raises IllegalMessage: the message breaks a rule of RocketMQ; no broker was asked.
        :raises MQClientError: no broker has confirmed the message. After several attempts that is
            `SendFailed` or `SendTimeout`, after one its own error, such as `BrokerRefused`.
        """
        return self._send_with_hooks(
            (message,), lambda: self.run(self._sender().send(message, queue, selector, arg))
        )

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message without asking for an answer; raises as `send` does."""

        def go() -> None:
            address, command = self.run(self._sender().oneway(message, queue))
            self._calls.oneway(address, command)

        self._send_with_hooks((message,), go)

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """
        Send messages of one topic in as few requests as possible; raises as `send` does.

        :returns: one result for each request.
        :raises BatchFailed: a request has failed after others were stored.
        """
        sending = self._sender()
        sends = sending.in_parts(messages, queue)
        return self._send_with_hooks(
            messages, lambda: drive_at_once(sends, lambda send: self.run(sending.deliver(send)))
        )

    def recall(self, topic: str, recall_handle: str) -> str:
        """
        Take back a message with a timer, before it is due; return its unique id.

        :param recall_handle: `SendResult.recall_handle` of the message.
        :raises BrokerRefused: the broker does not recall it; with code 604: it does not wait there.
        """
        group = self._full(self.producer.producer_group)
        namespace = self.settings.namespace
        return self.run(recall(namespace, group, topic, recall_handle, self._route))

    # Queues and offsets

    def route(self, topic: str) -> TopicRoute:
        """
        Return the route of a topic; it is at most `poll_name_server_interval_ms` old if a name
        server answers. Raises `NoRoute`.
        """
        return self.run(self._route(self._full(topic)))

    def cluster(self) -> ClusterInfo:
        """Ask a name server for all brokers."""
        return self.run(cluster_info())

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic can be sent to."""
        return list(publish_info(topic, self.route(topic)).queues)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic can be pulled from, sorted."""
        return subscribe_queues(topic, self.route(topic))

    def max_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset after a queue's last message."""
        return self._number(RequestCode.GET_MAX_OFFSET, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """Ask for the offset of a queue's first message."""
        return self._number(RequestCode.GET_MIN_OFFSET, queue)

    def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """
        Ask for the offset of the first message that was stored at a time or later. RocketMQ 4.9,
        and rmq-ha with `timeSearchNearest`, take the message stored closest to the time.

        :param timestamp: the time, in ms since the epoch.
        """
        return self._number(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, timestamp=str(timestamp))

    def earliest_msg_store_time(self, queue: MessageQueue) -> int:
        """Ask when a queue's first message was stored, in ms since the epoch; -1 if not known."""
        return self._number(RequestCode.GET_EARLIEST_MSG_STORETIME, queue, "timestamp")

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Ask the broker for a group's offset; None if the group has none."""
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
        Pull messages from an offset on; a slave is asked if the master does not answer.

        :param hold_ms: how long the broker may wait for a message, in ms.
        :param group: the group in whose name is pulled; no offset is committed.
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
        Yield all messages of a range of offsets in order, for example in a Spark executor's task.

        :param stop: the first offset that is not wanted; at most the queue's `max_offset`.
        :raises MQClientError: messages from `start` on were deleted. Or the queue ends before
            `stop`, as it was read from a slave that lacks messages while its master is away.
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
        Return the message with an offsetMsgId (`SendResult.offset_msg_id`).

        :raises BrokerRefused: the broker does not have the message any more.
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
        Return the messages with a key, from all brokers.

        :param max_num: most messages of each broker.
        :param begin_ms: earliest time of storing, in ms since the epoch.
        :param end_ms: latest time of storing, in ms since the epoch.
        """
        query = KeyQuery(self._full(topic), key, False, max_num, begin_ms, end_ms)
        messages = self.run(messages_by_key(query, self.route(topic)))
        return [self._without_namespace(message) for message in messages]

    def query_message_by_unique_key(self, topic: str, msg_id: str) -> MessageExt | None:
        """Return the message with a unique id of its producer; None if no broker has it."""
        query = KeyQuery(self._full(topic), msg_id, True)
        messages = self.run(messages_by_key(query, self.route(topic)))
        return self._without_namespace(messages[0]) if messages else None

    # Groups

    def consume_stats(self, group: str, topic: str = "") -> GroupLag:
        """Return the offsets and the lag of a group in each queue."""
        return self.run(consume_stats(self._full(group), self._full(topic)))

    def reset_offset(self, group: str, topic: str, timestamp: int) -> Reset:
        """
        Reset a group to a time: tell its connected consumers or, if there are none, set its
        offsets.

        :param timestamp: the time, in ms since the epoch; 0 for the first message, -1 for the end.
        """
        return self.run(reset_offset(self._full(group), self._full(topic), timestamp))

    # Anything else

    def call(self, address: str, command: RemotingCommand, timeout_ms: int = 0) -> RemotingCommand:
        """
        Send any request to a broker or, with an empty address, to a name server.

        :param timeout_ms: how long to wait, in ms; 0 for `mq_client_api_timeout_ms`.
        :raises BrokerRefused: the answer has an error code.
        """
        return self.run(expect(Ask(command, address, timeout_ms)))

    def run(self, asking: Asking[T]) -> T:
        """Run an `Asking`, for example one of `rmq_ha.client.lookups` and `groups`."""
        return drive_at_once(asking, self._ask)

    # Parts

    def _begin(self) -> None:
        """Make the parts that a forked process must not share with its parent."""
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
            ThreadTimes(seconds, sleep, now_ms),
            random,
        )

    def _sender(self) -> SendAsking:
        if self._pid != process_id():
            self._begin()
        return self._sending

    def _send_with_hooks(self, messages: Sequence[Message], go: Callable[[], T]) -> T:
        """Send with calls of the delivery hooks before and after."""
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
        self._sender()  # makes a new signer in a forked process
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
        """Look the name servers up, at most every two minutes; keep them if that fails."""
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
            route = known[0]  # brokers may answer while name servers do not
        self._routes[topic] = route, now + self.settings.poll_name_server_interval_ms / 1000
        return route

    def _stale(self, topic: str) -> None:
        """Let the next use of a topic fetch its route; the old route is kept as a fallback."""
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
