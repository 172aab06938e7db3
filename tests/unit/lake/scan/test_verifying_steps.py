"""verify-replica step by step: what tasks are asked, again and again, and what their sums say."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_format.consumequeue import UNIT
from rmq_ha.lake.scan.replica import verifying
from rmq_ha.lake.scan.replica.auditing import INDEX, QUEUES
from rmq_ha.lake.scan.replica.settings import Settings
from rmq_ha.lake.scan.replica.tasks import (
    Answers,
    Doubt,
    Stretch,
    Survey,
    Task,
    TaskResult,
    Work,
)
from rmq_ha.lake.scan.replica.verifying import ReplicaComparison, verify
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.units import QueueScan
from tests.sim_kit.store_faults.image import StoreImage
from tests.unit.lake.scan.parts_kit import log_of, store_at
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, image_of, settings_of

ROWS: list[dict[str, Any]] = [{"queue_offset": at, "body": b"%05d" % at} for at in range(30)]
SIZE = len(log_of(ROWS[0]))
FILE = 4096
BAD = finding("LOG_DIFFERS", physical_offset=5)
SURVEYS, STRETCHES, DOUBTS = "queues and index", "bytes of both logs", "entries in doubt"
Key = tuple[int, str, int]


def store_of(folder: Path, count: int, *, is_open: bool = False) -> Path:
    """A log alone, of so many records."""
    store_at(folder, log_of(*ROWS[:count]), FILE)
    if is_open:
        (folder / "abort").touch()
    return folder


def queue_at(store: Path, topic: str, queue_id: int) -> None:
    folder = store / "consumequeue" / topic / str(queue_id)
    folder.mkdir(parents=True)
    (folder / f"{0:020}").write_bytes(UNIT.pack(0, SIZE, 0).ljust(800, b"\0"))


class Tasks:
    """
    Answers as it is told to, in the place of those who look.

    :param say: by a word of the label, task and how often it was asked: the answer.
    """

    def __init__(self, **say: Callable[[Any, int], TaskResult]) -> None:
        self._say = say
        self.asked: list[tuple[str, list[Task], bool]] = []
        self.work: dict[str, Work] = {}

    def __call__(self, label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
        self.asked.append((label, list(tasks), is_apart))
        self.work[label] = work
        times = len(self.of(label))
        says = next((say for word, say in self._say.items() if word in label), None)
        return {
            task.number: says(task, times) if says is not None else TaskResult() for task in tasks
        }

    def of(self, word: str) -> list[list[Any]]:
        return [tasks for label, tasks, _ in self.asked if word in label]


def always(answer: TaskResult) -> Callable[[Task, int], TaskResult]:
    return lambda task, time: answer


class Watched:
    """Notes and pauses of one run."""

    def __init__(self, while_waiting: Callable[[], object] = lambda: None) -> None:
        self.notes: list[str] = []
        self.pauses: list[float] = []
        self._while_waiting = while_waiting

    def pause(self, ms: float) -> None:
        self.pauses.append(ms)
        self._while_waiting()


def verified(settings: Settings, tasks: Tasks, watched: Watched | None = None) -> ReplicaComparison:
    watched = watched or Watched()
    return verify(settings, tasks, watched.notes.append, watched.pause)


# Looking again


@pytest.mark.parametrize(
    ("is_open", "grows", "bad_times", "times"),
    [
        ("", "s", 9, 1),
        ("m", "", 9, 2),  # nobody writes to it: what is wrong once more is wrong
        ("s", "", 9, 2),
        ("s", "s", 9, 4),
        ("s", "m", 9, 4),
        ("m", "m", 9, 4),
        ("ms", "s", 2, 3),
        ("ms", "s", 0, 1),
    ],
)
def test_what_is_wrong_in_a_store_that_moves_is_looked_at_again(
    tmp_path: Path, is_open: str, grows: str, bad_times: int, times: int
) -> None:
    stores = [store_of(tmp_path / name, 9, is_open=name in is_open) for name in "ms"]
    sizes = iter(range(10, 20))
    watched = Watched(lambda: [store_of(tmp_path / name, next(sizes)) for name in grows])

    def say(task: Stretch, time: int) -> TaskResult:
        is_bad = task.number in (1, 3) and time <= bad_times
        return TaskResult(findings=[BAD] if is_bad else [], compared=1)

    tasks = Tasks(bytes=say)
    settings = settings_of(*stores, split=2 * SIZE)._replace(pause_ms=7)
    told = verified(settings, tasks, watched)
    asked = [[task.number for task in some] for some in tasks.of(STRETCHES)]
    assert asked == [[0, 1, 2, 3, 4], *[[1, 3]] * (times - 1)]
    aparts = [is_apart for label, _, is_apart in tasks.asked if STRETCHES in label]
    assert aparts == [bool(is_open), *[True] * (times - 1)]
    assert watched.pauses == [7] * (times - 1)
    assert watched.notes == ["looking again at 2 of 5 parts: a store is open"] * (times - 1)
    assert told.apart == (bad_times >= times)
    assert told.sums.compared == 5, "of each part the last answer counts"


def test_only_so_many_parts_are_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "_MOST_AGAIN", 2)
    stores = [store_of(tmp_path / name, 9, is_open=True) for name in "ms"]
    tasks = Tasks(bytes=lambda task, time: TaskResult(findings=[BAD] * (task.number > 0)))
    verified(settings_of(*stores, split=2 * SIZE), tasks)
    assert [[task.number for task in some] for some in tasks.of(STRETCHES)][1:] == [[1, 2]]


@pytest.mark.parametrize("number", [0, 4])
def test_a_task_that_could_not_read_ends_all(tmp_path: Path, number: int) -> None:
    stores = [store_of(tmp_path / name, 9) for name in "ms"]
    tasks = Tasks(bytes=lambda task, time: TaskResult(failed="gone" * (task.number == number)))
    with pytest.raises(CannotDecide, match="gone"):
        verified(settings_of(*stores, split=2 * SIZE), tasks)


# What is asked


def surveys(tasks: Tasks) -> list[tuple[int, Sequence[tuple[str, int]], int, int, int]]:
    (asked,) = tasks.of(SURVEYS)
    assert [task.number for task in asked] == list(range(len(asked)))
    return [tuple(task)[1:] for task in asked]


@pytest.mark.parametrize("start", [0, 70_000])
@pytest.mark.parametrize("checks", [{QUEUES, INDEX}, {QUEUES}, {INDEX}, set()])
def test_queues_and_index_files_of_both_stores_are_read_by_themselves(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: set[str], start: int
) -> None:
    monkeypatch.setattr(verifying, "_QUEUES_A_TASK", 2)
    slave = tmp_path / "s"
    image_of(java, LEVELS_OF_JAVA).save(slave)
    first = min((slave / "commitlog").iterdir())
    first.unlink()
    max((slave / "index").iterdir()).unlink()
    tasks = Tasks()
    verified(settings_of(java, slave, checks=frozenset(checks), start=start), tasks)
    if not checks:
        assert tasks.of(SURVEYS) == []
        return
    names = sorted(
        (path.parent.name, int(path.name)) for path in (java / "consumequeue").glob("*/*")
    )
    wanted: list[Any] = []
    for side, low, files in ((0, 0, 3), (1, 65536, 2)):
        bounds = max(low, start), 148251
        if QUEUES in checks:
            wanted += [(side, names[at : at + 2], -1, *bounds) for at in range(0, len(names), 2)]
        if INDEX in checks:
            wanted += [(side, (), number, *bounds) for number in range(files)]
    assert surveys(tasks) == wanted


def stretches(tasks: Tasks) -> list[tuple[int, int, tuple[int, ...], bool]]:
    (asked,) = tasks.of(STRETCHES)
    return [(task.low, task.high, task.sides, task.compares) for task in asked]


@pytest.mark.parametrize("start", [0, 65536, 70_000])
def test_stretches_end_with_files_and_begin_where_somebody_says(java: Path, start: int) -> None:
    tasks = Tasks()
    settings = settings_of(java, java, start=start)
    same = settings.slave._replace(commit_log=str(java / "commitlog"))
    told = verified(settings._replace(slave=same), tasks)  # not known to be the same store
    cuts = [start, *(cut for cut in (65536, 131072) if cut > start), 148251]
    assert stretches(tasks) == [(low, high, (0, 1), True) for low, high in pairwise(cuts)]
    assert tasks.asked[-1][0] == f"{148251 - start:,} bytes of both logs"
    assert told.common == (start, 148251)


# How far queues were built, and what their sums say


def end(entries: int, behind: int, last: int, first: int = 0) -> QueueScan:
    return QueueScan(entries, behind, last, first)


def with_ends(ends: dict[Key, QueueScan], **sums: Any) -> Tasks:
    """:param sums: of the first stretch."""

    def survey(task: Survey, time: int) -> TaskResult:
        return TaskResult(ends=ends if task.number == 0 else {})

    def stretch(task: Stretch, time: int) -> TaskResult:
        return TaskResult(**sums) if task.number == 0 else TaskResult()

    return Tasks(queues=survey, bytes=stretch)


def pair_of(folder: Path, master: int, slave: int, **given: Any) -> Settings:
    """Each with a queue, so that there is something to ask."""
    stores = [store_of(folder / name, count) for name, count in (("m", master), ("s", slave))]
    for store in stores:
        queue_at(store, "t", 0)
    return settings_of(*stores, **given)


ENDS: dict[Key, QueueScan] = {
    (0, "t", 0): end(3, 3 * SIZE, 2),
    (0, "t", 1): end(5, 9 * SIZE, 4),
    (0, "u", 0): end(4, 7 * SIZE, 3),
    (1, "t", 0): end(3, 5 * SIZE, 2),
    (1, "t", 1): end(3, 4 * SIZE, 2),
}


@pytest.mark.parametrize(
    ("checks", "dispatched"),
    [({QUEUES}, (9, 5)), ({INDEX}, (0, 0))],
)
def test_queues_were_built_up_to_the_last_record_that_one_of_them_knows(
    tmp_path: Path, checks: set[str], dispatched: tuple[int, int]
) -> None:
    """And not farther than the log was when it was opened."""
    settings = pair_of(tmp_path, 9, 8, checks=frozenset(checks))
    for store in (tmp_path / "m", tmp_path / "s"):
        (store / "index").mkdir()
        (store / "index" / f"{0:017}").write_bytes(bytes(40 + 4 * 50 + 20 * 150))
    tasks = with_ends(ENDS)
    verified(settings, tasks)
    (label,) = [label for label in tasks.work if STRETCHES in label]
    work = tasks.work[label]
    assert tuple(side.dispatched // SIZE for side in work.sides) == dispatched
    assert all(side.dispatched == 0 for side in tasks.work[SURVEYS].sides)
    far = with_ends({(1, "t", 0): end(9, 99 * SIZE, 8)})
    verified(settings, far)
    assert [side.dispatched // SIZE for side in far.work[label].sides] == (
        [0, 8] if QUEUES in checks else [0, 0]
    )


def codes_of(told: ReplicaComparison, *codes: str) -> list[tuple[Any, ...]]:
    return [
        (
            each.code,
            told.names.index(each.broker or ""),
            each.topic,
            each.queue_id,
            each.queue_offset,
        )
        for each in told.findings
        if each.code in codes
    ]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_log_that_ends_before_its_queues_is_torn(tmp_path: Path, is_open: bool) -> None:
    """The queue that knows the record farthest behind is named; that of the side alone."""
    settings = pair_of(tmp_path, 9, 4)
    if is_open:
        (tmp_path / "s" / "abort").touch()
    told = verified(settings, with_ends(ENDS))
    assert codes_of(told, "TORN_TAIL", "TAIL_RESIDUE") == [("TORN_TAIL", 1, "t", 0, 2)]
    (torn,) = [each for each in told.findings if each.code == "TORN_TAIL"]
    assert (torn.physical_offset, torn.expected) == (4 * SIZE, f"records up to {5 * SIZE}")
    assert torn.severity == ("WARN" if is_open else "ERROR")


@pytest.mark.parametrize(("at", "is_residue"), [(None, False), (0, True), (7, True), (8, False)])
@pytest.mark.parametrize("name", ["m", "s"])
def test_eight_bytes_behind_the_last_record_say_whether_something_stands_there(
    tmp_path: Path, at: int | None, is_residue: bool, name: str
) -> None:
    settings = pair_of(tmp_path, 9, 9)
    if at is not None:
        file = tmp_path / name / "commitlog" / f"{0:020}"
        data = bytearray(file.read_bytes())
        data[9 * SIZE + at] = 1
        file.write_bytes(data)
    told = verified(settings, with_ends({}))
    residues = [(side,) for _, side, *_ in codes_of(told, "TAIL_RESIDUE")]
    assert residues == ([("ms".index(name),)] if is_residue else [])


def test_what_stands_behind_a_log_of_several_files(tmp_path: Path) -> None:
    """In the last one; where that is full there is nothing."""
    for name in "ms":
        store_of(tmp_path / name, 9)
        path = tmp_path / name / "commitlog" / f"{0:020}"
        path.write_bytes(path.read_bytes()[: 9 * SIZE])
        if name == "s":
            more = log_of(ROWS[9], base=9 * SIZE) + b"x" * (8 * SIZE)
            path.with_name(f"{9 * SIZE:020}").write_bytes(more)
    told = verified(settings_of(tmp_path / "m", tmp_path / "s"), Tasks())
    assert [row[:2] for row in codes_of(told, "TAIL_RESIDUE")] == [("TAIL_RESIDUE", 1)]


def test_what_queues_and_records_say_of_each_queue_is_added_up(tmp_path: Path) -> None:
    """Also of those that only records, or only files, know."""
    ends = {(0, "t", 0): end(7, 3 * SIZE, 2, 1), (1, "u", 3): end(4, SIZE, 3, 2)}
    tallies = {(0, "t", 0): [5, 1, 2, 3, 4], (1, "t", 0): [1, 0, 0, 2, 0]}
    told = verified(pair_of(tmp_path, 9, 9), with_ends(ends, tallies=tallies))
    found = [(told.names.index(row[0]), *row[1:]) for row in told.queues]
    assert found == [
        (0, "t", 0, 7, 5, 1, 2, 3, 4, 1),
        (1, "t", 0, 0, 1, 0, 0, 2, 0, -1),
        (1, "u", 3, 4, 0, 0, 0, 0, 0, 2),
    ]
    pending = {
        told.names.index(each.broker or ""): each.detail
        for each in told.findings
        if each.code == "CQ_NOT_DISPATCHED"
    }
    assert [pending[side].partition(".")[0] for side in (0, 1)] == ["3 messages", "2 messages"]


def test_queues_with_more_entries_than_records_are_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Light queues always are, and so come last: not all of them are looked at."""
    monkeypatch.setattr(verifying, "_MOST_DOUBTS", 4)
    names: list[Key] = [(0, "%LMQ%a", 0), (0, "t", 0), (0, "t", 1), (1, "%LMQ%b", 0), (1, "t", 2)]
    names += [(1, "%LMQ%c", 0)]
    ends = {name: end(3, SIZE, 2) for name in names}
    tallies = {(0, "t", 1): [2, 1, 0, 0, 0], (1, "t", 2): [2, 0, 5, 0, 0]}
    found = finding("CQ_DANGLING", topic="t")
    tasks = with_ends(ends, tallies=tallies)
    tasks._say["doubt"] = lambda task, time: TaskResult(
        findings=[found._replace(queue_id=task.number)]
    )
    told = verified(pair_of(tmp_path, 9, 9), tasks)
    (doubts,) = tasks.of(DOUBTS)
    assert doubts == [
        Doubt(0, 0, "t", 0), Doubt(1, 1, "t", 2), Doubt(2, 0, "%LMQ%a", 0), Doubt(3, 1, "%LMQ%b", 0)
    ]  # fmt: skip
    numbers = [each.queue_id for each in told.findings if each.code == "CQ_DANGLING"]
    assert numbers == [0, 1, 2, 3]


def test_delays_and_keys_are_told_of_the_side_whose_they_are(tmp_path: Path) -> None:
    delays = {(1, 2, 5000): [9, 10, 90, 1, 3], (1, 2, 7000): [1, 40, 40, 2, 8]}
    keys = {0: [5, 0, 0], 1: [4, 2, 3]}
    told = verified(pair_of(tmp_path, 9, 9), with_ends({}, delays=delays, keys=keys))
    assert codes_of(told, "CQ_DELIVERY_TIME", "INDEX_NOT_DISPATCHED") == [
        ("CQ_DELIVERY_TIME", 1, "SCHEDULE_TOPIC_XXXX", 2, 8),
        ("INDEX_NOT_DISPATCHED", 1, None, None, None),
    ]
    assert told.numbers["keys"] == {"master": 5, "slave": 4}
    assert told.numbers["messages"] == {"master": 0, "slave": 0}


@pytest.mark.parametrize("gone", ["m", "s"])
@pytest.mark.parametrize(
    ("checks", "start", "known", "is_missed"),
    [
        ({INDEX}, 0, 0, True),  # queues say nothing: the whole log was dispatched
        ({INDEX, QUEUES}, 0, 1 << 20, True),
        ({INDEX, QUEUES}, 0, 1, False),  # it was not built so far
        ({INDEX}, 140_000, 0, True),
        ({INDEX}, 148_200, 0, False),  # what it would hold is not looked at
        ({QUEUES}, 0, 0, False),
    ],
)
def test_an_index_that_only_one_side_has_is_missed(
    java: Path,
    image: StoreImage,
    tmp_path: Path,
    gone: str,
    checks: Iterable[str],
    start: int,
    known: int,
    is_missed: bool,
) -> None:
    for name in "ms":
        image.save(tmp_path / name)
        files = sorted((tmp_path / name / "index").iterdir())
        for file in files if name == gone else files[:1]:
            file.unlink()
    ends = {(side, "TopicA", 0): end(1, known, 0) for side in (0, 1)}
    given = settings_of(tmp_path / "m", tmp_path / "s", checks=frozenset(checks), start=start)
    told = verified(given, with_ends(ends))
    side = "ms".index(gone)
    assert [row[:2] for row in codes_of(told, "INDEX_MISSING")] == (
        [("INDEX_MISSING", side)] if is_missed else []
    )


# Findings


def test_each_finding_is_told_once(tmp_path: Path) -> None:
    """Two stretches may see the same; what differs in one of its places is another one."""
    settings = pair_of(tmp_path, 9, 9)
    one = finding("CQ_TAGS", broker=str(tmp_path / "s"), topic="t", queue_id=1, queue_offset=2,
                  physical_offset=3, expected="4", actual="5")  # fmt: skip
    others = [
        one._replace(code="CQ_SIZE"), one._replace(broker="x"), one._replace(topic="u"),
        one._replace(queue_id=2), one._replace(queue_offset=3), one._replace(physical_offset=4),
        one._replace(expected="6"),
    ]  # fmt: skip
    tasks = Tasks(bytes=lambda task, time: TaskResult(findings=[one, *others, one, *others]))
    told = verified(settings, tasks)
    assert [each for each in told.findings if each.code.startswith("CQ_")] == [one, *others]


def test_errors_without_a_place_are_counted_but_lie_nowhere(tmp_path: Path) -> None:
    """Of a log of a few bytes each byte may have a place of its own."""
    settings = pair_of(tmp_path, 1, 1)
    bad = finding("BODY_CRC", broker="x")
    found = [bad, *(bad._replace(physical_offset=at) for at in (0, 1, 1, 50))]
    tasks = Tasks(
        bytes=lambda task, time: TaskResult(findings=[*found, found[2]._replace(topic="t")])
    )
    told = verified(settings, tasks)
    assert SIZE < 120
    assert told.errors == 5
    assert told.along == [(0, 1), (1, 2), (50, 1)]


def test_the_first_difference_is_the_one_nearest_to_the_start(tmp_path: Path) -> None:
    """One without a place says something of all of it."""
    settings = pair_of(tmp_path, 9, 9)
    places = [50, 7, None, 3]
    for count, first in ((1, 50), (2, 7), (3, None), (4, None)):
        answer = TaskResult(findings=[BAD._replace(physical_offset=at) for at in places[:count]])
        answer.findings.append(finding("BODY_CRC", physical_offset=1))
        told = verified(settings, Tasks(bytes=always(answer)))
        assert told.first is not None
        assert (told.first.physical_offset, told.apart, told.errors) == (first, count, count + 1)
        assert told.numbers["firstDifference"] == first
        assert told.numbers["differences"] == count


# Before anything is asked


@pytest.mark.parametrize(("master", "slave"), [(9, 9), (12, 9), (9, 12)])
def test_logs_that_part_are_compared_up_to_there(tmp_path: Path, master: int, slave: int) -> None:
    """Which of them is ahead says nothing then; what both have begins where somebody says."""
    stores = [store_of(tmp_path / name, 0) for name in "ms"]
    for store, count, name in zip(stores, (master, slave), (b"m", b"s"), strict=True):
        own = [{**row, "body": b"%b%04d" % (name, at)} for at, row in enumerate(ROWS[4:count])]
        (store / "commitlog" / f"{0:020}").write_bytes(log_of(*ROWS[:4], *own).ljust(FILE, b"\0"))
    tasks = Tasks(bytes=lambda task, time: TaskResult(apart=[(task.low, task.high, task.low)]))
    told = verified(settings_of(*stores, start=SIZE, checks=frozenset()), tasks)
    compared = [row for row in stretches(tasks) if row[3]]
    assert compared == [(SIZE, 4 * SIZE, (0, 1), True)]
    assert told.common == (SIZE, 9 * SIZE)
    codes = {(each.code, each.broker) for each in told.findings}
    assert ("DIVERGED", told.names[1]) in codes
    assert not {code for code, _ in codes} & {"SLAVE_AHEAD", "MASTER_AHEAD"}
    assert told.first is not None
    assert told.first.code == "DIVERGED"
    # Where the logs part they do not end together, so no part is told that it is their end.
    (aligned,) = tasks.of("out of step")
    assert [task.part.is_last for task in aligned] == [False]
    assert tasks.asked[0][0] == f"{3 * SIZE:,} bytes of both logs"


@pytest.mark.parametrize(
    ("master", "slave", "code", "place"),
    [(9, 9, None, 0), (9, 7, "MASTER_AHEAD", 7), (7, 9, "SLAVE_AHEAD", 7)],
)
def test_which_log_is_ahead_is_told_where_they_do_not_part(
    tmp_path: Path, master: int, slave: int, code: str | None, place: int
) -> None:
    told = verified(pair_of(tmp_path, master, slave), Tasks())
    found = [
        (each.code, each.broker, each.physical_offset)
        for each in told.findings
        if each.code.endswith("_AHEAD")
    ]
    assert found == ([(code, told.names[1], place * SIZE)] if code else [])


@pytest.mark.parametrize("gone", ["m", "s", "ms"])
def test_what_a_log_lacks_is_told_of_each_side(java: Path, tmp_path: Path, gone: str) -> None:
    for name in "ms":
        image_of(java, LEVELS_OF_JAVA).save(tmp_path / name)
        if name in gone:
            (tmp_path / name / "commitlog" / f"{65536:020}").unlink()
    tasks = Tasks()
    told = verified(settings_of(tmp_path / "m", tmp_path / "s"), tasks)
    holes = [
        (told.names.index(each.broker or ""), each.physical_offset)
        for each in told.findings
        if each.code == "LOG_HOLE"
    ]
    assert holes == [("ms".index(name), 65536) for name in gone]
    sides = [row[2:] for row in stretches(tasks) if row[0] == 65536]
    assert sides == {"m": [((1,), False)], "s": [((0,), False)], "ms": []}[gone]


def test_one_store_is_told_of_under_its_own_name_alone(tmp_path: Path) -> None:
    """The tasks call its second self so that findings can be told apart."""
    store = store_of(tmp_path / "m", 9)
    names = [str(store), f"{store} (again)"]
    found = [BAD._replace(broker=name) for name in names]
    tasks = Tasks(bytes=always(TaskResult(findings=found)))
    told = verified(settings_of(store, store), tasks)
    assert told.names == names
    assert told.is_alone
    assert {each.broker for each in told.findings} == {names[0]}
    assert [side.name for side in next(iter(tasks.work.values())).sides] == names


def test_numbers_and_verdict_are_those_of_the_sums(tmp_path: Path) -> None:
    records = {0: [7, 70], 1: [6, 60], -2: [5, 50]}
    tasks = Tasks(
        bytes=always(TaskResult(records=records, compared=9, blank=2, keys={1: [4, 0, 1]}))
    )
    told = verified(pair_of(tmp_path, 9, 9, start=SIZE), tasks)
    assert told.numbers == {
        "from": SIZE, "to": 9 * SIZE, "bytesCompared": 9, "bytesWithoutMeaning": 2,
        "messages": {"master": 7, "slave": 6}, "keys": {"master": 0, "slave": 4},
        "differences": 0, "firstDifference": None,
    }  # fmt: skip
    assert told.verdict == f"replica identical over [{SIZE}, {9 * SIZE}): 5 messages"
    bare = verified(pair_of(tmp_path / "bare", 9, 9), Tasks())
    assert bare.verdict == f"replica identical over [0, {9 * SIZE}): {9 * SIZE} bytes"
    assert bare.numbers["messages"] == bare.numbers["keys"] == {"master": 0, "slave": 0}


def test_tasks_that_are_run_here_each_have_their_answer(tmp_path: Path) -> None:
    store_of(tmp_path / "m", 9)
    store_of(tmp_path / "s", 9)
    told = verify(settings_of(tmp_path / "m", tmp_path / "s", split=2 * SIZE))
    assert told.sums.compared == 9 * SIZE
    assert {side: count for side, (count, _) in told.sums.records.items()} == {0: 9, 1: 9, -2: 9}


def test_errors_are_counted_along_what_was_compared(tmp_path: Path) -> None:
    """In pieces of a hundred and twentieth of it, from where it begins."""
    settings = pair_of(tmp_path, 30, 30, start=3 * SIZE)
    low, width = 3 * SIZE, 27 * SIZE // 120
    assert width > 1
    places = [low, low + width - 1, low + width, low + 5 * width + 1]
    found = [finding("BODY_CRC", broker="x", physical_offset=at) for at in places]
    told = verified(settings, Tasks(bytes=always(TaskResult(findings=found))))
    assert told.along == [(low, 2), (low + width, 1), (low + 5 * width, 1)]
