"""The job `verify-offsets`: stores, histories, the command."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rmq_ha.base.host.blocking import now_ms, pause
from rmq_ha.base.wire import fastjson
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.spark.offsets import history
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.model import Fact, Snapshot
from rmq_ha.ops.offsets.opening import opened
from rmq_ha.ops.offsets.pairing import Forecast, predict
from rmq_ha.ops.offsets.places import StorePlace
from rmq_ha.ops.offsets.sampling import Patience, sample
from rmq_ha.ops.offsets.snapshot_history import append, decode, encode, snapshot_files

FIXTURES = Path(__file__).parents[1] / "fixtures" / "store"
ALL = frozenset(model.NUMBERS + model.TEXTS)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store that the Java broker wrote, and a copy of it."""
    folder = tmp_path_factory.mktemp("stores")
    shutil.unpack_archive(FIXTURES / "clean.tar.gz", folder)
    (folder / "clean").rename(folder / "m")
    shutil.copytree(folder / "m", folder / "s")
    return folder / "m", folder / "s"


@pytest.fixture
def run(command: Any) -> Callable[..., tuple[int, str]]:
    def call(*arguments: Any) -> tuple[int, str]:
        done = CliRunner().invoke(command, ["verify-offsets", "--quiet", *map(str, arguments)])
        return done.exit_code, done.output

    return call


def test_stores_of_java(run: Any, stores: tuple[Path, Path], tmp_path: Path) -> None:
    """Equal ones hold; one offset that is put back is found, counted, located, and repairable."""
    master, slave = stores
    code, output = run("--master", master, "--slave", slave)
    assert (code, output.splitlines()[-1]) == (
        0,
        "safe to fail over: yes; 0 messages would be repeated, 0 skipped, 0 lost; compared the"
        " ends of 1081 queues, read 100 messages of the slave",
    )
    config = slave / "config" / "consumerOffset.json"
    before = config.read_bytes()
    table = fastjson.parse(before)
    table["offsetTable"]["TopicA@CG_fixture"][0] = 12
    config.write_bytes(fastjson.pretty(table))
    (slave / "config" / "delayOffset.json").write_bytes(b'{"offsetTable":{1:0,2:1,3:1}}')
    out, repair = tmp_path / "out", tmp_path / "repair"
    past = tmp_path / "history"
    code, output = run(
        *("--master", master, "--slave", slave, "--out", out, "--repair", repair),
        *("--history", f"snapshot:{past}", "--record"),
    )
    assert code == 1, output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["counts"] == {"STALE": 1, "DELAY_LAG": 1}
    numbers = summary["numbers"]["slaves"][str(slave)]
    assert (numbers["repeats"], numbers["delay_repeats"]) == (18, 2)
    assert "worst: group CG_fixture, queue 0 of TopicA" in summary["verdict"]
    (row,) = [
        SimpleNamespace(**row)
        for row in pq.read_table(out / "findings").to_pylist()
        if row["code"] == "STALE"
    ]
    assert (row.topic, row.queueId, row.group, row.expected, row.actual, row.broker) == (
        "TopicA",
        0,
        "CG_fixture",
        "30",
        "12",
        str(slave),
    )
    assert "18 messages" in row.detail
    config.write_bytes((repair / "consumerOffset.json").read_bytes())
    (slave / "config" / "delayOffset.json").write_bytes((repair / "delayOffset.json").read_bytes())
    with opened(ClientConfig(), now_ms) as source:
        sources = [source(StorePlace(str(item)), is_slave=item is slave) for item in stores]
        (repaired,) = sample(sources[0], sources[1:], Patience(wait_ms=0), now_ms, pause)
    assert predict(repaired) == Forecast()
    assert [len(snapshot_files(str(past), role)) for role in ("master", "slave")] == [1, 1]


def test_history(run: Any, engine: Any, tmp_path: Path) -> None:
    """What went back, what was reset, what jumped; a slave that follows a reset is right."""
    past = tmp_path / "history"

    def keep(role: str, number: int, at: int, **offsets: int) -> None:
        facts = [Fact(model.OFFSET, "t", group, 0, value) for group, value in offsets.items()]
        facts.append(model.queue_fact("t", 0, 0, 100))
        taken = Snapshot(role, "b", number, role, False, at, at, ALL, tuple(facts))
        assert decode(encode(taken), "x") == taken
        append(taken, str(past))

    minute = 60_000
    keep("ASYNC_MASTER", 0, minute, steady=10, reset=50, lost=50, jumper=20, on=50)
    keep("SLAVE", 1, minute + 1, steady=10, reset=50, lost=50, jumper=20, on=50)
    # `on` was reset to 0, and consumed again since.
    keep("ASYNC_MASTER", 0, 2 * minute, steady=20, reset=30, lost=60, jumper=20, on=45)
    keep("SLAVE", 1, 2 * minute + 1, steady=15, reset=30, lost=40, jumper=500, on=40)
    offsets = history.offsets_over_time(history.read(engine, str(past)))
    found = {
        (row.code, row.severity, row.broker, row.group, row.expected, row.actual)
        for row in history.findings(offsets).collect()
    }
    assert found == {
        ("OFFSET_RESET", "WARN", "ASYNC_MASTER", "reset", "50", "30"),
        ("OFFSET_RESET", "WARN", "ASYNC_MASTER", "on", "50", "45"),
        ("ROLLBACK", "ERROR", "SLAVE", "lost", "50", "40"),
        ("OFFSET_JUMP", "ERROR", "SLAVE", "jumper", "100", "500"),
    }
    trend = history.trend(offsets)
    assert trend.moments == [minute, 2 * minute]
    assert trend.groups["lost"] == [0.0, 20.0]
    assert trend.groups["steady"] == [0.0, 5.0]
    code, output = run(
        *("--master", f"snapshot:{past}", "--slave", f"snapshot:{past}"),
        *("--history", f"snapshot:{past}"),
    )
    assert code == 1, output
    verdict = output.splitlines()[-1]
    # The slave's first snapshot lies between two of the master, which has seen a reset since.
    assert verdict.startswith("safe to fail over: no: messages would be skipped; 20 messages")
    assert "; the history holds 2 violations" in verdict
    code, output = run("--master", f"snapshot:{past}", "--slave", f"broker://{past.name}:1")
    assert code == 2, output


def test_many_pairs(run: Any, stores: tuple[Path, Path], tmp_path: Path) -> None:
    """One verdict a pair and one for all; what cannot be read hides nothing."""
    master, slave = stores
    shutil.copytree(master, tmp_path / "s")
    listed, out = tmp_path / "pairs", tmp_path / "out"
    listed.write_text(f"{master} {tmp_path / 's'}\n")
    code, output = run("--pairs", listed)
    assert (code, output.splitlines()[-1].partition(";")[0]) == (
        0,
        "safe to fail over: yes, all 1 pairs",
    )
    config = slave / "config" / "consumerOffset.json"
    table = fastjson.parse(config.read_bytes())
    table["offsetTable"]["TopicA@CG_fixture"][0] = 12
    config.write_bytes(fastjson.pretty(table))
    listed.write_text(f"{master} {tmp_path / 's'}\n{master} {slave}\n{master} {tmp_path}/none\n")
    code, output = run("--pairs", listed, "--out", out)
    assert code == 1, output
    assert "no: 2 of 3 pairs; 18 messages would be repeated" in output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["counts"] == {"STALE": 1}
    assert [pair["exitCode"] for pair in summary["numbers"]["pairs"]] == [0, 1, 3]
    (row,) = pq.read_table(out / "findings").to_pylist()
    stale = SimpleNamespace(**row)
    assert (stale.code, stale.broker, stale.expected, stale.actual) == (
        *("STALE", str(slave)),
        *("30", "12"),
    )
    lag = pq.read_table(out / "lag").to_pylist()
    assert {row["slave"] for row in lag} == {str(slave), str(tmp_path / "s")}
    assert run("--pairs", listed, "--master", master, "--slave", slave)[0] == 2
