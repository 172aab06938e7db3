"""From sums to findings and one line."""

import pytest

from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.lake.scan.replica.verdicts import LOG_CODES, judge_bounds, verdict
from rmq_ha.ops.checks.codes import MEANINGS, finding
from rmq_ha.ops.checks.store_rules import (
    CheckpointState,
    TailState,
    judge_checkpoint,
    judge_holes,
    judge_tail,
)
from rmq_ha.ops.checks.sums import (
    DelaySum,
    IndexState,
    QueueSum,
    judge_delays,
    judge_index,
    judge_keys,
    judge_queues,
)
from rmq_ha.ops.offline.log_files import Hole
from rmq_ha.ops.offsets.findings import Severity

QUEUE = QueueSum("s", "Orders", 1, 10, 10, 0, 0, 0, 0)
TAIL = TailState("s", 100, -1, "Orders", 1, 9, False, False)


def test_every_meaning_is_a_sentence() -> None:
    for code, meaning in MEANINGS.items():
        assert code.isupper()
        assert meaning.sentence.endswith(".")
    assert set(LOG_CODES) <= set(MEANINGS)


def test_a_whole_queue_says_nothing() -> None:
    assert not list(judge_queues([QUEUE]))
    assert QUEUE.surplus == 0
    assert QUEUE._replace(entries=12).surplus == 2
    assert QUEUE._replace(entries=14, wrong=3).surplus == 1  # these point elsewhere, and are known


def test_what_is_not_dispatched_or_forgotten() -> None:
    found = list(judge_queues([QUEUE._replace(pending=3, old=2), QUEUE._replace(pending=1)]))
    assert [(one.code, one.severity, one.detail[:2]) for one in found] == [
        ("CQ_FORGOTTEN", "WARN", "2 "),
        ("CQ_NOT_DISPATCHED", "INFO", "4 "),
    ]
    (keys,) = judge_keys([("m", 0), ("s", 2)])
    assert (keys.code, keys.broker) == ("INDEX_NOT_DISPATCHED", "s")
    assert keys.detail.startswith("2 keys.")


def test_each_queue_and_each_side_is_told_of() -> None:
    sums = [
        QUEUE._replace(side=side, queue_id=number, old=old, first=first, pending=number)
        for number in (1, 2)
        for side, old, first in (("m", 0, 0), ("s", 3, 3))
    ]
    assert [(one.code, one.broker, one.queue_id, one.detail[:2]) for one in judge_queues(sums)] == [
        ("CQ_FORGOTTEN", "s", 1, "3 "),
        ("CQ_FORGOTTEN", "s", 2, "3 "),
        ("CQ_NOT_DISPATCHED", "m", None, "3 "),
        ("CQ_NOT_DISPATCHED", "s", None, "3 "),
    ]


def test_a_queue_that_only_one_side_has() -> None:
    """Nobody deletes a topic on one side of a pair."""
    gone = QUEUE._replace(side="s", entries=0, matched=0, old=10)
    assert [one.code for one in judge_queues([gone])] == ["CQ_FORGOTTEN"]
    assert [(one.code, one.severity, one.broker) for one in judge_queues([QUEUE, gone])] == [
        ("CQ_MISSING", "ERROR", "s")
    ]


def test_a_queue_that_begins_later_than_the_other_sides() -> None:
    """Its first file is gone on one side; of a deleted topic both have forgotten the same."""
    whole, short = QUEUE._replace(side="m", first=0), QUEUE._replace(old=4, first=4)
    assert [(one.code, one.severity, one.broker) for one in judge_queues([whole, short])] == [
        ("CQ_FORGOTTEN", "ERROR", "s")
    ]
    both = [short, short._replace(side="m")]
    assert {one.severity for one in judge_queues(both)} == {"WARN"}


def test_holes_of_a_log() -> None:
    one, other = judge_holes("s", [Hole(10, 30, "a and b"), Hole(40, 50, "b and c")])
    assert (other.physical_offset, other.expected) == (40, "bytes up to 50")
    assert (one.code, one.severity, one.physical_offset) == ("LOG_HOLE", "ERROR", 10)
    assert one.detail.startswith("20 bytes between a and b.")


def test_index_files_that_are_damaged_or_missing() -> None:
    full = IndexState("m", [], [(0, 40), (50, 90)], 0, 100)
    assert not list(judge_index([full, full._replace(side="s")]))
    none = IndexState("s", [], [], 0, 100)
    for pair in ([full, none], [none, full]):
        assert [(one.code, one.broker) for one in judge_index(pair)] == [("INDEX_MISSING", "s")]
        (found,) = judge_index(pair)
        assert (found.physical_offset, found.expected) == (
            0,
            "as on the other side, from 0 on",
        )
    # Of what lies before its log nothing can be missing.
    (found,) = judge_index([full, none._replace(low=41)])
    assert (found.physical_offset, found.expected) == (50, "as on the other side, from 50 on")
    (found,) = judge_index([full, none._replace(low=90)])
    assert found.physical_offset == 50
    (found,) = judge_index([full, none._replace(known=1)])
    assert found.physical_offset == 0
    # It begins where the other's index ends, or nothing was dispatched so far.
    assert not list(judge_index([full, none._replace(low=91)]))
    assert not list(judge_index([full, none._replace(known=0)]))
    assert not list(judge_index([none, none]))
    damaged = none._replace(faults=["x has 5 bytes", "y has 6 bytes"])
    assert [(one.code, one.detail[:14]) for one in judge_index([full, damaged])] == [
        ("INDEX_UNREADABLE", "x has 5 bytes."),
        ("INDEX_UNREADABLE", "y has 6 bytes."),
    ]


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (None, ("CHECKPOINT_MISSING", None, None)),
        (CheckpointTimes(5, -7, 5), ("CHECKPOINT_DAMAGED", None, "-7")),
        (CheckpointTimes(5, 101, 5), ("CHECKPOINT_AHEAD", "at most 100", "101")),
        (CheckpointTimes(5, 5, 101, 1 << 40), ("CHECKPOINT_AHEAD", "at most 100", "101")),
    ],
)
def test_checkpoints(
    times: CheckpointTimes | None, told: tuple[str, str | None, str | None]
) -> None:
    size = 4096 if times is not None else -1
    state = CheckpointState(size, times or CheckpointTimes(), 1 << 41, 100)
    (one,) = judge_checkpoint("s", state)
    assert (one.code, one.expected, one.actual) == told
    # The place up to which the log is flushed is no time.
    flushed = CheckpointTimes(100, 5, 0, 1 << 40)
    sound = CheckpointState(4096, flushed, 1 << 40, 100)
    assert not list(judge_checkpoint("s", sound))
    (short,) = judge_checkpoint("s", sound._replace(size=4095))
    assert (short.code, short.expected, short.actual) == (
        "CHECKPOINT_DAMAGED",
        "4096 bytes",
        "4095 bytes",
    )
    (cut,) = judge_checkpoint("s", sound._replace(end=(1 << 40) - 1))
    assert (cut.code, cut.severity, cut.physical_offset) == ("LOG_CUT", "ERROR", (1 << 40) - 1)


def test_delays() -> None:
    """A level's delay is what most have; a change of the setting is in order of time."""
    usual = DelaySum("m", 2, 5000, 90, 1000, 9000, 1, 0)
    assert not list(judge_delays([usual, usual._replace(side="s")]))
    odd = usual._replace(delay=7777, messages=1, first=5000, last=5000)
    for row in ([usual, odd], [odd, usual]):
        (found,) = judge_delays(row)
        assert (found.code, found.expected, found.actual, found.physical_offset) == (
            "CQ_DELIVERY_TIME",
            "5000 ms after it was stored",
            "7777 ms",
            5000,
        )
    later = usual._replace(delay=2000, messages=10, first=9500, last=9900)
    assert [one.code for one in judge_delays([usual, later])] == ["CQ_LEVELS_CHANGED"]
    other = usual._replace(side="s", delay=2000)
    assert [(one.code, one.broker) for one in judge_delays([usual, other])] == [
        ("CQ_LEVELS_CHANGED", "s")
    ]


def test_tails() -> None:
    """A queue that knows more than the log: torn; an error unless a start is going to mend it."""
    assert not list(judge_tail(TAIL))
    assert not list(judge_tail(TAIL._replace(known=100)))
    [torn] = judge_tail(TAIL._replace(known=140))
    assert (torn.code, torn.severity, torn.physical_offset, torn.queue_offset) == (
        "TORN_TAIL",
        "ERROR",
        100,
        9,
    )
    [torn] = judge_tail(TAIL._replace(known=140, abort=True))
    assert torn.severity == Severity.WARN
    assert [one.code for one in judge_tail(TAIL._replace(residue=True))] == ["TAIL_RESIDUE"]


def test_bounds() -> None:
    def codes(master: tuple[int, int], slave: tuple[int, int], quorum: bool = False) -> list[str]:
        return [
            f"{one.severity} {one.code}"
            for one in judge_bounds(["m", "s"], [master, slave], quorum)
        ]

    assert codes((0, 9), (0, 9)) == []
    assert codes((0, 9), (4, 8)) == ["INFO SLAVE_STARTS_LATER", "INFO MASTER_AHEAD"]
    assert codes((4, 9), (0, 12)) == ["ERROR SLAVE_AHEAD"]
    assert codes((4, 9), (0, 12), True) == ["WARN SLAVE_AHEAD"]
    for master, slave, places in (((2, 9), (4, 8), [(4, 2), (8, 1)]), ((4, 9), (0, 12), [(9, 3)])):
        found = judge_bounds(["m", "s"], [master, slave], False)
        assert [(one.physical_offset, int(one.detail.split()[0])) for one in found] == places


def test_the_last_line() -> None:
    assert verdict((0, 50), 7, None, 0) == "replica identical over [0, 50): 7 messages"
    assert verdict((10, 50), None, None, 0) == "replica identical over [10, 50): 40 bytes"
    assert verdict((0, 50), 7, None, 1).endswith(
        "7 messages; but 1 error within the stores: see the findings"
    )
    first = finding(
        "LOG_DIFFERS",
        topic="Orders",
        queue_id=1,
        queue_offset=4,
        physical_offset=30,
        msg_id="ID",
        expected="flag 1",
        actual="flag 2",
    )
    assert verdict((0, 50), 7, first, 2) == (
        "replica differs over [0, 50): first at 30, message ID (topic Orders, queue 1, offset 4, "
        "LOG_DIFFERS): master flag 1, slave flag 2; 2 errors"
    )
    nobody = finding("LOG_HOLE", physical_offset=30, expected="bytes up to 40", actual="no file")
    assert verdict((0, 50), 7, nobody, 1) == (
        "replica differs over [0, 50): first at 30, (LOG_HOLE): master bytes up to 40, "
        "slave no file; 1 error"
    )
    parted = finding("DIVERGED", "diverged from offset 30 to the end.", physical_offset=30)
    assert verdict((0, 50), 7, parted, 1) == (
        "replica differs over [0, 50): diverged from offset 30 to the end; 1 error"
    )
    assert verdict((0, 50), 7, None, 2, is_alone=True) == (
        "store read over [0, 50): 7 messages; but 2 errors within it: see the findings"
    )
