"""Bodies of listings and statistics.

Spec: remoting.md, sections 7.5 and 7.6, appendix B.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import field

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire.bodies import AnswerBody, MessageQueue
from rmq_ha.base.wire.fastjson import RawJson
from rmq_ha.base.wire.versions import version_name

REPLICATION_KEY = "rmqHaReplication"
"""
A header field of rmq-ha. If a request GET_BROKER_RUNTIME_INFO has it, a broker of rmq-ha adds a key
of this name to the answer: JSON about the pair. mqadmin sends no such field and sees no difference.
"""
ASIDE = "stands_aside_for"
"""A key in that JSON: the address of the broker that took this broker's place, if one did."""
HALF = "open_half_offsets"
"""
A key in that JSON: for each half queue the offsets of the first half messages that nobody has
ended. It is missing at slaves, and at a master before its first check of transactions.
"""
OLDEST_HALF = "oldest_half"
"""
A key in that JSON: how many half messages nobody has ended, and the oldest of them, as
`OldestHalf`. It is missing where `HALF` is.
"""
MOST_HALF_OFFSETS = 1000
"""Most offsets of one queue in `HALF`."""
PROMOTIONS = "promotions"
"""
A key in that JSON, for brokers of classic pairs: how many promotions of the pair the broker knows.
"""
GRPC_DOOR = "grpc"
"""A key in that JSON: `host:port` of the broker's port for gRPC, if it has one."""


class OldestHalf(msgspec.Struct, frozen=True):
    """
    The half messages of a broker that nobody has ended, and the oldest of them.

    :ivar number: how many half messages are open.
    :ivar born_ms: when a producer made the oldest, ms since the epoch.
    :ivar group: the producer group of the oldest.
    :ivar topic: the topic that the oldest is meant for.
    """

    number: int = 0
    born_ms: int = 0
    group: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, value: object) -> "OldestHalf":
        """Return what a broker tells; a value of another form counts as no half message."""
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError:
            return cls()


class Connection(msgspec.Struct, rename="camel", frozen=True, order=True):
    """
    The connection of one client in a listing.

    :ivar sdk: a member of rmq-ha: the version of a client of gRPC as the client writes it, such as
        `5.1.2`. None for a client of remoting.
    """

    client_id: str
    client_address: str = field(name="clientAddr")
    language: str | None
    version: int
    sdk: str | None = field(name="rmqHaSdk", default=None)

    @property
    def protocol(self) -> str:
        """The protocol by which the client came: `gRPC` or `remoting`."""
        return "remoting" if self.sdk is None else "gRPC"

    @property
    def version_text(self) -> str:
        """The version as people read it: that of the SDK, or of the client of remoting."""
        return version_name(self.version) if self.sdk is None else self.sdk


class ConsumerConnection(AnswerBody):
    """The consumers of a group, and how they consume (B3)."""

    connections: list[Connection] = field(name="connectionSet", default_factory=list)
    subscriptions: Mapping[str, SubscriptionData] = field(
        name="subscriptionTable", default_factory=dict
    )
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(AnswerBody):
    """The producers of a group (B4)."""

    connections: list[Connection] = field(name="connectionSet", default_factory=list)


class TopicOffset(msgspec.Struct, rename="camel", frozen=True):
    """The bounds of one queue (B10); the time is in ms."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


class TopicStatsTable(AnswerBody):
    """
    The bounds of all queues of a topic (B10).

    :ivar offsets: the bounds by queue. The table of a large topic is JSON text already.
    """

    offsets: Mapping[MessageQueue, TopicOffset] | RawJson = field(name="offsetTable")


class ConsumeOffset(msgspec.Struct, rename="camel", frozen=True):
    """
    The progress of a group in one queue (B11); the time is in ms.

    :ivar pull_offset: `consumer_offset` plus the number of messages that are out with consumers who
        pop. RocketMQ 5 calls the difference "Inflight". None for a group that pulls.
    """

    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    pull_offset: int | None = None


class ConsumeStats(AnswerBody):
    """The progress of a group in all queues (B11)."""

    offsets: Mapping[MessageQueue, ConsumeOffset] = field(name="offsetTable")
    consume_tps: float = 0.0


class _CounterGrowth(Protocol):
    """How much a counter grew during a window of time."""

    @property
    def total(self) -> float: ...
    @property
    def per_second(self) -> float: ...
    @property
    def per_time(self) -> float: ...


class StatsSpan(msgspec.Struct):
    """The counts of a broker over one window of time."""

    total: float = field(name="sum")
    per_second: float = field(name="tps")
    per_time: float = field(name="avgpt")


class BrokerStatsData(AnswerBody):
    """The counts of a broker over a minute, an hour and a day (B16)."""

    stats_minute: StatsSpan
    stats_hour: StatsSpan
    stats_day: StatsSpan

    @classmethod
    def from_growths(cls, growths: Sequence[_CounterGrowth]) -> "BrokerStatsData":
        """
        Make the body from counts.

        :param growths: the counts over a minute, an hour and a day.
        """
        return cls(
            *(StatsSpan(it.total, float(it.per_second), float(it.per_time)) for it in growths)
        )


class ConsumeStatsList(AnswerBody):
    """
    The progress of all groups of a broker (B17).

    :ivar groups: one object for each group, with its ConsumeStats by topic as JSON text.
    :ivar behind: how many messages the groups together have not consumed yet.
    """

    broker_address: str = field(name="brokerAddr")
    groups: list[dict[str, list[RawJson]]] = field(name="consumeStatsList")
    behind: int = field(name="totalDiff")


class ProducerClient(msgspec.Struct, rename="camel"):
    """
    One producer in GET_ALL_PRODUCER_INFO.

    :ivar remote_ip: `/host:port`, as Java shows an address.
    :ivar last_update_timestamp: ms since the epoch.
    """

    client_id: str
    language: str | None
    version: int
    last_update_timestamp: int
    remote_ip: str = field(name="remoteIP")


class ProducerTable(AnswerBody):
    """ProducerTableInfo: the producers by group."""

    data: dict[str, list[ProducerClient]] = field(default_factory=dict)
