"""The Java client's transactions: ended, asked about, given up; over crashes, with both brokers."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rmq_ha.base.model.flags import TRANSACTION_COMMIT
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from tests.interop.pairs import Pair
from tests.interop.rig import Rig, Server, rig_in
from tests.interop.wire import Refused, Wire
from tests.interop.wire_producer import WireProducer

DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
QUICK = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}
COUNT = 5


def produce(rig: Rig, namesrv: str, name: str, **options: Any) -> list[dict[str, Any]]:
    """What `peer txn` prints; topic and group have one name."""
    arguments = ["txn", "--namesrv", namesrv, "--topic", name, "--group", name]
    for option, value in ({"count": COUNT, "keys": name, "timeout": 40} | options).items():
        arguments += [f"--{option}", value]
    return rig.peer(*arguments)


def sent(lines: list[dict[str, Any]]) -> set[str]:
    return {line["msgId"] for line in lines if line.get("event") == "send"}


def questions(lines: list[dict[str, Any]]) -> Counter[str]:
    return Counter(line["transactionId"] for line in lines if line.get("event") == "check")


def keys(server: Server, topic: str) -> Counter[str]:
    """Unique keys in queue 0 of a topic."""
    with Wire(server.address) as wire:
        records = wire.pull_all(topic, 0)
    return Counter(record.properties["UNIQ_KEY"] for record in records)


def until_visible(rig: Rig, server: Server, topic: str, wanted: set[str]) -> Counter[str]:
    rig.until(lambda: set(keys(server, topic)) >= wanted, 20, f"all of {topic}", server)
    return keys(server, topic)


def end_of(server: Server, topic: str) -> int:
    with Wire(server.address) as wire:
        return wire.max_offset(topic, 0)


def create(server: Server, *topics: str) -> None:
    with Wire(server.address) as wire:
        for topic in topics:
            wire.create_topic(topic, 1)


def test_every_decision(shared_rig: Rig) -> None:
    """
    Ended at once: nobody is asked. Left open: asked once, or until the producer is given up.
    """
    namesrv = shared_rig.namesrv()
    server = shared_rig.broker(
        "master-async.conf", "decisions", namesrv=namesrv, transactionCheckMax=3, **QUICK
    )
    plans: dict[str, dict[str, Any]] = {
        "txn-never": {"decision": "unknown", "check": "unknown", "checks": 3 * COUNT},
        "txn-commit": {"decision": "commit"},
        "txn-rollback": {"decision": "rollback"},
        "txn-asked-commit": {"decision": "unknown", "check": "commit"},
        "txn-asked-rollback": {"decision": "unknown", "check": "rollback"},
    }
    create(server, *plans)
    with ThreadPoolExecutor(2) as pool:
        later = {
            name: pool.submit(produce, shared_rig, namesrv, name, **plan)
            for name, plan in plans.items()
        }
        results = {name: lines.result() for name, lines in later.items()}
    for name, lines in results.items():
        asked = sent(lines) if plans[name]["decision"] == "unknown" else set()
        assert set(questions(lines)) == asked, name
    for name in ("txn-commit", "txn-asked-commit"):
        wanted = sent(results[name])
        assert until_visible(shared_rig, server, name, wanted) == Counter(wanted)
    never = sent(results["txn-never"])
    shared_rig.until(
        lambda: set(known_discarded(server)) >= never, 20, "discarded messages", server
    )
    assert known_discarded(server) == Counter(never)
    for name in ("txn-rollback", "txn-asked-rollback", "txn-never"):
        assert not keys(server, name)
    counts = [line["checkTimes"] for line in results["txn-never"] if line.get("event") == "check"]
    assert Counter(counts) == Counter({"1": COUNT, "2": COUNT, "3": COUNT})
    server.stop()


def known_discarded(server: Server) -> Counter[str]:
    try:
        return keys(server, DISCARDED)
    except Refused:  # the topic comes with the first of them
        return Counter()


def test_store_changes_hands_with_open_transactions(shared_rig: Rig) -> None:
    """
    Killed and continued by ours, killed and continued by Java, stopped and continued by ours: what
    was left open at one broker is asked about by the next, and what was ended is not.
    """
    topic, group = "txn-hands", "txn-hands"
    namesrv, port = shared_rig.namesrv(name="ns-hands"), shared_rig.ports(4) + 2
    opened: list[str] = []
    asked: Counter[str] = Counter()
    for turn, java in enumerate((False, False, True, False)):
        server = shared_rig.broker(
            "master-async.conf", "hands", java=java, namesrv=namesrv, port=port, **QUICK
        )
        create(server, topic)
        with WireProducer(server, group) as producer:
            asked += producer.commit_what_is_asked(
                lambda server=server, all_of=set(opened): set(keys(server, topic)) >= all_of
            )
            found = keys(server, topic)
            assert set(found) == set(opened) == set(asked)
            assert java or found == Counter(opened)  # Java ends twice what is answered twice
            left = {f"turn-{turn}-{number}" for number in range(COUNT)}
            opened += sorted(left)
            producer.leave_open(topic, *left)
        if turn in (2, 3):
            server.stop()
        else:
            server.kill()


@pytest.mark.parametrize("java_master", [False, True], ids=["our-master", "java-master"])
def test_slave_goes_on_with_the_checks(shared_rig: Rig, java_master: bool) -> None:
    """The master dies with open transactions; its slave, restarted as master, asks about them."""
    shared_rig.directory.joinpath(str(java_master)).mkdir()
    with rig_in(shared_rig.directory / str(java_master)) as own:
        pair = Pair(own, java_master, False)
        topic, group = "txn-open", "txn-open"
        pair.wait_ok()
        create(pair.master, topic)
        left = {f"open-{number}" for number in range(COUNT)}
        with WireProducer(pair.master, group) as producer:
            done = producer.leave_open(topic, "done")
            producer.leave_open(topic, *left)
            producer.commit(done[0])
        until_visible(own, pair.master, topic, {"done"})  # nobody answers a commit
        own.until(lambda: end_of(pair.master, OP_HALF_TOPIC) > 0, 20, "its mark", pair.master)
        pair.wait_for_topic(topic)
        pair.wait_same()
        pair.master.kill()
        pair.slave.stop()
        pair.master = pair._again(pair.slave, "master-sync.conf")
        with WireProducer(pair.master, group) as producer:
            asked = producer.commit_what_is_asked(
                lambda: set(keys(pair.master, topic)) >= left | {"done"}
            )
        assert set(asked) == left
        found = keys(pair.master, topic)
        assert found["done"] == 1
        assert found <= asked + Counter(["done"])


def late_commits(server: Server, group: str, count: int) -> None:
    """END for every half message that was ever stored, the oldest first, and wait for all."""
    with Wire(server.address) as wire:
        for half in wire.pull_all(HALF_TOPIC, 0)[:count]:
            ext = {
                "producerGroup": group,
                "tranStateTableOffset": str(half.queue_offset),
                "commitLogOffset": str(half.physical_offset),
                "commitOrRollback": str(TRANSACTION_COMMIT),
            }
            wire.exchange([RemotingCommand(RequestCode.END_TRANSACTION, ext)])


@pytest.mark.parametrize("is_killed", [False, True], ids=["one-life", "killed-in-between"])
def test_late_end_and_the_answer_to_a_check(shared_rig: Rig, is_killed: bool) -> None:
    """
    Each of 30 half messages is asked about, so a copy took its place; the Java producer answers
    that it is committed, and an END for the original comes late: one message each (Java: two).
    """
    name, count = f"txn-late-{is_killed}", 30
    namesrv, port = shared_rig.namesrv(name=f"ns-{name}"), shared_rig.ports(4) + 2

    def start() -> Server:
        return shared_rig.broker(
            "master-async.conf", name, namesrv=namesrv, port=port, transactionCheckMax=15, **QUICK
        )

    server = start()
    create(server, name)
    lines = produce(
        shared_rig, namesrv, name, count=count, decision="unknown", check="commit", timeout=20
    )
    wanted = sent(lines)
    until_visible(shared_rig, server, name, wanted)
    assert end_of(server, HALF_TOPIC) >= 2 * count
    if is_killed:
        server.kill()
        server = start()
    late_commits(server, name, end_of(server, HALF_TOPIC))
    shared_rig.until(lambda: sum(keys(server, name).values()) >= count, 20, "all", server)
    assert keys(server, name) == Counter(wanted)
    server.stop()
