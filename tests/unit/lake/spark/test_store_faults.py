"""The planting tool: what it does not harm stays, and what it harms is what it says."""

from pathlib import Path
from random import Random

import pytest

from tests.sim_kit.store_faults import log_faults, table_faults
from tests.sim_kit.store_faults.image import StoreImage
from tests.sim_kit.store_faults.log_faults import LogFaults
from tests.sim_kit.store_faults.ours import write_our_pair
from tests.sim_kit.store_faults.table_faults import TableFaults
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, LEVELS_OF_OURS, image_of

KINDS = {kind for kind, _ in (*log_faults.CODES, *table_faults.CODES)}


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> StoreImage:
    return image_of(java_store("clean", tmp_path_factory.mktemp("java")), LEVELS_OF_JAVA)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> StoreImage:
    folder = tmp_path_factory.mktemp("ours")
    write_our_pair(folder / "m", folder / "s", 5)
    return image_of(folder / "s", LEVELS_OF_OURS)


def test_there_are_twelve_kinds() -> None:
    assert len(KINDS) == 12


@pytest.mark.parametrize("writer", ["java", "ours"])
def test_a_store_that_is_built_again_is_the_same(
    writer: str, request: pytest.FixtureRequest
) -> None:
    """Byte for byte as the broker wrote it: what is planted is all that there is."""
    image: StoreImage = request.getfixturevalue(writer)
    again = image.copy()
    again.rebuild(again.lay_out([placed.record for placed in image.records()]))
    assert again.log == image.log
    assert {key: queue.data for key, queue in again.queues.items()} == {
        key: queue.data for key, queue in image.queues.items()
    }
    assert [index.items() for index in again.index] == [index.items() for index in image.index]
    assert [index.header for index in again.index] == [index.header for index in image.index]


def test_a_copy_shares_nothing_and_what_is_written_is_read(
    java: StoreImage, tmp_path: Path
) -> None:
    before = bytes(java.log)
    copy = java.copy()
    copy.write(100, b"changed")
    assert java.log == before
    copy.save(tmp_path)
    again = image_of(tmp_path, LEVELS_OF_JAVA)
    assert (again.log, again.queues, again.index, again.others) == (
        copy.log,
        copy.queues,
        copy.index,
        copy.others,
    )


@pytest.mark.parametrize("pair", log_faults.CODES, ids=" ".join)
def test_a_fault_of_the_log_changes_the_store_and_is_the_same_for_a_seed(
    java: StoreImage, pair: tuple[str, str]
) -> None:
    images = [java.copy() for _ in range(2)]
    others = [java.copy() for _ in range(2)]
    planted = [
        LogFaults(image, Random(7), other).plant([pair])
        for image, other in zip(images, others, strict=True)
    ]
    assert planted[0] == planted[1]
    assert images[0] == images[1]
    assert images[0] != java
    assert (others[0] != java) == (pair[1] == "both sides")
    [one] = planted[0]
    [record] = [entry.record for entry in java.records() if entry.offset == one.physical_offset]
    assert (one.topic, one.queue_id, one.queue_offset) == (
        record.topic,
        record.queue_id,
        record.queue_offset,
    )


@pytest.mark.parametrize("pair", table_faults.CODES, ids=" ".join)
def test_a_fault_of_the_tables_changes_one_table(java: StoreImage, pair: tuple[str, str]) -> None:
    image = java.copy()
    [one] = TableFaults(image, Random(3)).plant([pair])
    changed = {
        name
        for name in java.others
        if not name.endswith(".bak") and image.others[name] != java.others[name]
    }
    assert len(changed) == 1
    assert (image.log, image.queues) == (java.log, java.queues)
    assert (one.kind, one.variant) == pair


def test_no_two_faults_hit_one_place(ours: StoreImage) -> None:
    faults = LogFaults(ours.copy(), Random(1), ours.copy())
    planted = faults.plant([pair for pair in log_faults.CODES if pair[0] != "torn tail"] * 2)
    places = [one.physical_offset for one in planted]
    assert len(set(places)) == len(places)


def test_a_store_without_room_says_so(java: StoreImage) -> None:
    with pytest.raises(ValueError, match="no room"):
        LogFaults(java.copy(), Random(1)).plant([("loss", "zeroed")] * 100)
    with pytest.raises(ValueError, match="no room"):
        TableFaults(java.copy(), Random(1)).plant([("missing group", "configuration")] * 9)
