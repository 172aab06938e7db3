"""What an operator is told to do, and of which values: by each kind of difference."""

from dataclasses import replace
from pathlib import Path

import pytest

from rmq_ha.base.wire.bodies import decode_delay_offsets, decode_offset_table
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.codes import MEANINGS
from rmq_ha.ops.offsets.judgement import JudgedKey, findings
from rmq_ha.ops.offsets.model import NUMBERS, TEXTS, Fact, FactKey, Snapshot
from rmq_ha.ops.offsets.pairing import Pairing
from rmq_ha.ops.offsets.repair import merged_delays, merged_offsets, save, script, steps
from rmq_ha.ops.offsets.rules import Case, Ruling

ALL = frozenset({*NUMBERS, *TEXTS})
CASE = Case(
    FactKey("", "t", "g", 3), True, True, False, True, True, True, 40, 41, 42, 43, "theirs", 44,
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
    case = CASE._replace(key=FactKey(kind, "t", "g", 3))
    (found,) = findings([JudgedKey("s", "m", 7, case, Ruling((code,), 1, 2, 3))])
    assert (found.broker, found.expected, found.actual) == (who, expected, actual)
    assert (found.severity, found.code) == (str(MEANINGS[code].severity), code)
    assert (found.topic, found.group, found.queue_id, found.observed_at) == ("t", "g", 3, 7)
    is_place, is_number = kind == model.LOG, kind in (model.OFFSET, model.QUEUE)
    assert found.physical_offset == (50 if is_place else None)
    assert found.queue_offset == (50 if is_number else None)


def test_what_a_slave_does_not_have_is_named_by_the_master() -> None:
    case = CASE._replace(key=FactKey(model.OFFSET, "t", "g", 3), slave=None)
    (found,) = findings([JudgedKey("s", "m", 7, case, Ruling(("MISSING_ON_SLAVE",)))])
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


def test_all_that_is_to_be_done_comes_in_the_order_in_which_it_helps() -> None:
    """Which store is right, then messages, copying, topics, groups, and tables at the end."""
    queues = [model.queue_fact("t", number, 0, 10) for number in (0, 1)]
    behind = [model.queue_fact("t", 0, 0, 12), model.queue_fact("t", 1, 0, 8)]
    progress = Fact(model.OFFSET, "t", "g", 0, 9), Fact(model.DELAY, "d", None, 1, 9)
    texts = [
        Fact(model.TOPIC, "a b", value=8, low=4, text='{"perm":4,"order":true}'),
        Fact(model.TOPIC, "plain", value=8, low=8, text="{}"),
        Fact(model.GROUP, None, "c d", text='{"retryMaxTimes":3,"consumeEnable":true}'),
        Fact(model.TOPIC, "e", value=8, low=8, text='{"perm":6}'),
        Fact(model.GROUP, None, "f", text="1"),
    ]
    others = [texts[3]._replace(text='{"perm":2}'), texts[4]._replace(text="2")]
    lag = [one._replace(value=2) for one in progress]
    plan = steps(
        Pairing([side("m", *queues, *progress, *texts)], side("s p", *behind, *lag, *others), True)
    )
    assert [step.command for step in plan] == [
        "rmqha-spark verify-replica m 's p'",
        "mqadmin wipeWritePerm -b BROKER_NAME -n NAMESRV",
        "",
        "mqadmin updateTopic -b SLAVE_ADDRESS -t 'a b' -r 4 -w 8 -p 4 -o true",
        "mqadmin updateTopic -b SLAVE_ADDRESS -t plain -r 8 -w 8 -p 6",
        "mqadmin updateSubGroup -b SLAVE_ADDRESS -g 'c d' -s true -r 3",
        "cp consumerOffset.json STORE_PATH_ROOT_DIR/config/consumerOffset.json",
        "cp delayOffset.json STORE_PATH_ROOT_DIR/config/delayOffset.json",
    ]
    assert plan[3].why == "the topic a b is not on s p as on the master"
    assert plan[5].why == "the consumer group c d is not on s p"
    told = [line for line in script(plan).splitlines() if line[:3] in {f"# {n}" for n in range(9)}]
    assert len(told) == len(plan)


@pytest.mark.parametrize(("is_crashed", "of_0", "of_level"), [(False, 5, 4), (True, 6, 5)])
def test_a_merged_table_takes_the_masters_word_as_far_as_it_knows_better(
    is_crashed: bool, of_0: int, of_level: int
) -> None:
    """A master that crashed may know less than its slave; nothing lies behind a queue's end."""
    ends = [model.queue_fact("t", 0, 0, 10), model.queue_fact("t", 1, 0, 10)]
    schedule = [model.queue_fact("SCHEDULE_TOPIC_XXXX", number, 0, 7) for number in (1, 2)]

    def facts(offsets: dict[int, int], delays: dict[int, int], group: str) -> list[Fact]:
        return [
            *model.offset_facts({"t@g": offsets, f"t@{group}": {0: 4}}),
            *model.delay_facts(delays),
        ]

    master = replace(
        side("m", *facts({0: 5, 1: 12, 2: 3}, {2: 4, 3: 9, 9: 30}, "mine")), is_crashed=is_crashed
    )
    slave = side("s", *ends, *schedule, *facts({0: 6, 1: 2, 7: 1}, {2: 5, 1: 2}, "theirs"))
    pairing = Pairing([master], slave, True)
    assert decode_offset_table(merged_offsets(pairing)) == {
        "t@g": {0: of_0, 1: 10, 2: 3, 7: 1},
        "t@mine": {0: 4},
        "t@theirs": {0: 4},
    }
    assert decode_delay_offsets(merged_delays(pairing)) == {1: 2, 2: of_level, 3: 7, 9: 30}


def test_a_plan_and_tables_are_kept_for_each_slave(tmp_path: Path) -> None:
    master = side("m", model.queue_fact("t", 0, 0, 12), Fact(model.OFFSET, "t", "g", 0, 9))
    slave = side("s", model.queue_fact("t", 0, 0, 10), Fact(model.OFFSET, "t", "g", 0, 3))
    blind = replace(slave, kinds=ALL - {model.DELAY})
    stranger = replace(slave, broker="other")
    save([Pairing([master], slave, True)], str(tmp_path / "one"))
    save(
        [Pairing([master], it, True) for it in (stranger, blind, slave)], str(tmp_path / "more"), 2
    )
    names = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    both = ("repair.sh", "consumerOffset.json")
    assert names == {
        *(f"one/{name}" for name in (*both, "delayOffset.json")),
        *(f"more/slave-2/{name}" for name in both),
        *(f"more/slave-3/{name}" for name in (*both, "delayOffset.json")),
    }
    assert steps(Pairing([master], stranger, True)) == []
    assert "wipeWritePerm" in (tmp_path / "one" / "repair.sh").read_text()
    assert "wipeWritePerm" not in (tmp_path / "more" / "slave-3" / "repair.sh").read_text()
