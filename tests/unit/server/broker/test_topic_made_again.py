"""A pair on a simulated network: a topic is deleted and made again (field-problems 24)."""

from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.broker import Broker
from rmq_ha.testing.cluster import HA_PORT, small_configuration
from tests.unit.server.broker.sim_broker import SimBroker

TOPIC = "MadeAgain"


class Pair:
    """A SYNC_MASTER and its slave, each a whole broker."""

    def __init__(self) -> None:
        self.master = SimBroker()
        self.master.configuration.store.broker_role = BrokerRole.SYNC_MASTER
        self.master.start()
        host = self.master.world.add("slave")
        ip = host.ip
        self.configuration = small_configuration(ip, BrokerRole.SLAVE, FlushDiskType.ASYNC_FLUSH, 1)
        self.configuration.store.ha_master_address = f"{self.master.host.ip}:{HA_PORT}"
        self.slave = Broker(host.seams, self.configuration)
        self.master.wait(self.slave.start())
        self.slave.slave_synchronize.set_master_address(f"{self.master.host.ip}:10911")
        self.pass_time(12)

    def pass_time(self, seconds: float) -> None:
        clock = self.master.world.clock
        end = clock.seconds() + seconds
        clock.run_while(lambda: clock.seconds() < end, seconds)

    def ask(self, code: RequestCode, **header: str) -> None:
        answer = self.master.call(RemotingCommand(code, header))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def make(self) -> None:
        self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=TOPIC,
            defaultTopic="TBW102",
            readQueueNums="1",
            writeQueueNums="1",
            perm="6",
            topicFilterType="SINGLE_TAG",
            topicSysFlag="0",
            order="false",
        )

    def send(self, count: int, text: str) -> None:
        for number in range(count):
            request = self.master.message(b"%s %d" % (text.encode(), number), TOPIC)
            assert self.master.call(request).code == ResponseCode.SUCCESS

    def delete(self) -> None:
        self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)


def bodies(store: Any) -> list[bytes]:
    """What a consumer reads from offset 0 on."""
    found, offset = [], 0
    while offset < store.max_offset_in_queue(TOPIC, 0):
        result = store.get_message("g", TOPIC, 0, offset, 32, None)
        found += [decode_record(record).body for record in result.messages]
        offset = result.next_begin_offset
    return found


@pytest.mark.parametrize("pause", [0, 25])
def test_both_serve_the_new_life(pause: float) -> None:
    """50 old, deleted, made again, 20 new: the slave had 49 old ones in the new ones' places."""
    pair = Pair()
    pair.make()
    pair.send(50, "old")
    for inner in (pair.master.broker, pair.slave):
        inner.consumer_offsets.commit("g", TOPIC, 0, 40)
    pair.pass_time(1)
    assert len(bodies(pair.slave.store)) == 50
    pair.delete()
    pair.pass_time(pause)
    pair.make()
    pair.send(20, "new")
    pair.pass_time(1)
    wanted = [b"new %d" % number for number in range(20)]
    assert bodies(pair.master.broker.store) == wanted
    assert bodies(pair.slave.store) == wanted
    for inner in (pair.master.broker, pair.slave):
        assert inner.consumer_offsets.query("g", TOPIC, 0) == -1


def test_offsets_may_be_kept_as_with_rocketmq() -> None:
    pair = Pair()
    for configuration in (pair.master.configuration, pair.configuration):
        assert configuration.ours.keep_offsets_of_deleted_topics is False
    pair.master.configuration.ours.keep_offsets_of_deleted_topics = True
    pair.make()
    pair.master.broker.consumer_offsets.commit("g", TOPIC, 0, 40)
    pair.delete()
    assert pair.master.broker.consumer_offsets.query("g", TOPIC, 0) == 40


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_was_committed_late_does_not_count_for_the_new_life(is_kept: bool) -> None:
    """By who had not heard yet that the topic was deleted; with RocketMQ it does."""
    broker = SimBroker()
    broker.configuration.ours.keep_offsets_of_deleted_topics = is_kept
    broker.start()
    assert broker.call(broker.message(b"x", TOPIC)).code == 0
    broker.world.clock.run_for(1)
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
    assert broker.call(delete).code == 0
    offsets = broker.broker.consumer_offsets
    offsets.commit("g", TOPIC, 0, 40)
    assert broker.call(broker.message(b"x", TOPIC)).code == 0
    broker.world.clock.run_for(1)
    assert offsets.query("g", TOPIC, 0) == (40 if is_kept else -1)
    broker.stop()


def test_the_slave_drops_what_its_master_deleted() -> None:
    """A minute later, by proof of the master's table; the log keeps the messages."""
    pair = Pair()
    pair.make()
    pair.send(5, "old")
    pair.pass_time(12)
    pair.slave.consumer_offsets.commit("g", TOPIC, 0, 4)
    pair.delete()
    pair.pass_time(45)
    assert len(bodies(pair.slave.store)) == 5
    pair.pass_time(45)
    assert pair.slave.store.queues.get(TOPIC, 0) is None
    assert pair.slave.consumer_offsets.query("g", TOPIC, 0) == -1
    pair.make()
    pair.send(3, "new")
    pair.pass_time(1)
    assert bodies(pair.slave.store) == [b"new 0", b"new 1", b"new 2"]
