"""Looks at the brokers of one name, and finds the messages and offsets that one of them lacks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topics import SYSTEM_GROUP_PREFIX
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import (
    broker_config,
    consumer_offsets,
    replication_of,
    runtime_info,
    topic_configs,
    topic_offsets,
)
from rmq_ha.client.lookup.lookups import cluster_info
from rmq_ha.client.rules.errors import NoNameServer
from rmq_ha.server.replication.statistics import MasterStatistics


@dataclass(slots=True)
class PairMember:
    """
    One broker of a name.

    :ivar role: the role that it runs in; None: it does not answer.
    :ivar end: end of its commit log.
    :ivar whole_end: end of its last whole record; equals `end` where the broker does not say.
    :ivar info: everything that the broker tells about itself.
    :ivar replication: what a broker of rmq-ha tells about its pair; empty for Java.
    :ivar problem: why it does not answer.
    """

    address: str
    broker_name: str = ""
    role: str | None = None
    broker_id: int | None = None
    root: str = ""
    end: int = 0
    whole_end: int = 0
    info: dict[str, str] = field(default_factory=dict, repr=False)
    replication: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def is_master(self) -> bool:
        """Whether the broker answers and is not a slave."""
        return self.role is not None and self.role != BrokerRole.SLAVE.value

    @property
    def link(self) -> MasterStatistics | None:
        """How a slave of rmq-ha follows its master; None: the broker does not report it."""
        return MasterStatistics.from_replication(self.replication)


def fullness(info: Mapping[str, str]) -> str | None:
    """
    Return how full the disk of the commit log is; None: the broker has no log yet and says -1, as
    Java does.
    """
    ratio = float(info.get("commitLogDiskRatio", "-1"))
    return None if ratio < 0 else f"{ratio * 100:.0f} %"


async def look_at(asker: Asker, address: str) -> PairMember:
    """
    Ask a broker for its role and state.

    :raises BrokerRefused: the broker does not tell, because it wants an admin's account.
    """
    try:
        config = await asker.run(broker_config(address))
        info = await asker.run(runtime_info(address))
    except RemotingError as error:
        return PairMember(address, problem=str(error))
    end, replication = int(info.get("commitLogMaxOffset", "0")), replication_of(info)
    whole_end = replication.get("whole_end")
    return PairMember(
        address,
        config.get("brokerName", ""),
        config.get("brokerRole", ""),
        int(config.get("brokerId", "0")),
        config.get("storePathRootDir", ""),
        end,
        end if whole_end is None else int(whole_end),
        info,
        replication,
    )


class RegisteredName(NamedTuple):
    """
    The brokers that a name server has registered under one name.

    :ivar addresses: addresses by brokerId.
    :ivar problem: why nothing is known.
    """

    addresses: dict[int, str]
    problem: str | None = None

    @property
    def master(self) -> str | None:
        """Address of the registered master, to which clients send."""
        return self.addresses.get(MASTER_ID)


async def registered(asker: Asker, broker_name: str) -> RegisteredName:
    """
    Ask the name servers which brokers have a name. If no name server answers, nothing is raised:
    the result says so in `problem`.
    """
    try:
        info = await asker.run(cluster_info())
    except (NoNameServer, RemotingError) as error:
        return RegisteredName({}, str(error))
    broker = info.brokers.get(broker_name)
    return RegisteredName(broker.addresses if broker else {})


class GroupStanding(NamedTuple):
    """
    The place of a group in a topic at one broker.

    :ivar waiting: messages between the group's offsets and the ends of the queues.
    :ivar beyond: messages by which the group's offsets exceed the ends: the group consumed those at
        another broker.
    """

    group: str
    topic: str
    waiting: int
    beyond: int


async def standings(
    asker: Asker, address: str, step: Callable[[], object] | None = None
) -> list[GroupStanding]:
    """
    Return the groups of a broker whose offsets are not at the ends of all queues.

    RocketMQ's own groups are left out.

    :param step: called after each answer.
    :raises RemotingError: the broker does not answer.
    """
    rows = []
    ends: dict[str, dict[int, int]] = {}
    for name, queues in sorted((await asker.run(consumer_offsets(address), step)).items()):
        topic, _, group = name.partition("@")
        if group.startswith(SYSTEM_GROUP_PREFIX):
            continue
        if topic not in ends:
            known = await asker.run(topic_offsets(address, topic), step)
            ends[topic] = {queue.queue_id: item.max_offset for queue, item in known.items()}
        ahead = [ends[topic].get(number, 0) - offset for number, offset in queues.items()]
        waiting, beyond = (sum(max(0, sign * item) for item in ahead) for sign in (1, -1))
        if waiting or beyond:
            rows.append(GroupStanding(group, topic, waiting, beyond))
    return rows


class Lack(NamedTuple):
    """
    Messages that one broker lacks in a queue, or a group's offset that is behind at this broker.

    :ivar here: end of the queue, or the group's offset, at the broker that lacks something.
    :ivar other: the same at the other broker.
    :ivar group: the group whose offset is behind; empty: messages of the queue are missing.
    """

    topic: str
    queue: int
    here: int
    other: int
    group: str = ""

    @property
    def missing(self) -> int:
        """Number of messages that are missing here, or that the group gets again."""
        return self.other - self.here


async def lacks(
    asker: Asker, here: str, other: str, step: Callable[[], object] | None = None
) -> list[Lack]:
    """
    Return the messages that one broker lacks and another one has, with an item for each queue.
    Items for groups follow: offsets that are behind those at the other broker.

    :param here: address of the broker that may lack messages.
    :param other: address of the other broker.
    :param step: called after each answer.
    :raises RemotingError: one of the brokers does not answer.
    """
    lacking = []
    for topic in sorted(await asker.run(topic_configs(other), step)):
        theirs = await asker.run(topic_offsets(other, topic), step)
        if not any(item.max_offset for item in theirs.values()):
            continue
        ours = {
            queue.queue_id: item.max_offset
            for queue, item in (await asker.run(topic_offsets(here, topic), step)).items()
        }
        for queue, item in sorted(theirs.items()):
            known = ours.get(queue.queue_id, 0)
            if known < item.max_offset:
                lacking.append(Lack(topic, queue.queue_id, known, item.max_offset))
    mine = await asker.run(consumer_offsets(here), step)
    for name, queues in sorted((await asker.run(consumer_offsets(other), step)).items()):
        topic, _, group = name.partition("@")
        for number, offset in sorted(queues.items()):
            known = mine.get(name, {}).get(number, 0)
            if known < offset:
                lacking.append(Lack(topic, number, known, offset, group))
    return lacking
