"""Shows the progress of groups in queues, and copies it: codes 303, 308, 314 and 321.

Spec: remoting.md, section 7.5.
"""

from collections.abc import Callable
from typing import Protocol

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.subscription import TAG_TYPES, SubscriptionData
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.store_format.consumequeue import is_extension_address
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.offset_bodies import (
    ConsumeQueueBody,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueEntry,
    QueueTimeSpan,
)
from rmq_ha.server.broker.filters import SelectorFilter
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.admin_offsets import QueueBounds
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.tables.clients import ConsumerManager
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterData, ConsumerFilterManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.store.reading.tag_filter import TagFilter

MOST_UNITS = 8192
"""Most units that QUERY_CONSUME_QUEUE shows in one answer."""

_LONG_MAX = (1 << 63) - 1
_Wanted = Callable[[int, int, bytes | None], bool]


class QueueState(Protocol):
    """The parts of a consume queue that are shown."""

    @property
    def max_offset(self) -> int:
        """The offset of the last message plus one."""

    @property
    def min_offset(self) -> int:
        """The offset of the first message that still exists."""

    def units(self, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return physical offset, size and tag code of units; empty outside the bounds."""

    def extended(self, address: int) -> ExtensionUnit | None:
        """Return the extension unit of a tag code that is an address; None if it is lost."""


class QueueTable(Protocol):
    def get(self, topic: str, queue_id: int) -> QueueState | None: ...


class ProgressStore(QueueBounds, Protocol):
    """The store's answers about queues."""

    @property
    def queues(self) -> QueueTable: ...

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """
        Return the store time of a message, ms since the epoch; -1 if the store does not know it.
        """


class AdminProgressProcessor:
    """
    Shows how far groups have come in queues, copies the offsets of one group to another, and shows
    the units of queues.

    :param broker_name: broker name of the queues in answers.
    :param now_ms: returns ms since the epoch.
    """

    def __init__(
        self,
        *,
        store: ProgressStore,
        topics: TopicConfigManager,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        broker_name: str,
        filters: ConsumerFilterManager,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._broker_name = broker_name
        self._filters = filters
        self._now_ms = now_ms

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction_offset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_group_offset,
            RequestCode.QUERY_CONSUME_QUEUE: self.consume_queue,
        }

    # ------------------------------------------------------------ 303

    def time_span(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer QUERY_CONSUME_TIME_SPAN (303) with the store times of the first, the last and the
        consumed message of every write queue.
        """
        header = fields.header(request)
        topic, group = fields.text(header, "topic"), header.get("group", "")
        config = self._topics.get(topic)
        if config is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        spans = [self._span(topic, group, queue_id) for queue_id in range(config.write_queue_nums)]
        return request.response(body=ConsumeTimeSpans(spans).encode())

    def _span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        """
        Return the times of one queue.

        A group without an offset has consumed nothing. In that case Java reports the time since
        1970 as the delay.
        """
        store = self._store
        first_ms = store.earliest_message_time(topic, queue_id)
        end = store.max_offset_in_queue(topic, queue_id)
        last_ms = store.store_timestamp_at(topic, queue_id, end - 1)
        committed = self._consumer_offsets.query(group, topic, queue_id)
        consumed_ms = next_ms = first_ms
        if committed > 0:
            consumed_ms = store.store_timestamp_at(topic, queue_id, committed - 1)
            next_ms = store.store_timestamp_at(topic, queue_id, committed)
        delay_ms = 0
        if committed < end and next_ms >= 0:
            delay_ms = max(0, self._now_ms() - next_ms)
        queue = MessageQueue(topic, self._broker_name, queue_id)
        return QueueTimeSpan(queue, first_ms, last_ms, consumed_ms, delay_ms)

    # ------------------------------------------------------------ 308

    def correction_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer QUERY_CORRECTION_OFFSET (308): the offset of the slowest group in each queue.

        Unlike in Java, groups that are left out of it keep their offsets.
        """
        header = fields.header(request)
        topic, compared = fields.text(header, "topic"), header.get("compareGroup", "")
        left_out = set(header.get("filterGroups", "").split(","))
        slowest: dict[int, int] = {}
        for group in self._consumer_offsets.which_groups(topic) - left_out:
            for queue_id, offset in self._consumer_offsets.queues(group, topic).items():
                if offset >= self._store.min_offset_in_queue(topic, queue_id):
                    slowest[queue_id] = min(offset, slowest.get(queue_id, _LONG_MAX))
        for queue_id, offset in self._consumer_offsets.queues(compared, topic).items():
            if slowest.get(queue_id, offset) > offset:
                slowest[queue_id] = _LONG_MAX
        return request.response(body=CorrectionOffsets(slowest).encode())

    # ------------------------------------------------------------ 314

    def clone_group_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer CLONE_GROUP_OFFSET (314), always with success; topics that do not fit are skipped.

        Without a topic all topics of the source group are cloned, as Java intends.
        """
        header = fields.header(request)
        source, group = fields.text(header, "srcGroup"), fields.text(header, "destGroup")
        topic = header.get("topic", "").strip()
        offline = fields.flag(header, "offline")
        for name in [topic] if topic else sorted(self._consumer_offsets.which_topics(source)):
            if self._topics.get(name) is None:
                continue
            if not offline and not self._may_subscribe(source, name):
                continue
            self._consumer_offsets.clone(source, group, name)
        return request.response()

    def _may_subscribe(self, group: str, topic: str) -> bool:
        """
        Return whether a group may subscribe a topic: the group is offline, has reported no
        subscriptions, or has reported this topic.
        """
        info = self._consumers.group(group)
        return info is None or not info.subscriptions or topic in info.subscriptions

    # ------------------------------------------------------------ 321

    def consume_queue(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer QUERY_CONSUME_QUEUE (321) with the units of a queue as they are in its file.

        Outside the queue there are no units, and the remark says so.
        """
        header = fields.header(request)
        topic, queue_id = fields.text(header, "topic"), fields.int32(header, "queueId")
        index = fields.int64(header, "index") if "index" in header else 0
        number = fields.optional_int32(header, "count") or 0
        queue = self._store.queues.get(topic, queue_id)
        if queue is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        bounds = (queue.min_offset, queue.max_offset)
        subscription, about, matches = self._subscription(topic, header.get("consumerGroup"))
        units = queue.units(index, min(max(0, number), MOST_UNITS))
        entries = [_entry(queue, matches, *unit) for unit in units]
        body = ConsumeQueueBody(*bounds, entries, subscription, about)
        remark = None
        if not bounds[0] <= index < bounds[1]:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
        return request.response(remark=remark, body=body.encode())

    def _subscription(
        self, topic: str, group: str | None
    ) -> tuple[SubscriptionData | None, str | None, _Wanted | None]:
        """
        Return the group's subscription to the topic, a text about its SQL92 filter, and a function
        that applies the subscription to a unit; None for each part that there is none of.
        """
        if group is None:
            return None, None, None
        info = self._consumers.group(group)
        subscription = None if info is None else info.subscriptions.get(topic)
        if subscription is None:
            return None, f"{group}@{topic} is not online!", None
        data = self._filters.get(topic, group)
        text = b"null" if data is None else fastjson.pretty(data.to_json())
        return subscription, text.decode("utf-8", "replace"), _unit_filter(subscription, data)


def _unit_filter(subscription: SubscriptionData, data: ConsumerFilterData | None) -> _Wanted:
    """Return a function that applies a subscription to an extension unit."""
    if subscription.expression_type in TAG_TYPES:
        return TagFilter(subscription).matches_extension
    if data is None or data.selector is None:
        return lambda *unit: True
    return SelectorFilter(data.selector, data).matches_extension


def _entry(
    queue: QueueState, matches: _Wanted | None, physical_offset: int, size: int, code: int
) -> QueueEntry:
    if not is_extension_address(code):
        return QueueEntry(physical_offset, size, code)
    unit = queue.extended(code)
    if unit is None:
        fault = f"Cq extend not exist!addr: {code}"
        return QueueEntry(physical_offset, size, code, fault=fault)
    is_wanted = matches is not None and matches(*unit)
    return QueueEntry(physical_offset, size, code).add_extension(unit, is_wanted=is_wanted)
