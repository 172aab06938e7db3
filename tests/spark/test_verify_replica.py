"""The command verify-replica: verdicts, exit codes, and what it writes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.spark.planting import replica
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, image_of

BODY = 465 + 300
"""A byte of the second record's body."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store that Java wrote, and its copy with one bit of one body changed."""
    folder = tmp_path_factory.mktemp("stores")
    java = java_store("clean", folder)
    image = image_of(java, LEVELS_OF_JAVA)
    image.log[BODY] ^= 4
    image.save(folder / "s")
    return java, folder / "s"


@pytest.fixture
def run(command: Any) -> Callable[..., tuple[int, list[str]]]:
    def call(*arguments: Any) -> tuple[int, list[str]]:
        done = CliRunner().invoke(command, ["verify-replica", "--quiet", *map(str, arguments)])
        return done.exit_code, done.output.splitlines()

    return call


def test_a_difference(run: Any, stores: tuple[Path, Path], tmp_path: Path) -> None:
    """Located to the byte, with both values; exit code 1; findings, summary and report."""
    out = tmp_path / "out"
    code, lines = run(*stores, "--out", out, "--index-sizes", "50,150")
    assert code == 1
    assert lines[-1].startswith(
        "replica differs over [0, 148251): first at 465, message "
        "FD0000000000000000000000000000022FC35FFD2B276894C6A80001 (topic TopicB, queue 1, offset 0,"
        " LOG_DIFFERS): master body byte "
    )
    rows = {row["code"]: row for row in pq.read_table(out / "findings").to_pylist()}
    assert set(rows) == {"LOG_DIFFERS", "BODY_CRC"}
    assert "the slave's body does not match its CRC" in rows["LOG_DIFFERS"]["detail"]
    assert rows["BODY_CRC"]["broker"] == str(stores[1])
    summary = json.loads((out / "summary.json").read_text())
    assert summary["numbers"]["firstDifference"] == 465
    assert summary["numbers"]["messages"] == {"master": 189, "slave": 189}
    assert "Queues" in (out / "report.html").read_text()


def test_a_killed_master_and_a_torn_slave(engine: Any, tmp_path: Path) -> None:
    """What a start mends is a warning, and the rest is the same."""
    killed, torn = (java_store(name, tmp_path / name) for name in ("killed", "torn"))
    said = replica(engine, killed, torn)
    assert [(one.severity, one.code, one.physical_offset) for one in said.findings] == [
        ("INFO", "MASTER_AHEAD", 147840),
        ("WARN", "TORN_TAIL", 147840),
    ]
    assert said.result.verdict == "replica identical over [0, 147840): 188 messages"
    assert said.result.outcome == 0


def test_only_bytes(run: Any, stores: tuple[Path, Path]) -> None:
    code, lines = run(*stores, "--check", "bytes", "--from", "1441")
    assert (code, lines) == (0, ["replica identical over [1441, 148251): 146810 bytes"])


def test_what_cannot_be_decided_and_what_makes_no_sense(
    run: Any, stores: tuple[Path, Path], tmp_path: Path
) -> None:
    java = stores[0]
    code, lines = run(java, tmp_path / "nowhere")
    assert (code, "no commit log" in lines[-1]) == (3, True)
    code, lines = run(java, stores[1], "--from", 1 << 40)
    assert (code, "nothing in common" in lines[-1]) == (3, True)
    assert run(java, "broker://127.0.0.1:10911")[0] == 2
    code, lines = run(java)
    assert (code, lines[-1]) == (0, "store read over [0, 148251): 189 messages")
    (tmp_path / "link").symlink_to(java)
    code, lines = run(java, tmp_path / "link")
    assert (code, "the same directory" in lines[-1]) == (2, True)
    assert run(*stores, "--window", "1k")[0] == 2
    assert run(*stores, "--window", "many")[0] == 2
    assert run(*stores, "--index-sizes", "0")[0] == 2
