"""Each kind of task by itself: what it looks at, and what it adds to the answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.store_format.commitlog import encode_blank
from rmq_ha.base.store_format.consumequeue import UNIT
from rmq_ha.lake.scan.replica.auditing import CHECKS, CRC
from rmq_ha.lake.scan.replica.comparing import LogPart
from rmq_ha.lake.scan.replica.settings import open_pair
from rmq_ha.lake.scan.replica.tasks import (
    COMMON,
    Doubt,
    Landmarks,
    ShiftedPart,
    Stretch,
    Survey,
    Task,
    TaskResult,
    Work,
    plan,
    run,
)
from rmq_ha.ops.checks.units import QueueScan
from rmq_ha.ops.offline.log_files import Hole
from tests.sim_kit.store_faults.image import StoreImage
from tests.unit.lake.scan.parts_kit import log_of, store_at
from tests.unit.lake.spark.replica_kit import INDEX_SIZES, settings_of

Given = dict[str, Any]
ROWS: list[Given] = [{"queue_offset": at, "body": b"%05d" % at} for at in range(24)]
CHANGED: Given = {"queue_offset": 2, "body": b"other"}
SIZE = len(log_of(ROWS[0]))
FILE = 4096


# Plans


def in_short(stretches: Sequence[Stretch]) -> list[tuple[int, int, str]]:
    """Master, slave or both; `=`: compared."""
    return [
        (each.low, each.high, "".join("ms"[side] for side in each.sides) + "=" * each.compares)
        for each in stretches
    ]


def test_what_a_side_lacks_is_looked_at_in_the_other_one_alone() -> None:
    holes = [
        [Hole(500, 560, "files"), Hole(950, 960, "files")],
        [Hole(540, 600, "files"), Hole(700, 720, "files")],
    ]
    stretches = plan([(0, 1000), (300, 900)], (450, 800), 100, [0, 650], holes)
    assert in_short(stretches) == [
        (0, 100, "m"), (100, 200, "m"), (200, 300, "m"),
        (300, 400, "m"), (300, 400, "s"), (400, 450, "m"), (400, 450, "s"),  # before --from
        (450, 500, "ms="), (500, 540, "s"),
        (560, 600, "m"),  # what nobody has before it nobody looks at
        (600, 650, "ms="), (650, 700, "ms="), (700, 720, "m"), (720, 800, "ms="),
        (800, 900, "m"), (800, 900, "s"),  # behind where the logs part
        (900, 950, "m"), (960, 1000, "m"),
    ]  # fmt: skip
    assert [each.number for each in stretches] == list(range(len(stretches)))


def test_a_side_that_reaches_to_neither_end_is_not_asked_there() -> None:
    assert in_short(plan([(100, 200), (0, 300)], (100, 200), 1000, [])) == [
        (0, 100, "s"),
        (100, 200, "ms="),
        (200, 300, "s"),
    ]


# Stretches of two logs


def work_of(
    folder: Path, master: bytes, slave: bytes, checks: frozenset[str] = frozenset(CHECKS)
) -> Work:
    stores = store_at(folder / "m", master, FILE), store_at(folder / "s", slave, FILE)
    return work_at(*stores, checks)


def work_at(master: Path, slave: Path, checks: frozenset[str] = frozenset(CHECKS)) -> Work:
    pair = open_pair(settings_of(master, slave))
    sides = tuple(
        opened.side(name, opened.high) for name, opened in zip(("m", "s"), pair, strict=True)
    )
    return Work(sides, checks, 1 << 20)


def answered(work: Work, task: Task) -> TaskResult:
    answer = TaskResult()
    run(work, task, answer)
    assert not answer.failed
    return answer


def codes(answer: TaskResult) -> list[tuple[str, str | None, int | None]]:
    return sorted((each.code, each.broker, each.physical_offset) for each in answer.findings)


BOTH = (0, 1)
LOST = [*ROWS[:3], *ROWS[5:]]


@pytest.mark.parametrize(
    ("slave", "low", "high", "apart", "said", "records"),
    [
        (ROWS, 0, 9, [], [], {0: 9, 1: 9, COMMON: 9}),
        (ROWS, 3, 9, [], [], {0: 6, 1: 6, COMMON: 6}),
        # Sides that differ are counted each for itself, and as compared the master's.
        ([*ROWS[:2], CHANGED, *ROWS[3:]], 0, 9, [(0, 9, -1)], [("LOG_DIFFERS", "s", 2)],
            {0: 9, 1: 9, COMMON: 9}),
        ([*ROWS[:2], CHANGED, *ROWS[3:]], 3, 9, [], [], {0: 6, 1: 6, COMMON: 6}),
        ([{"body": b"a longer one"}, *ROWS], 0, 9, [(0, 9, 0)], [], {0: 9, 1: 9, COMMON: 9}),
        ([*ROWS[:3], {"body": b"a much longer one" * 9}, *ROWS[3:]], 1, 9, [(1, 9, 3)], [],
            {0: 8, 1: 7, COMMON: 8}),
    ],
)  # fmt: skip
def test_a_stretch_of_both_logs(
    tmp_path: Path,
    slave: list[Given],
    low: int,
    high: int,
    apart: list[tuple[int, int, int]],
    said: list[tuple[str, str, int]],
    records: dict[int, int],
) -> None:
    """Places are told in records."""
    work = work_of(tmp_path, log_of(*ROWS), log_of(*slave), frozenset({CRC}))
    answer = answered(work, Stretch(0, low * SIZE, high * SIZE, BOTH, True))
    assert answer.apart == [
        (a * SIZE, b * SIZE, shift * SIZE if shift >= 0 else -1) for a, b, shift in apart
    ]
    assert codes(answer) == [(code, side, at * SIZE) for code, side, at in said]
    assert {side: count for side, (count, _) in answer.records.items()} == records
    assert answer.records[0] == answer.records[COMMON] == [high - low, (high - low) * SIZE]
    assert (answer.compared, answer.blank) == ((high - low) * SIZE, 0)


def test_a_stretch_that_is_not_compared_is_of_the_sides_that_it_names(tmp_path: Path) -> None:
    changed = [*ROWS[:2], CHANGED, *ROWS[3:]]
    work = work_of(tmp_path, log_of(*ROWS), log_of(*changed), frozenset({CRC}))
    for side in BOTH:
        answer = answered(work, Stretch(0, 0, 9 * SIZE, (side,), False))
        assert answer.records == {side: [9, 9 * SIZE]}
        assert (answer.compared, answer.apart, answer.findings) == (0, [], [])
    alone = work._replace(checks=frozenset())
    answer = answered(alone, Stretch(0, 0, 9 * SIZE, BOTH, True))
    assert answer.records == {}, "nothing was asked of records"
    assert codes(answer) == [("LOG_DIFFERS", "s", 2 * SIZE)]


def test_bytes_that_are_no_record_are_told_of_once_where_both_have_them(tmp_path: Path) -> None:
    data = bytearray(log_of(*ROWS))
    data[4 * SIZE + 4] ^= 0x40
    data[7 * SIZE + 88 + 2] ^= 1  # a byte of a body
    work = work_of(tmp_path, bytes(data), bytes(data), frozenset({CRC}))
    answer = answered(work, Stretch(0, 0, 9 * SIZE, BOTH, True))
    assert codes(answer) == [
        ("BODY_CRC", "both", 7 * SIZE),
        ("RECORD_UNREADABLE", "both", 4 * SIZE),
    ]
    assert answer.records == {side: [8, 9 * SIZE] for side in (*BOTH, COMMON)}
    assert answer.apart == []


def test_what_differs_behind_a_blank_has_no_meaning(tmp_path: Path) -> None:
    data = log_of(*ROWS[:5])
    blank = encode_blank(FILE - len(data))
    last = log_of({"body": b"last"}, base=FILE)
    for name, rest in (("m", b"x"), ("s", b"y")):
        folder = tmp_path / name / "commitlog"
        folder.mkdir(parents=True)
        first = (data + blank).ljust(FILE, rest)
        (folder / f"{0:020}").write_bytes(first)
        (folder / f"{FILE:020}").write_bytes(last.ljust(FILE, b"\0"))
    work = work_at(tmp_path / "m", tmp_path / "s", frozenset({CRC}))
    answer = answered(work, Stretch(0, 0, FILE, BOTH, True))
    assert (answer.findings, answer.apart) == ([], [])
    assert answer.blank == FILE - len(data)
    assert answer.records == {side: [5, 5 * SIZE] for side in (*BOTH, COMMON)}


# Queues and index files by themselves


def survey_of(work: Work, *queues: tuple[str, int], index_file: int = -1) -> TaskResult:
    return answered(work, Survey(0, 1, queues, index_file, 0, work.sides[1].log.stop))


def test_a_survey_says_where_each_queue_ends(java: Path, image: StoreImage, tmp_path: Path) -> None:
    """And what is wrong with its files: another size than those of most is no queue's."""
    image.save(tmp_path / "s")
    folder = tmp_path / "s" / "consumequeue"
    first, *_, last = sorted(folder.glob("TopicB/1/*"))
    for short in (first, last, max(folder.glob("TopicC/0/*"))):
        short.write_bytes(short.read_bytes()[:-20])
    swapped = folder / "TopicA" / "0" / f"{0:020}"
    data = swapped.read_bytes()
    swapped.write_bytes(data[20:40] + data[:20] + data[40:])
    work = work_at(java, tmp_path / "s")
    names = sorted(name for name in image.queues if name[0] in ("TopicA", "TopicB", "TopicC"))
    answer = survey_of(work, *names)
    assert sorted(answer.ends) == [(1, *name) for name in names]
    for name in names:
        queue = image.queues[name]
        units = [queue.unit(at) for at in range(queue.start, queue.end)]
        wanted = QueueScan(len(units), sum(units[-1][:2]), queue.end - 1, queue.start)
        if name == ("TopicB", 1):  # what the file behind the short one has
            wanted = wanted._replace(entries=queue.end - 40, first=40)
        assert answer.ends[1, *name] == wanted
    assert [(each.code, each.topic, each.queue_id) for each in answer.findings] == [
        ("CQ_ORDER", "TopicA", 0),
        ("CQ_FILE", "TopicB", 1),
        ("CQ_FILE", "TopicB", 1),
        ("CQ_FILE", "TopicC", 0),
    ]
    assert survey_of(work, ("TopicA", 1)).findings == []
    nothing = survey_of(work)
    assert (nothing.ends, nothing.findings) == ({}, [])


def test_a_survey_looks_at_the_index_file_that_it_names(
    java: Path, image: StoreImage, tmp_path: Path
) -> None:
    """One that is gone by now is no error: brokers delete old ones."""
    image.save(tmp_path / "s")
    files = sorted((tmp_path / "s" / "index").iterdir())
    for number in (0, len(files) - 1):
        data = bytearray(files[number].read_bytes())
        at = 40 + 4 * INDEX_SIZES[0] + 20 * 3  # the third item: its message
        data[at + 4 : at + 12] = (1 << 40).to_bytes(8, "big")
        files[number].write_bytes(data)
    work = work_at(java, tmp_path / "s")
    assert len(files) == len(work.sides[1].store.index_parts()[0])
    harmed = [bool(survey_of(work, index_file=at).findings) for at in range(len(files) + 1)]
    assert harmed == [True, *[False] * (len(files) - 2), True, False]


def test_entries_that_no_record_stands_behind_are_named(
    java: Path, image: StoreImage, tmp_path: Path
) -> None:
    slave = image.copy()
    queue = slave.queues["TopicA", 1]
    extra = queue.end
    data = bytearray(queue.data)
    at = (extra - queue.start) * UNIT.size
    data[at : at + UNIT.size] = UNIT.pack(5, 100, 0)
    queue.data[:] = data
    slave.save(tmp_path / "s")
    work = work_at(java, tmp_path / "s")
    assert answered(work, Doubt(0, 0, "TopicA", 1)).findings == []
    answer = answered(work, Doubt(0, 1, "TopicA", 1))
    assert {(each.broker, each.queue_offset) for each in answer.findings} == {("s", extra)}


# Logs that are out of step


def test_landmarks_are_picked_of_one_side_and_of_runs_that_begin_in_a_part(
    tmp_path: Path,
) -> None:
    work = work_of(tmp_path, log_of(*ROWS[:20]), log_of(CHANGED, *ROWS))
    picked = {side: answered(work, Landmarks(0, side, 0, 3 * SIZE, 1)).anchors for side in BOTH}
    for side in BOTH:  # the middle of sixteen
        assert [(its, at) for its, _, at in picked[side]] == [
            (side, at * SIZE) for at in (8, 9, 10)
        ]
    assert [run for _, run, _ in picked[0][:2]] == [run for _, run, _ in picked[1][1:]]
    later = answered(work, Landmarks(0, 0, 2 * SIZE, 9 * SIZE, 1)).anchors
    assert [at // SIZE for *_, at in later] == [10, 11, 12], "as far as there are sixteen"


@pytest.mark.parametrize("tells", [False, True])
def test_differences_are_counted_and_told_if_somebody_asks(tmp_path: Path, tells: bool) -> None:
    work = work_of(tmp_path, log_of(*ROWS), log_of(*LOST))
    part = LogPart((0, len(ROWS) * SIZE), (0, len(LOST) * SIZE), 3 * SIZE, True)
    answer = answered(work, ShiftedPart(0, part, 100, tells))
    assert answer.changes == 2
    told = [(each.finding.code, each.finding.physical_offset) for each in answer.told]
    assert told == [("RECORD_LOST", at * SIZE) for at in (3, 4)] * tells


def test_a_store_that_vanishes_is_an_answer(tmp_path: Path) -> None:
    work = work_of(tmp_path, log_of(*ROWS), log_of(*ROWS))
    (tmp_path / "s" / "commitlog" / f"{0:020}").unlink()
    answer = TaskResult()
    run(work, Stretch(0, 0, 9 * SIZE, BOTH, True), answer)
    assert str(tmp_path / "s") in answer.failed
    assert answer.records == {}
