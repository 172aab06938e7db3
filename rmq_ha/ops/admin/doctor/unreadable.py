"""Looks for messages in queues that consumers may not read."""

from collections.abc import Callable, Mapping

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import RETRY_PREFIX, is_system
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import Offsets
from rmq_ha.client.lookup.lookups import queue_number
from rmq_ha.ops.admin.doctor.facts import Broker, UnreadableQueues

MOST_QUEUES = 256
"""How many queues of a topic are asked for at most."""


async def look_at_unreadable(
    asker: Asker,
    broker: Broker,
    groups: Mapping[str, SubscriptionGroupConfig],
    offsets: Offsets,
    step: Callable[[], object],
) -> list[UnreadableQueues]:
    """
    Return the topics of a broker that have unread messages in queues that consumers may not read.

    No answer lists such queues. So the queues are asked for that the topic's write queues, the
    group's retry queues and committed offsets name. At a broker of rmq-ha one queue more of each
    retry topic is asked for, because the group's number of retry queues may have been lowered
    since. Java's brokers would create a queue if they were asked for it.

    :param groups: the groups of this broker by name.
    """
    readers: dict[str, list[Mapping[int, int]]] = {}
    for key, committed in offsets.items():
        topic, _, group = key.partition("@")
        if not topic.startswith(RETRY_PREFIX) or topic == RETRY_PREFIX + group:
            readers.setdefault(topic, []).append(committed)
    unreadable = []
    for topic, config in sorted(broker.topic_configs.items()):
        is_retry = topic.startswith(RETRY_PREFIX)
        committed_by = readers.get(topic) or ([{}] if is_retry else [])
        if is_system(topic) or not committed_by:
            continue
        readable, last = config.read_queue_nums, config.write_queue_nums
        last = max(last, *(1 + max(committed, default=0) for committed in committed_by))
        if is_retry and (group_config := groups.get(topic.removeprefix(RETRY_PREFIX))):
            last = max(last, group_config.retry_queue_nums)
        number, needed, messages = readable, readable, 0
        more = 1 if is_retry and broker.is_ours else 0
        while number < min(max(last, needed + more), readable + MOST_QUEUES):
            queue = MessageQueue(topic, broker.name or broker.own_name, number)
            here = {MASTER_ID: broker.address}
            number += 1
            end = await asker.run(queue_number(RequestCode.GET_MAX_OFFSET, here, queue), step)
            # An empty queue does not end the search: a queue with messages may come after it.
            if end <= 0:
                continue
            begin = await asker.run(queue_number(RequestCode.GET_MIN_OFFSET, here, queue), step)
            place = min(committed.get(queue.queue_id, 0) for committed in committed_by)
            if end > max(begin, place):
                needed, messages = number, messages + end - max(begin, place)
        if messages:
            unreadable.append(
                UnreadableQueues(broker.name or broker.own_name, topic, readable, needed, messages)
            )
    return unreadable
