"""`rmqha-admin store` on stores that Java's broker left, on a real disk."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from twisted.internet.defer import fail

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.files import files_of
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.wire import fastjson
from rmq_ha.ops.admin import store
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.session import FAILED, USAGE
from rmq_ha.ops.admin.store import (
    INDEX,
    QUEUES,
    RepairOptions,
    dump_records,
    repair_store,
    show_faults,
)
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.queues import OfflineQueue
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say

FIXTURES = Path(__file__).parents[3] / "fixtures" / "store"
QUEUE_FILE, SLOTS, ITEMS = 800, 50, 150
AROUND = Surroundings(
    environ={}, home="/", host_name="h", address="10.0.0.1", directory="/", resolve=str
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that Java's broker stopped in order."""
    shutil.unpack_archive(FIXTURES / "clean.tar.gz", tmp_path)
    return next(path.parent for path in tmp_path.rglob("checkpoint"))


def told(work: Any) -> Said:
    cluster = SimCluster()
    host = replace(cluster.world.add("admin").seams, disk=RealDisk())
    return say(cluster, work, host)


async def _awaited(result: Any) -> Any:
    return result


def verify(root: Path) -> Said:
    return told(lambda s: _awaited(show_faults(s, str(root))))


def faults(said: Said) -> dict[str, str]:
    (found, *_) = map(json.loads, said.out.splitlines())
    return {row["code"]: row["place"] for row in found["rows"] if row["severity"] == "ERROR"}


def dump(root: Path, **given: Any) -> list[dict[str, Any]]:
    said = told(lambda s: _awaited(dump_records(s, str(root), **given)))
    return [json.loads(line) for line in said.out.splitlines()]


def config_of(root: Path, tmp_path: Path) -> str:
    log_file = next(iter(sorted((root / "commitlog").iterdir())))
    index_file = next(iter(sorted((root / "index").iterdir())))
    assert index_file.stat().st_size == 40 + 4 * SLOTS + 20 * ITEMS
    path = tmp_path / "broker.properties"
    path.write_text(
        f"storePathRootDir={root}\nmappedFileSizeCommitLog={log_file.stat().st_size}\n"
        "messageDelayLevel=1s 2s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h\n"
        f"mappedFileSizeConsumeQueue={QUEUE_FILE}\nmaxHashSlotNum={SLOTS}\nmaxIndexNum={ITEMS}\n"
    )
    return str(path)


def repair(root: Path, tmp_path: Path, *parts: str, dry_run: bool = False) -> Said:
    how = RepairOptions(AROUND, frozenset(parts), yes=not dry_run, dry_run=dry_run)
    config = config_of(root, tmp_path)
    return told(lambda s: repair_store(s, config, how))


def units(root: Path) -> dict[tuple[str, int], list[Any]]:
    store = StoreFiles(str(root), *files_of(str(root)))
    found: dict[tuple[str, int], list[Any]] = {}
    for key in store.topics_on_disk():
        queue: OfflineQueue = store.queue(*key)
        if queue.max_offset:
            found[key] = [queue.unit(number) for number in range(queue.max_offset)]
    return found


def kept(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path): path.read_bytes() for path in files}


def test_a_store_of_java_is_whole_and_is_left_as_it_is(root: Path) -> None:
    before = kept(root)
    said = verify(root)
    assert (said.code, faults(said)) == (0, {})
    assert said.json["messages"] == len(dump(root))
    assert kept(root) == before


def test_messages_are_shown_from_any_place_on(root: Path) -> None:
    every = dump(root)
    assert {"topic", "queue_id", "queue_offset", "physical_offset", "stored"} <= every[0].keys()
    start = every[7]["physical_offset"]
    assert dump(root, start=start, count=3) == every[7:10]
    assert dump(root, start=start + 1, count=1) == every[8:9]
    topic = every[0]["topic"]
    assert dump(root, topic=topic) == [item for item in every if item["topic"] == topic]


def test_what_was_set_aside_is_shown_as_the_log_says(root: Path, tmp_path: Path) -> None:
    """A folder of pieces, each named by its offset: both of the store and of the log."""
    every = dump(root)
    start = every[7]["physical_offset"]
    folder = tmp_path / "diverged"
    folder.mkdir()
    whole = (root / "commitlog" / ("0" * 20)).read_bytes()
    (folder / f"{start:020}").write_bytes(whole[start : every[9]["physical_offset"]])
    assert dump(folder, commit_log=str(folder)) == every[7:9]


def test_damage_of_the_log_is_named_with_its_place_and_not_repaired(
    root: Path, tmp_path: Path
) -> None:
    every = dump(root)
    spoilt = every[5]
    file = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    at = spoilt["physical_offset"] - int(file.name)
    data[at + 90] ^= 0xFF  # in its body
    file.write_bytes(data)
    said = verify(root)
    assert said.code == FAILED
    assert faults(said)["BODY_CRC"].endswith(f"at {spoilt['physical_offset']}")
    shown = dump(root)
    assert shown[5]["damage"]["end"] == every[6]["physical_offset"]
    assert len(shown) == len(every)
    before = kept(root)
    said = repair(root, tmp_path, QUEUES)
    assert (said.code, "from a replica" in said.err) == (FAILED, True)
    assert kept(root) == before


def test_queues_index_and_checkpoint_are_built_anew(root: Path, tmp_path: Path) -> None:
    """The same units as Java's come out; what was there is kept."""
    before = units(root)
    (topic, queue_id), _ = max(before.items(), key=lambda item: len(item[1]))
    folder = root / "consumequeue" / topic / str(queue_id)
    file = sorted(folder.iterdir())[0]
    data = bytearray(file.read_bytes())
    data[20 * 3] ^= 0x11
    file.write_bytes(data)
    other = next(path for path in (root / "consumequeue").rglob("0" * 20) if path.parent != folder)
    shutil.rmtree(other.parent)
    (root / "checkpoint").write_bytes(b"short")
    said = verify(root)
    assert faults(said).keys() == {"CQ_OFFSET", "CQ_ORDER", "CQ_FORGOTTEN"}
    assert faults(said)["CQ_OFFSET"].startswith(f"{topic}, queue {queue_id}, 3, at ")
    assert rows(root)["CHECKPOINT_DAMAGED"]["severity"] == "WARN"
    spoilt = kept(root)
    said = repair(root, tmp_path, dry_run=True)
    assert said.last["would_repair"] == ["checkpoint", "queues"]
    assert kept(root) == spoilt
    said = repair(root, tmp_path, INDEX)
    assert said.code == 0, said.err
    assert said.last["repaired"] == ["checkpoint", "index", "queues"]
    assert units(root) == before
    assert faults(verify(root)) == {}
    aside = Path(said.last["set_aside"])
    assert {path.name for path in aside.iterdir()} >= {"consumequeue", "index", "checkpoint"}
    assert not (root / "abort").exists()
    assert repair(root, tmp_path).last == {"repaired": []}


def rows(root: Path) -> dict[str, dict[str, Any]]:
    """What `verify` finds, by its code."""
    found = json.loads(verify(root).out.splitlines()[0])
    return {row["code"]: row for row in found["rows"]}


def without(root: Path, topic: str) -> None:
    """It is deleted, as an operator deletes it."""
    path = root / "config" / "topics.json"
    table = fastjson.parse(path.read_bytes())
    del table["topicConfigTable"][topic]
    path.write_bytes(fastjson.encode(table))
    shutil.rmtree(root / "consumequeue" / topic)


def test_each_thing_that_is_wrong_has_a_name_a_place_and_what_it_means(root: Path) -> None:
    queue = root / "consumequeue" / "TopicB" / "1"
    log = sorted((root / "commitlog").iterdir())
    cut = sorted(queue.iterdir())[-1]
    (root / "abort").write_bytes(b"")
    (root / "checkpoint").unlink()
    messages = [item for item in dump(root) if item["topic"] == "TopicC"]
    without(root, "TopicC")
    cut.write_bytes(cut.read_bytes() + bytes(3))
    log[1].unlink()
    found = rows(root)
    assert found["CHECKPOINT_MISSING"]["severity"] == "WARN"
    hole = found["LOG_HOLE"]
    assert (hole["place"], hole["expected"]) == (f"at {1 << 16}", f"bytes up to {2 << 16}")
    assert f"{1 << 16} bytes between {log[0]} and {log[2]}." in hole["meaning"]
    left = [item for item in messages if not 1 << 16 <= item["physical_offset"] < 2 << 16]
    queues = {item["queue_id"] for item in left}
    assert found["CQ_DELETED"]["place"] in {f"TopicC, queue {number}" for number in queues}
    assert found["CQ_FILE"]["place"] == "TopicB, queue 1"
    assert f"{cut} has {cut.stat().st_size} bytes" in found["CQ_FILE"]["meaning"]
    harmless = {code for code, row in found.items() if row["severity"] == "INFO"}
    assert harmless >= {"CQ_DELETED"}
    mends = {code: row["repair"] for code, row in found.items() if row["repair"]}
    assert mends.items() >= {"CHECKPOINT_MISSING": "checkpoint", "CQ_FILE": "queues"}.items()
    assert not mends.keys() & {"LOG_HOLE", "CQ_DELETED"}


def test_what_a_start_mends_by_itself_is_no_fault(root: Path) -> None:
    (root / "checkpoint").unlink()
    (root / "abort").write_bytes(b"")
    without(root, "TopicC")
    said = verify(root)
    assert (said.code, faults(said)) == (0, {})
    assert rows(root).keys() == {"CHECKPOINT_MISSING", "CQ_DELETED"}


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json",
                                  "delayOffset.json", "deletedQueues.json"])  # fmt: skip
def test_each_table_is_read(root: Path, name: str) -> None:
    for one in (name, f"{name}.bak"):
        (root / "config" / one).write_bytes(b"{")
    said = verify(root)
    assert (said.code, faults(said).keys()) == (FAILED, {"TABLE_DAMAGED"})
    (row,) = [row for code, row in rows(root).items() if code == "TABLE_DAMAGED"]
    assert f"{root}/config/{name}" in row["meaning"]


def test_a_log_that_lost_its_end_is_seen_by_queues_and_checkpoint(root: Path) -> None:
    last = dump(root)[-1]
    file = sorted((root / "commitlog").iterdir())[-1]
    data = bytearray(file.read_bytes())
    at = last["physical_offset"] - int(file.name)
    data[at:] = bytes(len(data) - at)
    file.write_bytes(data)
    times = CheckpointTimes(1, 1, 1, last["physical_offset"] + 1)
    (root / "checkpoint").write_bytes(times.encode().ljust(4096, b"\0"))
    found = rows(root)
    assert found.keys() >= {"TORN_TAIL", "LOG_CUT"}
    topic, number = last["topic"], last["queue_id"]
    place = f"{topic}, queue {number}, {last['queue_offset']}, at {last['physical_offset']}"
    assert found["TORN_TAIL"]["place"] == place
    assert found["TORN_TAIL"]["severity"] == "ERROR"
    assert found["LOG_CUT"]["expected"] == f"records up to {times.flushed_offset}"
    assert (found["LOG_CUT"]["severity"], found["LOG_CUT"]["repair"]) == ("ERROR", None)
    sound = CheckpointTimes(1, 1, 1, last["physical_offset"])
    (root / "checkpoint").write_bytes(sound.encode().ljust(4096, b"\0"))
    assert "LOG_CUT" not in rows(root)
    (root / "abort").touch()
    assert rows(root)["TORN_TAIL"]["severity"] == "WARN"


def test_an_index_that_does_not_fit_is_found(root: Path) -> None:
    file = max((root / "index").iterdir())
    whole = file.read_bytes()
    behind = (1 << 40).to_bytes(8, "big")
    for data, code in (
        (b"short", "INDEX_UNREADABLE"),
        (whole[:200], "INDEX_UNREADABLE"),
        (whole[:24] + behind + whole[32:], "INDEX_HEADER"),
    ):
        file.write_bytes(data)
        assert code in faults(verify(root))


def test_what_cannot_be_built_is_put_back(root: Path, tmp_path: Path) -> None:
    (root / "checkpoint").write_bytes(b"short")
    before = kept(root)
    disk = RealDisk()
    path = Path(config_of(root, tmp_path))
    path.write_text(path.read_text() + "mappedFileSizeCommitLog=999424\n")
    said = told(lambda s: repair_store(s, str(path), RepairOptions(AROUND, yes=True)))
    assert (said.code, "everything is as it was" in said.err) == (FAILED, True)
    assert kept(root) == before
    assert disk.exists(f"{root}/checkpoint")
    assert not [name for name in disk.list_dir(f"{root}/setaside") if name.startswith("repair-")]


class PowerLost(Exception):
    """Nothing happens from here on."""


class Watched(RealDisk):
    """
    A disk that loses its power before a move, and knows of which files all is on it.

    :ivar synced: their paths.
    """

    def __init__(self, moves: int) -> None:
        super().__init__()
        self.left = moves
        self.synced: set[str] = set()

    def open(self, path: str, size: int) -> Any:
        file, synced = super().open(path, size), self.synced

        class Noted:
            def __getattr__(self, name: str) -> Any:
                if name == "sync":
                    synced.add(path)
                return getattr(file, name)

        return Noted() if path.endswith("/abort") else file

    def move(self, path: str, new_path: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerLost
        super().move(path, new_path)


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_power_that_is_lost_while_it_is_set_aside_leaves_nothing_that_looks_whole(
    root: Path, tmp_path: Path, moves: int
) -> None:
    """The next start has to read all of the log: else messages would be in no queue."""
    before, disk = kept(root), Watched(moves)
    cluster = SimCluster()
    host = replace(cluster.world.add("admin").seams, disk=disk)
    how = RepairOptions(AROUND, frozenset({QUEUES, INDEX}), yes=True)
    config = config_of(root, tmp_path)
    with pytest.raises(PowerLost):
        say(cluster, lambda s: repair_store(s, config, how), host)
    assert f"{root}/abort" in disk.synced
    assert bool(set(before) - set(kept(root))) is (moves > 0)


def test_a_store_that_does_not_start_is_put_back(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept(root)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(store.DefaultMessageStore, "start", lambda _: fail(full))
    said = repair(root, tmp_path, INDEX)
    assert (said.code, "No space left on device; everything is as it was" in said.err) == (
        FAILED,
        True,
    )
    assert kept(root) == before


def test_a_broker_that_has_it_open_is_not_disturbed(root: Path, tmp_path: Path) -> None:
    (root / "checkpoint").write_bytes(b"short")
    lock = RealDisk().lock(f"{root}/lock")
    try:
        for said in (
            verify(root),
            told(lambda s: _awaited(dump_records(s, str(root)))),
            repair(root, tmp_path),
        ):
            assert (said.code, "stop it first" in said.err, said.out) == (FAILED, True, "")
    finally:
        lock.release()


def test_a_log_of_a_group_and_a_directory_without_log_are_refused(tmp_path: Path) -> None:
    assert "no commit log" in verify(tmp_path).err
    done = CliRunner().invoke(main, ["store", "repair", "--config", str(tmp_path / "none")])
    assert done.exit_code == USAGE
