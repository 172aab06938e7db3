"""Pairs of stores that brokers wrote, healthy and harmed: what the tasks of verify-replica find."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.replica.auditing import CHECKS, CRC
from rmq_ha.lake.scan.replica.settings import open_pair
from rmq_ha.lake.scan.replica.tasks import plan
from rmq_ha.lake.scan.store.directory import open_store
from tests.sim_kit.store_faults.image import StoreImage
from tests.sim_kit.store_faults.log_faults import CODES, LogFaults
from tests.sim_kit.store_faults.ours import write_our_pair, write_our_slave
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.replica_kit import (
    LEVELS_OF_JAVA,
    LEVELS_OF_OURS,
    found_in,
    image_of,
    says,
    settings_of,
)

FILE = 65536
"""Bytes of a log file of Java's stores here."""
SPLITS = (1 << 26, 20_000, 3001)
SEEDS = int(os.environ.get("RMQ_HA_SPARK_SEEDS", "1"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    write_our_pair(folder / "m", folder / "s", 11)
    return folder


@pytest.mark.parametrize("split", SPLITS)
def test_healthy_stores_of_java(java: Path, split: int) -> None:
    """However the log is cut into stretches."""
    assert found_in(java, java, split=split) == []


@pytest.mark.parametrize("split", SPLITS)
def test_a_healthy_pair_of_ours(ours: Path, split: int) -> None:
    """The slave's index files are others than the master's."""
    names = [sorted(path.name for path in (ours / side / "index").iterdir()) for side in "ms"]
    assert names[0] != names[1]
    assert found_in(ours / "m", ours / "s", split=split) == []


def test_queue_extensions(tmp_path: Path) -> None:
    store = java_store("ext", tmp_path)
    assert found_in(store, store) == []


def test_a_killed_store_against_its_torn_copy(tmp_path: Path) -> None:
    """The torn record is behind what both have."""
    killed = java_store("killed", tmp_path / "k")
    torn = java_store("torn", tmp_path / "t")
    assert found_in(killed, torn) == []


def planted(
    folder: Path, pair: list[StoreImage], seed: int, wanted: list[tuple[str, str]], split: int
) -> None:
    master, slave = pair
    faults = LogFaults(slave, Random(seed), master).plant(wanted)
    master.save(folder / "m")
    slave.save(folder / "s")
    found = found_in(folder / "m", folder / "s", split=split)
    missed = [one for one in faults if not says(found, one)]
    assert not missed, (missed, found)


def copies(pair: list[StoreImage]) -> list[StoreImage]:
    return [image.copy() for image in pair]


@pytest.fixture(scope="module")
def images(java: Path, ours: Path) -> dict[str, list[StoreImage]]:
    return {
        "java": [image_of(java, LEVELS_OF_JAVA)] * 2,
        "ours": [image_of(ours / side, LEVELS_OF_OURS) for side in "ms"],
    }


@pytest.mark.parametrize("writer", ["java", "ours"])
@pytest.mark.parametrize("pair", [pair for pair in CODES if pair[0] != "torn tail"], ids=" ".join)
def test_each_fault_alone(
    images: dict[str, list[StoreImage]], tmp_path: Path, pair: tuple[str, str], writer: str
) -> None:
    """In stores of both writers, wherever it is."""
    for seed in range(SEEDS):
        split = SPLITS[seed % len(SPLITS)]
        planted(tmp_path / str(seed), copies(images[writer]), seed, [pair], split)


def test_many_faults_at_once(images: dict[str, list[StoreImage]], tmp_path: Path) -> None:
    pairs = [pair for pair in CODES if pair[0] != "torn tail" and pair[1] not in _SHIFTING]
    planted(tmp_path / "in place", copies(images["ours"]), 1, pairs * 2, SPLITS[1])
    pairs = [pair for pair in CODES if pair[1] in _SHIFTING]
    planted(tmp_path / "shifted", copies(images["ours"]), 1, pairs * 4, SPLITS[0])


_SHIFTING = ("cut", "gap", "log")


def test_messages_of_one_size(tmp_path: Path) -> None:
    """A lost message among others as long as itself leaves every record in a place of records."""
    write_our_pair(tmp_path / "a", tmp_path / "b", 3, topics=2, messages=30)
    image = image_of(tmp_path / "a", LEVELS_OF_OURS)
    records = [
        placed.record._replace(
            body=b"%020d" % number, properties_string=f"UNIQ_KEY\x01{number:032d}", topic="Orders0"
        )
        for number, placed in enumerate(image.records())
    ]
    ends = {0: 0, 1: 0}
    for number, record in enumerate(records):
        queue_id = number % 2
        records[number] = record._replace(queue_id=queue_id, queue_offset=ends[queue_id])
        ends[queue_id] += 1
    image.queues.clear()
    image.queue_file_size = 1000
    image.rebuild(image.lay_out(records))
    for kind in ("loss", "duplicate", "swapped"):
        variant = "cut" if kind == "loss" else "log"
        planted(tmp_path / kind, copies([image] * 2), 2, [(kind, variant)], SPLITS[0])


def test_a_slave_that_begins_later(java: Path, tmp_path: Path) -> None:
    """It has neither the master's first file nor the queue entries and keys of what was there."""
    slave = tmp_path / "s"
    shutil.copytree(java, slave)
    (slave / "commitlog" / f"{0:020d}").unlink()
    assert found_in(java, slave) == []


def test_bytes_without_a_meaning(java: Path, tmp_path: Path) -> None:
    """Behind the blank of a file anything may stand."""
    slave = tmp_path / "s"
    shutil.copytree(java, slave)
    path = slave / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[65139 + 8 :] = b"x" * (397 - 8)
    path.write_bytes(data)
    assert found_in(java, slave) == []
    data[65139] ^= 1  # the blank itself
    path.write_bytes(data)
    assert [one.code for one in found_in(java, slave)] == ["LOG_DIFFERS"]


def up_to(image: StoreImage, count: int) -> StoreImage:
    """The store as it was when it had so many records."""
    before = image.copy()
    before.rebuild(before.lay_out([placed.record for placed in image.records()][:count]))
    return before


@pytest.mark.parametrize("split", SPLITS)
def test_a_pair_that_moves(images: dict[str, list[StoreImage]], tmp_path: Path, split: int) -> None:
    """What comes after the bounds were fixed is not looked at; the slave is behind its master."""
    master, slave = images["ours"]
    up_to(master, 200).save(tmp_path / "m")
    up_to(slave, 190).save(tmp_path / "s")

    def go_on() -> None:
        up_to(master, 400).save(tmp_path / "m")
        up_to(slave, 395).save(tmp_path / "s")

    assert found_in(tmp_path / "m", tmp_path / "s", go_on, split=split) == []


def test_queues_that_are_built_later_than_the_log(
    images: dict[str, list[StoreImage]], tmp_path: Path
) -> None:
    """As on a slave that takes in its master's log first."""
    master, slave = images["ours"]
    slave = slave.copy()
    behind = up_to(slave, 300)
    slave.queues, slave.index = behind.queues, behind.index
    master.save(tmp_path / "m")
    slave.save(tmp_path / "s")
    assert found_in(tmp_path / "m", tmp_path / "s") == []


def test_java_s_log_with_the_queues_that_our_slave_builds(java: Path, tmp_path: Path) -> None:
    """Replication copies the bytes, so this is what our slave of a Java master has."""
    write_our_slave(java, tmp_path, LEVELS_OF_JAVA)
    assert sorted((tmp_path / "consumequeue").iterdir())
    assert len(list((tmp_path / "index").iterdir())) == 3
    assert found_in(java, tmp_path) == []


def test_a_topic_that_was_deleted(java: Path, tmp_path: Path) -> None:
    """Its messages stay in the log for a while: on both sides that is no error, on one it is."""
    master, slave = tmp_path / "m", tmp_path / "s"
    for store in (master, slave):
        shutil.copytree(java, store)
    shutil.rmtree(slave / "consumequeue" / "TopicB")
    assert {one.code for one in found_in(master, slave)} == {"CQ_MISSING"}
    shutil.rmtree(master / "consumequeue" / "TopicB")
    found = found_in(master, slave)
    assert {(one.severity, one.code) for one in found} == {("WARN", "CQ_FORGOTTEN")}


def test_only_what_is_asked_for(java: Path, tmp_path: Path) -> None:
    image = image_of(java, LEVELS_OF_JAVA)
    slave = image.copy()
    for queue in slave.queues.values():
        queue.data[:20] = bytes(20)
    image.save(tmp_path / "m")
    slave.save(tmp_path / "s")
    both = tmp_path / "m", tmp_path / "s"
    assert "CQ_MISSING" in {one.code for one in found_in(*both)}
    for checks in (frozenset(CHECKS) - {"queues"}, frozenset({CRC}), frozenset[str]()):
        codes = {one.code for one in found_in(*both, checks=checks)}
        assert "CQ_MISSING" not in codes


def test_from_an_offset(java: Path, tmp_path: Path) -> None:
    """What differs before it is not looked at."""
    image = image_of(java, LEVELS_OF_JAVA)
    slave = image.copy()
    slave.write(1441 + 100, b"\xff")
    image.save(tmp_path / "m")
    slave.save(tmp_path / "s")
    assert {one.code for one in found_in(tmp_path / "m", tmp_path / "s")} == {
        "LOG_DIFFERS",
        "BODY_CRC",
    }
    assert found_in(tmp_path / "m", tmp_path / "s", start=70_000) == []


def test_nothing_in_common(java: Path, tmp_path: Path) -> None:
    image = image_of(java, LEVELS_OF_JAVA)
    image.base = 10 << 20
    image.save(tmp_path / "s")
    with pytest.raises(CannotDecide, match="no message"):
        open_pair(settings_of(java, tmp_path / "s"))
    with pytest.raises(CannotDecide, match="nothing in common"):
        open_pair(settings_of(java, java, start=10 << 20))
    with pytest.raises(CannotDecide, match="no commit log"):
        open_pair(settings_of(java, tmp_path))


def test_a_plan_covers_everything_once() -> None:
    """Both logs where both are, and each one's own ends."""
    found = plan([(0, 1000), (300, 900)], (300, 900), 250, [0, 300, 600])
    assert [(one.low, one.high, one.sides, one.compares) for one in found] == [
        (0, 250, (0,), False),
        (250, 300, (0,), False),
        (300, 550, (0, 1), True),
        (550, 600, (0, 1), True),
        (600, 850, (0, 1), True),
        (850, 900, (0, 1), True),
        (900, 1000, (0,), False),
    ]
    assert [one.number for one in found] == list(range(7))


Harm = Callable[[Path], object]


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def nth(store: Path, folder: str, number: int) -> Path:
    return sorted((store / folder).iterdir())[number]


@pytest.mark.parametrize(
    ("harm", "codes"),
    [
        (lambda slave: nth(slave, "consumequeue/TopicB/1", 0).unlink(), {"CQ_FORGOTTEN": 1}),
        (lambda slave: cut(nth(slave, "consumequeue/TopicB/1", -1), 790), {"CQ_FILE": 1}),
        (
            lambda slave: cut(nth(slave, "consumequeue/TopicB/1", 0), 790),
            {"CQ_FILE": 1, "CQ_FORGOTTEN": 1},
        ),
        (lambda slave: cut(nth(slave, "index", 0), 500), {"INDEX_UNREADABLE": 1}),
    ],
)
def test_a_damaged_file_blinds_nobody(
    java: Path, tmp_path: Path, harm: Harm, codes: dict[str, int]
) -> None:
    """The job said "could not decide", and compared nothing else."""
    slave = tmp_path / "s"
    image_of(java, LEVELS_OF_JAVA).save(slave)
    flip = nth(slave, "commitlog", 0)
    data = bytearray(flip.read_bytes())
    data[465 + 300] ^= 4
    flip.write_bytes(data)
    harm(slave)
    found = Counter(one.code for one in found_in(java, slave))
    assert found == Counter({"LOG_DIFFERS": 1, "BODY_CRC": 1, **codes})


def test_a_log_file_that_is_missing_or_short(java: Path, tmp_path: Path) -> None:
    """What both have is compared; what queues say of the rest is not told of again."""
    for number, harm in enumerate((Path.unlink, lambda path: cut(path, 7_000))):
        slave = tmp_path / str(number)
        image = image_of(java, LEVELS_OF_JAVA)
        image.log[465 + 300] ^= 4
        image.save(slave)
        harm(nth(slave, "commitlog", 1))
        settings = settings_of(java, slave)
        (hole,) = open_pair(settings)[1].store.holes
        assert (hole.start, hole.end) == (FILE + 7_000 * number, 2 * FILE)
        assert {one.code for one in found_in(java, slave)} == {"LOG_DIFFERS", "BODY_CRC"}
        with pytest.raises(CannotDecide, match="the log has no bytes from"):
            open_store(str(slave))


def test_a_store_that_an_executor_does_not_see_is_named(java: Path, tmp_path: Path) -> None:
    """Retention is not what took a whole directory away."""
    slave = tmp_path / "s"
    shutil.copytree(java, slave)
    with pytest.raises(CannotDecide, match="is not seen where this task ran"):
        found_in(java, slave, lambda: shutil.rmtree(slave / "commitlog"))
