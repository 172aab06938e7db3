"""
Hazards of controller mode that take whole brokers.

Spec: controller.md, chapter 14.
"""

from __future__ import annotations

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers


def test_hazard_2_a_master_cut_from_all_but_its_clients_answers_no_put_with_12() -> None:
    """Its lease still lasts when the put's time is over, and the next master cuts the message."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    for other in (second.host.name, brokers.desk.hosts[0].name):
        brokers.world.network.partition(first.host.name, other)
    answer = brokers.ask(first, put(brokers, b"nobody has it"))
    assert first.replication.may_append
    assert answer.code == 14
    assert "another broker may be elected, and may lack this message" in (answer.remark or "")
    brokers.until(lambda: brokers.master() is second)
    brokers.world.network.heal()
    brokers.in_sync()
    brokers.run(1.0)
    brokers.holds(first, [b"kept"])
    assert not brokers.findings.violations


def test_hazard_2_a_hand_over_answers_no_waiting_put_with_12() -> None:
    """`electMaster`: the old master leads no more, and sets the message aside."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    brokers.world.network.partition(first.host.name, second.host.name)
    told: list[tuple[int, str]] = []
    asked = brokers.client.invoke(
        f"{first.host.ip}:{LISTEN_PORT}", put(brokers, b"nobody has it"), 5000
    )
    asked.addCallback(lambda answer: told.append((answer.code, answer.remark or "")))
    brokers.run(0.2)
    elected = {"clusterName": "c", "brokerName": "b", "brokerId": "2", "designateElect": "true"}
    assert brokers.desk.ask(1002, elected).code == 0
    brokers.until(lambda: bool(told), 1.0)
    assert told[0][0] == 14
    assert told[0][1].endswith(
        f"the broker at {second.host.ip}:{LISTEN_PORT} leads, and takes the messages"
    )
    brokers.world.network.heal()
    brokers.in_sync()
    brokers.run(1.0)
    brokers.holds(first, [b"kept"])
    assert not brokers.findings.violations


def test_a_slave_that_comes_back_is_in_sync_with_its_next_heartbeat() -> None:
    """Its report may reach the master before the controllers know that it lives."""

    def two(configuration: BrokerConfiguration) -> None:
        configuration.controlled.min_in_sync_replicas = 2

    brokers = ControlledBrokers(change=two)
    first = brokers.in_sync()
    second = brokers.other(first)
    network, controller = brokers.world.network, brokers.desk.hosts[0].name
    for other in (first.host.name, controller):
        network.partition(second.host.name, other)
    brokers.run(25.0)
    assert brokers.send(first, b"no") == 14
    network.heal()
    network.partition(second.host.name, controller)
    brokers.until(lambda: second.replication.statistics().master.state == "following")
    brokers.run(1.5)
    assert brokers.send(first, b"no") == 14, "the controllers do not know that it lives"
    network.heal()
    took = brokers.until(lambda: brokers.send(first, b"yes") == 0)
    assert took < 3.0
    assert not brokers.findings.violations


def put(brokers: ControlledBrokers, body: bytes) -> RemotingCommand:
    return send_request("producers", TOPIC, 0, body, "", brokers.now_ms())


@pytest.mark.parametrize("is_clean", [True, False])
def test_hazard_3_an_epoch_that_begins_at_the_end_of_the_log_outlives_its_brokers(
    is_clean: bool,
) -> None:
    """
    It has no byte yet when both stop, so a start drops it (`Epochs.cut`), as Java did up to 5.5.1.

    Whoever leads it on, or a newer one, writes under one number only, and no byte of the other.
    """
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    brokers.run(1.0)
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    end = second.store.log.max_offset
    epoch = second.replication.epochs.last_entry
    assert epoch is not None
    assert epoch.start == end
    brokers.boot(first)
    assert brokers.in_sync() is second
    brokers.run(1.0)
    assert first.store.log.max_offset == end
    for node in (second, first):
        if is_clean:
            node.stop()
            brokers.until(lambda node=node: node.state == "down")
        else:
            node.crash(power=True)
    for node in (first, second):
        brokers.boot(node)
    leader = brokers.in_sync()
    brokers.until(lambda: brokers.send(leader, b"of the epoch") == 0)
    brokers.run(1.0)
    last = leader.replication.epochs.last_entry
    assert last is not None
    assert last.epoch >= epoch.epoch
    assert last.start == end
    size = first.store.log.max_offset
    assert first.store.log.read(0, size) == second.store.log.read(0, size)
    assert first.replication.epochs == second.replication.epochs
    leader.crash(power=True)
    brokers.until(lambda: brokers.master() is brokers.other(leader))
    brokers.holds(brokers.other(leader), [b"kept", b"of the epoch"])
    brokers.boot(leader)
    brokers.in_sync()
    brokers.run(1.0)
    assert leader.store.statistics.set_aside_messages == 0
    brokers.holds(leader, [b"kept", b"of the epoch"])
    assert not brokers.findings.violations


def test_hazard_12_a_torn_record_does_not_survive_an_election() -> None:
    """The slave has a part of a record when its master dies; it leads without it."""

    def small(configuration: BrokerConfiguration) -> None:
        configuration.store.ha_transfer_batch_size = 40

    brokers = ControlledBrokers(change=small)
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    brokers.run(1.0)
    log = second.store.log
    before = log.max_offset
    brokers.world.network.window = 300
    request = send_request("producers", TOPIC, 0, b"torn" * 400, "", brokers.now_ms())
    asked = brokers.client.invoke(f"{first.host.ip}:{LISTEN_PORT}", request, 5000)
    asked.addErrback(lambda _: None)
    while log.max_offset < before + 400:
        brokers.run(0.0001)
    assert log.max_offset < before + 1600
    first.crash(power=False)
    brokers.world.network.window = 1 << 17
    brokers.until(lambda: brokers.master() is second)
    assert log.max_offset == before
    assert log.confirm_offset <= before
    assert brokers.send(second, b"after") == 0
    brokers.holds(second, [b"kept", b"after"])
    brokers.boot(first)
    brokers.in_sync()
    brokers.holds(first, [b"kept", b"after"])
    assert not brokers.findings.violations


def test_hazard_24_who_cannot_lead_when_it_is_elected_leads_once_it_can() -> None:
    """Its disk refuses the new epoch: it asks again, for there is nobody else."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    brokers.run(1.0)
    second.host.disk.is_full = True
    first.crash(power=False)
    brokers.run(8.0)
    assert brokers.master() is None
    second.host.disk.is_full = False
    brokers.until(lambda: brokers.master() is second)
    assert brokers.send(second, b"after") == 0
    brokers.holds(second, [b"kept", b"after"])
    assert not brokers.findings.violations


def test_hazard_26_a_master_that_answers_nothing_holds_no_election_up() -> None:
    """The slave is just connecting to it when it is elected itself."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    for other in (second.host.name, brokers.desk.hosts[0].name):
        brokers.world.network.partition(first.host.name, other)
    for end in brokers.world.network.connections_between(second.host.name, first.host.name):
        brokers.world.network.drop(end)
    brokers.run(1.0)
    assert second.replication.statistics().master.state == "connecting"
    brokers.until(lambda: second.replication.statistics().elections == 2)
    assert brokers.until(lambda: brokers.master() is second) < 1.0
    assert brokers.send(second, b"after") == 0
    brokers.world.network.heal()
    brokers.in_sync()
    brokers.holds(first, [b"kept", b"after"])
    assert not brokers.findings.violations
