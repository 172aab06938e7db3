"""One broker's tables without the broker, and a master that its slave asks for others."""

from random import Random
from types import SimpleNamespace

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import RemotingTimeout, StoreError
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.slave import SlaveSynchronize
from rmq_ha.server.broker.streamed_tables import StreamedTables
from rmq_ha.server.broker.tables.broker_tables import CopiedTables
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import DelayOffsetCopy
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

TOPICS = (
    b'{"dataVersion":{"counter":3,"timestamp":1700000000000},"topicConfigTable":{"TopicA":{"order":'
    b'false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TopicA",'
    b'"topicSysFlag":0,"writeQueueNums":8}}}'
)
OFFSETS = b'{"offsetTable":{"TopicA@CG":{0:5,1:7}}}'
DELAYS = b'{"offsetTable":{1:3,3:4}}'
GROUPS = (
    b'{"dataVersion":{"counter":3,"timestamp":1700000000000},"subscriptionGroupTable":{"CG":{'
    b'"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
    b'"groupName":"CG","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,'
    b'"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
)
FAST, MAIN = "m:10909", "m:10911"


class FakeMaster:
    """
    Bodies by (address, code); None and unknown ones time out.

    :ivar end: of each of its queues.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.end = 0
        self.held: dict[tuple[str, int], Deferred[RemotingCommand]] = {}
        self.bodies: dict[tuple[str, int], bytes | None] = {
            (FAST, 21): TOPICS,
            (MAIN, 43): OFFSETS,
            (MAIN, 45): DELAYS,
            (MAIN, 201): GROUPS,
            (MAIN, 30): lambda command: command.response(ext={"offset": str(self.end)}),
        }

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        assert timeout_ms == 3000
        self.asked.append((address, command.code))
        if (address, command.code) in self.held:
            return self.held[address, command.code]
        body = self.bodies.get((address, command.code))
        if callable(body):
            return succeed(body(command))
        if body is None:
            return fail(RemotingTimeout("3000 ms"))
        return succeed(command.response(body=body))

    def oneway(self, address: str, command: RemotingCommand) -> Deferred[None]:
        raise AssertionError("nothing is sent one-way")


class FakeQueues:
    """A slave's queues, one of each topic; what is dropped is noted."""

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self.does_refuse = False

    def numbers(self, topic: str) -> list[int]:
        return [0]

    def drop(self, topic: str) -> None:
        if self.does_refuse:
            raise StoreError("cannot remove")
        self.dropped.append(topic)


class TableSet:
    """
    :ivar master: whom its slave asks.
    :ivar delivery: of delayed messages, as a master.
    :ivar dropped: topics whose queues went.
    :ivar has_masters_log: as of a journal.
    """

    def __init__(self) -> None:
        disk, worker = SimDisk(Random(1), lambda: 0), AtOnce()
        config = BrokerConfig(broker_name="broker-a")
        self.disk, self.clock, self.master = disk, Clock(), FakeMaster()
        self.delivery = SimpleNamespace(offset_table={}, on_progress=lambda: None)
        self.queues = FakeQueues()
        self.dropped = self.queues.dropped
        self.has_masters_log = True
        self.topics = TopicConfigManager(disk, worker, "/c/topics.json", config, self._now_ms)
        self.groups = SubscriptionGroupManager(
            disk, worker, "/c/subscriptionGroup.json", config, self._now_ms
        )
        self.offsets = ConsumerOffsetManager(disk, worker, "/c/consumerOffset.json")
        self.delays = DelayOffsetCopy(disk, worker, "/c/delayOffset.json")
        self.slave = SlaveSynchronize(
            self.clock,
            BrokerOuterAPI(self.master),
            CopiedTables(self.topics, self.groups, self.offsets, self.delays),
            "s:10911",
            lambda: self.has_masters_log,
            self.queues,
        )
        self.tables = StreamedTables(
            self.slave, self.topics, self.groups, self.offsets, self.delivery, self.delays
        )

    def _now_ms(self) -> int:
        return 1700000000000 + int(self.clock.seconds() * 1000)
