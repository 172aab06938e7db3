"""Bodies between brokers, name servers and clients: registration, routes, cluster.

Spec: remoting.md, chapter 9, appendix A.5, A.6 and A.9.
"""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any, NamedTuple

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.bodies import TopicTable, decode_topic_table, read_body, text
from rmq_ha.base.wire.fastjson import encode, encode_browser, parse
from rmq_ha.base.wire.versions import V3_0_11, V4_9_4

_INT = Struct(">i")
_COMPRESSION_LEVEL = 9
REGISTRATION_VALUES = 1_000_000
"""Values of a registration that is not compressed; a topic has nine."""
HOLDER = "brokerIdHolder"
"""Of ours, in the answer that refuses a registration: the address that holds its brokerId."""
TAKES_OVER = "takesOverFrom"
"""Of ours, in a registration: the address whose broker was found to be dead, or to lead no more."""
ALL_TOPICS = "allTopics"
"""Of ours, in a registration: `true` where it has all topics of the broker, `false` for some."""
RIVALS = "brokerIdRivals"
"""Of ours, beside the cluster's table: JSON, rows of brokerName, brokerId, address, holder."""
CONTROLLERS = "controllerAddresses"
"""Of ours, beside the cluster's table: the controllers' addresses, with `;` between them."""
_MOST_CONTROLLERS = 20


class Rival(NamedTuple):
    """
    A broker that claims a brokerName and brokerId which another broker holds.

    :ivar address: of the broker that claims them.
    :ivar holder: address of the broker that clients are sent to.
    """

    broker_name: str
    broker_id: int
    address: str
    holder: str


def encode_rivals(rivals: Iterable[Rival]) -> str:
    """The field `RIVALS`."""
    return encode({"rivals": [list(rival) for rival in rivals]}).decode()


def decode_rivals(value: str | None) -> list[Rival]:
    """
    The field `RIVALS`; without one there are none.

    :raises ProtocolViolation: it is not such a field.
    """

    def rows(told: dict[str, Any]) -> list[Rival]:
        return [Rival(text(a), int(b), text(c), text(d)) for a, b, c, d in told["rivals"]]

    return read_body(value.encode("utf-8", "replace"), rows) if value else []


def decode_controllers(value: str | None) -> list[str]:
    """
    The addresses in the field `CONTROLLERS`; without the field there are none.

    :raises ProtocolViolation: they are too many, or one of them is no `host:port`.
    """
    addresses = value.split(";") if value else []
    if len(addresses) > _MOST_CONTROLLERS:
        raise ProtocolViolation(
            f"{len(addresses)} controllers are named; {_MOST_CONTROLLERS} are the most"
        )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
            raise ProtocolViolation(f"{address[:100]!r} is no host:port of a controller")
    return addresses


def body_crc32(body: bytes | None) -> int:
    """What the ext field `bodyCrc32` of a registration carries; 0 for no body."""
    return zlib.crc32(body) & 0x7FFFFFFF if body else 0


class RegistrationLimits(NamedTuple):
    """
    What a name server takes from one broker.

    :ivar inflated: bytes of a compressed body.
    :ivar topics: in one registration.
    """

    inflated: int = 4194304
    topics: int = 50_000

    def check_topics(self, count: int) -> None:
        """
        Before they are made.

        :raises ProtocolViolation: they are too many.
        """
        if count > self.topics:
            raise ProtocolViolation(
                f"a registration of {count} topics; maxTopicsOfBroker allows {self.topics}"
            )


_DEFAULT_LIMITS = RegistrationLimits()


@dataclass(slots=True)
class RegisterBrokerBody:
    """
    What a broker registers (code 103, B2).

    :ivar filter_servers: None leaves the name server's list as it is.
    """

    version: DataVersion = field(default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    filter_servers: list[str] | None = field(default_factory=list)

    def encode(self, *, compressed: bool = False) -> bytes:
        """
        The request's body.

        :param compressed: the form that `compressedRegister` asks for; it has no `order` and no
            `topicSysFlag`.
        """
        if not compressed:
            table = TopicTable(self.version, self.topics)
            return encode(
                {
                    "filterServerList": self.filter_servers,
                    "topicConfigSerializeWrapper": table.to_json(),
                }
            )
        pieces = [_sized(encode(self.version.to_json())), _INT.pack(len(self.topics))]
        pieces += [_sized(_topic_text(topic)) for topic in self.topics.values()]
        pieces.append(_sized(encode(self.filter_servers or [])))
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
        From a request's body; none at all means version (0, 0) and no topics.

        :param version: of the sender; old ones put a bare topic table into the body.
        :raises ProtocolViolation: it is not such a body, or larger than `limits` say.
        """
        if not body:
            return cls()
        if compressed:
            return _Inflated(_inflate(body, limits.inflated)).registration(limits)
        if version < V3_0_11:
            table = decode_topic_table(body, REGISTRATION_VALUES)
            limits.check_topics(len(table.topics))
            return cls(table.version, table.topics, None)
        registration = read_body(body, cls._from_json, REGISTRATION_VALUES)
        limits.check_topics(len(registration.topics))
        return registration

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> "RegisterBrokerBody":
        table = TopicTable.from_json(value.get("topicConfigSerializeWrapper") or {})
        servers = value.get("filterServerList")
        return cls(
            table.version,
            table.topics,
            None if servers is None else [text(item) for item in servers],
        )


def _sized(data: bytes) -> bytes:
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


class _Inflated:
    """Reads the inflated form piece by piece."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def registration(self, limits: RegistrationLimits) -> RegisterBrokerBody:
        """
        All of it.

        :raises ProtocolViolation: lengths or pieces do not fit, or there are too many topics.
        """
        try:
            version = DataVersion.from_json(parse(self._piece()))
            count = self._integer()
            limits.check_topics(count)
            topics = {}
            for _ in range(count):
                topic = self._topic()
                topics[topic.topic_name] = topic
            servers = parse(self._piece())
            return RegisterBrokerBody(version, topics, [text(item) for item in servers or ()])
        except (error, ValueError, TypeError, AttributeError, OverflowError) as fault:
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
        name, read, write, perm, filter_type = self._piece().decode("utf-8", "replace").split(" ")
        return TopicConfig(name, int(read), int(write), int(perm), filter_type)


@dataclass(slots=True)
class QueueRoute:
    """The queues of a topic on the brokers of one name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "QueueRoute":
        """Missing numbers are 0."""
        return cls(
            text(value.get("brokerName")),
            int(value.get("readQueueNums", 0)),
            int(value.get("writeQueueNums", 0)),
            int(value.get("perm", 0)),
            int(value.get("topicSysFlag", 0)),
        )


@dataclass(slots=True)
class BrokerRoute:
    """A master and its slaves: broker id to `host:port`."""

    cluster: str
    broker_name: str
    addresses: dict[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Java's member names; the ids stay integers."""
        return {
            "brokerAddrs": self.addresses,
            "brokerName": self.broker_name,
            "cluster": self.cluster,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "BrokerRoute":
        """Ids may be quoted or bare."""
        return cls(
            text(value.get("cluster")),
            text(value.get("brokerName")),
            {int(key): text(item) for key, item in (value.get("brokerAddrs") or {}).items()},
        )


@dataclass(slots=True)
class TopicRoute:
    """TopicRouteData (code 105): where a topic is."""

    queues: list[QueueRoute] = field(default_factory=list)
    brokers: list[BrokerRoute] = field(default_factory=list)
    filter_servers: dict[str, list[str]] = field(default_factory=dict)
    order_conf: str | None = None

    def encode(self, *, standard_json: bool = False) -> bytes:
        """
        The response's body.

        :param standard_json: quoted ids and only ASCII, see `wants_standard_json`.
        """
        write: Callable[[Any], bytes] = encode_browser if standard_json else encode
        return write(
            {
                "brokerDatas": [item.to_json() for item in self.brokers],
                "filterServerTable": self.filter_servers,
                "orderTopicConf": self.order_conf,
                "queueDatas": [item.to_json() for item in self.queues],
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> "TopicRoute":
        """
        From a response of either form.

        :raises ProtocolViolation: it is not such a body.
        """
        return read_body(body, cls._from_json, None)

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> "TopicRoute":
        order_conf = value.get("orderTopicConf")
        return cls(
            [QueueRoute.from_json(item) for item in value.get("queueDatas") or ()],
            [BrokerRoute.from_json(item) for item in value.get("brokerDatas") or ()],
            {
                str(address): [text(item) for item in servers]
                for address, servers in (value.get("filterServerTable") or {}).items()
            },
            None if order_conf is None else text(order_conf),
        )


def wants_standard_json(version: int, ext: dict[str, str] | None) -> bool:
    """Whether a route's requester gets strict JSON: a new client, or one that says so."""
    asked = (ext or {}).get("acceptStandardJsonOnly", "")
    return version >= V4_9_4 or asked.lower() == "true"


@dataclass(slots=True)
class ClusterInfo:
    """Code 106: all brokers by name, and the names by cluster."""

    brokers: dict[str, BrokerRoute] = field(default_factory=dict)
    clusters: dict[str, list[str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The response's body; ids are bare for every client."""
        return encode(
            {
                "brokerAddrTable": {name: item.to_json() for name, item in self.brokers.items()},
                "clusterAddrTable": self.clusters,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> "ClusterInfo":
        """
        From a response.

        :raises ProtocolViolation: it is not such a body.
        """
        return read_body(body, cls._from_json, None)

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> "ClusterInfo":
        return cls(
            {
                str(name): BrokerRoute.from_json(item)
                for name, item in (value.get("brokerAddrTable") or {}).items()
            },
            {
                str(name): [text(item) for item in names]
                for name, names in (value.get("clusterAddrTable") or {}).items()
            },
        )
