"""From sums to findings and one line."""

from rmq_ha.spark.findings import Severity
from rmq_ha.spark.replica.codes import MEANINGS, finding
from rmq_ha.spark.replica.verdicts import (
    LOG_CODES,
    DelaySum,
    QueueSum,
    TailState,
    judge_bounds,
    judge_delays,
    judge_keys,
    judge_queues,
    judge_tail,
    verdict,
)

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


def test_what_is_not_dispatched_or_forgotten() -> None:
    found = list(judge_queues([QUEUE._replace(pending=3, old=2), QUEUE._replace(pending=1)]))
    assert [(one.code, one.severity, one.detail[:2]) for one in found] == [
        ("CQ_FORGOTTEN", "WARN", "2 "),
        ("CQ_NOT_DISPATCHED", "INFO", "4 "),
    ]
    assert [one.code for one in judge_keys([("m", 0), ("s", 2)])] == ["INDEX_NOT_DISPATCHED"]


def test_a_queue_that_only_one_side_has() -> None:
    """Nobody deletes a topic on one side of a pair."""
    gone = QUEUE._replace(side="s", entries=0, matched=0, old=10)
    assert [one.code for one in judge_queues([gone])] == ["CQ_FORGOTTEN"]
    assert [(one.code, one.severity, one.broker) for one in judge_queues([QUEUE, gone])] == [
        ("CQ_MISSING", "ERROR", "s")
    ]


def test_delays() -> None:
    """A level's delay is what most have; a change of the setting is in order of time."""
    usual = DelaySum("m", 2, 5000, 90, 1000, 9000, 1, 0)
    assert not list(judge_delays([usual, usual._replace(side="s")]))
    odd = usual._replace(delay=7777, messages=1, first=5000, last=5000)
    assert [one.code for one in judge_delays([usual, odd])] == ["CQ_DELIVERY_TIME"]
    later = usual._replace(delay=2000, messages=10, first=9500, last=9900)
    assert [one.code for one in judge_delays([usual, later])] == ["CQ_LEVELS_CHANGED"]
    other = usual._replace(side="s", delay=2000)
    assert [(one.code, one.broker) for one in judge_delays([usual, other])] == [
        ("CQ_LEVELS_CHANGED", "s")
    ]


def test_tails() -> None:
    """A queue that knows more than the log: torn; an error unless a start is going to mend it."""
    assert not list(judge_tail(TAIL))
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


def test_the_last_line() -> None:
    assert verdict((0, 50), 7, None, 0) == "replica identical over [0, 50): 7 messages"
    assert verdict((0, 50), None, None, 0) == "replica identical over [0, 50): 50 bytes"
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
