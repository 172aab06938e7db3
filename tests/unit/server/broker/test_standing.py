"""
A broker without a lease is no master to anybody: not to name servers, not to clients.

Spec: controller.md, section 9.2.
"""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.wire.bodies import LockBatch, MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.namesrv.routes import RouteInfoManager
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers

LEASE_S = 8.0


def routes(brokers: ControlledBrokers) -> RouteInfoManager:
    found = brokers.name_server.namesrv.routes
    assert isinstance(found, RouteInfoManager)
    return found


def ids(brokers: ControlledBrokers) -> dict[int, str]:
    """Where the name server sends clients of the set, by brokerId."""
    return dict(routes(brokers).cluster_info().brokers["b"].addresses)


def address(node: BrokerNode) -> str:
    return f"{node.host.ip}:{LISTEN_PORT}"


def cut_from_controllers(brokers: ControlledBrokers, node: BrokerNode) -> None:
    for host in brokers.desk.hosts:
        brokers.world.network.partition(node.host.name, host.name)


def test_a_master_that_is_cut_from_its_controllers_leaves_id_0_and_does_not_come_back() -> None:
    """Name servers and clients reach it all the time; it registered as 0 every 30 s."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    brokers.until(lambda: ids(brokers) == {0: address(first), 2: address(second)}, 1.0)
    cut_from_controllers(brokers, first)
    took = brokers.until(lambda: ids(brokers).get(0) != address(first), LEASE_S + 1)
    assert took < LEASE_S + 0.5
    assert ids(brokers) == {1: address(first), 2: address(second)}, "consumers read there"
    brokers.until(lambda: ids(brokers).get(0) == address(second), 5.0)
    first.broker.registration.register_all()
    for _ in range(100):
        brokers.run(1.0)
        assert ids(brokers) == {0: address(second), 1: address(first)}
    brokers.world.network.heal()
    brokers.run(20.0)
    assert ids(brokers) == {0: address(second), 1: address(first)}
    assert routes(brokers).claims.takeovers == 0
    assert not brokers.findings.violations


def test_a_registration_that_is_late_does_not_take_id_0_back() -> None:
    """It left while the lease was valid, and the network kept it until another one leads."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    brokers.world.network.cut(first.host.name, brokers.name_server.host.name)
    first.broker.registration.register_all()
    cut_from_controllers(brokers, first)
    brokers.until(lambda: ids(brokers).get(0) == address(second), 15.0)
    refused = routes(brokers).claims.refused
    brokers.world.network.heal()
    brokers.until(lambda: routes(brokers).claims.refused > refused, 5.0)
    for _ in range(40):
        brokers.run(1.0)
        assert ids(brokers)[0] == address(second)
    assert not brokers.findings.violations


def test_a_master_whose_controllers_come_back_is_the_master_at_once() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    brokers.desk.crash(0)
    brokers.until(lambda: 0 not in ids(brokers), LEASE_S + 1)
    brokers.desk.restart(0)
    assert brokers.leader() is first
    brokers.until(lambda: ids(brokers).get(0) == address(first), 0.5)
    assert not brokers.findings.violations


def test_each_registration_has_the_epoch_also_a_slaves() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    brokers.boot(first)
    brokers.in_sync()
    brokers.run(2.0)
    live = routes(brokers)._live
    assert {live[address(node)].data_version.state_version for node in (first, second)} == {2}


def lock(client: str) -> RemotingCommand:
    batch = LockBatch("ordered", client, [MessageQueue(TOPIC, "b", 0)])
    return RemotingCommand(RequestCode.LOCK_BATCH_MQ, body=batch.encode())


def committed(offset: int) -> RemotingCommand:
    ext = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    return RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


def new_group() -> RemotingCommand:
    body = encode(SubscriptionGroupConfig("new"))
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def new_topic() -> RemotingCommand:
    ext = {"topic": "new", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "topicSysFlag": "0"}
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, {**ext, "order": "false"})


def setting() -> RemotingCommand:
    return RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"slaveTimeout=4000")


def implied_topic() -> RemotingCommand:
    return send_request("producers", "implied", 0, b"first", "", 0)


def implied_group() -> RemotingCommand:
    return pull_request("implied", TOPIC, 0, 0)


@pytest.fixture
def leaseless() -> tuple[ControlledBrokers, BrokerNode]:
    """A master whose controllers are gone, with a committed offset of 0."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    for code in (brokers.send(first, b"kept"), brokers.ask(first, committed(0)).code):
        assert code == 0
    assert brokers.ask(first, pull_request("readers", TOPIC, 0, 0)).code == 0
    brokers.desk.crash(0)
    brokers.until(lambda: not first.replication.may_append, LEASE_S + 1)
    return brokers, first


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: lock("c1"),
        lambda: committed(1),
        new_group,
        new_topic,
        setting,
        implied_topic,
        implied_group,
    ],
)
def test_without_a_lease_nothing_is_promised(
    leaseless: tuple[ControlledBrokers, BrokerNode], request_of: Any
) -> None:
    """Another broker may lead by now: two owners of a queue, offsets and topics that vanish."""
    brokers, first = leaseless
    answer = brokers.ask(first, request_of())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the controllers (10.0.0.1:9878) do not answer" in (answer.remark or "")
    broker = first.broker
    assert broker.consumer_offsets.query("readers", TOPIC, 0) == 0
    assert not {"new", "implied"} & (set(broker.topics.table) | set(broker.groups.table))
    assert first.configuration.store.slave_timeout != 4000
    brokers.desk.restart(0)
    brokers.leader()
    assert brokers.ask(first, request_of()).code in (0, ResponseCode.PULL_NOT_FOUND)


def test_a_pull_commits_nothing_without_a_lease(
    leaseless: tuple[ControlledBrokers, BrokerNode],
) -> None:
    brokers, first = leaseless
    pull = pull_request("readers", TOPIC, 0, 0)
    ext = pull.ext or {}
    pull.ext = {**ext, "sysFlag": str(int(ext["sysFlag"]) | 1), "commitOffset": "1"}
    assert brokers.ask(first, pull).code == 0, "what it has may be read"
    assert first.broker.consumer_offsets.query("readers", TOPIC, 0) == 0


def test_two_brokers_never_lock_one_queue() -> None:
    """A client with an old route asks the master that was deposed, and is a slave now."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    cut_from_controllers(brokers, first)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.ask(second, lock("c1")).code == 0
    assert brokers.ask(first, lock("c2")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    brokers.world.network.heal()
    brokers.until(lambda: first.broker.is_slave)
    answer = brokers.ask(first, lock("c2"))
    # It passes the request on, and the new master does not give the queue to a second client.
    assert (answer.code, answer.body) == (0, b'{"lockOKMQSet":[]}')
    assert brokers.ask(first, committed(1)).code == 1, "the new master has no message 0"
