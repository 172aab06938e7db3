"""Facts of a fleet of stores: what they say is what the stores are, and no log is read again."""

import shutil
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.scan import command
from rmq_ha.lake.scan.fleet import judging
from rmq_ha.lake.scan.fleet.facts import IDS, SUMS, WINDOWS, ReplicaFacts, replicas_in
from rmq_ha.lake.scan.fleet.judging import BrokerVerdict, JudgingLimits, judge
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.verdict import Limits
from tests.unit.lake.scan.fleet_kit import (
    BEHIND,
    BODY,
    FLIPPED,
    FORGED,
    HOLE,
    NOW,
    TORN,
    WINDOW,
    facts_of,
    fleet,
    flip,
    harm,
    scanned,
)
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log
from tests.unit.lake.spark.replica_kit import LEVELS_OF_JAVA, image_of

AT_REST = JudgingLimits(0)


def told_of(to: Path, patience: JudgingLimits = AT_REST) -> dict[str, BrokerVerdict]:
    found = replicas_in(str(to))
    by_name = groupby(found, key=lambda one: one.state.broker)
    return {name: judge(list(some), Limits(), patience, NOW) for name, some in by_name}


def codes_of(told: BrokerVerdict) -> set[str]:
    return {one.code for one in told.findings if one.severity == "ERROR"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    pairs = fleet(folder / "stores")
    harm(pairs)
    scanned(pairs, folder / "facts")
    return folder


@pytest.mark.lake
def test_planted_faults_of_a_fleet_are_found_and_no_others(stores: Path) -> None:
    told = told_of(stores / "facts")
    assert len(replicas_in(str(stores / "facts"))) == 22
    bad = {name: codes_of(one) for name, one in told.items() if codes_of(one)}
    assert set(bad) == {FORGED, FLIPPED, BEHIND, HOLE, TORN}
    assert bad[FORGED] == {"LOG_DIFFERS"}
    assert bad[FLIPPED] == {"LOG_DIFFERS", "BODY_CRC"}
    assert bad[BEHIND] == {"STALE"}
    assert "LOG_HOLE" in bad[HOLE]
    (found,) = [one for one in told[FORGED].findings if one.code == "LOG_DIFFERS"]
    assert found.physical_offset == 465
    assert found.topic == "TopicB"
    assert bad[TORN] <= {"NOT_REPLICATED", "LOG_BEHIND"}  # its last message
    assert all(one.is_safe is (name not in bad) for name, one in told.items())


@pytest.mark.lake
def test_only_windows_that_differ_are_read(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = told_of(stores / "facts")
    assert [name for name, one in told.items() if one.fetched] == [FORGED, FLIPPED]
    assert told[FORGED].fetched <= 2 * WINDOW
    assert told[FORGED].differing == 1
    assert told["b05"].compared == 148251 - _blank(stores / "stores" / "b05" / "m")
    opened: list[str] = []
    monkeypatch.setattr(judging, "opened", lambda at, _: opened.append(at.uri))
    told_of(stores / "facts", JudgingLimits(0, fetches=False))
    assert opened == []


def _blank(store: Path) -> int:
    """Bytes behind the last records of full files, but for the eight that say so."""
    ends: dict[int, int] = {}
    for row in rows_of_log(store, None):
        number = row["commitLogOffset"] // 65536
        ends[number] = max(ends.get(number, 0), row["commitLogOffset"] + row["storeSize"])
    return sum((number + 1) * 65536 - end - 8 for number, end in ends.items() if number < 2)


def test_stores_that_are_not_seen_are_named(stores: Path, tmp_path: Path) -> None:
    """The windows of logs on other machines can only be told."""
    pairs = {FORGED: tuple(tmp_path / side for side in "ms")}
    for side, store in zip("ms", pairs[FORGED], strict=True):
        shutil.copytree(stores / "stores" / FORGED / side, store)
    scanned(pairs, tmp_path / "facts")  # type: ignore[arg-type]
    for store in pairs[FORGED]:
        shutil.rmtree(store)
    (one,) = [one for one in told_of(tmp_path / "facts")[FORGED].findings if one.code[0] == "D"]
    assert one.code == "DIGEST_DIFFERS"
    assert f"the store {pairs[FORGED][0]} is not seen from here" in one.detail
    assert one.physical_offset == 0


def test_a_scan_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    whole = java_store("clean", tmp_path / "whole")
    grows = tmp_path / "grows"
    shutil.copytree(whole, grows)
    *_, last = sorted((grows / "commitlog").iterdir())
    last.unlink()
    read: list[int] = []
    to = tmp_path / "facts"
    facts_of(grows, to)
    shutil.copy(whole / "commitlog" / last.name, last)
    state = facts_of(grows, to, now=NOW + 1, rest=read.append, ids=True, share=0)
    assert 0 < sum(read) < 30_000
    facts_of(whole, tmp_path / "once", ids=True)
    one, other = ReplicaFacts(str(to / "b-0"), state), replicas_in(str(tmp_path / "once"))[0]
    rows = [
        table.drop_columns(["readAt"]).sort_by("low").to_pylist()
        for table in (one.table(WINDOWS), other.table(WINDOWS))
    ]
    assert rows[0] == rows[1]
    assert len({file.name for file in state.files}) == len(state.files)
    for replica in (one, other):
        total = sum(replica.table(SUMS)["n"].to_pylist())
        assert total == len([row for row in rows_of_log(whole, None) if not row["sysFlag"] & 4])
    assert other.table(IDS).num_rows == len(np.unique(other.table(IDS)["place"].to_numpy()))


def test_a_log_that_was_replaced_is_scanned_anew(tmp_path: Path) -> None:
    store, to = java_store("clean", tmp_path), tmp_path / "facts"
    first = facts_of(store, to)
    flip(sorted((store / "commitlog").iterdir())[-1], 16384 + 100)
    read: list[int] = []
    facts_of(store, to, now=NOW + 1, rest=read.append)
    assert sum(read) < 20_000
    flip(sorted((store / "commitlog").iterdir())[-1], 300)
    facts_of(store, to, now=NOW + 2, rest=read.append)
    assert sum(read) > first.high - 40_000


def test_what_is_wrong_with_one_store_is_kept(tmp_path: Path) -> None:
    store, to = java_store("clean", tmp_path), tmp_path / "facts"
    flip(sorted((store / "commitlog").iterdir())[0], BODY)
    shutil.rmtree(store / "consumequeue" / "TopicB" / "0")
    facts_of(store, to, checks=frozenset({"queues"}))
    (told,) = told_of(to).values()
    found = {one.code for one in told.findings}
    assert {"BODY_CRC", "CQ_FORGOTTEN", "NO_REPLICA"} <= found
    assert told.outcome is Outcome.VIOLATED
    (old,) = told_of(to, JudgingLimits(0, age_ms=-1)).values()
    assert "FACTS_OLD" in {one.code for one in old.findings}


def test_facts_that_are_damaged_or_on_another_grid_are_refused(tmp_path: Path) -> None:
    store, to = java_store("clean", tmp_path), tmp_path / "facts"
    with pytest.raises(CannotDecide, match="holds no facts"):
        replicas_in(str(to))
    facts_of(store, to)
    with pytest.raises(WrongUsage, match="--window 16384"):
        facts_of(store, to, window=4096)
    facts_of(store, to, window=4096, again=True)
    for path in (to / "b-0").glob("*.parquet"):
        path.write_bytes(b"PAR1")
    with pytest.raises(CannotDecide, match="Scan that store --again"):
        replicas_in(str(to))[0].table(WINDOWS)
    (to / "b-0" / "state.json").write_text("{")
    (damaged,) = replicas_in(str(to))
    assert "scan again" in damaged.fault


@pytest.mark.parametrize(
    ("broker_id", "name"),
    [
        (0, "state.json"),
        (1, "state.json"),
        (0, "windows"),
        (1, "windows"),
        (0, "findings"),
        (1, "sums"),
    ],
)
def test_damaged_facts_cost_the_verdict_of_their_own_broker_only(
    tmp_path: Path, broker_id: int, name: str
) -> None:
    """One damaged file ended the command, and no broker was judged."""
    store, to = java_store("clean", tmp_path / "m"), tmp_path / "facts"
    shutil.copytree(store, tmp_path / "s")
    flip(sorted((store / "commitlog").iterdir())[0], BODY)
    for broker in ("a/1", "b"):
        for number, root in enumerate((store, tmp_path / "s")):
            facts_of(root, to, broker, number)
    before = told_of(to)
    assert {told.outcome for told in before.values()} == {Outcome.VIOLATED}
    path = min((to / f"a_1-{broker_id}").glob(f"{name}*"))
    flip(path, 60)
    told = told_of(to)
    assert told["b"] == before["b"]
    (fault,) = [one for one in told["a/1"].findings if one.code == "FACTS_DAMAGED"]
    assert (fault.severity, fault.broker) == ("WARN", str(path.parent))
    assert told["a/1"].is_safe is not True
    assert told["a/1"].outcome is not Outcome.HOLDS
    assert "FACTS_DAMAGED" in told["a/1"].verdict
    assert not {one.code for one in told["a/1"].findings} & {"NO_MASTER", "NO_REPLICA"}


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = java_store("clean", tmp_path)
    monkeypatch.setattr(command, "lower_priority", lambda: None)
    given = [str(store), "--to", str(tmp_path / "facts"), "--broker", "a", "--rate", "0"]
    done = CliRunner().invoke(command.main, [*given, "--window", "16k"])
    assert done.exit_code == 0, done.output
    assert '"to": 148251' in done.output
    assert '"windows": 10' in done.output
    for more, code in ((["--window", "1k"], 2), (["--rate", "fast"], 2)):
        assert CliRunner().invoke(command.main, [*given, *more]).exit_code == code
    given[0] = str(tmp_path / "nowhere")
    assert CliRunner().invoke(command.main, [*given, "--id", "1"]).exit_code == 3
    files = list((tmp_path / "facts" / "a-0").glob("windows-*.parquet"))
    assert pq.read_table(files[0]).schema.names == ["low", "high", "digest", "readAt"]


def test_a_scan_reads_no_faster_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the lowest priority, before it reads anything; each time only what is new."""
    store, told, clock = java_store("clean", tmp_path), [], [100.0]
    monkeypatch.setattr(command, "lower_priority", lambda: told.append("low"))
    monkeypatch.setattr(command, "seconds", lambda: clock[0])

    def sleep(seconds: float) -> None:
        told.append("rest")
        clock[0] += seconds

    monkeypatch.setattr(command, "sleep", sleep)
    given = [str(store), "--to", str(tmp_path / "facts"), "--broker", "a", "--window", "16k"]
    done = CliRunner().invoke(command.main, [*given, "--rate", "10k"])
    assert (done.exit_code, told[0], told.count("low")) == (0, "low", 1)
    assert 12 < clock[0] - 100 < 15  # 148,251 bytes, but for what stands behind full files
    clock[0] = 100.0
    assert CliRunner().invoke(command.main, [*given, "--rate", "10k"]).exit_code == 0
    assert clock[0] - 100 < 2  # the window that was not whole


def test_one_lost_message_is_not_lost_again_in_each_window_behind_it(tmp_path: Path) -> None:
    """All windows behind it differ; what lies shifted there only verify-replica can say."""
    store = java_store("clean", tmp_path / "java")
    image = image_of(store, LEVELS_OF_JAVA)
    lost = image.records()[5].record
    rows = [placed.record for placed in image.records()]
    image.rebuild(image.lay_out([*rows[:5], *rows[6:]]))
    image.save(tmp_path / "s")
    scanned({"b": (store, tmp_path / "s")}, tmp_path / "facts")
    told = told_of(tmp_path / "facts")["b"]
    (one,) = [one for one in told.findings if one.code == "RECORD_LOST"]
    assert one.msg_id == lost.properties["UNIQ_KEY"]
    assert told.differing == 3
    codes = [one.code for one in told.findings if one.severity == "ERROR"]
    # STORE_DAMAGED: messages that were read have other queue offsets than their entries.
    assert set(codes) <= {"RECORD_LOST", "DIGEST_DIFFERS", "NOT_REPLICATED", "STORE_DAMAGED"}
    behind = [one.detail for one in told.findings if one.code == "DIGEST_DIFFERS"]
    assert len(behind) == 2
    assert all("the logs are out of step since before it" in text for text in behind)
