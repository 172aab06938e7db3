"""What tasks say adds up to one answer, whatever their order; and what stands in both logs."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.lake.scan.replica.auditing import AuditResult, QueueResult
from rmq_ha.lake.scan.replica.settings import common_of, open_pair
from rmq_ha.lake.scan.replica.tasks import COMMON, TaskResult
from rmq_ha.lake.scan.replica.verdicts import blamed_on_the_log
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.index_items import Counts
from rmq_ha.ops.checks.sums import DelaySum
from rmq_ha.ops.checks.units import QueueScan
from rmq_ha.ops.offsets.findings import Finding
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.replica_kit import settings_of

ERROR, WARN = finding("LOG_DIFFERS", physical_offset=1), finding("CQ_FORGOTTEN", physical_offset=2)


def queue_result(side: int, *counts: int, delays: tuple[DelaySum, ...] = ()) -> QueueResult:
    return QueueResult(side, "t", 0, counts, delays)


def audited(*checked: QueueResult, counts: tuple[tuple[int, Counts], ...] = ()) -> AuditResult:
    return AuditResult(1, 1, [WARN], list(checked), list(counts))


def one(at: int) -> TaskResult:
    """Of the task with this number, 1 to 3."""
    answer = TaskResult(compared=at, blank=10 * at, changes=100 * at, findings=[ERROR] * (at == 2))
    answer.add_records(0, at, 2 * at)
    answer.add_records(COMMON, 1, 1)
    delay = DelaySum("s", 2, 5000, at, 50 - at, 70 + at, at, 30 + at)
    checked = queue_result(1, 1, 2, 3, 4, at, delays=(delay,))
    answer.add_audited(audited(checked, counts=((0, Counts(at, 1, 2)),)), (0, 1))
    answer.add_audited(audited(queue_result(0, 5, 0, 0, 0, 0)), (0,))
    answer.ends[0, "t", at] = QueueScan(at, at, at, at)
    answer.apart.append((at, at, -1))
    answer.anchors.append((at, at, at))
    return answer


def test_answers_add_up_in_any_order() -> None:
    for order in permutations((1, 2, 3)):
        sums = TaskResult()
        for at in order:
            sums.add(one(at))
        assert (sums.compared, sums.blank, sums.changes, sums.failed) == (6, 60, 600, "")
        assert sums.records == {0: [6, 12], COMMON: [3, 3]}
        assert sums.tallies == {(1, "t", 0): [3, 6, 9, 12, 6], (0, "t", 0): [15, 0, 0, 0, 0]}
        assert sums.keys == {0: [6, 3, 6]}
        # Messages; the first and the last of them, and the queue and offset of the first.
        assert sums.delays == {(1, 2, 5000): [6, 47, 73, 3, 33]}
        assert sorted(sums.ends) == [(0, "t", at) for at in (1, 2, 3)]
        assert sorted(sums.apart) == [(at, at, -1) for at in (1, 2, 3)]
        assert sorted(sums.anchors) == [(at, at, at) for at in (1, 2, 3)]
        assert len(sums.findings) == 7


def test_one_task_that_could_not_read_is_enough() -> None:
    sums = TaskResult()
    for failed in ("", "why", "another"):
        sums.add(TaskResult(failed=failed))
    assert sums.failed == "why"


@pytest.mark.parametrize(
    ("given", "is_bad"),
    [
        ({}, False),
        ({"findings": [WARN]}, False),
        ({"findings": [WARN, ERROR]}, True),
        ({"apart": [(0, 9, -1)]}, False),
        ({"apart": [(0, 9, -1), (9, 20, 0)]}, True),
    ],
)
def test_an_error_or_a_shift_is_looked_at_again(given: dict[str, Any], is_bad: bool) -> None:
    assert TaskResult(**given).is_bad is is_bad


def test_what_no_key_was_counted_of_is_left_out_and_delays_are_bounded() -> None:
    answer = TaskResult()
    answer.add_audited(
        audited(queue_result(0, 0, 0, 0, 0, 0), counts=((0, Counts(0, 0, 0)),)), (0,)
    )
    assert answer.keys == {}
    for at in range(1005):
        answer.add_delay(0, DelaySum("m", 1, at, 1, at, at, 0, 0))
    assert len(answer.delays) == 1000
    answer.add_delay(0, DelaySum("m", 1, 7, 1, 3, 3, 9, 9))
    assert answer.delays[0, 1, 7] == [2, 3, 7, 9, 9]


# What stands in both logs

NAMES = ("m", "s")


def filed(code: str, broker: str, at: int = 5, **more: Any) -> Finding:
    return finding(code, broker=broker, physical_offset=at, expected="a", actual="b", **more)


TAGS = [filed("CQ_TAGS", name, topic="t", queue_id=1, queue_offset=9) for name in NAMES]
INDEX = [filed(code, name) for code in ("INDEX_HOLE", "INDEX_WRONG") for name in NAMES]


@pytest.mark.parametrize(
    ("found", "is_changed"),
    [
        (TAGS, True),
        (INDEX, True),
        ([*TAGS, *INDEX], True),
        (TAGS[:1], False),  # only one side's queue
        (INDEX[:2], False),  # a hole alone is a lost entry
        (INDEX[2:], False),
        ([TAGS[0], filed("CQ_TAGS", "s", at=6)], False),  # not of one record
        ([TAGS[0], TAGS[1]._replace(actual="c")], False),  # not alike
        ([TAGS[0], TAGS[1]._replace(expected="c")], False),
        ([*TAGS, INDEX[0]], False),
        ([filed("CQ_MISSING", name) for name in NAMES], False),
        ([filed("CQ_OFFSET", name) for name in NAMES], False),
    ],
)
def test_entries_of_both_sides_that_are_alike_and_do_not_fit_are_the_logs(
    found: list[Finding], is_changed: bool
) -> None:
    """Two brokers do not damage them in the same way."""
    other = [filed("BODY_CRC", "m"), finding("CQ_TAGS", broker="m")]
    said = blamed_on_the_log([*other, *found], NAMES)
    if not is_changed:
        assert said == [*other, *found]
        return
    assert said[:-1] == other
    told = said[-1]
    assert (told.code, told.broker, told.physical_offset) == ("RECORD_CHANGED", "both", 5)
    assert told.detail.count(" a / b") == len({one.code for one in found})


def test_the_record_is_named_by_who_knows_it_best() -> None:
    hole = [one._replace(msg_id="ID", topic="t") for one in INDEX[:2]]
    for found in ([*TAGS, *hole, *INDEX[2:]], [*INDEX[2:], *hole, *TAGS]):
        assert blamed_on_the_log(found, NAMES)[-1].msg_id == "ID"
    named = blamed_on_the_log([*INDEX, *TAGS], NAMES)[-1]
    assert (named.topic, named.queue_id, named.queue_offset) == ("t", 1, 9)


def test_of_a_record_that_both_sides_name_the_masters_name_is_told() -> None:
    found = [one._replace(msg_id=one.broker) for one in (TAGS[1], TAGS[0])]
    assert blamed_on_the_log(found, NAMES)[-1].msg_id == "m"


def test_what_both_logs_have_begins_where_the_later_one_begins_and_ends_with_the_shorter(
    tmp_path: Path,
) -> None:
    pair = open_pair(settings_of(*[java_store("clean", tmp_path)] * 2))
    low, high = common_of(pair, 0)
    assert (low, high) == (0, 148251)
    short = pair[0]._replace(high=90_000)
    late = pair[0]._replace(low=70_000)
    for order in ((short, late), (late, short)):
        assert common_of(list(order), 0) == (70_000, 90_000)
        assert common_of(list(order), 80_000) == (80_000, 90_000)
