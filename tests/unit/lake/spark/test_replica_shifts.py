"""Logs that lie shifted against each other: what each task of verify-replica reads of them."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.lake.scan.replica.anchors import Anchor, cuts, in_both
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt
from rmq_ha.lake.scan.replica.shifts import Region, regions_of
from rmq_ha.lake.scan.replica.tasks import Answers, Task, TaskResult, Work, run
from rmq_ha.lake.scan.replica.verifying import verify
from rmq_ha.ops.offsets.findings import Finding
from tests.sim_kit.store_faults.image import StoreImage
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, image_of

CODES = {"lost": "RECORD_LOST", "twice": "RECORD_DUPLICATED", "moved": "RECORD_MOVED"}
WORDS = {*CODES.values(), "RECORD_EXTRA", "LOG_DIFFERS", "MORE_DIFFERENCES"}
FILE, SPLIT, MESSAGES = 16384, 1024, 6_800


class Reading(LocalFiles):
    """Counts what is asked of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.files: set[str] = set()

    def window(self, path: str, offset: int, length: int) -> Any:
        """Remembers the file."""
        self.files.add(path)
        return super().window(path, offset, length)


class Seen(NamedTuple):
    """What was found; and of each kind of task, the most files of the log that one of them read."""

    findings: Sequence[Finding]
    tasks: dict[str, int]
    most: dict[str, int]


def seen(master: Path, slave: Path, split: int = SPLIT) -> Seen:
    tasks: dict[str, int] = {}
    most: dict[str, int] = {}

    def run_all(label: str, work: Work, some: Sequence[Task], is_apart: bool) -> Answers:
        found: dict[int, TaskResult] = {}
        for task in some:
            files = Reading()
            for side in work.sides:
                side.log.files = files
            run(work, task, found.setdefault(task.number, TaskResult()))
            kind = type(task).__name__
            tasks[kind] = tasks.get(kind, 0) + 1
            most[kind] = max(most.get(kind, 0), len(files.files))
        return found

    pair = StoreAt(str(master)), StoreAt(str(slave))
    told = verify(Settings(*pair, split=split, checks=frozenset(), pause_ms=0), run_all)
    return Seen(told.findings, tasks, most)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Record:
    image = image_of(java_store("clean", tmp_path_factory.mktemp("java")), LEVELS_OF_JAVA)
    return next(one.record for one in image.records() if one.record.topic == "TopicB")


def records(template: Record, count: int = MESSAGES) -> list[Record]:
    return [
        template._replace(
            body=b"%08d" % number * (1 + number % 3),
            properties_string=f"UNIQ_KEY\x01{number:032d}",
            queue_offset=number,
        )
        for number in range(count)
    ]


def save(rows: Sequence[Record], folder: Path) -> Path:
    image = StoreImage(0, bytearray(), FILE, 20_000, [])
    image.lay_out(rows)
    image.save(folder)
    return folder


def told(found: Sequence[Finding]) -> list[tuple[str, str | None]]:
    return [(one.code, one.msg_id and one.msg_id.lstrip("0")) for one in found]


@pytest.mark.lake
@pytest.mark.trials
def test_no_task_reads_all_that_lies_behind_a_shift(template: Record, tmp_path: Path) -> None:
    """The slave lost its third message, so that a thousand parts are out of step."""
    rows = records(template)
    master = save(rows, tmp_path / "m")
    slave = save([*rows[:2], *rows[3:]], tmp_path / "s")
    found = seen(master, slave)
    assert ("RECORD_LOST", "2") in told(found.findings)
    assert [one.code for one in found.findings if one.severity == "ERROR"] == ["RECORD_LOST"]
    assert found.tasks["Stretch"] >= 1_000
    assert max(found.most.values()) <= 20, (found.most, found.tasks)


def harmed(rows: Sequence[Record], random: Random) -> tuple[list[Record], set[tuple[str, str]]]:
    """Lost, doubled and exchanged messages, far from each other; and what is to be said of them."""
    found: list[Record] = []
    says: set[tuple[str, str]] = set()
    kinds = {at: random.choice(("lost", "twice", "moved")) for at in range(40, len(rows) - 40, 90)}
    away: dict[int, Record] = {}
    for number, row in enumerate(rows):
        kind = kinds.get(number)
        if number in away:
            found.append(away.pop(number))
        if kind == "moved":
            away[number + 20] = row
        else:
            found += {"lost": [], "twice": [row, row], None: [row]}[kind]
        if kind:
            says.add((CODES[kind], str(number)))
    return found, says


@pytest.mark.lake
@pytest.mark.parametrize("seed", range(2))
def test_each_change_is_found_however_the_logs_are_cut(
    template: Record, tmp_path: Path, seed: int
) -> None:
    rows = records(template, 1_000)
    other, says = harmed(rows, Random(seed))
    master, slave = save(rows, tmp_path / "m"), save(other, tmp_path / "s")
    for split in (1 << 20, 7_000, SPLIT):
        found = [one for one in told(seen(master, slave, split).findings) if one[0] in WORDS]
        assert sorted(found) == sorted(says), split


def test_a_message_that_moved_far_is_one_finding(template: Record, tmp_path: Path) -> None:
    """One part has lost it, another one has it too many."""
    rows = records(template, 1_000)
    other = [*rows[:100], *rows[101:800], rows[100], *rows[800:]]
    master, slave = save(rows, tmp_path / "m"), save(other, tmp_path / "s")
    found = seen(master, slave)
    assert found.tasks["ShiftedPart"] > 20
    (moved,) = [one for one in found.findings if one.code in WORDS]
    assert (moved.code, moved.severity, moved.msg_id and moved.msg_id[-3:]) == (
        "RECORD_MOVED", "ERROR", "100",
    )  # fmt: skip
    places = [
        int((text or "").removeprefix("at offset ")) for text in (moved.expected, moved.actual)
    ]
    assert places[1] - places[0] > 600 * 100


def test_more_than_a_thousand_changes_are_not_told_one_by_one(
    template: Record, tmp_path: Path
) -> None:
    rows = records(template, 3_300)
    master = save(rows, tmp_path / "m")
    slave = save([row for at, row in enumerate(rows) if at % 3], tmp_path / "s")
    found = [code for code, _ in told(seen(master, slave, 20_000).findings)]
    assert found.count("MORE_DIFFERENCES") == 1
    assert 900 <= found.count("RECORD_LOST") <= 1_100


@pytest.mark.lake
def test_a_hole_of_many_messages_is_as_long_as_it_is(template: Record, tmp_path: Path) -> None:
    """More than what is looked at first, and others of their sizes stand in their places."""
    rows = records(template, 800)
    master = save(rows, tmp_path / "m")
    slave = save([*rows[:115], *rows[415:]], tmp_path / "s")
    found = [one for one in told(seen(master, slave, 1 << 20).findings) if one[0] in WORDS]
    assert sorted(found) == sorted(("RECORD_LOST", str(at)) for at in range(115, 415))


def test_anchors_are_what_both_have_once_and_in_one_order() -> None:
    def of(row: str) -> list[Anchor]:
        return [Anchor(ord(one), at) for at, one in enumerate(row)]

    assert in_both(of("abcd"), of("abcd")) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert in_both(of("abcdef"), of("xbcyef")) == [(1, 1), (2, 2), (4, 4), (5, 5)]
    assert in_both(of("abcdef"), of("fabcde")) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert in_both(of("abca"), of("abc")) == [(1, 1), (2, 2)]
    assert in_both(of("abc"), of("abcc")) == [(0, 0), (1, 1)]
    assert in_both([], of("abc")) == []


def test_parts_are_as_long_as_they_are_to_be() -> None:
    pairs = [(at, at + 3) for at in range(0, 100, 10)]
    assert list(cuts(pairs, 0, 25)) == [(30, 33), (60, 63), (90, 93)]
    assert list(cuts([(5, 90), (9, 95)], 0, 25)) == [(5, 90)], "one log is long there"


def test_stretches_that_differ_side_by_side_are_one_region() -> None:
    compared = [(at, at + 10) for at in range(0, 80, 10)]
    apart = [(0, 10, -1), (20, 30, 24), (30, 40, -1), (60, 70, -1), (70, 80, 75)]
    assert list(regions_of(compared, apart, (80, 91))) == [
        Region(0, 24, (40, 40), False),
        Region(40, 75, (80, 91), True),
    ]
    assert list(regions_of(compared, apart, None))[-1] == Region(40, 75, (80, 80), False)
    assert list(regions_of(compared, apart[:1], (80, 91))) == []
