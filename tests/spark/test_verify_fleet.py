"""The job verify-fleet over facts of 22 stores: planted faults, one answer, and what it writes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.unit.lake.scan.fleet_kit import (
    BEHIND,
    FLIPPED,
    FORGED,
    HOLE,
    TORN,
    facts_of,
    fleet,
    harm,
    scanned,
)
from tests.unit.lake.spark.recipes import answer_of


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    pairs = fleet(folder / "stores")
    harm(pairs)
    scanned(pairs, folder / "facts")
    for name, store in zip("xy", pairs["b05"], strict=True):
        facts_of(store, folder / "twice", name, ids=True)
    return folder


@pytest.fixture
def run(command: Any) -> Callable[..., tuple[int, list[str]]]:
    def call(*arguments: Any) -> tuple[int, list[str]]:
        given = ["verify-fleet", "--quiet", "--max-skew", "0", "--max-age", "9999999h"]
        done = CliRunner().invoke(command, [*given, *map(str, arguments)])
        return done.exit_code, done.output.splitlines()

    return call


def test_a_fleet(run: Any, stores: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, lines = run(stores / "facts", "--out", out)
    assert code == 1, lines
    says = "11 brokers, 22 stores: logs differ in 2, safe to fail over 6, without a slave 0; first:"
    assert lines[-1].startswith(f"{says} b01")
    assert lines[-1].startswith(answer_of("verify-fleet").removesuffix("...")), "docs/spark.md"
    findings = pq.read_table(out / "findings").to_pylist()
    brokers = {row["broker"]: row for row in pq.read_table(out / "brokers").to_pylist()}
    places = {row["broker"] for row in findings if row["severity"] == "ERROR"}
    bad = {name for name in brokers if any(f"/{name}/" in place for place in places)}
    assert bad == {FORGED, FLIPPED, BEHIND, HOLE, TORN}
    assert brokers[FORGED]["differing"] == 1
    topics = pq.read_table(out / "topics").to_pylist()
    assert {"TopicA", "Orders0"} <= {row["topic"] for row in topics}
    summary = json.loads((out / "summary.json").read_text())
    assert summary["numbers"]["fetched"] == sum(row["fetched"] for row in brokers.values())


def test_ids_that_two_brokers_have(run: Any, stores: Path) -> None:
    code, lines = run(stores / "twice", "--ids")
    assert code == 3, lines
    assert any(line.startswith("WARN   NO_REPLICA") for line in lines)
    code, lines = run(stores / "twice", "--ids", "--alone", "x", "--alone", "y")
    assert code == 0, lines
    assert any(line.startswith("WARN   DUPLICATE") for line in lines)
    code, lines = run(stores / "nothing")
    assert (code, "holds no facts" in lines[-1]) == (3, True)


def test_damaged_facts_end_neither_the_command_nor_its_tables(
    run: Any, stores: Path, tmp_path: Path
) -> None:
    facts, out = tmp_path / "facts", tmp_path / "out"
    shutil.copytree(stores / "facts", facts)
    (facts / "b06-0" / "state.json").write_text("{")
    (sums, *_) = sorted((facts / "b05-0").glob("sums-*"))
    sums.write_bytes(b"PAR1")
    code, lines = run(facts, "--out", out)
    assert code == 1, lines
    assert "could not be decided 2" in lines[-1]
    rows = {row["broker"]: row for row in pq.read_table(out / "brokers").to_pylist()}
    assert len(rows) == 11
    for name in ("b05", "b06"):
        assert (rows[name]["safe"], rows[name]["exitCode"], rows[name]["replicas"]) == (None, 3, 2)
    findings = pq.read_table(out / "findings").to_pylist()
    damaged = {row["broker"] for row in findings if row["code"] == "FACTS_DAMAGED"}
    assert damaged == {str(facts / "b05-0"), str(facts / "b06-0")}
    assert pq.read_table(out / "topics").num_rows
