"""The clients of the gRPC door, with their topics and streams.

Spec: grpc.md, sections 5.3 and 5.4.
"""

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.server.door import BrokerVerbs, ClientFacts, DoorProducer, HalfMessage
from rmq_ha.server.grpc.face import GrpcCall
from rmq_ha.server.grpc.front.callers import ClientIdentity
from rmq_ha.server.grpc.front.deliveries import half_message
from rmq_ha.server.grpc.front.refusals import FrontRefusal
from rmq_ha.server.grpc.front.transactions import TransactionId
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import AnswerCode

EXPIRED_S = 120.0
"""Seconds without a sign of life after which a client is forgotten, as in RocketMQ."""
MOST_CLIENTS = 50_000
MOST_TOPICS = 1000
"""Most topics that one client may name in its settings."""

RECONNECTING = frozenset({"JAVA", "HTTP"})
"""Languages whose SDKs know `reconnect_endpoints_command`. Node's SDK names its language HTTP."""

ClientKey = tuple[str, str]
"""Account and client id. The account is in it so that nobody gets the transactions of another
account by using a client id of that account."""


class DoorClient(DoorProducer):
    """
    One client, which producers' tables may have in place of a connection.

    :ivar account: the account that signed its calls; empty without access control.
    :ivar namespace: the namespace of its topics; empty if it uses none.
    :ivar topics: the topics that it sends to, as they are stored.
    :ivar group: the group in which it consumes; empty for a producer.
    :ivar subscriptions: what it consumes, if it said so.
    :ivar seen: when it last gave a sign of life, in seconds of the clock.
    """

    log = Logger()

    def __init__(
        self,
        identity: ClientIdentity,
        account: str,
        remote_text: str,
        forget: "Callable[[DoorClient], object]",
    ) -> None:
        self.identity = identity
        self.account = account
        self.remote_text = remote_text
        self.namespace = ""
        self.topics: tuple[str, ...] = ()
        self.group = ""
        self.subscriptions: tuple[SubscriptionData, ...] = ()
        self.seen = 0.0
        self._forget = forget
        self._streams: dict[GrpcCall, None] = {}

    @property
    def key(self) -> ClientKey:
        return self.account, self.identity.client_id

    @property
    def is_open(self) -> bool:
        return any(stream.is_open for stream in self._streams)

    @property
    def is_full(self) -> bool:
        stream = self._stream()
        return stream is not None and stream.peer.is_full

    def add_stream(self, stream: GrpcCall) -> None:
        """Note a stream on which the client can be asked; the newest open one is used."""
        if stream in self._streams:
            return
        self._streams[stream] = None
        stream.on_end(lambda _: self._ended(stream))

    def ask(self, half: HalfMessage) -> None:
        """Ask whether a transaction is committed or rolled back, on the client's stream."""
        stream = self._stream()
        if stream is None:
            return
        message = half_message(half, self.namespace)
        place = TransactionId(
            message.system_properties.message_id, half.physical_offset, half.queue_offset
        )
        command = messages.RecoverOrphanedTransactionCommand(
            message=message, transaction_id=str(place)
        )
        stream.send(messages.TelemetryCommand(recover_orphaned_transaction_command=command))

    def close(self) -> None:
        """Remove the client from the table of clients."""
        self._forget(self)

    def reconnect(self) -> None:
        """
        Have the client open a new connection, if its SDK knows the command, and end its streams.

        The streams of other SDKs stay open: Python's opens a new one only after some 5 minutes.
        """
        if self.identity.language not in RECONNECTING:
            return
        command = messages.ReconnectEndpointsCommand(nonce=self.identity.client_id)
        for stream in list(self._streams):
            stream.send(messages.TelemetryCommand(reconnect_endpoints_command=command))
            stream.finish()

    def end_streams(self) -> None:
        """End the client's streams; a client that still runs opens a new one."""
        for stream in list(self._streams):
            stream.finish()

    def _stream(self) -> GrpcCall | None:
        for stream in reversed(self._streams):
            if stream.is_open:
                return stream
        return None

    def _ended(self, stream: GrpcCall) -> None:
        self._streams.pop(stream, None)


class ClientTable:
    """
    All clients that sent settings, or as consumers a heartbeat, and did not fall silent since.

    :param seconds: returns the time in seconds of the clock.
    :ivar refused_consumers: number of calls of consumers that were refused, because no consumers
        are served.
    """

    def __init__(self, verbs: BrokerVerbs, seconds: Callable[[], float]) -> None:
        self.refused_consumers = 0
        self._verbs = verbs
        self._seconds = seconds
        self._clients: dict[ClientKey, DoorClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def all(self) -> Iterable[DoorClient]:
        """Return the clients that the table has now."""
        return self._clients.values()

    def find(self, account: str, client_id: str) -> DoorClient | None:
        """Return a client; None if the table does not have it, or not any more."""
        return self._clients.get((account, client_id))

    def is_known(self, client: DoorClient) -> bool:
        """Return whether a client was neither forgotten nor replaced."""
        return self._clients.get(client.key) is client

    def put(self, identity: ClientIdentity, account: str, remote_text: str) -> DoorClient:
        """
        Return the client with this identity, or add it, and note a sign of life.

        :raises FrontRefusal: there are too many clients.
        """
        client = self._clients.get((account, identity.client_id))
        if client is None:
            if len(self._clients) >= MOST_CLIENTS:
                raise FrontRefusal(
                    AnswerCode.TOO_MANY_REQUESTS, f"this broker has {MOST_CLIENTS} clients already"
                )
            client = DoorClient(identity, account, remote_text, self.forget)
            self._clients[client.key] = client
        client.identity, client.remote_text = identity, remote_text
        client.seen = self._seconds()
        return client

    def set_producer(self, client: DoorClient, namespace: str, topics: Iterable[str]) -> None:
        """
        Take the topics of a producer's settings, and register it as a producer of them.

        The broker then asks it about open transactions of these topics.

        :param topics: the topics' names as they are stored.
        """
        self._verbs.forget_producer(client)
        client.namespace, client.topics = namespace, tuple(dict.fromkeys(topics))
        self.heard_of(client)

    def set_consumer(
        self, client: DoorClient, group: str, subscriptions: Iterable[SubscriptionData]
    ) -> None:
        """
        Take the group and the subscriptions of a consumer, so that operators see it.

        :param group: the group's name as it is stored.
        """
        client.group, client.subscriptions = group, tuple(subscriptions)
        self.heard_of(client)

    def heard_of(self, client: DoorClient) -> None:
        """Note a sign of life, for the tables of producers and consumers, too."""
        client.seen = self._seconds()
        facts = ClientFacts(
            client.identity.client_id,
            client.identity.language,
            client.identity.version_number,
            client.account,
            client.identity.version or "-",
        )
        if client.group:
            self._verbs.register_consumer(client.group, client, facts, client.subscriptions)
        for topic in client.topics:
            self._verbs.register_producer(topic, client, facts)

    def forget(self, client: DoorClient) -> None:
        """Remove a client that said good-bye, or gave no sign of life for too long."""
        if self._clients.get(client.key) is client:
            del self._clients[client.key]
        self._verbs.forget_producer(client)
        self._verbs.forget_consumer(client)
        client.end_streams()

    def expire(self) -> None:
        """Forget the clients that gave no sign of life for `EXPIRED_S`; called every 10 s."""
        limit = self._seconds() - EXPIRED_S
        for client in [item for item in self._clients.values() if item.seen < limit]:
            self.forget(client)
