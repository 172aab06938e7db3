"""
More than a hundred faults of twelve kinds, in pairs written by ours and by Java: each is found.

`RMQ_HA_SPARK_SEED` plants them elsewhere.
"""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.sim_kit.store_faults import log_faults, table_faults
from tests.sim_kit.store_faults.image import StoreImage
from tests.sim_kit.store_faults.log_faults import LogFaults
from tests.sim_kit.store_faults.ours import write_our_pair
from tests.sim_kit.store_faults.planted import AUDIT, Planted
from tests.sim_kit.store_faults.table_faults import TableFaults
from tests.spark.planting import Said, messages, offsets, replica
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, LEVELS_OF_OURS, image_of, says

SEED = int(os.environ.get("RMQ_HA_SPARK_SEED", "1"))
MOVING = ("cut", "gap", "log")
IN_QUEUES = [
    pair for pair in log_faults.CODES if pair[1] in ("queue", "blank entry", "queue entry")
]
SHIFTING = [pair for pair in log_faults.CODES if pair[1] in MOVING]
TORN = ("torn tail", "zeroed")
IN_PLACE = [
    pair
    for pair in log_faults.CODES
    if pair not in IN_QUEUES and pair not in SHIFTING and pair[0] != "torn tail"
]
DELAYS = [pair for pair in table_faults.CODES if pair[0] == "wrong delay offset"]
STALE = [("stale table", "topics"), ("stale table", "groups")]
TABLES = [pair for pair in table_faults.CODES if pair not in DELAYS + STALE]
Pairs = list[tuple[str, str]]


class Writer(NamedTuple):
    """
    Who wrote a pair, and what can be planted into it.

    :ivar in_place: faults that leave the rest of the log where it is; `shifting`: the others.
    """

    name: str
    master: StoreImage
    slave: StoreImage
    in_place: Pairs
    shifting: Pairs
    tables: Pairs


class Harmed(NamedTuple):
    """A pair on the disk, and what is wrong with it."""

    master: Path
    slave: Path
    planted: list[Planted]


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Writer]:
    java = image_of(java_store("clean", tmp_path_factory.mktemp("java")), LEVELS_OF_JAVA)
    folder = tmp_path_factory.mktemp("ours")
    write_our_pair(folder / "m", folder / "s", SEED, topics=10, messages=25)
    mine, other = (image_of(folder / side, LEVELS_OF_OURS) for side in "ms")
    return {
        "java": Writer(
            "java",
            java,
            java,
            [*IN_PLACE, *IN_QUEUES[:4], TORN],
            SHIFTING * 2,
            [*TABLES, *DELAYS, *STALE],
        ),
        "ours": Writer(
            "ours",
            mine,
            other,
            [*IN_PLACE * 3, *IN_QUEUES * 2, TORN],
            SHIFTING * 4,
            [*TABLES * 2, *DELAYS, *STALE],
        ),
    }


@pytest.fixture(scope="module")
def harmed(
    writers: dict[str, Writer], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Harmed]:
    """By writer and by what is harmed: `nothing`, `in_place`, `shifting`, `tables`."""
    made: dict[tuple[str, str], Harmed] = {}

    def of(name: str, what: str) -> Harmed:
        if (name, what) not in made:
            folder = tmp_path_factory.mktemp(f"{name}-{what}")
            made[name, what] = _harm(writers[name], what, folder)
        return made[name, what]

    return of


def _harm(writer: Writer, what: str, folder: Path) -> Harmed:
    master, slave = writer.master.copy(), writer.slave.copy()
    planted: list[Planted] = []
    random = Random(SEED)
    if what == "tables":
        planted = TableFaults(slave, random).plant(writer.tables)
    elif what != "nothing":
        planted = LogFaults(slave, random, master).plant(getattr(writer, what))
    master.save(folder / "m")
    slave.save(folder / "s")
    return Harmed(folder / "m", folder / "s", planted)


WRITERS = pytest.mark.parametrize("writer", ["java", "ours"])


def check(said: Said, planted: list[Planted]) -> None:
    missed = [one for one in planted if not says(said.findings, one)]
    assert not missed, (missed, said.findings)
    assert said.findings


def test_there_are_enough(writers: dict[str, Writer]) -> None:
    """At least a hundred, and all twelve kinds in stores of both."""
    rows = [[*w.in_place, *w.shifting, *w.tables] for w in writers.values()]
    assert sum(map(len, rows)) >= 100
    for row in rows:
        assert len({kind for kind, _ in row}) == 12


@WRITERS
def test_nothing_is_wrong_with_what_was_not_harmed(
    engine: Any, harmed: Callable[[str, str], Harmed], writer: str
) -> None:
    """The proof that what is found otherwise was planted."""
    pair = harmed(writer, "nothing")
    said = replica(engine, pair.master, pair.slave)
    assert said.findings == []
    assert said.result.outcome == 0
    assert said.result.verdict.startswith("replica identical over [0, ")
    said = offsets(engine, pair.master, pair.slave)
    assert said.errors == []
    assert said.result.outcome == 0


@WRITERS
def test_faults_in_their_places(
    engine: Any, harmed: Callable[[str, str], Harmed], writer: str
) -> None:
    """Bits, lost pages, queue entries, keys, and a torn tail, dozens in one store."""
    pair = harmed(writer, "in_place")
    said = replica(engine, pair.master, pair.slave)
    check(said, pair.planted)
    assert said.result.outcome == 1
    first = min(one.physical_offset or 0 for one in pair.planted if one.codes == ("LOG_DIFFERS",))
    assert said.result.numbers["firstDifference"] == first
    assert f"first at {first}, message " in said.result.verdict


@WRITERS
def test_faults_that_move_all_that_follows(
    engine: Any, harmed: Callable[[str, str], Harmed], writer: str
) -> None:
    """Messages lost, doubled and swapped; the slave's queues and index fit its own log."""
    pair = harmed(writer, "shifting")
    said = replica(engine, pair.master, pair.slave)
    check(said, pair.planted)
    assert {"RECORD_LOST", "RECORD_DUPLICATED", "RECORD_MOVED"} <= said.codes


def test_the_audit_of_messages_finds_them_in_one_store(
    engine: Any, writers: dict[str, Writer], harmed: Callable[[str, str], Harmed]
) -> None:
    """Without the other side: numbers of a queue that are missing, and keys that are doubled."""
    pair = harmed("java", "shifting")
    said = messages(engine, pair.slave)
    queues = writers["java"].master.queues
    for one in pair.planted:
        codes = log_faults.AUDIT_CODES.get((one.kind, one.variant))
        # Nothing is behind the last message of a queue that could tell that it is missing.
        is_last = one.queue_offset == queues[one.topic or "", one.queue_id or 0].end - 1
        if codes is not None and not (is_last and one.kind == "loss"):
            there = [
                found
                for found in said.findings
                if (found.code, found.topic, found.queue_id) == (codes[0], one.topic, one.queue_id)
            ]
            assert there, (one._replace(job=AUDIT), said.findings)


@WRITERS
def test_faults_in_tables(engine: Any, harmed: Callable[[str, str], Harmed], writer: str) -> None:
    """Offsets, groups, topics, versions, and the progress of delayed messages."""
    pair = harmed(writer, "tables")
    said = offsets(engine, pair.master, pair.slave)
    for one in pair.planted:
        there = [
            found
            for found in said.findings
            if found.code in one.codes
            and (one.topic is None or found.topic == one.topic)
            and (one.group is None or found.group == one.group)
            and (one.queue_id is None or found.queue_id == one.queue_id)
        ]
        assert there, (one, said.findings)
    assert said.result.outcome == 1
