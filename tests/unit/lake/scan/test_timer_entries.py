"""Queue entries of timer messages have times in place of hashes; verify-replica compares them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from tests.sim_kit.store_faults.ours import write_disk
from tests.unit.lake.spark.replica_kit import found_in
from tests.unit.server.store.test_timer_store import TimerStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store in which messages wait, were delivered, were recalled; with a record of progress."""
    made = TimerStore()
    for number in range(6):
        made.wait_for(1000 + number * 700, f"k{number}")
    source = made.wait_for(90_000, "recalled")
    made.wait_for(3_600_000, "waits")
    made.run(8)
    made.recall(source)
    assert made.count(TIMER_TOPIC) == 9
    made.stop()
    assert made.count(TIMER_PROGRESS_TOPIC) == 1
    folder = tmp_path_factory.mktemp("timers") / "store"
    write_disk(made.host.disk, folder)
    yield folder
    made.kill()


def test_times_in_place_of_hashes_are_no_fault(store: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(store, tmp_path / "slave"))
    assert [one for one in found_in(store, other) if one.severity == "ERROR"] == []


@pytest.mark.parametrize("entry", [0, 8])
def test_another_time_is_a_fault(store: Path, tmp_path: Path, entry: int) -> None:
    """Entry 8 is the recall's, which has a bit more."""
    other = Path(shutil.copytree(store, tmp_path / "slave"))
    (file,) = (other / "consumequeue" / TIMER_TOPIC / "0").iterdir()
    data = bytearray(file.read_bytes())
    place = entry * UNIT_SIZE + 12
    data[place : place + 8] = pack(">q", 1_800_000_000_000)
    file.write_bytes(data)
    (found,) = [one for one in found_in(store, other) if one.severity == "ERROR"]
    assert (found.code, found.topic, found.queue_offset) == ("CQ_TAGS", TIMER_TOPIC, entry)
    assert found.actual == "tagsCode 1800000000000"
