"""The interface between the doors of a broker and the processors that serve requests.

A door is a port with its protocol, such as gRPC. It decodes the request of a client, calls a method
of `BrokerVerbs`, and encodes the outcome. Behind the methods are the processors of remoting, the
protocol of RocketMQ 4. So both doors share checks, access control, counters and limits, and no door
builds the commands of the other.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.model.host_port import HostPort
from rmq_ha.base.model.message import Address, AppendResult
from rmq_ha.base.model.security import Security
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.pop_headers import PopHeader
from rmq_ha.base.wire.send_header import SendHeader
from rmq_ha.server.pop.face import LeaseChange, LeaseStatus, PopAnswer, Receipt

Need = tuple[str, int]
"""A resource, and the permission for it that a request needs; see `server.acl.permissions`."""


class MessageSender(Protocol):
    """
    The parts of a client's connection that sends use.

    :ivar remote: the client's address.
    :ivar remote_text: the client's address as `ip:port`.
    :ivar host: the client's address without its port.
    :ivar account: the account that signed the request; empty if none did.
    """

    remote: Address
    remote_text: str
    host: str
    account: str

    def hold(self, size: int, work: "Deferred[Any]") -> None:
        """
        Note a request that takes several turns. A connection of remoting then serves no further
        request before this one is done, so that they stay in order; calls of gRPC have no order.

        :param size: size of the request, in bytes.
        :param work: fires when the request ends.
        """

    def __hash__(self) -> int: ...


class SendOutcome(NamedTuple):
    """
    The end of a send.

    :ivar code: a `ResponseCode` of remoting.
    :ivar remark: why nothing was stored; None if the message was stored.
    :ivar fields: header fields of the answer in remoting: ids, offsets, and a recall handle.
    :ivar append: the place of the message; None if nothing was stored.
    """

    code: int
    remark: str | None
    fields: dict[str, str]
    append: AppendResult | None = None


class Settlement(NamedTuple):
    """
    The end of a request that settles a half message, or recalls a message.

    :ivar code: a `ResponseCode` of remoting.
    :ivar remark: why it was refused; None if it was not.
    """

    code: int
    remark: str | None = None


class Poller(Protocol):
    """
    A client that waits for messages: a connection of remoting, or a call of gRPC.

    :ivar remote_text: the client's address as `ip:port`.
    :ivar is_open: whether the client still waits.
    :ivar is_full: whether the client reads too slowly to get messages now.
    """

    remote_text: str

    @property
    def is_open(self) -> bool: ...

    @property
    def is_full(self) -> bool: ...

    def on_close(self, callback: Callable[[Any], object]) -> None:
        """Have `callback(poller)` called once when the client waits no more."""

    def __hash__(self) -> int: ...


class PopOutcome(NamedTuple):
    """
    The end of a pop.

    :ivar code: a `ResponseCode` of remoting.
    :ivar remark: the reason, for the client's log.
    :ivar answer: the messages; None if none were handed out.
    """

    code: int
    remark: str
    answer: PopAnswer | None = None


class DateSignature(NamedTuple):
    """
    The account that a call through the gRPC door names, with the proof of it.

    :ivar access_key: empty if the call names none.
    :ivar signature: HMAC-SHA1 of `date` with the account's secret key, in Base64.
    :ivar date: the bytes of the header `x-mq-date-time` as they came.
    """

    access_key: str = ""
    signature: str = ""
    date: bytes = b""


class DoorCaller(NamedTuple):
    """
    The client of a call, and its request, for access control.

    :ivar remote_text: the client's address as `ip:port`.
    :ivar host: the client's address without its port.
    :ivar security: whether the connection is TLS, and the names in the client's certificate.
    :ivar signed: the account and the signature.
    :ivar code: the `RequestCode` of remoting that asks for the same; refusals name it.
    """

    remote_text: str
    host: str
    security: Security
    signed: DateSignature
    code: int


class DoorQueues(NamedTuple):
    """
    The queues of a topic on one broker that has a door for gRPC.

    :ivar door: address of the broker's door for gRPC.
    :ivar perm: the permission bits of the topic; see `base.model.flags`.
    """

    broker_name: str
    broker_id: int
    door: HostPort
    read_queues: int
    write_queues: int
    perm: int


class ClientChannel(Protocol):
    """A client that tables of clients have: a connection of remoting, or a client of gRPC."""

    @property
    def remote_text(self) -> str:
        """The address of the client, as `ip:port`, for logs and tools."""

    def __hash__(self) -> int: ...


class HalfMessage(NamedTuple):
    """
    The message of a transaction that is not decided yet, about which a producer is asked.

    :ivar topic: the topic that the message is for.
    :ivar physical_offset: physical offset of the half message now; the answer names it.
    :ivar queue_offset: queue offset of the half message now.
    :ivar stored_ms: store time of the half message that was sent, ms.
    """

    topic: str
    queue_id: int
    body: bytes
    sys_flag: int
    properties: dict[str, str]
    born_timestamp: int
    born_host: Address
    store_host: Address
    stored_ms: int
    physical_offset: int
    queue_offset: int


class DoorProducer(ABC):
    """
    A producer that came through a door other than remoting's; the table of producers has it in
    place of a connection.

    :ivar remote_text: its address as `ip:port`.
    """

    remote_text: str

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it can be asked now."""

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether it reads too slowly to be asked now."""

    @abstractmethod
    def ask(self, half: HalfMessage) -> None:
        """Ask whether a transaction is committed or rolled back."""

    @abstractmethod
    def close(self) -> None:
        """Forget the producer, which has not been heard of for too long."""


class ClientFacts(NamedTuple):
    """
    The properties that a client tells of itself.

    :ivar language: a name of `LanguageCode`.
    :ivar version: the number of its version, as remoting's clients give theirs.
    :ivar account: the account that signed its requests; empty without access control.
    :ivar sdk: its version as it writes it, such as `5.1.2`; a hyphen if it tells none.
    """

    client_id: str
    language: str
    version: int
    account: str
    sdk: str


class BrokerVerbs(Protocol):
    """The requests that a broker serves for a door, and the facts that a door needs."""

    @property
    def is_slave(self) -> bool:
        """Whether another broker is the master, so that this one stores nothing for clients."""

    @property
    def serves_timers(self) -> bool:
        """Whether messages may have a delay of any length."""

    def now_ms(self) -> int:
        """Return the time, in ms since the epoch."""

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic of this broker; None if it has none of that name."""

    def route(self, topic: str) -> "Deferred[list[DoorQueues]]":
        """
        Find the queues of a topic on all brokers with a door.

        :returns: fires with the queues, those of this broker first; with an empty list if no broker
            has the topic. It never fails.
        """

    def authorize(self, caller: DoorCaller, needs: Sequence[Need]) -> str:
        """
        Check the signature of a call, and that its account has the permissions.

        :returns: the account; empty without access control, or for an address that needs none.
        :raises AccessRefused: the call is refused.
        """

    def send(
        self, sender: MessageSender, header: SendHeader, body: bytes
    ) -> "Deferred[SendOutcome]":
        """
        Store a message.

        :returns: fires when the store has decided; may fail with `RequestRejected`.
        :raises RequestRejected: the send is refused.
        """

    def settle(
        self, physical_offset: int, queue_offset: int, group: str, unique_id: str, *, commits: bool
    ) -> "Deferred[Settlement]":
        """
        Commit or roll back a half message.

        :param physical_offset: physical offset of the half message.
        :param queue_offset: its queue offset in the topic of half messages.
        :param group: its producer group.
        :param unique_id: the id that its client gave it.
        :raises RequestRejected: this broker does not lead, or the half message is not there.
        """

    def take_back(
        self, born: Address, topic: str, handle: str
    ) -> "tuple[str, Deferred[Settlement]]":
        """
        Recall a timer message, so that it is not delivered.

        :param born: the client's address.
        :param handle: the recall handle, as the answer to the send had it.
        :returns: the message's unique key; and a Deferred that fires when the recall is stored or
            refused.
        :raises RequestRejected: the recall is refused at once.
        """

    @property
    def serves_pops(self) -> bool:
        """Whether consumers are served: `popEnable`."""

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a consumer group, creating it where that is allowed; None if there is none."""

    def pop(self, poller: Poller, header: PopHeader) -> "Deferred[PopOutcome]":
        """
        Hand out messages, now or when some arrive.

        :returns: fires once; never, if the client stops waiting while nothing is there.
        :raises RequestRejected: the pop is refused.
        """

    def acknowledge(self, client: str, receipt: Receipt) -> "Deferred[LeaseStatus]":
        """
        Acknowledge a message.

        :param client: the client's address, for refusals.
        :param receipt: with one offset.
        :raises RequestRejected: the receipt names nothing that this broker has.
        """

    def change(self, client: str, receipt: Receipt, invisible_ms: int) -> "Deferred[LeaseChange]":
        """
        Let the lease of a message end at another time.

        :param client: the client's address, for refusals.
        :param receipt: with one offset.
        :param invisible_ms: how long the message stays invisible from now on, ms.
        :raises RequestRejected: the receipt names nothing that this broker has.
        """

    def bury(self, sender: MessageSender, receipt: Receipt) -> "Deferred[Settlement]":
        """
        Store a copy of a popped message in the dead-letter topic of its group.

        :param receipt: with one offset.
        :raises RequestRejected: the receipt names nothing that this broker has.
        """

    def register_producer(self, group: str, producer: DoorProducer, facts: ClientFacts) -> None:
        """Register a producer in a group, or note that it is alive."""

    def forget_producer(self, producer: DoorProducer) -> None:
        """Remove a producer from all its groups."""

    def register_consumer(
        self,
        group: str,
        consumer: ClientChannel,
        facts: ClientFacts,
        subscriptions: Sequence[SubscriptionData],
    ) -> None:
        """Register a consumer in its group, so that operators see it, or note that it is alive."""

    def forget_consumer(self, consumer: ClientChannel) -> None:
        """Remove a consumer from its group."""
