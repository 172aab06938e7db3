"""A broker without sockets and files: real tables and processors around a store in memory."""

import json
from collections.abc import Iterator
from random import Random
from struct import unpack_from
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    DispatchRequest,
    GetMessageResult,
    Message,
    PutMessageResult,
    offset_msg_id,
)
from rmq_ha.base.model.properties import decode_properties, encode_properties
from rmq_ha.base.model.status import BrokerRole, GetMessageStatus, PutMessageStatus
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.store_format.record_properties import record_properties
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.server.broker.frame_limits import FrameLimits
from rmq_ha.server.broker.hold import PullRequestHoldService
from rmq_ha.server.broker.notify import ConsumerIdsNotifier
from rmq_ha.server.broker.processors.admin_config import AdminConfigProcessor
from rmq_ha.server.broker.processors.admin_groups import AdminGroupsProcessor
from rmq_ha.server.broker.processors.admin_offsets import AdminOffsetsProcessor
from rmq_ha.server.broker.processors.admin_stats import AdminStatsProcessor
from rmq_ha.server.broker.processors.admin_topics import AdminTopicsProcessor
from rmq_ha.server.broker.processors.consume_tables import ConsumeTables
from rmq_ha.server.broker.processors.consumers import ConsumerProcessor
from rmq_ha.server.broker.processors.heartbeat import HeartbeatProcessor
from rmq_ha.server.broker.processors.locks import LockProcessor
from rmq_ha.server.broker.processors.pull import PullMessageProcessor
from rmq_ha.server.broker.processors.pull_filters import PullFilters
from rmq_ha.server.broker.processors.query import QueryProcessor
from rmq_ha.server.broker.processors.send_back import SendBackProcessor
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.client_offsets import ClientOffsets
from rmq_ha.server.broker.tables.clients import ConsumerManager, ProducerManager
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.queue_locks import RebalanceLockManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.store.journal import Role
from rmq_ha.server.store.reading.reads import QueryResult
from rmq_ha.server.store.statistics import StoreStatistics
from rmq_ha.server.store.turns import TurnWatch
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce
from tests.kits.channel import FakeChannel

BROKER = Address.parse("127.0.0.1", 20410)
START_MS = 1_700_000_000_000


class FakeStore:
    """One log and its queues, in memory."""

    def __init__(self) -> None:
        self.log = b""
        self.records: dict[int, bytes] = {}
        self.queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.messages: list[Message] = []
        self.min_offsets: dict[tuple[str, int], int] = {}
        self.in_disk = False
        self.busy = False
        self.statistics = StoreStatistics(0)
        self.turns = TurnWatch()
        self.suggest_slave = False
        self.readable = True
        self.put_status = PutMessageStatus.PUT_OK
        self.status: GetMessageStatus | None = None
        self.found = QueryResult([], 0, 0)
        self.queries: list[Any] = []
        self.slices = 0
        self.known_topics: set[str] | None = None
        self.max_nums: list[int] = []

    def put_message(self, message: Message) -> "Deferred[PutMessageResult]":
        self.messages.append(message)
        if not self.put_status.is_stored:
            return succeed(PutMessageResult(self.put_status))
        queue = self.queues.setdefault((message.topic, message.queue_id), [])
        offset = len(self.log)
        store_ms = START_MS + offset
        record = encode_record(
            Record(
                0,
                0,
                message.queue_id,
                message.flag,
                len(queue),
                offset,
                message.sys_flag,
                message.born_timestamp,
                message.born_host,
                store_ms,
                message.store_host,
                message.reconsume_times,
                0,
                message.body,
                message.topic,
                message.properties_string,
            )
        )
        code = tags_code(message.properties.get("TAGS", ""))
        queue.append((offset, len(record), code))
        self.log += record
        self.records[offset] = record
        append = AppendResult(
            offset, len(record), store_ms, len(queue) - 1, 1, offset_msg_id(BROKER, offset)
        )
        return succeed(PutMessageResult(self.put_status, append))

    def put(self, topic: str, queue_id: int = 0, body: bytes = b"x", **properties: str) -> int:
        message = Message(
            topic,
            queue_id,
            body,
            Address.parse("10.0.0.9", 77),
            BROKER,
            123,
            5,
            properties=properties,
            properties_string=encode_properties(properties),
        )
        offset = len(self.log)
        self.put_message(message)
        return offset

    def arrival(self, topic: str, queue_id: int = 0) -> DispatchRequest:
        """What dispatch says of the last message of a queue."""
        units = self.queues[topic, queue_id]
        offset, size, code = units[-1]
        text = encode_properties(record_properties(self.records[offset]))
        return DispatchRequest(
            topic, queue_id, offset, size, code, START_MS, len(units) - 1, "", "", 0, 0, text
        )

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: Any,
    ) -> GetMessageResult | None:
        if not self.readable:
            return None
        self.max_nums.append(max_nums)
        low = self.min_offset_in_queue(topic, queue_id)
        high = self.max_offset_in_queue(topic, queue_id)
        status, following, records = self._look(
            topic, queue_id, queue_offset, max_nums, message_filter, low, high
        )
        if self.status is not None:
            status, records = self.status, []
        return GetMessageResult(status, following, low, high, records, self.suggest_slave)

    def _look(
        self, topic: str, queue_id: int, offset: int, nums: int, wanted: Any, low: int, high: int
    ) -> tuple[GetMessageStatus, int, list[bytes]]:
        if high == 0:
            return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, []
        if offset < low:
            return GetMessageStatus.OFFSET_TOO_SMALL, low, []
        if offset == high:
            return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, []
        if offset > high:
            return GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, []
        records = [
            self.records[unit[0]]
            for unit in self.queues[topic, queue_id][offset:]
            if wanted is None
            or (wanted.matches_unit(unit[2]) and wanted.matches_record(self.records[unit[0]]))
        ][: max(nums, 1)]
        if not records:
            return GetMessageStatus.NO_MATCHED_MESSAGE, high, []
        return GetMessageStatus.FOUND, offset + len(records), records

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), ()))

    def physical_offset_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        units = self.queues.get((topic, queue_id), [])
        return units[queue_offset][0] if 0 <= queue_offset < len(units) else -1

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return self.min_offsets.get((topic, queue_id), 0)

    def is_in_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return self.in_disk

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, nearest: bool = False
    ) -> int:
        return 0 if nearest else timestamp_ms % 7

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        units = self.queues.get((topic, queue_id), [])
        return START_MS + units[queue_offset][0] if 0 <= queue_offset < len(units) else -1

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        return self.store_timestamp_at(topic, queue_id, 0)

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        if not 0 <= physical_offset <= len(self.log) - 8:
            return None
        size = unpack_from(">i", self.log, physical_offset)[0] if size is None else size
        data = self.log[physical_offset : physical_offset + size] if size > 0 else b""
        return data if len(data) == size else None

    def record_starting_at(self, physical_offset: int) -> bytes | None:
        return self.records.get(physical_offset)

    def unqueued_record_at(self, physical_offset: int) -> bytes | None:
        return None

    def query_in_slices(self, *query: Any) -> Iterator[None]:
        *asked, take = query
        self.queries.append(tuple(asked))
        yield from [None] * self.slices
        take(self.found)

    delay_levels = tuple(range(18))

    slow_until = 1.0

    def waited_ms(self, sender: object, sends: int) -> int:
        return 0

    def is_page_cache_busy(self) -> bool:
        return self.busy

    def clean_unused_topics(self, known: set[str]) -> int:
        self.known_topics = known
        return 0

    def runtime_info(self) -> dict[str, str]:
        return {"commitLogMaxOffset": str(len(self.log)), "putTps": "1.5 "}


class Kit:
    """Everything that processors use, and the processors."""

    def __init__(
        self, role: BrokerRole = BrokerRole.ASYNC_MASTER, hooks: Any = (), **ours: Any
    ) -> None:
        self.clock = Clock()
        self.configuration = BrokerConfiguration()
        for name, value in ours.items():
            setattr(self.configuration.ours, name, value)
        self.broker = self.configuration.broker
        self.broker.broker_name = "broker-a"
        self.broker.broker_ip1 = "127.0.0.1"
        self.configuration.store.broker_role = role
        disk, worker = SimDisk(Random(1), lambda: 0), AtOnce()
        self.store = FakeStore()
        self.topics = TopicConfigManager(disk, worker, "/c/topics.json", self.broker, self.now_ms)
        self.groups = SubscriptionGroupManager(
            disk, worker, "/c/groups.json", self.broker, self.now_ms
        )
        self.offsets = ConsumerOffsetManager(disk, worker, "/c/offsets.json")
        self.client_offsets = ClientOffsets(
            self.offsets,
            self.topics,
            self.configuration.ours,
            self.store,
            Role(self.configuration.store),
        )
        self.filters = ConsumerFilterManager(
            disk, worker, "/c/filters.json", self.broker, self.now_ms
        )
        self.consumers = ConsumerManager(self.filters.unregister)
        self.producers = ProducerManager()
        self.stats = BrokerStats(self.now_ms, self.clock.seconds, "DefaultCluster")
        self.hold = PullRequestHoldService(self.clock, self.store.max_offset_in_queue, 1000)
        self.limits = FrameLimits(self.configuration.ours)
        self.notifier = ConsumerIdsNotifier(self.clock, self.broker, self.consumers, self.groups)
        self.registered: list[TopicConfig] = []
        self.registering: Deferred[None] | None = None
        self.saved: list[dict[str, str]] = []
        self.channel = FakeChannel()
        self._make_processors(hooks)
        self.topics.update(TopicConfig("TopicA", 4, 4, 6))

    def _make_processors(self, hooks: Any) -> None:
        tables = {"topics": self.topics, "consumers": self.consumers}
        consume_tables = ConsumeTables(
            store=self.store, consumer_offsets=self.offsets, broker_name="broker-a", **tables
        )
        self.heartbeats = HeartbeatProcessor(
            groups=self.groups,
            producers=self.producers,
            notifier=self.notifier,
            filters=self.filters,
            config=self.broker,
            limits=self.limits,
            now_ms=self.now_ms,
            steady_ms=self.steady_ms,
            **tables,
        )
        self.processors: list[Any] = [
            self.heartbeats,
            PullMessageProcessor(
                store=self.store,
                groups=self.groups,
                consumer_offsets=self.offsets,
                client_offsets=self.client_offsets,
                hold=self.hold,
                stats=self.stats,
                configuration=self.configuration,
                role=Role(self.configuration.store),
                store_host=BROKER,
                now_ms=self.now_ms,
                seconds=self.clock.seconds,
                hooks=hooks,
                topics=self.topics,
                filters=PullFilters(self.broker, self.consumers, self.filters),
            ),
            SendBackProcessor(
                store=self.store,
                front=self.store,
                topics=self.topics,
                groups=self.groups,
                stats=self.stats,
                config=self.broker,
                random=Random(1),
            ),
            QueryProcessor(store=self.store, config=self.configuration.store, clock=self.clock),
            ConsumerProcessor(
                store=self.store,
                consumers=self.consumers,
                consumer_offsets=self.offsets,
                client_offsets=self.client_offsets,
            ),
            LockProcessor(
                queue_locks=RebalanceLockManager(), limits=self.limits, steady_ms=self.steady_ms
            ),
            AdminOffsetsProcessor(
                store=self.store,
                config=self.configuration.ours,
                consumer_offsets=self.offsets,
                delay_offsets=lambda: {1: 3, 3: 4},
            ),
            AdminTopicsProcessor(
                store=self.store,
                consumer_offsets=self.offsets,
                stats=self.stats,
                configuration=self.configuration,
                register_topic=self._register_topic,
                clock=self.clock,
                **tables,
            ),
            AdminGroupsProcessor(
                groups=self.groups,
                topics=self.topics,
                consumers=self.consumers,
                producers=self.producers,
                consumer_offsets=self.offsets,
                stats=self.stats,
                consume_tables=consume_tables,
                configuration=self.configuration,
                register_topic=self._register_topic,
            ),
            AdminStatsProcessor(
                stats=self.stats,
                groups=self.groups,
                producers=self.producers,
                consume_tables=consume_tables,
                address="127.0.0.1:10911",
                clock=self.clock,
            ),
            AdminConfigProcessor(
                store=self.store,
                topics=self.topics,
                stats=self.stats,
                configuration=self.configuration,
                now_ms=self.now_ms,
                register=lambda: self.registered.append(TopicConfig("*")),
                save=self._save,
            ),
        ]
        self.routes: dict[int, Any] = {}
        for processor in self.processors:
            for code, handler in processor.routes().items():
                assert code not in self.routes
                self.routes[code] = handler

    def steady_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def now_ms(self) -> int:
        return START_MS + int(self.clock.seconds() * 1000)

    def _register_topic(self, config: TopicConfig) -> "Deferred[None]":
        self.registered.append(config)
        return self.registering or succeed(None)

    def _save(self, changes: Any) -> "Deferred[None]":
        self.saved.append(dict(changes))
        return succeed(None)

    def request(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: Any = None,
        *,
        channel: FakeChannel | None = None,
        opaque: int = 7,
        oneway: bool = False,
        binary: bool = False,
        version: int = 407,
    ) -> Any:
        """What the handler returns; a fired Deferred's result; a rejection's response."""
        fields = None if ext is None else {name: str(value) for name, value in ext.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        command = RemotingCommand(
            code,
            fields,
            body,
            opaque,
            FLAG_ONEWAY if oneway else 0,
            version=version,
            binary=binary,
        )
        try:
            answer = self.routes[code](channel or self.channel, command)
        except RequestRejected as error:
            return command.response(error.code, error.remark)
        if isinstance(answer, Deferred):
            results: list[Any] = []
            answer.addCallback(results.append)
            return results[0] if results else None
        return answer

    def heartbeat(
        self,
        channel: FakeChannel,
        client_id: str,
        group: str,
        *topics: str,
        expression: str = "*",
        version: int = 1,
        model: str = "CLUSTERING",
        kind: str = "TAG",
    ) -> Any:
        subscriptions = [
            {
                "topic": topic,
                "subString": expression,
                "subVersion": version,
                "expressionType": kind,
                "tagsSet": [],
                "codeSet": [tags_code(tag.strip()) for tag in expression.split("||")],
            }
            for topic in topics
        ]
        body = {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": model,
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": subscriptions,
                    "unitMode": False,
                }
            ],
            "producerDataSet": [{"groupName": "PG"}],
        }
        return self.request(34, None, body, channel=channel)


def properties_of(message: Message) -> dict[str, str]:
    """As stored."""
    return decode_properties(message.properties_string)
