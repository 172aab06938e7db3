"""One broker's tables without the broker, as `StreamedTables` needs them."""

from random import Random

from twisted.internet.task import Clock

from rmq_ha.broker.outer_api import BrokerOuterAPI
from rmq_ha.broker.slave import SlaveSynchronize
from rmq_ha.broker.streamed_tables import StreamedTables
from rmq_ha.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.broker.tables.delay_offsets import DelayOffsetCopy
from rmq_ha.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.broker.tables.topics import TopicConfigManager
from rmq_ha.config.broker import BrokerConfig
from rmq_ha.testing.disk import SimDisk
from tests.unit.broker.test_slave import AtOnce, FakeMaster

MASTER = "m:10911"


class TableSet:
    """
    :ivar levels: delay offsets, as a master.
    :ivar dropped: topics whose queues went.
    """

    def __init__(self) -> None:
        disk, worker, config = SimDisk(Random(1), lambda: 0), AtOnce(), BrokerConfig()
        self.disk, self.clock, self.calls = disk, Clock(), FakeMaster()
        self.levels: dict[int, int] = {}
        self.dropped: list[str] = []
        self.topics = TopicConfigManager(disk, worker, "/c/topics.json", config, self._now_ms)
        self.groups = SubscriptionGroupManager(
            disk, worker, "/c/subscriptionGroup.json", config, self._now_ms
        )
        self.offsets = ConsumerOffsetManager(disk, worker, "/c/consumerOffset.json")
        self.delays = DelayOffsetCopy(disk, worker, "/c/delayOffset.json")
        self.slave = SlaveSynchronize(
            self.clock,
            BrokerOuterAPI(self.calls),
            self.topics,
            self.groups,
            self.offsets,
            self.delays,
            "s:10911",
            self.dropped.append,
        )
        self.slave.set_master_address(MASTER)
        self.tables = StreamedTables(
            self.slave, self.topics, self.groups, self.offsets, self.delays, lambda: self.levels
        )

    def _now_ms(self) -> int:
        return 1700000000000 + int(self.clock.seconds() * 1000)
