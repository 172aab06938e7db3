"""What verify-replica says in all: where errors lie, which is the first, and of one store alone."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmq_ha.lake.scan.replica.settings import StoreAt
from rmq_ha.lake.scan.replica.tasks import Answers, Task, Work
from rmq_ha.lake.scan.replica.verdicts import LOG_CODES
from rmq_ha.lake.scan.replica.verifying import run_here, verify
from tests.unit.lake.scan.fleet_kit import flip
from tests.unit.lake.scan.parts_kit import log_of, store_at
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log
from tests.unit.lake.spark.replica_kit import settings_of


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return java_store("clean", tmp_path_factory.mktemp("java"))


@pytest.fixture
def harmed(java: Path, tmp_path: Path) -> tuple[Path, list[int]]:
    """A store with three bodies changed, and the places of their records."""
    slave = Path(shutil.copytree(java, tmp_path / "slave"))
    rows = [row for row in rows_of_log(java, None) if len(row["body"]) > 50]
    places = []
    for row in (rows[5], rows[90], rows[-1]):
        at = row["commitLogOffset"]
        data = sorted((slave / "commitlog").iterdir())[at // 65536]
        body = data.read_bytes().find(row["body"], at % 65536) + 10
        assert 0 < body - at % 65536 < row["storeSize"]
        flip(data, body)
        places.append(at)
    return slave, places


def test_errors_are_counted_along_the_log_and_the_first_is_named(
    java: Path, harmed: tuple[Path, list[int]]
) -> None:
    slave, places = harmed
    told = verify(settings_of(java, slave))
    low, high = told.common
    width = (high - low) // 120
    errors = [one.physical_offset or 0 for one in told.findings if one.severity == "ERROR"]
    assert sorted(set(errors)) == places
    assert told.errors == len(errors)
    wanted: dict[int, int] = {}
    for at in errors:
        bucket = low + (at - low) // width * width
        wanted[bucket] = wanted.get(bucket, 0) + 1
    assert told.along == sorted(wanted.items())
    assert told.apart == sum(one.code in LOG_CODES for one in told.findings) == 3
    assert told.first is not None
    assert told.first.physical_offset == places[0]
    assert told.verdict.startswith(f"replica differs over [{low}, {high}): first at {places[0]}, ")
    assert told.verdict.endswith(f"; {told.errors} errors")
    behind = verify(settings_of(java, slave, start=places[0] + 5000))
    assert behind.first is not None
    assert (behind.first.physical_offset, behind.apart) == (places[1], 2)
    assert behind.common[0] == places[0] + 5000
    assert behind.numbers["messages"]["master"] < told.numbers["messages"]["master"]


def test_one_store_against_itself_is_told_of_once(harmed: tuple[Path, list[int]]) -> None:
    slave, places = harmed
    shutil.rmtree(slave / "consumequeue" / "TopicB" / "0")
    given = settings_of(slave, slave)._replace(slave=StoreAt(str(slave)))
    told = verify(given)
    assert told.is_alone
    assert told.names == [str(slave), f"{slave} (again)"]
    codes = [one.code for one in told.findings if one.severity == "ERROR"]
    assert codes.count("BODY_CRC") == len(places)
    assert all(one.broker != told.names[1] for one in told.findings)
    assert sum(one.code == "CQ_FORGOTTEN" for one in told.findings) == 1
    assert (told.first, told.apart) == (None, 0)
    assert told.verdict.startswith(
        "store read over [0, 148251): 189 messages; but 4 errors within it"
    )


@pytest.mark.parametrize(
    ("is_open", "grows", "said"),
    [
        (False, False, {"CHECKPOINT_MISSING"}),
        (True, False, {"CHECKPOINT_MISSING"}),
        (False, True, {"CHECKPOINT_MISSING", "TAIL_RESIDUE"}),
        (True, True, set()),
    ],
)
def test_how_a_store_ends_is_not_judged_while_it_moves_on(
    tmp_path: Path, is_open: bool, grows: bool, said: set[str]
) -> None:
    """It is open, and has more than when it was opened: what was read of it is from two moments."""
    data = log_of({}, {}, {})
    for name in "ms":
        store_at(tmp_path / name, data)
    if is_open:
        (tmp_path / "s" / "abort").touch()

    def run(label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
        if grows:
            more = data + log_of({}, base=len(data))
            (tmp_path / "s" / "commitlog" / f"{0:020}").write_bytes(more.ljust(4096, b"\0"))
        return run_here(label, work, tasks, is_apart)

    told = verify(settings_of(tmp_path / "m", tmp_path / "s", checks=frozenset()), run)
    codes = {one.code for one in told.findings if one.broker == told.names[1]}
    assert codes == said
    assert {one.code for one in told.findings if one.broker == told.names[0]} == {
        "CHECKPOINT_MISSING"
    }
