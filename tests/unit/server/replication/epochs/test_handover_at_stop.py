"""A master that is stopped hands over first: who leads then, how soon, and that nothing is lost.

Spec: controller.md, section 10.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers

SENT = [b"%d" % number for number in range(10)]


def pair(
    change: Callable[[BrokerConfiguration], None] = lambda _: None, count: int = 2
) -> tuple[ControlledBrokers, BrokerNode, BrokerNode]:
    """Brokers in sync with ten messages, the master first."""
    brokers = ControlledBrokers(count, change=change)
    master = brokers.in_sync(count)
    for body in SENT:
        assert brokers.send(master, body) == 0
    return brokers, master, brokers.other(master)


def told(events: list[Any], words: str) -> list[str]:
    return [text for event in events if words in (text := formatEvent(event) or "")]


def stopped(brokers: ControlledBrokers, node: BrokerNode) -> float:
    """Stop a broker, and return how many seconds that took."""
    node.stop()
    return brokers.until(lambda: node.state == "down")


def test_a_slave_leads_before_the_master_closes_its_port() -> None:
    brokers, master, slave = pair()
    master.stop()
    assert "this broker stops and hands over" in master.replication.why_no_puts()
    brokers.until(lambda: brokers.master() is slave, 1.0)
    assert master.state == "stopping"
    assert master.host.network.ports, "clients still reach the old master, which sends them on"
    assert brokers.send(slave, b"after") == 0
    brokers.until(lambda: master.state == "down", 2.0)
    brokers.holds(slave, [*SENT, b"after"])
    brokers.boot(master)
    assert brokers.in_sync() is slave
    brokers.run(6.0)
    brokers.holds(master, [*SENT, b"after"])
    assert master.store.statistics.set_aside_messages == 0
    assert not brokers.findings.violations


def test_messages_that_wait_for_the_slave_are_acknowledged_before() -> None:
    brokers, master, slave = pair()
    answers: list[int] = []
    for number in range(50):
        request = send_request("producers", TOPIC, 0, b"w%d" % number, "", brokers.now_ms())
        brokers.client.invoke(f"{master.host.ip}:{LISTEN_PORT}", request, 5000).addCallbacks(
            lambda answer: answers.append(int(answer.code)), lambda _: answers.append(-1)
        )
    brokers.until(lambda: len(master.store.log.read(0, 1 << 20)) > 0)
    master.stop()
    brokers.until(lambda: len(answers) == 50 and master.state == "down")
    brokers.run(6.0)
    kept = set(brokers.bodies(slave)) - set(SENT)
    assert answers.count(0) == len(kept)
    assert set(answers) <= {0, 14}


def test_of_three_brokers_one_with_the_whole_log_leads() -> None:
    brokers, master, _ = pair(count=3)
    assert stopped(brokers, master) < 3.0
    brokers.until(lambda: brokers.master() not in (None, master), 1.0)


def test_a_master_that_nobody_follows_stops_at_once_and_says_so() -> None:
    brokers, master, slave = pair()
    slave.crash(power=True)
    brokers.in_sync(1)
    with capturedLogs() as events:
        assert stopped(brokers, master) < 1.0
    (line,) = told(events, "nobody takes over")
    assert "no other broker is in sync" in line


def test_it_waits_no_longer_than_the_setting_says() -> None:
    def short(configuration: BrokerConfiguration) -> None:
        configuration.ours.ha_hand_over_at_stop_seconds = 2

    brokers, master, slave = pair(short)
    brokers.world.network.partition(master.host.name, slave.host.name)
    assert brokers.send(master, b"the slave has it not") != 0
    with capturedLogs() as events:
        took = stopped(brokers, master)
    assert 2.0 <= took < 6.0
    assert told(events, "nobody takes over")


def test_without_controllers_it_stops_all_the_same() -> None:
    brokers, master, _ = pair()
    brokers.desk.crash(0)
    with capturedLogs() as events:
        assert stopped(brokers, master) < 15.0
    assert told(events, "nobody takes over")


def test_a_slave_that_stops_changes_nothing() -> None:
    brokers, master, slave = pair()
    assert stopped(brokers, slave) < 1.0
    assert brokers.desk.info()[0]["masterEpoch"] == "1"
    assert brokers.master() is master


def test_with_0_a_stop_is_a_death_for_the_controllers() -> None:
    def off(configuration: BrokerConfiguration) -> None:
        configuration.ours.ha_hand_over_at_stop_seconds = 0

    brokers, master, slave = pair(off)
    with capturedLogs() as events:
        stopped(brokers, master)
    assert not told(events, "hands over")
    brokers.until(lambda: brokers.master() is slave, 3.0)
