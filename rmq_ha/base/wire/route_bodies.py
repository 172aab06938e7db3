"""Bodies between brokers, name servers and clients: registration, routes, cluster.

Spec: remoting.md, chapter 9, appendix A.5, A.6 and A.9.
"""

import zlib
from collections.abc import Iterable
from struct import Struct, error
from typing import NamedTuple

import msgspec
from msgspec import field

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.bodies import (
    AnswerBody,
    Body,
    TopicTable,
    read_as,
    text,
)
from rmq_ha.base.wire.fastjson import encode, encode_browser, parse
from rmq_ha.base.wire.members import from_members
from rmq_ha.base.wire.versions import V3_0_11, V4_9_4

_INT = Struct(">i")
_COMPRESSION_LEVEL = 9
REGISTRATION_VALUES = 1_000_000
"""Most values of a registration that is not compressed. A topic has nine."""
HOLDER = "brokerIdHolder"
"""A field of rmq-ha in the refusal of a registration: the address that holds the brokerId."""
TAKES_OVER = "takesOverFrom"
"""
A field of rmq-ha in a registration: the address of a broker that was found dead, or that leads no
more.
"""
ALL_TOPICS = "allTopics"
"""
A field of rmq-ha in a registration: `true` if it has all topics of the broker, `false` if some.
"""
RIVALS = "brokerIdRivals"
"""
A field of rmq-ha beside the cluster's table: JSON with rows of brokerName, brokerId, address and
holder.
"""
CONTROLLERS = "controllerAddresses"
"""A field of rmq-ha beside the cluster's table: the controllers' addresses, separated by `;`."""
_MOST_CONTROLLERS = 20


class Rival(NamedTuple):
    """
    A broker that claims a brokerName and brokerId which another broker holds.

    :ivar address: address of the broker that claims them.
    :ivar holder: address of the broker that clients are sent to.
    """

    broker_name: str
    broker_id: int
    address: str
    holder: str


class _Rivals(Body):
    """The ext field `brokerIdRivals` (`RIVALS`): each broker that claims a broker name and id which
    another living broker holds."""

    rivals: list[Rival] = field(default_factory=list)


def encode_rivals(rivals: Iterable[Rival]) -> str:
    """Encode the field `RIVALS`."""
    return _Rivals(list(rivals)).encode().decode()


def decode_rivals(value: str | None) -> list[Rival]:
    """
    Decode the field `RIVALS`; without the field there are no rivals.

    :raises ProtocolViolation: the field has another form.
    """
    return _Rivals.decode(value.encode("utf-8", "replace")).rivals if value else []


def decode_controllers(value: str | None) -> list[str]:
    """
    Return the addresses in the field `CONTROLLERS`; none without the field.

    :raises ProtocolViolation: there are too many addresses, or one of them is no `host:port`.
    """
    addresses = value.split(";") if value else []
    if len(addresses) > _MOST_CONTROLLERS:
        raise ProtocolViolation(
            f"{len(addresses)} controllers are named; {_MOST_CONTROLLERS} are the most"
        )
    for address in addresses:
        try:
            parse_host_port(address)
        except ValueError as error:
            raise ProtocolViolation(f"controller: {error}") from None
    return addresses


def body_crc32(body: bytes | None) -> int:
    """Return the value of a registration's ext field `bodyCrc32`; 0 without a body."""
    return zlib.crc32(body) & 0x7FFFFFFF if body else 0


class RegistrationLimits(NamedTuple):
    """
    How much a name server takes from one broker.

    :ivar inflated: most bytes of a body when it is decompressed.
    :ivar topics: most topics of one registration.
    """

    inflated: int = 4194304
    topics: int = 50_000

    def check_topics(self, count: int) -> None:
        """
        Check the number of topics before objects are made of them.

        :raises ProtocolViolation: there are too many topics.
        """
        if count > self.topics:
            raise ProtocolViolation(
                f"a registration of {count} topics; maxTopicsOfBroker allows {self.topics}"
            )


_DEFAULT_LIMITS = RegistrationLimits()


class RegisterBrokerBody(msgspec.Struct):
    """
    The body of a broker's registration (code 103, B2).

    :ivar filter_servers: None leaves the name server's list as it is.
    """

    version: DataVersion = field(default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    filter_servers: list[str] | None = field(default_factory=list)

    def encode(self, *, compressed: bool = False) -> bytes:
        """
        Return the body of the request.

        :param compressed: use the zlib form that `compressedRegister` asks for. Its topics have no
            `order`, no `topicSysFlag` and no attributes, because name servers of 4.9 refuse them.
        """
        if not compressed:
            return encode(
                _PlainRegistration(TopicTable(self.version, self.topics), self.filter_servers)
            )
        pieces = [_with_size(encode(self.version)), _INT.pack(len(self.topics))]
        pieces += [_with_size(_topic_text(topic)) for topic in self.topics.values()]
        pieces.append(_with_size(encode(self.filter_servers or [])))
        return zlib.compress(b"".join(pieces), _COMPRESSION_LEVEL)

    @classmethod
    def decode(
        cls,
        body: bytes | None,
        *,
        compressed: bool = False,
        version: int = V4_9_4,
        limits: RegistrationLimits = _DEFAULT_LIMITS,
    ) -> "RegisterBrokerBody":
        """
        Decode the body of a request. No body means version (0, 0) and no topics.

        :param compressed: whether the body has the zlib form; see `encode`.
        :param version: version of the sender; versions before 3.0.11 send only a topic table.
        :raises ProtocolViolation: the body has another form, or is larger than `limits` allow.
        """
        if not body:
            return cls()
        if compressed:
            return _InflatedReader(_inflate(body, limits.inflated)).registration(limits)
        if version < V3_0_11:
            table = read_as(TopicTable, body, REGISTRATION_VALUES)
            limits.check_topics(len(table.topics))
            return cls(table.version, table.topics, None)
        read = read_as(_PlainRegistration, body, REGISTRATION_VALUES)
        limits.check_topics(len(read.table.topics))
        return cls(read.table.version, read.table.topics, read.filter_servers)


class _PlainRegistration(msgspec.Struct):
    """The members of a registration that is not compressed."""

    table: TopicTable = field(name="topicConfigSerializeWrapper", default_factory=TopicTable)
    filter_servers: list[str] | None = field(name="filterServerList", default=None)


def _with_size(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _topic_text(topic: TopicConfig) -> bytes:
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} "
        f"{topic.perm} {topic.topic_filter_type}"
    ).encode()


def _inflate(body: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, most + 1)
    except zlib.error as fault:
        raise ProtocolViolation(f"the registration does not inflate: {fault}") from None
    if len(data) > most:
        raise ProtocolViolation(
            f"a registration that becomes larger than maxRegistrationBytes allows, {most} bytes"
        )
    if not stream.eof:
        raise ProtocolViolation("the compressed registration is cut short")
    return data


class _InflatedReader:
    """Reads a decompressed registration piece by piece."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def registration(self, limits: RegistrationLimits) -> RegisterBrokerBody:
        """
        Return the whole registration.

        :raises ProtocolViolation: lengths or pieces do not fit, or there are too many topics.
        """
        try:
            version = from_members(DataVersion, parse(self._piece()) or {})
            count = self._integer()
            limits.check_topics(count)
            topics = {}
            for _ in range(count):
                topic = self._topic()
                topics[topic.topic_name] = topic
            servers = parse(self._piece())
            return RegisterBrokerBody(version, topics, [text(item) for item in servers or ()])
        except (error, ValueError, TypeError, msgspec.ValidationError) as fault:
            raise ProtocolViolation(f"the compressed registration is malformed: {fault}") from None

    def _integer(self) -> int:
        (value,) = _INT.unpack_from(self._data, self._position)
        self._position += _INT.size
        return int(value)

    def _piece(self) -> bytes:
        size = self._integer()
        start = self._position
        if not 0 <= size <= len(self._data) - start:
            raise ValueError(f"a length of {size}")
        self._position += size
        return self._data[start : start + size]

    def _topic(self) -> TopicConfig:
        # RocketMQ 5 appends the attributes, which no route needs.
        text = self._piece().decode("utf-8", "replace")
        name, read, write, perm, filter_type, *_ = text.split(" ")
        return TopicConfig(name, int(read), int(write), int(perm), filter_type)


class QueueRoute(msgspec.Struct, rename="camel"):
    """The queues of a topic on the brokers of one name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class BrokerRoute(msgspec.Struct, rename="camel"):
    """
    The addresses of a master and its slaves, which share a broker name.

    :ivar addresses: `host:port` by broker id. The ids have no quotes, except in strict JSON.
    """

    cluster: str
    broker_name: str
    addresses: dict[int, str] = field(name="brokerAddrs", default_factory=dict)


class TopicRoute(AnswerBody):
    """TopicRouteData (code 105): the brokers and queues of a topic."""

    queues: list[QueueRoute] = field(name="queueDatas", default_factory=list)
    brokers: list[BrokerRoute] = field(name="brokerDatas", default_factory=list)
    filter_servers: dict[str, list[str]] = field(name="filterServerTable", default_factory=dict)
    order_conf: str | None = field(name="orderTopicConf", default=None)

    def encode(self, *, standard_json: bool = False) -> bytes:
        """
        Return the body of the response.

        :param standard_json: quote ids and use only ASCII; see `wants_standard_json`.
        """
        return encode_browser(self) if standard_json else encode(self)


def wants_standard_json(version: int, ext: dict[str, str] | None) -> bool:
    """
    Return whether the sender of a request for a route gets strict JSON: a client of version 4.9.4
    or later, or one that asks for it.

    :param version: the version in the header of the request.
    :param ext: the ext fields of the request.
    """
    asked = (ext or {}).get("acceptStandardJsonOnly", "")
    return version >= V4_9_4 or asked.lower() == "true"


class ClusterInfo(AnswerBody):
    """
    The body of code 106: all brokers by name, and the names by cluster. Ids have no quotes, for
    every client.
    """

    brokers: dict[str, BrokerRoute] = field(name="brokerAddrTable", default_factory=dict)
    clusters: dict[str, list[str]] = field(name="clusterAddrTable", default_factory=dict)
