"""Damage and ordinary life, planted by code that shares nothing with the readers."""

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.replica.auditing import INDEX, QUEUES
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt
from rmq_ha.lake.scan.replica.tasks import Answers, Task, Work
from rmq_ha.lake.scan.replica.verifying import ReplicaComparison, run_here, verify
from tests.kits.bare_stores import SLOTS, flip, ordinary, overwrite, put_table, store_of


def compared(master: Path, slave: Path, *checks: str) -> ReplicaComparison:
    given = {"checks": frozenset(checks)} if checks else {}
    return verify(Settings(StoreAt(str(master)), StoreAt(str(slave)), pause_ms=0, **given))


def told(master: Path, slave: Path, *checks: str) -> list[tuple[str, str]]:
    found = compared(master, slave, *checks).findings
    return sorted((one.severity, one.code) for one in found)


def pair(folder: Path, count: int = 60) -> tuple[Path, Path]:
    store = store_of(ordinary(count), log_size=65536)
    return store.save(folder / "m"), store.save(folder / "s")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pair(tmp_path_factory.mktemp("alone"), 20)[0]


def test_what_another_program_writes_is_read_without_a_finding(tmp_path: Path) -> None:
    assert told(*pair(tmp_path)) == []


@pytest.mark.parametrize("bit", range(0, 64, 3))
def test_one_bit_of_an_offset_in_the_index_is_one_wrong_entry(alone: Path, bit: int) -> None:
    """A wild offset overflowed into the key of another entry, and the job failed."""
    (index,) = (alone / "index").iterdir()
    before = index.read_bytes()
    first = 40 + 4 * SLOTS + 20 * 7 + 4
    try:
        flip(index, first + 7 - bit // 8, bit % 8)
        codes = [code for severity, code in told(alone, alone, INDEX) if severity == "ERROR"]
    finally:
        index.write_bytes(before)
    assert "INDEX_WRONG" in codes or "INDEX_HOLE" in codes
    assert len(codes) <= 4


@pytest.mark.parametrize("offset", [-(1 << 63), -1, (1 << 63) - 1, 1 << 33, 5])
def test_any_offset_in_the_index_is_survived(alone: Path, offset: int) -> None:
    (index,) = (alone / "index").iterdir()
    before = index.read_bytes()
    try:
        overwrite(index, 40 + 4 * SLOTS + 20 * 3 + 4, struct.pack(">q", offset))
        assert told(alone, alone, INDEX)
    finally:
        index.write_bytes(before)


@pytest.mark.parametrize("part", ["", "commitlog", "index", "consumequeue"])
def test_a_store_that_vanishes_while_it_is_read_decides_nothing(tmp_path: Path, part: str) -> None:
    master, slave = pair(tmp_path)

    def run(label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
        answers = run_here(label, work, tasks, is_apart)
        shutil.rmtree(slave / part, ignore_errors=True)
        return answers

    settings = Settings(StoreAt(str(master)), StoreAt(str(slave)), pause_ms=0)
    if part == "index":
        codes = [one.code for one in verify(settings, run).findings if one.severity == "ERROR"]
        assert codes == ["INDEX_MISSING"]
    else:
        with pytest.raises(CannotDecide, match=r"vanished|not seen|no commit log"):
            verify(settings, run)


def without_topic(store: Path, topic: str, *, keeps_queues: bool) -> None:
    """Delete a topic as a broker does."""
    put_table(
        store / "config",
        "topics",
        {
            "dataVersion": {"counter": 4, "timestamp": 1_700_000_000_001},
            "topicConfigTable": {
                "Topic0": {
                    "order": False, "perm": 6, "readQueueNums": 2, "topicFilterType": "SINGLE_TAG",
                    "topicName": "Topic0", "topicSysFlag": 0, "writeQueueNums": 2,
                }
            },
        },
    )  # fmt: skip
    if not keeps_queues:
        shutil.rmtree(store / "consumequeue" / topic)


@pytest.mark.parametrize("keeps_queues", [True, False])
@pytest.mark.parametrize("is_synchronised", [True, False])
def test_a_topic_that_was_deleted_is_no_fault(
    tmp_path: Path, keeps_queues: bool, is_synchronised: bool
) -> None:
    """A slave keeps the queues for ever, and every comparison had an error for each of them."""
    master, slave = pair(tmp_path)
    without_topic(master, "Topic1", keeps_queues=False)
    if is_synchronised:
        without_topic(slave, "Topic1", keeps_queues=keeps_queues)
    sides = 1 if keeps_queues or not is_synchronised else 2
    assert told(master, slave, QUEUES) == [("INFO", "CQ_DELETED")] * 2 * sides


@pytest.mark.parametrize("side", ["m", "s"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_queue_that_is_gone_is_a_fault_where_its_topic_was_not_deleted(
    tmp_path: Path, side: str, is_known: bool
) -> None:
    """What only the slave lacks was not deleted: it takes its table over from the master."""
    pair(tmp_path)
    shutil.rmtree(tmp_path / side / "consumequeue" / "Topic1")
    if side == "s" and not is_known:
        without_topic(tmp_path / "s", "Topic1", keeps_queues=True)
    if side == "m" and not is_known:
        for name in ("topics.json", "topics.json.bak"):
            (tmp_path / "m" / "config" / name).write_text("{torn")
    codes = told(tmp_path / "m", tmp_path / "s", QUEUES)
    torn = [("ERROR", "TABLE_DAMAGED")] if side == "m" and not is_known else []
    assert codes == [("ERROR", "CQ_MISSING")] * 2 + torn
