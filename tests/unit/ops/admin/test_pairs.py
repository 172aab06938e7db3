"""What one broker of a pair lacks of the other, and what is said of pairs at a glance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.stat_bodies import TopicOffset
from rmq_ha.ops.admin import pair
from rmq_ha.ops.admin.ha import _faults, _rows
from rmq_ha.ops.admin.pair import Lack, PairMember, RegisteredName, fullness, lacks
from rmq_ha.ops.admin.targets import BrokerTarget, first_of_each, masters
from rmq_ha.ops.admin.top import Sample, _is_own, tables_of
from tests.unit.client.sim_cluster import SimCluster


class Tables:
    """Answers from tables instead of brokers: by what is asked, whom, and of which topic."""

    def __init__(self, patch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = answers
        for name in ("topic_configs", "topic_offsets", "consumer_offsets"):
            patch.setattr(pair, name, lambda *what, name=name: (name, *what))

    async def run(self, what: tuple[str, ...], step: Callable[[], object] | None = None) -> Any:
        if step is not None:
            step()
        found = self.answers
        for word in what:
            found = found.get(word, {})
        return found


def ends(topic: str, *offsets: int) -> dict[MessageQueue, TopicOffset]:
    return {
        MessageQueue(topic, "b", number): TopicOffset(0, end, 0)
        for number, end in enumerate(offsets)
    }


def test_what_one_lacks_is_told_by_queue_and_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has as much, or more, lacks nothing; a queue or group that is not there lacks all."""
    asker: Any = Tables(
        monkeypatch,
        topic_configs={"there": {"U": None, "T": None, "Empty": None}},
        topic_offsets={
            "there": {"T": ends("T", 5, 7, 9), "U": ends("U", 1), "Empty": ends("Empty", 0, 0)},
            "here": {"T": ends("T", 5, 6, 99)},
        },
        consumer_offsets={
            "there": {"T@h": {0: 3}, "T@g": {1: 4, 0: 4}, "U@g": {0: 1}},
            "here": {"T@g": {0: 4, 1: 3}, "U@g": {0: 2}},
        },
    )
    steps: list[int] = []
    found = SimCluster().wait(lacks(asker, "here", "there", lambda: steps.append(1)))
    assert found == [
        Lack("T", 1, 6, 7),
        Lack("U", 0, 0, 1),
        Lack("T", 1, 3, 4, "g"),
        Lack("T", 0, 0, 3, "h"),
    ]
    assert [item.missing for item in found] == [1, 1, 1, 3]
    assert len(steps) == 1 + 3 + 2 + 2, "each answer"


def member(address: str, role: str | None, end: int = 0, **more: Any) -> PairMember:
    problem = None if role else "timed out"
    return PairMember(address, "b", role, end=end, replication=more, problem=problem)


def target(address: str, broker_id: int | None = 0, name: str = "b") -> BrokerTarget:
    return BrokerTarget("C", name, broker_id, address)


FOLLOWS = {"state": "following", "silent_ms": 1240}


@pytest.mark.parametrize(
    ("members", "faults"),
    [
        ([("m", 0, "ASYNC_MASTER", {"slaves": []})], []),
        ([("m", 0, "SYNC_MASTER", {"slaves": [1]})], []),
        ([("m", 0, "SYNC_MASTER", {})], []),  # one of Java says nothing of its slaves
        ([("m", 0, "SYNC_MASTER", {"slaves": []})], ["m: a SYNC_MASTER without a slave"]),
        ([("m", None, "ASYNC_MASTER", {})], []),
        ([("m", 0, None, {})], ["m: timed out"]),
        (
            [("s", 1, "SLAVE", {"master": FOLLOWS})],
            ["b has no master: docs/failover.md"],
        ),
        (
            [("m", 0, "SYNC_MASTER", {}), ("o", 1, "ASYNC_MASTER", {})],
            ["b has 2 masters: m, o"],
        ),
        (
            [
                ("m", 0, "SYNC_MASTER", {}),
                ("s", 1, "SLAVE", {"master": {"state": "diverged", "fault": "another log"}}),
                ("t", 2, "SLAVE", {"master": {"state": "unreachable"}}),
                ("u", 3, "SLAVE", {"master": FOLLOWS}),
                ("v", 4, "SLAVE", {}),
            ],
            [
                "s does not follow its master: another log",
                "t does not follow its master: unreachable",
            ],
        ),
    ],
)
def test_what_somebody_has_to_look_at(members: list[Any], faults: list[str]) -> None:
    found = [
        (target(address, number), member(address, role, **more))
        for address, number, role, more in members
    ]
    assert _faults("b", found) == faults


def test_a_row_says_what_a_member_is_and_how_far() -> None:
    """`behind` is measured by the master that is furthest; heard and tables in seconds."""
    rows = _rows(
        [
            (target("m", 0), member("m", "SYNC_MASTER", 90, slaves=[1, 2])),
            (target("n", 0), member("n", "ASYNC_MASTER", 100)),
            (target("s", 1), member("s", "SLAVE", 30, master=FOLLOWS, tables_seconds=4.0)),
            (target("t", 2), member("t", "SLAVE", 101, master={"state": "x"})),
            (target("u", 3), member("u", None)),
            (target("v", None, ""), member("v", "SLAVE", 7)),
        ]
    )
    assert rows == [
        ["b", 0, "m", "SYNC_MASTER", "2 slaves", 90, None, None, None],
        ["b", 0, "n", "ASYNC_MASTER", None, 100, None, None, None],
        ["b", 1, "s", "SLAVE", "following", 30, 70, 1.2, 4.0],
        ["b", 2, "t", "SLAVE", "x", 101, 0, None, None],
        ["b", 3, "u", None, "does not answer", None, None, None, None],
        ["b", None, "v", "SLAVE", None, 7, 93, None, None],
    ]
    (alone,) = _rows([(target("s", 1), member("s", "SLAVE", 30))])
    assert alone[6] is None, "nobody to measure by"


def test_who_is_a_master_and_whom_clients_send_to() -> None:
    assert member("m", "SYNC_MASTER").is_master
    assert not member("s", "SLAVE").is_master
    assert not member("x", None).is_master
    assert RegisteredName({0: "m", 1: "s"}).master == "m"
    assert RegisteredName({1: "s"}).master is None


@pytest.mark.parametrize(
    ("ratio", "shown"), [("0.0", "0 %"), ("0.456", "46 %"), ("-1", None), ("-0.1", None)]
)
def test_how_full_a_disk_is(ratio: str, shown: str | None) -> None:
    assert fullness({"commitLogDiskRatio": ratio}) == shown
    assert fullness({}) is None


def test_who_is_asked_and_who_is_changed() -> None:
    found = [target("a0", 0, "a"), target("a1", 1, "a"), target("b2", 2, "b"), target("b3", 3, "b")]
    assert [item.address for item in first_of_each(found)] == ["a0", "b2"]
    assert [item.address for item in masters(found)] == ["a0"]
    assert masters([target("x", None, "")]) == [target("x", None, "")]


def test_groups_of_rocketmq_itself_are_known() -> None:
    assert _is_own("TOOLS_CONSUMER")
    assert _is_own("CID_RMQ_SYS_X")
    assert not _is_own("readers")


def test_growth_needs_two_looks_that_are_apart() -> None:
    now = Sample(10.0, [], {"b": 5, "a": 5, "c": 1}, [])
    _, groups = tables_of(now, Sample(10.0, [], {"a": 1}, []), 2)
    assert groups.rows == [["a", 5, None], ["b", 5, None]]
    _, groups = tables_of(now, Sample(7.0, [], {"a": 1, "b": 5}, []), 9)
    assert groups.rows == [["a", 5, 1.3], ["b", 5, 0.0], ["c", 1, None]]
