"""Asks brokers about consumer groups: settings, members, offsets, dead letters."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import (
    BUILT_IN_GROUPS,
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_system,
)
from rmq_ha.base.wire.bodies import MessageQueue, read_body
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.stat_bodies import TopicOffset
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.administration import members_of
from rmq_ha.client.lookup.asking import Ask, Asking, expect
from rmq_ha.client.lookup.brokers import Offsets, consumer_offsets, group_configs, topic_offsets
from rmq_ha.client.lookup.groups import in_flight, offset_at
from rmq_ha.client.lookup.lookups import queue_number
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError
from rmq_ha.ops.admin.doctor.facts import (
    BrokerFacts,
    ClusterFacts,
    DeadLetterFacts,
    GroupFacts,
    NotLooked,
    PopFacts,
    QueueFacts,
    UnreadableQueues,
)

MOST_MEMBERS = 50
"""How many members of a group are asked for their subscriptions."""
OLD = 0.8
_REFUSALS = (RemotingError, MQClientError, ProtocolViolation)
Step = Callable[[], object]


async def look_at_groups(asker: Asker, facts: ClusterFacts, step: Step) -> None:
    """Ask one broker of each name about its groups: the master, else a slave that answers."""
    groups: dict[str, GroupFacts] = {}
    for broker in first_that_answer(facts):
        try:
            await _look(asker, facts, broker, groups, step)
        except _REFUSALS as error:
            facts.not_looked.append(NotLooked(f"all groups of {broker}", str(error)))
    facts.groups = [groups[name] for name in sorted(groups)]
    for broker in first_that_answer(facts):
        if broker.pops:
            await _look_at_pops(asker, facts, broker, step)


async def _look_at_pops(asker: Asker, facts: ClusterFacts, broker: BrokerFacts, step: Step) -> None:
    """Ask a broker which messages are out with each group."""
    name = broker.name or broker.own_name
    for group in facts.groups:
        try:
            report = await asker.run(in_flight(broker.address, group.name), step)
        except _REFUSALS as error:
            facts.not_looked.append(NotLooked(f"pops of {group.name} at {broker}", str(error)))
            continue
        if report.queues:
            facts.pops.append(PopFacts(group.name, name, broker.most_popped, report))


def first_that_answer(facts: ClusterFacts) -> list[BrokerFacts]:
    """Return one broker for each name: the one that has the offsets."""
    by_name: dict[str, BrokerFacts] = {}
    for broker in facts.answering():
        name = broker.name or broker.own_name
        if (
            name not in by_name
            or (broker.is_master and not by_name[name].is_master)
            or (broker.is_dledger and broker.broker_id == MASTER_ID)
        ):
            by_name[name] = broker
    return list(by_name.values())


async def _look(
    asker: Asker,
    facts: ClusterFacts,
    broker: BrokerFacts,
    groups: dict[str, GroupFacts],
    step: Step,
) -> None:
    here, name = broker.address, broker.name or broker.own_name
    # Offsets come before the ends of their queues. The other way round, a consumer that goes on
    # meanwhile would seem to be beyond the end.
    configs = await asker.run(group_configs(here), step)
    offsets = await asker.run(consumer_offsets(here), step)
    ends: dict[str, dict[int, TopicOffset]] = {}
    for key in offsets:
        topic, _, group = key.partition("@")
        if not _is_own(group) and not is_system(topic) and topic not in ends:
            ends[topic] = await _ends(asker, here, topic, step)
    for known in configs:
        if not _is_own(known):
            groups.setdefault(known, GroupFacts(name=known)).enabled[name] = configs[
                known
            ].consume_enable
    for key, mine in offsets.items():
        topic, _, group = key.partition("@")
        queues = ends.get(topic)
        if not queues or _is_own(group):
            continue
        group_facts = groups.setdefault(group, GroupFacts(name=group))
        for number, offset in sorted(mine.items()):
            if number in queues:
                begin, end = queues[number].min_offset, queues[number].max_offset
                queue = QueueFacts(name, topic, number, begin, end, offset)
                if queue.lag > 0:
                    last_ms = queues[number].last_update_timestamp
                    old_end = await _old_end(asker, facts, broker, queue, last_ms)
                    queue = queue._replace(old_end=old_end)
                group_facts.queues.append(queue)
    for known in configs:
        if known in groups:
            await _members(asker, facts, broker, groups[known], step)
    facts.unreadable_queues += await look_at_unreadable(asker, broker, configs, offsets, step)
    for topic in broker.topics or ():
        if topic.startswith(DLQ_PREFIX):
            found_queues = (await _ends(asker, here, topic, step)).values()
            facts.dead_letters.append(
                DeadLetterFacts(
                    topic.removeprefix(DLQ_PREFIX),
                    name,
                    sum(item.max_offset - item.min_offset for item in found_queues),
                    max((item.last_update_timestamp for item in found_queues), default=0),
                )
            )


def _is_own(group: str) -> bool:
    return group in BUILT_IN_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


async def _ends(asker: Asker, address: str, topic: str, step: Step) -> dict[int, TopicOffset]:
    table = await asker.run(topic_offsets(address, topic), step)
    return {queue.queue_id: item for queue, item in table.items()}


async def _old_end(
    asker: Asker, facts: ClusterFacts, broker: BrokerFacts, queue: QueueFacts, last_ms: int
) -> int | None:
    """
    Return the offset of the first message of a queue that is younger than four fifths of the time
    for which the broker keeps messages; None: the broker refuses to tell.

    :param last_ms: when the queue's last message was stored, in ms since the epoch; 0: unknown. It
        is needed because a broker that is asked for a later moment names the last message.
    """
    moment = facts.now_ms - round(broker.reserved_s * 1000 * OLD)
    if 0 < last_ms < moment:
        return queue.end
    place = MessageQueue(queue.topic, queue.broker, queue.queue)
    try:
        return await asker.run(offset_at({MASTER_ID: broker.address}, place, moment))
    except BrokerRefused:
        return None


async def _members(
    asker: Asker, facts: ClusterFacts, broker: BrokerFacts, group: GroupFacts, step: Step
) -> None:
    members = await asker.run(members_of(broker.address, group.name), step)
    group.model = members.how.get("messageModel") or group.model
    new = {item.client_id: item for item in members.connections}
    group.members |= new
    if len(group.members) < 2:
        return  # a single member cannot differ from another
    # Clients of gRPC cannot be asked.
    asked = [client for client, item in new.items() if item.sdk is None]
    unasked = [client for client in asked if client not in group.subscriptions]
    for client in unasked[:MOST_MEMBERS]:
        try:
            group.subscriptions[client] = await asker.run(
                _subscriptions(broker.address, group.name, client), step
            )
        except _REFUSALS as error:
            facts.not_looked.append(
                NotLooked(f"what {client} of {group.name} subscribes", str(error))
            )
    if len(unasked) > MOST_MEMBERS:
        count = len(unasked) - MOST_MEMBERS
        facts.not_looked.append(
            NotLooked(f"what {count} members of {group.name} subscribe", "they are too many")
        )


def _subscriptions(address: str, group: str, client: str) -> Asking[dict[str, str]]:
    """Ask for the subscriptions of one member, through its broker: expression by topic."""
    ext = {"consumerGroup": group, "clientId": client, "jstackEnable": "false"}
    command = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
    response = yield from expect(Ask(command, address))
    return read_body(
        response.body or b"{}",
        lambda value: {
            str(item["topic"]): str(item.get("subString"))
            for item in value.get("subscriptionSet") or ()
        },
        None,
    )


def waits_for_members(groups: Iterable[GroupFacts]) -> bool:
    return any(group.members and group.lag for group in groups)


async def look_again(asker: Asker, facts: ClusterFacts) -> None:
    for broker in first_that_answer(facts):
        try:
            offsets = await asker.run(consumer_offsets(broker.address))
        except _REFUSALS as error:
            facts.not_looked.append(NotLooked(f"offsets of {broker} again", str(error)))
            continue
        name = broker.name or broker.own_name
        for group in facts.groups:
            group.queues = [
                _second_offset(queue, name, group.name, offsets) for queue in group.queues
            ]


def _second_offset(queue: QueueFacts, broker: str, group: str, offsets: Offsets) -> QueueFacts:
    offset = offsets.get(f"{queue.topic}@{group}", {}).get(queue.queue)
    return queue if queue.broker != broker or offset is None else queue._replace(later=offset)


MOST_QUEUES = 256
"""How many queues of a topic are asked for at most."""


async def look_at_unreadable(
    asker: Asker,
    broker: BrokerFacts,
    groups: Mapping[str, SubscriptionGroupConfig],
    offsets: Offsets,
    step: Callable[[], object],
) -> list[UnreadableQueues]:
    """
    Return the topics of a broker that have unread messages in queues that consumers may not read.

    No answer of a broker lists such queues. So this function asks for the queues that other facts
    name: the topic's number of write queues, the group's number of retry queues, and committed
    offsets. Of each retry topic it asks for one more queue, because the group's number of retry
    queues may have been lowered since. It does so only at brokers of rmq-ha: a Java broker creates
    a queue that it is asked for.

    :param groups: the groups of this broker by name.
    :param offsets: the committed offsets at this broker, by `topic@group` and queue id.
    :param step: called after each answer.
    """
    readers: dict[str, list[Mapping[int, int]]] = {}
    for key, committed in offsets.items():
        topic, _, group = key.partition("@")
        if not topic.startswith(RETRY_PREFIX) or topic == RETRY_PREFIX + group:
            readers.setdefault(topic, []).append(committed)
    broker_name = broker.name or broker.own_name
    unreadable = []
    for topic, config in sorted(broker.topic_configs.items()):
        is_retry = topic.startswith(RETRY_PREFIX)
        committed_by = readers.get(topic) or ([{}] if is_retry else [])
        if is_system(topic) or not committed_by:
            continue
        # The number of queues that anything names: the topic, its groups' offsets, a retry setting.
        readable, named = config.read_queue_nums, config.write_queue_nums
        named = max(named, *(1 + max(committed, default=0) for committed in committed_by))
        if is_retry and (group_config := groups.get(topic.removeprefix(RETRY_PREFIX))):
            named = max(named, group_config.retry_queue_nums)
        beyond = 1 if is_retry and broker.is_ours else 0
        queue_id, needed, messages = readable, readable, 0
        # Each queue with messages moves the end of the search: the next queue may have some, too.
        while queue_id < min(max(named, needed + beyond), readable + MOST_QUEUES):
            queue = MessageQueue(topic, broker_name, queue_id)
            unread = await _count_unread(asker, broker.address, queue, committed_by, step)
            queue_id += 1
            if unread:
                needed, messages = queue_id, messages + unread
        if messages:
            unreadable.append(UnreadableQueues(broker_name, topic, readable, needed, messages))
    return unreadable


async def _count_unread(
    asker: Asker,
    address: str,
    queue: MessageQueue,
    committed_by: Sequence[Mapping[int, int]],
    step: Callable[[], object],
) -> int:
    """Return how many messages of a queue at least one group has not read; 0 for an empty queue."""
    here = {MASTER_ID: address}
    end = await asker.run(queue_number(RequestCode.GET_MAX_OFFSET, here, queue), step)
    if end <= 0:
        return 0
    begin = await asker.run(queue_number(RequestCode.GET_MIN_OFFSET, here, queue), step)
    read_by_all = min(committed.get(queue.queue_id, 0) for committed in committed_by)
    return max(end - max(begin, read_by_all), 0)
