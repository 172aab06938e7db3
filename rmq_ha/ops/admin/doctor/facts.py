"""
The facts of a cluster that rules judge. A fact that could not be asked for is None or empty, and
`ClusterFacts.not_looked` says why.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, overload

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.door_facts import DOOR, POPPING, DoorFacts, popping_pairs
from rmq_ha.base.wire.pop_reports import InFlightReport
from rmq_ha.base.wire.route_bodies import Rival
from rmq_ha.base.wire.stat_bodies import ASIDE, OLDEST_HALF, Connection, OldestHalf
from rmq_ha.base.wire.timer_bodies import TIMERS, TimerFacts
from rmq_ha.ops.admin.doctor.local import LocalFacts
from rmq_ha.server.replication.statistics import MasterStatistics

_RUNTIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")
_SIZE = re.compile(r"([\d.]+) (B|KiB|MiB|GiB|TiB|PiB|EiB)")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
Sample = tuple[Mapping[str, str], float]


@overload
def number(values: Mapping[str, str], key: str) -> float | None: ...


@overload
def number(values: Mapping[str, str], key: str, default: float) -> float: ...


def number(values: Mapping[str, str], key: str, default: float | None = None) -> float | None:
    """
    Return a number from a broker's values; the default if the key is missing or has no number.
    """
    try:
        return float(values.get(key, ""))
    except ValueError:
        return default


def size_in(text: str) -> float | None:
    """Return the first size in a text of RocketMQ, like `6.2 KiB`, in bytes."""
    match = _SIZE.search(text)
    return float(match[1]) * 1024 ** _UNITS.index(match[2]) if match else None


@dataclass(kw_only=True)
class NameServer:
    """
    One name server.

    :ivar problem: why the name server does not answer; None or empty: it answers.
    :ivar refused: why it does not say which brokers are registered although it answers, for example
        because the port is a broker's.
    :ivar resolves: whether its host name stands for an address; true for an address.
    :ivar brokers: addresses by broker name and id.
    :ivar clusters: the cluster of each broker name.
    :ivar topics: topics that it has routes for; None: it did not say.
    :ivar rivals: brokers that claim a name and id that another broker holds; empty: there are none,
        or the name server runs Java.
    :ivar controllers: addresses of the controllers that it knows; empty: it tells of none.
    """

    address: str
    problem: str | None = None
    refused: str | None = None
    resolves: bool = True
    brokers: dict[str, dict[int, str]] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    topics: frozenset[str] | None = None
    rivals: list[Rival] = field(default_factory=list)
    controllers: list[str] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        """Whether the name server says which brokers are registered."""
        return self.problem is None and self.refused is None


class Port(NamedTuple):
    """
    A port of a broker.

    :ivar problem: why this machine cannot connect to it; None: it can.
    """

    address: str
    problem: str | None = None


@dataclass(kw_only=True)
class Status:
    """
    A status port.

    :ivar problem: why it does not answer.
    :ivar health: the line of /healthz.
    :ivar metrics: samples by name.
    :ivar later: the samples some seconds later; empty: nobody looked again.
    """

    address: str
    problem: str | None = None
    is_ready: bool = True
    health: str = ""
    metrics: dict[str, list[Sample]] = field(default_factory=dict)
    later: dict[str, list[Sample]] = field(default_factory=dict)

    def total(self, name: str) -> float:
        """Return the sum of a metric over all labels; 0 if the metric is missing."""
        return sum(value for _, value in self.metrics.get(name, ()))

    def growth(self, name: str) -> float | None:
        """
        Return by how much a metric grew between the two looks; None if there was only one look.
        """
        if not self.later:
            return None
        return sum(value for _, value in self.later.get(name, ())) - self.total(name)


class CertificateFacts(NamedTuple):
    """
    A certificate that a server shows, or that lies in a file.

    :ivar where: an address, or a key of the properties file.
    :ivar name: the names that it is issued for, as text.
    :ivar names: the same names, one by one.
    :ivar host: the host that shows it; empty: it lies in a file.
    """

    where: str
    name: str
    begins: datetime
    ends: datetime
    names: tuple[str, ...] = ()
    host: str = ""


@dataclass(kw_only=True)
class BrokerFacts:
    """
    One broker, as a name server knows it and as it describes itself.

    :ivar name: the name that it is registered with. `name`, `cluster` and `broker_id` are empty
        when only its address is known.
    :ivar problem: why it does not answer.
    :ivar refused: why it answers, but refuses to tell some or all of the facts below.
    :ivar took_ms: how long its answer took.
    :ivar clock_ahead_ms: how far its clock is ahead of this machine's; None: not known.
    :ivar config: the settings that it runs with.
    :ivar info: the answer to GET_BROKER_RUNTIME_INFO.
    :ivar replication: what a broker of rmq-ha tells of its pair; empty for Java.
    :ivar topics: names of its topics; None: nobody asked.
    :ivar topic_configs: the topics of this broker by name; empty: nobody asked.
    :ivar topics_changed_ms: when its topics last changed, by the broker's clock.
    :ivar plain: whether the port takes a connection at all.
    :ivar ha: the port for slaves; None: no other broker has to reach it.
    """

    address: str
    name: str = ""
    cluster: str = ""
    broker_id: int | None = None
    problem: str | None = None
    refused: str | None = None
    took_ms: int = 0
    clock_ahead_ms: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    replication: dict[str, Any] = field(default_factory=dict)
    topics: frozenset[str] | None = None
    topic_configs: dict[str, TopicConfig] = field(default_factory=dict)
    topics_changed_ms: int = 0
    plain: Port | None = None
    ha: Port | None = None
    fast: Port | None = None
    status: Status | None = None

    def __str__(self) -> str:
        return f"{self.name or self.own_name} {self.address}".strip()

    @property
    def answers(self) -> bool:
        """Whether the broker told its settings."""
        return bool(self.config)

    @property
    def host(self) -> str:
        """The broker's address without its port."""
        return host_of(self.address)

    @property
    def own_name(self) -> str:
        return self.config.get("brokerName", "")

    @property
    def role(self) -> str:
        """The role that it runs in; empty when it does not answer."""
        return self.config.get("brokerRole", "")

    @property
    def is_slave(self) -> bool:
        return self.role == BrokerRole.SLAVE.value

    @property
    def is_master(self) -> bool:
        """
        Whether it answers and runs as a master. Members of DLedger groups do not tell, so this is
        false for them.
        """
        return not (self.is_slave or self.is_dledger or self.successor) and self.answers

    @property
    def successor(self) -> str:
        """
        Address of the master for which this broker of rmq-ha stands aside; empty: it does not stand
        aside.
        """
        return str(self.replication.get(ASIDE) or "")

    @property
    def is_dledger(self) -> bool:
        """Whether it belongs to a DLedger group, which elects its master."""
        return self.config.get("enableDLegerCommitLog") == "true"

    @property
    def is_controlled(self) -> bool:
        return self.config.get("enableControllerMode") == "true"

    @property
    def is_ours(self) -> bool:
        """Whether this broker runs rmq-ha, not RocketMQ for Java."""
        return bool(self.replication)

    @property
    def end(self) -> int:
        return int(number(self.info, "commitLogMaxOffset", 0))

    @property
    def link(self) -> MasterStatistics | None:
        """How a slave of rmq-ha follows its master; None: the broker says nothing of that."""
        return MasterStatistics.from_replication(self.replication)

    @property
    def timers(self) -> TimerFacts:
        """The state of its timer messages, as a broker of rmq-ha tells it."""
        return TimerFacts(self.replication.get(TIMERS))

    @property
    def oldest_half(self) -> OldestHalf:
        """Its open half messages, as a broker of rmq-ha tells them."""
        return OldestHalf.parse(self.replication.get(OLDEST_HALF))

    def clock_ms(self, default: int) -> int:
        """Return the time of its clock when it answered, or the default if it does not tell."""
        told = self.replication.get("now_ms")
        return told if isinstance(told, int) else default

    @property
    def door(self) -> DoorFacts:
        """The state of its gRPC port, as a broker of rmq-ha tells it."""
        return DoorFacts(self.replication.get(DOOR))

    @property
    def has_door(self) -> bool:
        """Whether it is a broker of rmq-ha with a port for gRPC."""
        return self.is_ours and number(self.config, "grpcServerPort", 0) > 0

    @property
    def pops(self) -> bool:
        """Whether it is a broker of rmq-ha that serves pops."""
        return self.is_ours and self.config.get("popEnable") == "true"

    @property
    def most_popped(self) -> int:
        """Most messages of one queue that may be out with a group; 0: there is no limit."""
        is_limited = self.config.get("enablePopMessageThreshold") == "true"
        most = number(self.config, "popInflightMessageThreshold", 0) if is_limited else 0
        return int(most)

    @property
    def popping(self) -> list[tuple[str, str]]:
        """The pairs of topic and group whose mode is POP, as a broker of rmq-ha tells them."""
        return popping_pairs(self.replication.get(POPPING))

    @property
    def slaves(self) -> list[dict[str, Any]] | None:
        """The slaves that follow this master of rmq-ha; None: the broker does not tell."""
        slaves = self.replication.get("slaves")
        return slaves if isinstance(slaves, list) else None

    @property
    def reserved_s(self) -> float:
        """For how many seconds messages are kept."""
        return number(self.config, "fileReservedTime", 72) * 3600

    @property
    def free_bytes(self) -> float | None:
        """Free bytes on the disk of its commit log; None: not known."""
        return size_in(self.info.get("commitLogDirCapacity", "").partition("Free")[2])

    @property
    def total_bytes(self) -> float | None:
        return size_in(self.info.get("commitLogDirCapacity", "").partition("Free")[0])

    @property
    def runs_s(self) -> int | None:
        match = _RUNTIME.search(self.info.get("runtime", ""))
        if match is None:
            return None
        days, hours, minutes, seconds = map(int, match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class QueueFacts(NamedTuple):
    """
    A queue of a broker, and the place of a group in it.

    :ivar broker: the broker's name.
    :ivar later: the group's offset some seconds later; None: nobody looked again.
    :ivar old_end: offset of the first message that is not about to be deleted for its age; None:
        nobody asked.
    """

    broker: str
    topic: str
    queue: int
    begin: int
    end: int
    offset: int
    later: int | None = None
    old_end: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}, queue {self.queue} of {self.broker}"

    @property
    def lag(self) -> int:
        """Messages that the group has not consumed."""
        return self.end - max(self.offset, self.begin)


@dataclass(kw_only=True)
class GroupFacts:
    """
    A consumer group, at all brokers.

    :ivar enabled: whether the group may consume, by broker name.
    :ivar members: the members by client id.
    :ivar subscriptions: for each member that could be asked, expression by topic.
    :ivar model: CLUSTERING or BROADCASTING; empty: unknown.
    :ivar queues: all queues in which the group has ever committed an offset.
    """

    name: str
    enabled: dict[str, bool] = field(default_factory=dict)
    members: dict[str, Connection] = field(default_factory=dict)
    subscriptions: dict[str, dict[str, str]] = field(default_factory=dict)
    model: str = ""
    queues: list[QueueFacts] = field(default_factory=list)

    @property
    def lag(self) -> int:
        return sum(max(0, item.lag) for item in self.queues)


class UnreadableQueues(NamedTuple):
    """
    Queues of a topic that hold messages and that consumers may not read.

    :ivar broker: the broker's name.
    :ivar readable: how many queues of the topic consumers may read.
    :ivar needed: how many they would have to read.
    :ivar messages: how many messages lie in the other queues and were consumed by no group.
    """

    broker: str
    topic: str
    readable: int
    needed: int
    messages: int


class DeadLetterFacts(NamedTuple):
    """
    The dead letters of a group.

    :ivar last_ms: when the last one was stored; 0: unknown.
    """

    group: str
    broker: str
    messages: int
    last_ms: int


class Controller(NamedTuple):
    """
    A controller that a name server or the `controllerAddr` of a broker names.

    :ivar problem: why it does not answer.
    :ivar leader: address of the controller that leads; empty: this controller knows no leader.
    """

    address: str
    problem: str | None = None
    leader: str = ""


class SetMember(NamedTuple):
    """
    A broker of a set, as the controllers know it.

    :ivar alive: whether its heartbeats reach the controllers.
    """

    number: int
    address: str
    alive: bool

    def __str__(self) -> str:
        return f"broker {self.number} at {self.address}"


class LeaderlessSet(NamedTuple):
    """
    A set of brokers in controller mode that has no master, as the controllers know it.

    :ivar name: the `brokerName` of all its brokers.
    :ivar in_sync: brokers that have all messages; empty: no master was ever elected.
    :ivar others: brokers that may lack messages.
    """

    name: str
    in_sync: tuple[SetMember, ...]
    others: tuple[SetMember, ...]


class PopFacts(NamedTuple):
    """
    The popped messages of a group at one broker.

    :ivar broker: the broker's name.
    :ivar most: most messages of a queue that may be out; 0: there is no limit.
    """

    group: str
    broker: str
    most: int
    report: InFlightReport


class NotLooked(NamedTuple):
    """A thing that could not be looked at, and the reason."""

    what: str
    why: str


@dataclass(kw_only=True)
class ClusterFacts:
    """
    All facts of one look at a cluster.

    :ivar now_ms: this machine's time.
    :ivar again_s: how many seconds after the first look the second one was; 0: there was none.
    """

    now_ms: int
    again_s: float = 0.0
    name_servers: list[NameServer] = field(default_factory=list)
    brokers: list[BrokerFacts] = field(default_factory=list)
    controllers: list[Controller] = field(default_factory=list)
    leaderless: list[LeaderlessSet] = field(default_factory=list)
    groups: list[GroupFacts] = field(default_factory=list)
    dead_letters: list[DeadLetterFacts] = field(default_factory=list)
    unreadable_queues: list[UnreadableQueues] = field(default_factory=list)
    pops: list[PopFacts] = field(default_factory=list)
    certificates: list[CertificateFacts] = field(default_factory=list)
    local: LocalFacts | None = None
    not_looked: list[NotLooked] = field(default_factory=list)

    def pairs(self) -> Iterator[tuple[str, list[BrokerFacts]]]:
        """Yield each registered broker name with its brokers."""
        for name in dict.fromkeys(item.name for item in self.brokers if item.name):
            yield name, [item for item in self.brokers if item.name == name]

    def rivals(self) -> list[Rival]:
        """Return the rivals that the name servers told of, each once."""
        return list(dict.fromkeys(rival for server in self.name_servers for rival in server.rivals))

    def none_registered(self) -> bool:
        """Whether a name server answers, and no name server that answers knows a broker."""
        telling = [server for server in self.name_servers if server.answers]
        return bool(telling) and not any(server.brokers for server in telling)

    def controllers_lead(self) -> bool:
        """Return whether a controller that answers knows the leader of the controllers."""
        return any(item.leader for item in self.controllers)

    def answering(self) -> list[BrokerFacts]:
        return [item for item in self.brokers if item.answers]


def master_of(members: Iterable[BrokerFacts]) -> BrokerFacts | None:
    """
    Return the broker that answers as the only master of a name; None: there is none, or several.
    """
    masters = [item for item in members if item.is_master]
    return masters[0] if len(masters) == 1 else None


def registered_master(members: Iterable[BrokerFacts]) -> BrokerFacts | None:
    """Return the broker that name servers call the master."""
    return next((item for item in members if item.broker_id == MASTER_ID), None)
