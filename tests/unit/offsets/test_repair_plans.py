"""What an operator is told to do, and of which values: by each kind of difference."""

from dataclasses import replace

import pytest

from rmq_ha.offsets import model
from rmq_ha.offsets.codes import MEANINGS
from rmq_ha.offsets.judged import Judged, findings
from rmq_ha.offsets.model import NUMBERS, TEXTS, Fact, Key, Snapshot
from rmq_ha.offsets.pairing import Pairing
from rmq_ha.offsets.repair import script, steps
from rmq_ha.offsets.rules import Case, Ruling

ALL = frozenset({*NUMBERS, *TEXTS})
CASE = Case(
    Key("", "t", "g", 3), True, True, False, True, True, True, 40, 41, 42, 43, "theirs", 44,
    True, 50, "ours", 54, 45, 46, 55, 56,
)  # fmt: skip
"""Each number stands for one place; what a finding says shows where it was taken from."""


@pytest.mark.parametrize(
    ("kind", "code", "who", "expected", "actual"),
    [
        (model.OFFSET, "STALE", "s", "40", "50"),
        (model.OFFSET, "BEYOND_MAX", "s", "56", "50"),
        (model.OFFSET, "BELOW_MIN", "s", "55", "40"),
        (model.OFFSET, "MASTER_BEYOND_MAX", "m", "46", "40"),
        (model.OFFSET, "MASTER_DAMAGED", "m", "an offset", "40"),
        (model.QUEUE, "MIN_DRIFT", "s", "44", "54"),
        (model.TOPIC, "CONTENT_DRIFT", "s", "theirs", "ours"),
        (model.GROUP, "MISSING_GROUP", "s", "theirs", "ours"),
        (model.LOG, "LOG_AHEAD", "s", "40", "50"),
    ],
)
def test_a_finding_says_whose_value_is_which(
    kind: str, code: str, who: str, expected: str, actual: str
) -> None:
    case = CASE._replace(key=Key(kind, "t", "g", 3))
    (found,) = findings([Judged("s", "m", 7, case, Ruling((code,), 1, 2, 3))])
    assert (found.broker, found.expected, found.actual) == (who, expected, actual)
    assert (found.severity, found.code) == (str(MEANINGS[code].severity), code)
    assert (found.topic, found.group, found.queue_id, found.observed_at) == ("t", "g", 3, 7)
    is_place, is_number = kind == model.LOG, kind in (model.OFFSET, model.QUEUE)
    assert found.physical_offset == (50 if is_place else None)
    assert found.queue_offset == (50 if is_number else None)


def test_what_a_slave_does_not_have_is_named_by_the_master() -> None:
    case = CASE._replace(key=Key(model.OFFSET, "t", "g", 3), slave=None)
    (found,) = findings([Judged("s", "m", 7, case, Ruling(("MISSING_ON_SLAVE",)))])
    assert (found.queue_offset, found.expected, found.actual) == (40, "40", None)


def side(place: str, *facts: Fact, is_resting: bool = True) -> Snapshot:
    number = 0 if place == "m" else 1
    return Snapshot(place, "b", number, None, is_resting, 0, 0, ALL, facts)


def commands(master: Snapshot, slave: Snapshot) -> list[str]:
    return [step.command for step in steps(Pairing([master], slave, True))]


def test_what_lies_behind_the_masters_end_is_decided_before_anything_else() -> None:
    master = side("m", model.queue_fact("t", 0, 0, 10), Fact(model.OFFSET, "t", "g", 0, 9))
    slave = side("s", model.queue_fact("t", 0, 0, 12), Fact(model.OFFSET, "t", "g", 0, 2))
    first, *rest = steps(Pairing([master], slave, True))
    assert first.command == "rmqha-spark verify-replica m s"
    assert first.why.startswith("s holds what its master lost: stop both, keep copies")
    assert [step.command for step in rest] == [
        "cp consumerOffset.json STORE_PATH_ROOT_DIR/config/consumerOffset.json"
    ]
    assert "grows old" not in rest[0].why
    moving = replace(master, is_resting=False)
    assert "stop it first and make this again" in steps(Pairing([moving], slave, True))[-1].why


def test_a_slave_that_lacks_messages_gets_time_first() -> None:
    master = side("m", model.queue_fact("t", 0, 0, 12), Fact(model.DELAY, "d", None, 1, 9))
    slave = side("s", model.queue_fact("t", 0, 0, 10), Fact(model.DELAY, "d", None, 1, 3))
    assert commands(master, slave) == [
        "mqadmin wipeWritePerm -b BROKER_NAME -n NAMESRV",
        "cp delayOffset.json STORE_PATH_ROOT_DIR/config/delayOffset.json",
    ]


def test_tables_that_are_not_copied_are_the_slaves_own_trouble() -> None:
    """Nothing can be typed: the log of the slave says why."""
    master = side("m", Fact(model.VERSION, "topics.json", text="2"))
    slave = side("s", Fact(model.VERSION, "topics.json", text="1"))
    (step,) = steps(Pairing([master], slave, True))
    assert step.command == ""
    assert step.why.startswith("s does not copy its master's tables: its log says why")
    assert f"# 1. {step.why}" in script([step])


def test_nobody_puts_in_place_what_is_damaged_on_the_master() -> None:
    queue = model.queue_fact("t", 0, 0, 10)
    slave = side("s", queue, Fact(model.OFFSET, "t", "g", 0, 2))
    assert commands(side("m", queue, Fact(model.OFFSET, "t", "g", 0, -7)), slave) == []
    assert commands(side("m", queue), slave) == []  # nor what only the slave has


def test_a_plan_does_nothing_when_it_is_run() -> None:
    master = side("m", model.queue_fact("t", 0, 0, 12))
    plan = steps(Pairing([master], side("s", model.queue_fact("t", 0, 0, 10)), True))
    lines = script(plan).splitlines()
    assert lines[0] == "#!/bin/sh"
    assert all(line.startswith("#") or not line for line in lines)
    assert lines[4].startswith("# 1. s lacks messages")
    assert lines[5] == "# mqadmin wipeWritePerm -b BROKER_NAME -n NAMESRV"
    assert script(plan).endswith("\n")
