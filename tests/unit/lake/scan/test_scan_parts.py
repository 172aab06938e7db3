"""What only Spark's jobs ask of a scan: facts by their files, sides that travel, sums of rows."""

import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pytest

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_files import WINDOW
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.lake.scan.command import LEAST_WINDOW, Size
from rmq_ha.lake.scan.fleet.facts import ReplicaFacts, directory_of
from rmq_ha.lake.scan.log.columns import _is_utf8, _make_unchecked
from rmq_ha.lake.scan.reducing import ROW, RUN, SUMS, Reduction
from rmq_ha.lake.scan.replica.auditing import Side
from rmq_ha.lake.scan.replica.settings import open_pair
from rmq_ha.lake.scan.replica.tasks import Answers, Stretch, Task, Work, plan
from rmq_ha.lake.scan.replica.verifying import run_here, verify
from rmq_ha.lake.scan.store.directory import open_store, scan
from rmq_ha.lake.scan.store.picking import _runs
from rmq_ha.ops.offline.log_files import Hole
from tests.unit.lake.scan.fleet_kit import facts_of, flip
from tests.unit.lake.scan.parts_kit import store_at
from tests.unit.lake.spark.replica_kit import settings_of


@pytest.mark.parametrize(
    ("said", "size"), [("4k", 4096), ("4096", 4096), (4096, 4096), ("1g", 1 << 30)]
)
def test_a_size_is_a_number_of_bytes(said: object, size: int) -> None:
    assert Size(LEAST_WINDOW).convert(said, None, None) == size


@pytest.mark.parametrize(
    ("said", "why"),
    [("4095", "4095: at least 4k"), (0, "0: at least 4k"), ("x", "'x': write a size as 16m")],
)
def test_a_size_that_makes_no_sense_is_refused(said: object, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        Size(LEAST_WINDOW).convert(said, None, None)
    assert Size().convert("0", None, None) == 0


def test_the_files_of_a_kind_hold_its_rows(java: Path, tmp_path: Path) -> None:
    state = facts_of(java, tmp_path, ids=True)
    replica = ReplicaFacts(directory_of(str(tmp_path), "b", 0), state)
    kinds = {one.kind for one in state.files}
    assert kinds >= {"sums", "ids", "windows"}
    for kind in kinds:
        paths = replica.paths(kind)
        assert all(Path(path).is_file() for path in paths)
        assert len(paths) == sum(one.kind == kind for one in state.files)
        assert replica.table(kind).num_rows == sum(
            one.rows for one in state.files if one.kind == kind
        )
    assert replica.paths("nothing") == []


def test_rows_are_counted_as_records_are(java: Path) -> None:
    how, store = Reduction("b", "uniqKey", 1000), open_store(str(java))
    for split in store.splits():
        for records in scan(store, split):
            read = records.batch([name for name in ROW if name not in _ELSEWHERE])
            columns = {name: read[name] for name in read.schema.names}
            columns |= {
                "sysFlag": pa.array(records.stored_sys_flag, pa.int32()),
                "bornMs": pa.array(records.born_timestamp, pa.int64()),
                "storedMs": pa.array(records.store_timestamp, pa.int64()),
            }
            rows = pa.RecordBatch.from_pydict({name: columns[name] for name in ROW})
            wanted = [row for batch in how.batches(records) for row in batch.to_pylist()]
            counted = [row for batch in how.rows(rows) for row in batch.to_pylist()]
            assert counted == [row for row in wanted if row["kind"] in (SUMS, RUN)]


_ELSEWHERE = ("sysFlag", "bornMs", "storedMs")


def test_a_side_goes_to_an_executor_without_what_it_has_read(java: Path) -> None:
    one = open_pair(settings_of(java, java))[0]
    side = one.side("mine", 77)
    key = side.store.topics_on_disk()[0]
    assert side.queue(*key) is side.queue(*key)
    copy: Side = pickle.loads(pickle.dumps(side))
    assert (copy.name, copy.dispatched, copy._queues) == ("mine", 77, {})
    assert copy.queue(*key).max_offset == side.queue(*key).max_offset


def test_the_numbers_of_a_comparison(java: Path, tmp_path: Path) -> None:
    whole = verify(settings_of(java, java))
    low, high = whole.common
    records = whole.numbers["messages"]
    assert whole.numbers == {
        "from": low,
        "to": high,
        "bytesCompared": whole.sums.compared,
        "bytesWithoutMeaning": whole.sums.blank,
        "messages": {"master": 189, "slave": 189},
        "keys": whole.numbers["keys"],
        "differences": 0,
        "firstDifference": None,
    }
    assert records.keys() == whole.numbers["keys"].keys()
    slave = Path(shutil.copytree(java, tmp_path / "slave"))
    log = sorted((slave / "commitlog").iterdir())[0]
    flip(log, 465 + 300)
    harmed = verify(settings_of(java, slave))
    assert (harmed.numbers["differences"], harmed.numbers["firstDifference"]) == (1, 465)


@pytest.mark.parametrize("is_open", [False, True])
def test_what_is_wrong_in_an_open_store_is_looked_at_again_once_if_it_stands_still(
    java: Path, tmp_path: Path, is_open: bool
) -> None:
    """Three times at most if it moves: here nobody writes."""
    slave = Path(shutil.copytree(java, tmp_path / "slave"))
    flip(sorted((slave / "commitlog").iterdir())[0], 465 + 300)
    if is_open:
        (slave / "abort").touch()
    asked, notes, pauses = list[int](), list[str](), list[float]()

    def run(label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
        if label.endswith("both logs"):
            asked.append(len(tasks))
            assert is_apart is is_open
        return run_here(label, work, tasks, is_apart)

    found = verify(settings_of(java, slave), run, notes.append, pauses.append)
    assert found.numbers["differences"] == 1
    assert len(notes) == len(pauses) == is_open
    assert asked[1:] == [1] * is_open


def test_what_only_one_side_has_is_read_and_not_compared() -> None:
    """Before and behind what both have, and where one of them lacks a file."""
    holes = ((), (Hole(20, 30, "x and y"),))
    assert plan([(0, 50), (10, 40)], (10, 40), 10, [], holes) == [
        Stretch(0, 0, 10, (0,), False),
        Stretch(1, 10, 20, (0, 1), True),
        Stretch(2, 20, 30, (0,), False),
        Stretch(3, 30, 40, (0, 1), True),
        Stretch(4, 40, 50, (0,), False),
    ]
    later = plan([(0, 20), (0, 20)], (10, 20), 10, [15])
    assert [(one.low, one.high, one.sides, one.compares) for one in later] == [
        (0, 10, (0,), False),
        (0, 10, (1,), False),
        (10, 15, (0, 1), True),
        (15, 20, (0, 1), True),
    ]
    assert [one.number for one in later] == [0, 1, 2, 3]


def test_records_are_fetched_together_as_far_as_they_are_near_and_one_window_holds_them() -> None:
    starts = np.array([0, 100, 200 + (64 << 10), 300 + (64 << 10), 1 << 24, 1 << 25])
    sizes = np.array([100, 100, 100, 50, WINDOW + 1, 100])
    numbers = np.array([0, 0, 0, 0, 1, 1])
    # The third is as far from the second as it may be; the fifth is larger than a window.
    assert [(run.start, run.stop, *rest) for run, *rest in _runs(starts, sizes, numbers)] == [
        (0, 4, 0, 0, 350 + (64 << 10)),
        (4, 5, 1, 1 << 24, (1 << 24) + WINDOW + 1),
        (5, 6, 1, 1 << 25, (1 << 25) + 100),
    ]
    starts[2] += 1
    assert [run.stop for run, *_ in _runs(starts, sizes, numbers)] == [2, 4, 5, 6]


@pytest.mark.parametrize(
    ("text", "is_sound"), [(b"", True), (b"abc", True), ("ä".encode(), True), (b"a\xffc", False)]
)
def test_bytes_that_are_no_text_are_told_from_text(text: bytes, is_sound: bool) -> None:
    content = np.frombuffer(text, np.uint8)
    array = _make_unchecked(content, np.array([0, len(text)]), None)
    assert _is_utf8(array, content) is is_sound


def test_a_log_that_fills_its_last_file_has_nothing_behind_its_end(tmp_path: Path) -> None:
    host = Address.parse("10.0.0.1", 10911)
    record = encode_record(Record(0, 0, 3, 0, 0, 0, 0, 1, host, 2, host, 0, 0, b"x", "T", ""))
    for behind, is_said in ((b"", False), (bytes(8), False), (b"\x01" * 8, True)):
        sides = []
        for name in "ms":
            sides.append(store_at(tmp_path / f"{name}{behind.hex()}", record + behind, 0))
        codes = {found.code for found in verify(settings_of(*sides)).findings}
        assert ("TAIL_RESIDUE" in codes) is is_said
