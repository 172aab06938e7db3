"""What a slave does with its master's tables, and when groups' offsets are written."""

import errno

import pytest

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.server.broker.broker import Broker
from tests.unit.server.broker.sim_broker import TOPIC as OPEN_TOPIC
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.test_topic_made_again import TOPIC, Pair, bodies


def connect_anew(broker: SimBroker) -> None:
    """The client's connection ended with the broker, or was idle for too long."""
    broker.client = RemotingClient(broker.client_host.seams, NettyClientConfig())


class LongPair(Pair):
    """A pair whose members stop and start."""

    def stop_slave(self) -> None:
        self.master.wait(self.slave.stop())

    def start_slave(self) -> None:
        host = self.master.world.hosts["slave"]
        self.slave = Broker(host.seams, self.configuration)
        self.master.wait(self.slave.start())
        self.slave.slave_synchronize.set_master_address(f"{self.master.host.ip}:10911")

    def restart_master_without(self, *paths: str) -> None:
        self.master.stop()
        disk = self.master.host.disk
        for path in paths:
            disk.remove_tree(path) if disk.is_dir(path) else disk.remove(path)
        self.master.start()

    def make_others(self, count: int) -> None:
        for number in range(count):
            self.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                topic=f"Other{number}",
                defaultTopic="TBW102",
                readQueueNums="1",
                writeQueueNums="1",
                perm="6",
                topicFilterType="SINGLE_TAG",
                topicSysFlag="0",
                order="false",
            )


def test_a_slave_keeps_the_queues_of_a_topic_that_its_master_forgot() -> None:
    """200 SEND_OK were not readable there for good, once the topic was made again."""
    pair = LongPair()
    pair.make()
    pair.send(20, "before")
    pair.pass_time(12)
    pair.stop_slave()
    pair.restart_master_without("/store/config/topics.json", "/store/config/topics.json.bak")
    pair.make_others(12)
    pair.start_slave()
    pair.pass_time(120)
    assert pair.slave.topics.get(TOPIC) is None
    connect_anew(pair.master)
    pair.make()
    pair.send(5, "after")
    pair.pass_time(15)
    wanted = [b"before %d" % number for number in range(20)]
    wanted += [b"after %d" % number for number in range(5)]
    assert bodies(pair.master.broker.store) == wanted
    assert bodies(pair.slave.store) == wanted


def test_a_slave_takes_no_tables_of_a_master_with_an_empty_disk() -> None:
    """It is the only good copy at that moment: who promotes it needs its topics and groups."""
    pair = LongPair()
    pair.make()
    pair.send(20, "before")
    pair.pass_time(12)
    pair.restart_master_without("/store")
    pair.pass_time(60)
    assert pair.slave.journal.statistics().master.state == "diverged"
    assert pair.slave.topics.get(TOPIC) is not None
    assert len(bodies(pair.slave.store)) == 20


def test_offsets_are_written_at_the_first_commit_after_a_start() -> None:
    """A broker that was killed within ten seconds went back to the file of its last life."""
    broker = SimBroker().start()
    for _ in range(9):
        assert broker.send().code == 0
    broker.world.clock.run_for(0.5)
    ext = {"consumerGroup": "g", "topic": OPEN_TOPIC, "queueId": "0"}
    commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": "9"})
    assert broker.call(commit).code == 0
    broker.world.clock.run_for(0.5)
    broker.host.crash()
    broker.host.restart()
    broker.start()
    connect_anew(broker)
    query = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    assert (broker.call(query).ext or {})["offset"] == "9"
    broker.stop()
    assert not broker.world.clock.failures


@pytest.mark.parametrize("operation", ["pwrite", "sync", "pread"])
def test_a_slave_that_is_out_by_its_disk_says_why(operation: str) -> None:
    """Its /healthz was 200 'ready: serves reads', and the reason stood in its log only."""
    pair = LongPair()
    pair.make()
    pair.send(3, "before")
    pair.pass_time(12)
    status = BrokerStatus(pair.slave)
    assert status.health().is_ready
    disk = pair.master.world.hosts["slave"].disk
    disk.fault = lambda what, path: (
        errno.EIO if what == operation and "/commitlog/" in path else None
    )
    pair.master.call(pair.master.message(b"more", TOPIC))
    if operation == "pread":  # of what it has, to compare it
        pair.restart_master_without()
    pair.pass_time(20)
    health = status.health()
    assert not health.is_ready
    assert "EIO" in health.reason or "Input/output error" in health.reason
    assert pair.slave.topics.get(TOPIC) is not None
    if operation == "pread":
        disk.fault = lambda what, path: None
        pair.pass_time(20)
        assert status.health().is_ready
