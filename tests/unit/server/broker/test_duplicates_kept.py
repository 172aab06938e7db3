"""A repetition is answered SEND_OK where its first is kept as promised, and not before."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers
from tests.sim_kit.group import BrokerGroup
from tests.unit.client.sim_cluster import SimCluster

ON = {"duplicate_window_millis": 600_000}
OK, TIMED_OUT = 0, 12


def with_window(configuration: Any) -> None:
    configuration.ours.duplicate_window_millis = 600_000


def known(answer: RemotingCommand) -> bool:
    return (answer.ext or {}).get("duplicate") == "true"


def ids_in(store: Any, topic: str = TOPIC, queue_id: int = 0) -> list[str]:
    """Of all that consumers find in a queue."""
    found: list[str] = []
    offset = store.min_offset_in_queue(topic, queue_id)
    while (result := store.get_message("g", topic, queue_id, offset, 32, None)).messages:
        found += [decode_record(record).properties["UNIQ_KEY"] for record in result.messages]
        offset = result.next_begin_offset
    return found


class Pair(SimCluster):
    """A SYNC_MASTER `a`, its slave, and somebody who sends."""

    def __init__(self) -> None:
        super().__init__()
        self.add("a", BrokerRole.SYNC_MASTER, ours=ON)
        slave = {"broker_name": "a", "broker_id": 1}
        self.add("slave", BrokerRole.SLAVE, broker=slave, ours=ON)
        self.run(15)
        self.sender = self.world.add("sender")
        self.calls = RemotingClient(self.sender.seams, NettyClientConfig())

    def ask(self, key: str, name: str = "a", wait: bool = True) -> Deferred[RemotingCommand]:
        text = f"UNIQ_KEY\x01{key}\x02WAIT\x01{str(wait).lower()}"
        request = send_request("producers", TOPIC, 0, b"body", text, self.sender.now_ms())
        return self.calls.invoke(self.address(name), request, 10_000)

    def send(self, key: str, name: str = "a", wait: bool = True) -> RemotingCommand:
        answer: RemotingCommand = self.wait(self.ask(key, name, wait))
        return answer

    def slave_leads(self) -> None:
        """By its operator."""
        self.hosts["slave"].crash()
        self.add("slave", BrokerRole.ASYNC_MASTER, broker={"broker_name": "a"}, ours=ON)


def test_a_repetition_waits_for_the_slave_as_its_first_does() -> None:
    pair = Pair()
    pair.world.network.partition("a", "slave")
    answers: list[tuple[str, RemotingCommand]] = []
    for name in ("first", "again"):
        pair.ask("A").addCallback(lambda answer, name=name: answers.append((name, answer)))
        pair.run(0.5)
    assert answers == []
    pair.world.network.heal()
    pair.run(3)
    assert [(name, answer.code, known(answer)) for name, answer in answers] == [
        ("first", OK, False),
        ("again", OK, True),
    ]
    assert ids_in(pair.brokers["a"].store) == ["A"]


def test_what_was_not_kept_in_time_is_ok_when_it_is() -> None:
    pair = Pair()
    pair.world.network.partition("a", "slave")
    assert pair.send("A").code == TIMED_OUT
    again = pair.send("A")
    assert (again.code, known(again)) == (TIMED_OUT, True)
    pair.world.network.heal()
    pair.run(10)
    last = pair.send("A")
    assert (last.code, known(last)) == (OK, True)
    assert ids_in(pair.brokers["a"].store) == ids_in(pair.brokers["slave"].store) == ["A"]


def test_a_repetition_that_waits_for_nobody_is_answered_as_its_first_was() -> None:
    pair = Pair()
    pair.world.network.partition("a", "slave")
    answers = [pair.send("A", wait=False) for _ in range(2)]
    assert [(answer.code, known(answer)) for answer in answers] == [(OK, False), (OK, True)]


def test_a_slave_that_takes_over_knows_what_it_copied() -> None:
    pair = Pair()
    keys = [f"k{number}" for number in range(200)]  # more than one file of the index
    firsts = {key: pair.send(key) for key in keys}
    assert {answer.code for answer in firsts.values()} == {OK}
    pair.crash("a")
    pair.slave_leads()
    for key, first in firsts.items():
        again = pair.send(key, "slave")
        assert (again.code, known(again)) == (OK, True)
        assert again.ext == (first.ext or {}) | {"duplicate": "true"}
    assert not known(pair.send("new", "slave"))
    assert ids_in(pair.brokers["slave"].store) == [*keys, "new"]


def test_a_slave_that_never_had_the_first_stores_it() -> None:
    pair = Pair()
    pair.world.network.partition("a", "slave")
    assert pair.send("A").code == TIMED_OUT
    pair.crash("a")
    pair.world.network.heal()
    pair.slave_leads()
    again = pair.send("A", "slave")
    assert (again.code, known(again)) == (OK, False)
    assert ids_in(pair.brokers["slave"].store) == ["A"]


@pytest.mark.parametrize(("power", "verify"), [(False, False), (True, False), (True, True)])
def test_sync_flush_repetitions_survive_a_crash(power: bool, verify: bool) -> None:
    """Also where the index lost the file that was not full, and nothing else says from where on."""
    cluster = SimCluster()
    flush = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    ours = ON | {"verify_log_at_start": verify}
    cluster.add("a", ours=ours, store=flush)
    sender = cluster.world.add("sender")

    def send(key: str) -> RemotingCommand:
        calls = RemotingClient(sender.seams, NettyClientConfig())
        request = send_request(
            "producers", TOPIC, 0, b"b" * 1000, f"UNIQ_KEY\x01{key}", sender.now_ms()
        )
        answer: RemotingCommand = cluster.wait(calls.invoke(cluster.address("a"), request, 9000))
        return answer

    keys = [f"k{number}" for number in range(200)]
    assert {send(key).code for key in keys} == {OK}
    cluster.run(20)
    for life in range(3):
        cluster.crash("a", power=power)
        cluster.run(1)
        cluster.add("a", ours=ours, store=flush)
        assert [known(send(key)) for key in keys] == [True] * len(keys)
        keys.append(f"of life {life}")
        assert not known(send(keys[-1]))
        cluster.run(20)  # queues and checkpoint get to the disk, a part of an index file does not
    assert ids_in(cluster.brokers["a"].store) == keys


def ask_controlled(brokers: ControlledBrokers, node: Any, key: str) -> Deferred[RemotingCommand]:
    request = send_request("p", TOPIC, 0, b"body", f"UNIQ_KEY\x01{key}", brokers.now_ms())
    return brokers.client.invoke(f"{node.host.ip}:{LISTEN_PORT}", request, 5000)


def test_controllers_elect_one_that_knows_what_is_confirmed() -> None:
    brokers = ControlledBrokers(change=with_window)
    first = brokers.in_sync()
    second = brokers.other(first)
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        assert brokers.send(first, b"body", UNIQ_KEY=key) == OK
        assert brokers.send(first, b"body", UNIQ_KEY=key) == OK
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    assert [brokers.send(second, b"body", UNIQ_KEY=key) for key in keys] == [OK] * 20
    assert ids_in(second.store) == keys
    brokers.boot(first)
    assert brokers.in_sync() is second
    second.crash(power=True)
    brokers.until(lambda: brokers.master() is first)
    assert [brokers.send(first, b"body", UNIQ_KEY=key) for key in keys] == [OK] * 20
    assert ids_in(first.store) == keys
    assert not brokers.findings.violations


def test_in_controller_mode_a_repetition_waits_for_what_is_not_confirmed() -> None:
    brokers = ControlledBrokers(change=with_window)
    first = brokers.in_sync()
    second = brokers.other(first)
    brokers.world.network.partition(first.host.name, second.host.name)
    answers: list[tuple[str, int, bool]] = []
    for name in ("first", "again"):
        asked = ask_controlled(brokers, first, "A")
        asked.addCallback(
            lambda answer, name=name: answers.append((name, answer.code, known(answer)))
        )
        brokers.run(0.5)
    assert answers == []
    brokers.run(4.0)
    assert [answer[:2] for answer in answers] == [("first", TIMED_OUT), ("again", 1)]
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.send(second, b"another", UNIQ_KEY="A") == OK
    brokers.world.network.heal()
    brokers.boot(first)
    brokers.in_sync()
    brokers.holds(first, [b"another"])
    assert ids_in(second.store) == ["A"]


def test_a_master_that_leads_again_waits_for_nothing_that_was_cut() -> None:
    brokers = ControlledBrokers(change=with_window)
    first = brokers.in_sync()
    second = brokers.other(first)
    brokers.world.network.partition(first.host.name, second.host.name)
    lost = ask_controlled(brokers, first, "A").addErrback(lambda _: None)
    brokers.run(0.2)
    brokers.world.network.partition(first.host.name, "n0")
    brokers.until(lambda: brokers.master() is second, 60.0)
    assert brokers.send(second, b"b", UNIQ_KEY="B") == OK
    brokers.world.network.heal()
    brokers.in_sync()
    second.crash(power=False)
    brokers.until(lambda: brokers.master() is first)
    assert brokers.send(first, b"a", UNIQ_KEY="A") == OK
    assert ids_in(first.store) == ["B", "A"]
    assert lost.called


def test_a_group_s_new_leader_knows_what_most_have() -> None:
    group = BrokerGroup(3, change=with_window).start()
    keys = [f"k{number}" for number in range(20)]
    assert [group.send(b"body", UNIQ_KEY=key) for key in keys + keys] == [OK] * 40
    master = group.wait_for_master()
    group.kill(master)
    group.wait_until(lambda: group.master() not in (None, master))
    assert [group.send(b"body", UNIQ_KEY=key) for key in keys] == [OK] * 20
    assert ids_in(group.wait_for_master().store) == keys
    assert group.findings.violations == []


def test_in_a_group_a_repetition_waits_for_most_of_it() -> None:
    group = BrokerGroup(4, change=with_window).start()
    master = group.wait_for_master()
    assert group.send(b"before", UNIQ_KEY="known") == OK
    for member in group.members:
        if member is not master:
            group.world.network.partition(master.host.name, member.host.name)
    first, again = (group.ask(master, group.message(b"body", UNIQ_KEY="A")) for _ in range(2))
    repeated = group.call(master, group.message(b"before", UNIQ_KEY="known"))
    assert (repeated.code, known(repeated)) == (OK, True)  # most have it, whoever leads by now
    codes: list[int] = []
    for later in (first, again):
        later.addCallbacks(lambda answer: codes.append(answer.code), lambda _: codes.append(-1))
    group.run(6)
    assert OK not in codes
    group.world.network.heal()
    group.run(5)
    assert group.send(b"body", UNIQ_KEY="A") == OK
    assert group.send(b"body", UNIQ_KEY="A") == OK
    assert ids_in(group.wait_for_master().store) == ["known", "A"]
