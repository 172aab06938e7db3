"""After a quiet time: what a slave that has its master's damage need not serve."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.server.replication.statistics import MasterStatistics, ReplicationStatistics
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.images import LogImage, LogRecord
from tests.sim_kit.damage import LOG, ZERO, Damage
from tests.sim_kit.ending import Ending

SIZE = 100
RECORDS = [
    LogRecord(n * SIZE, SIZE, "TopicA", 0, n, f"m{n}", "", 1_700_000_000_000) for n in range(10)
]
PATH = "/store/commitlog/00000000000000000000"
SPOILT = Damage(LOG, ZERO, PATH, 350, 450, b"\1" * 100, bytes(100))


def node(name: str, state: str, unreadable_at: int | None, *, is_spoilt: bool = True) -> Any:
    data = bytes(1000) if is_spoilt else b"\1" * 1000
    return SimpleNamespace(
        host=SimpleNamespace(name=name),
        log_image=lambda: LogImage(0, data, 1000, 1000),
        replication=SimpleNamespace(
            statistics=lambda: ReplicationStatistics(
                master=MasterStatistics(state=state, fault="no record")
            )
        ),
        store=SimpleNamespace(
            journal=SimpleNamespace(tail=SimpleNamespace(unreadable_at=unreadable_at))
        ),
    )


def lacking(master: Any, slave: Any) -> tuple[list[int], list[str]]:
    """Numbers of the messages that the slave need not serve, and the kinds of hazards."""
    findings = Findings()
    judge: Any = SimpleNamespace(damages={"a": SPOILT})
    ending = Ending(findings, judge, 50.0)
    for each in (master, slave):
        ending._image(each)
    ending._see_stopped(master, slave, RECORDS)
    may_lack = ending._may_lack("b")
    lacks = [record.queue_offset for record in RECORDS if may_lack(record)]
    return lacks, [finding.kind for finding in findings.hazards]


@pytest.mark.parametrize("at", [300, 499])
def test_a_slave_that_says_so_serves_what_lies_before(at):
    lacks, hazards = lacking(node("a", "", None), node("b", "unreadable", at))
    assert lacks == [3, 4, 5, 6, 7, 8, 9]
    assert hazards == ["stays-out"]


@pytest.mark.parametrize(
    ("state", "at"),
    [("following", 300), ("unreadable", None), ("unreadable", 299), ("unreadable", 500)],
)
def test_a_slave_that_does_not_say_so_there_serves_the_rest(state, at):
    """It lacks the spoilt records alone."""
    assert lacking(node("a", "", None), node("b", state, at)) == ([3, 4], [])


def test_a_master_that_has_it_whole_sends_it_anew():
    """The slave has no reason to stop there."""
    slave = node("b", "unreadable", 300)
    assert lacking(node("a", "", None, is_spoilt=False), slave) == ([3, 4], [])


@pytest.mark.parametrize(("state", "is_out"), [("diverged", True), ("following", False)])
def test_a_slave_whose_first_record_is_spoilt_has_nothing_in_common(state, is_out):
    """It cannot know that the two were equal: it keeps what it has, stays out, and says so."""
    data = b"\1" * 1000
    damage = Damage(LOG, ZERO, PATH, 20, 30, data[20:30], bytes(10))
    spoilt = data[:20] + bytes(10) + data[30:700]
    findings = Findings()
    judge: Any = SimpleNamespace(damages={"a": damage})
    ending = Ending(findings, judge, 50.0)
    master, slave = node("b", "", None, is_spoilt=False), node("a", state, None)
    slave.log_image = lambda: LogImage(0, spoilt, 700, 1000)
    one, other = ending._image(master), ending._image(slave)
    one.records = lambda: iter(RECORDS)
    ending._compare(master, one, slave, other)
    assert ending.is_parted
    assert [finding.kind for finding in findings.hazards] == (["stays-out"] if is_out else [])
    assert findings.kinds() == ([] if is_out else ["not caught up"])
