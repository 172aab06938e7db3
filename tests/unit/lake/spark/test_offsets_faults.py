"""Every fault that is planted into a slave's tables is found and located by the rules."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmq_ha.base.host.files import listing
from rmq_ha.ops.offsets.model import Snapshot
from rmq_ha.ops.offsets.opening import store_of
from rmq_ha.ops.offsets.pairing import cases
from rmq_ha.ops.offsets.rules import Case, judge
from rmq_ha.ops.offsets.sampling import Patience, sample
from rmq_ha.ops.offsets.store_snapshot import StoredReplica
from tests.sim_kit.store_faults import table_faults
from tests.sim_kit.store_faults.image import StoreImage
from tests.sim_kit.store_faults.ours import write_our_pair
from tests.sim_kit.store_faults.planted import Planted
from tests.sim_kit.store_faults.table_faults import TableFaults
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, LEVELS_OF_OURS, image_of

LONG_AFTER = 1 << 50
TABLES = {"topics.json": "topics", "subscriptionGroup.json": "subscriptionGroups"}


class Place:
    """A store on the disk, and its image."""

    def __init__(self, path: Path, image: StoreImage) -> None:
        self.path = path
        self.image = image


@pytest.fixture(scope="module", params=["java", "ours"])
def master(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "java":
        store = java_store("clean", folder)
        return Place(store, image_of(store, LEVELS_OF_JAVA))
    write_our_pair(folder / "m", folder / "s", 5)
    return Place(folder / "m", image_of(folder / "m", LEVELS_OF_OURS))


def replica(path: Path) -> Any:
    return StoredReplica(store_of, listing, str(path), lambda: LONG_AFTER)


def found(master: Path, slave: Path) -> Iterator[tuple[str, Case]]:
    def pause(_: float) -> None:
        raise AssertionError("stores at rest are not waited for")

    (pairing,) = sample(replica(master), [replica(slave)], Patience(), lambda: LONG_AFTER, pause)
    for case in cases(pairing):
        for code in judge(case).codes:
            yield code, case


def names(fault: Planted, code: str, case: Case) -> bool:
    """The finding is of this fault."""
    key = case.key
    if fault.field in TABLES:
        return key.kind == "version" and key.topic == TABLES[fault.field]
    return (
        code in fault.codes
        and fault.topic in (None, key.topic)
        and fault.group in (None, key.group)
        and fault.queue_id in (None, key.queue_id)
    )


def test_an_image_that_is_saved_again_has_no_finding(master: Place, tmp_path: Path) -> None:
    master.image.copy().save(tmp_path)
    assert list(found(master.path, tmp_path)) == []


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("pair", table_faults.CODES, ids=" ".join)
def test_a_fault_of_the_tables_is_found(
    master: Place, pair: tuple[str, str], seed: int, tmp_path: Path
) -> None:
    image = master.image.copy()
    [fault] = TableFaults(image, Random(seed)).plant([pair])
    image.save(tmp_path)
    rulings = list(found(master.path, tmp_path))
    assert [item for item in rulings if names(fault, *item)], (fault, rulings)
    # Nothing else is blamed: what is left is the version of the table that the fault is in.
    others = [item for item in rulings if not names(fault, *item)]
    allowed = {"SLAVE_AHEAD", "DELAY_AHEAD", "STALE_TABLE"}
    assert {code for code, _ in others} <= allowed, (fault, others)


def test_snapshots_of_stores_say_that_they_rest(master: Place) -> None:
    taken: Snapshot = replica(master.path).snapshot()
    assert taken.is_resting
