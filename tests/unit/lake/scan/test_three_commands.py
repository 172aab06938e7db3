"""
One fault, three commands: `store verify`, `verify-replica STORE` and `rmqha-scan --check` see it.

The faults are planted by `tests.kits.bare_stores` and by plain patches of files, which share
nothing with the readers.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.lake.scan import command as scan_command
from rmq_ha.lake.scan.fleet.facts import ReplicaFacts, replicas_in
from rmq_ha.ops.admin.main import main as admin
from rmq_ha.ops.admin.session import Session
from rmq_ha.ops.admin.store import dump_records, show_faults
from tests.kits.bare_stores import (
    SLOTS,
    Message,
    delayed,
    flip,
    log_folder,
    ordinary,
    overwrite,
    patch_log,
    put_table,
    record,
    store_of,
)
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say

pytestmark = pytest.mark.lake
LOG, QUEUE_UNITS = 8192, 8
FIRST_ITEM = 40 + 4 * SLOTS + 20


@dataclass
class Planted:
    """A store, with what was put into it."""

    root: Path
    is_ledger: bool = False

    def __post_init__(self) -> None:
        given = {"log_size": LOG, "queue_units": QUEUE_UNITS, "is_ledger": self.is_ledger}
        store = store_of(ordinary(80), **given)
        for number in range(4):
            late = Message("Topic0", 0, b"late", uniq=f"L{number}", stored=4000 + number)
            store.add(delayed(late, 1))
        store.delays = {1: 4}
        store.save(self.root)
        self.placed = store.placed
        self.end = store.end

    def queue(self, number: int) -> Path:
        return sorted((self.root / "consumequeue" / "Topic0" / "0").iterdir())[number]

    def log(self, number: int) -> Path:
        return sorted(log_folder(self.root, is_ledger=self.is_ledger).iterdir())[number]

    @property
    def index(self) -> Path:
        return next((self.root / "index").iterdir())

    def patch(self, at: int, data: bytes) -> None:
        patch_log(self.root, at, data, LOG, is_ledger=self.is_ledger)

    def table(self, name: str, text: str, *, spares_backup: bool = False) -> None:
        paths = sorted((self.root / "config").glob(f"{name}.json*"))
        for path in paths[:1] if spares_backup else paths or [self.root / "config" / name]:
            path.write_text(text)


Plant = Callable[[Planted], object]


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def checkpoint(newest: int, flushed: int = 0) -> bytes:
    """Our part has a CRC over the first time and the offset."""
    data = struct.pack(">3q", newest, newest, newest).ljust(256, b"\0")
    check = crc32(struct.pack(">qq", newest, flushed)) if flushed else 0
    return (data + struct.pack(">qI", flushed, check)).ljust(4096, b"\0")


def without_topic(planted: Planted) -> None:
    path = planted.root / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["Topic1"]
    put_table(planted.root / "config", "topics", table)
    shutil.rmtree(planted.root / "consumequeue" / "Topic1")


def surplus(planted: Planted) -> None:
    """A queue has one entry more than the log has records: that of another queue's record."""
    last = planted.queue(-1)
    data = last.read_bytes()
    at = next(at for at in range(0, len(data), 20) if not any(data[at : at + 20]))
    newest = planted.placed[-1]
    overwrite(last, at, struct.pack(">qiq", newest.at, newest.size, 0))


def torn_tail(planted: Planted) -> None:
    last = planted.placed[-1]
    planted.patch(last.at + 40, bytes(last.size - 40))


def crash(planted: Planted) -> None:
    torn_tail(planted)
    (planted.root / "abort").touch()


def another_record(planted: Planted) -> None:
    """Other tags and key than those that queue and index have."""
    one = planted.placed[9]
    other = one.message._replace(tags=one.message.tags[::-1])
    planted.patch(one.at, record(other, one.queue_offset, one.at))


FAULTS: dict[str, tuple[Plant, str]] = {
    "body": (lambda it: flip(it.log(0), it.placed[5].at + 88, 3), "BODY_CRC"),
    "magic": (lambda it: it.patch(it.placed[5].at + 4, b"none"), "RECORD_UNREADABLE"),
    "zeros": (lambda it: it.patch(2048, bytes(512)), "RECORD_UNREADABLE"),
    "queue_id": (lambda it: it.patch(it.placed[5].at + 12, bytes(3) + b"\1"), "CQ_OFFSET"),
    "tags_in_the_log": (another_record, "CQ_TAGS"),
    "missing_log_file": (lambda it: it.log(1).unlink(), "LOG_HOLE"),
    "cut_log_file": (lambda it: cut(it.log(0), 4096), "LOG_HOLE"),
    "torn_tail": (torn_tail, "TORN_TAIL"),
    "flushed_beyond_the_end": (
        lambda it: (it.root / "checkpoint").write_bytes(checkpoint(1, it.end + 1)),
        "LOG_CUT",
    ),
    "unit_offset": (lambda it: overwrite(it.queue(0), 64, b"\7"), "CQ_OFFSET"),
    "unit_size": (lambda it: overwrite(it.queue(0), 60 + 11, b"\7"), "CQ_SIZE"),
    "unit_tags": (lambda it: overwrite(it.queue(0), 60 + 15, b"\7"), "CQ_TAGS"),
    "zero_unit": (lambda it: overwrite(it.queue(0), 60, bytes(20)), "CQ_MISSING"),
    "surplus_unit": (surplus, "CQ_DANGLING"),
    "short_last_queue_file": (lambda it: cut(it.queue(-1), 20 * QUEUE_UNITS - 20), "CQ_FILE"),
    "missing_queue_file": (lambda it: it.queue(0).unlink(), "CQ_FORGOTTEN"),
    "missing_middle_queue_file": (lambda it: it.queue(1).unlink(), "CQ_FILE"),
    "missing_queue": (
        lambda it: shutil.rmtree(it.root / "consumequeue" / "Topic0" / "0"),
        "CQ_FORGOTTEN",
    ),
    "delivery_time": (
        lambda it: overwrite(
            it.root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020}", 39, b"\x99"
        ),
        "CQ_DELIVERY_TIME",
    ),
    "index_offset": (lambda it: flip(it.index, FIRST_ITEM + 20 * 9 + 9, 2), "INDEX_WRONG"),
    "index_hash": (lambda it: flip(it.index, FIRST_ITEM + 20 * 9 + 2, 2), "INDEX_HOLE"),
    "index_link": (lambda it: flip(it.index, FIRST_ITEM + 20 * 99 + 19), "INDEX_CHAIN"),
    "index_slot": (lambda it: overwrite(it.index, 40, bytes(4 * SLOTS)), "INDEX_UNREADABLE"),
    "index_time": (lambda it: flip(it.index, FIRST_ITEM + 20 * 99 + 14), "INDEX_TIME"),
    "index_header": (lambda it: flip(it.index, 30), "INDEX_UNREADABLE"),
    "cut_index": (lambda it: cut(it.index, 500), "INDEX_UNREADABLE"),
    "short_checkpoint": (lambda it: cut(it.root / "checkpoint", 100), "CHECKPOINT_DAMAGED"),
    "missing_checkpoint": (lambda it: (it.root / "checkpoint").unlink(), "CHECKPOINT_MISSING"),
    "checkpoint_of_tomorrow": (
        lambda it: (it.root / "checkpoint").write_bytes(checkpoint(1 << 44)),
        "CHECKPOINT_AHEAD",
    ),
    "deleted_queues": (lambda it: it.table("deletedQueues.json", "{"), "TABLE_DAMAGED"),
    "torn_table_with_a_backup": (
        lambda it: it.table("consumerOffset", "{", spares_backup=True),
        "TABLE_DAMAGED",
    ),
    **{
        f"torn_{name}": (lambda it, name=name: it.table(name, '{"offsetTable":{'), "TABLE_DAMAGED")
        for name in ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")
    },
}  # fmt: skip
WARNINGS = {
    "missing_queue_file", "index_time", "short_checkpoint", "missing_checkpoint",
    "checkpoint_of_tomorrow", "torn_table_with_a_backup",
}  # fmt: skip
"""Faults that lose no message of a store that was closed in order: they are findings of WARN."""


OF_A_LEDGER: dict[str, tuple[Plant, str]] = {
    name: FAULTS[name]
    for name in (
        "body", "zeros", "queue_id", "tags_in_the_log", "missing_log_file", "cut_log_file",
        "unit_offset", "zero_unit", "surplus_unit", "missing_queue", "delivery_time",
        "index_offset", "torn_topics",
    )
} | {
    "entry_magic": (lambda it: it.patch(it.placed[5].at - 48, b"none"), "RECORD_UNREADABLE"),
    "entry_position": (lambda it: it.patch(it.placed[5].at - 20, b"none"), "RECORD_UNREADABLE"),
    # A sound entry that holds no record is left out, and the queue's entry leads to nothing.
    "magic": (FAULTS["magic"][0], "CQ_DANGLING"),
    "place_in_the_record": (lambda it: it.patch(it.placed[5].at + 28, b"none"), "CQ_DANGLING"),
    "torn_record": (torn_tail, "CQ_DANGLING"),
}  # fmt: skip
"""Faults of the store of a member of a DLedger group; the log's files are other ones there."""


def of_store_verify(root: Path) -> tuple[int, dict[str, str]]:
    cluster = SimCluster()
    host = replace(cluster.world.add("admin").seams, disk=RealDisk())

    async def work(session: Session) -> int | None:
        return show_faults(session, str(root))

    done = say(cluster, work, host)
    rows = json.loads(done.out.splitlines()[0])["rows"]
    return done.code, severities((row["code"], row["severity"]) for row in rows)


def of_verify_replica(root: Path) -> tuple[int, dict[str, str]]:
    done = CliRunner().invoke(admin, ["verify-replica", str(root), "--json", "--quiet"])
    rows = json.loads(done.output)["findings"]
    return done.exit_code, severities((row["code"], row["severity"]) for row in rows)


def of_scan(root: Path) -> tuple[int, dict[str, str]]:
    facts = root.with_name("facts")
    given = [str(root), "--to", str(facts), "--broker", "b", "--rate", "0"]
    done = CliRunner().invoke(scan_command.main, [*given, "--check", "queues", "--check", "index"])
    (replica,) = replicas_in(str(facts))
    assert isinstance(replica, ReplicaFacts)
    told = severities((one.code, one.severity) for one in replica.findings())
    errors = json.loads(done.output)["errors"]
    assert set(errors) == {code for code, severity in told.items() if severity == "ERROR"}
    return done.exit_code, told


def severities(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The worst severity of each code."""
    worst: dict[str, str] = {}
    for code, severity in rows:
        ranks = ("INFO", "WARN", "ERROR")
        worst[code] = max(severity, worst.get(code, "INFO"), key=ranks.index)
    return worst


COMMANDS: dict[str, Callable[[Path], tuple[int, dict[str, str]]]] = {
    "store verify": of_store_verify,
    "verify-replica": of_verify_replica,
    "rmqha-scan": of_scan,
}


@pytest.fixture(autouse=True)
def no_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_command, "lower_priority", lambda: None)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("sound") / "store")


def planted(sound: Planted, folder: Path, plant: Plant) -> Path:
    root = Path(shutil.copytree(sound.root, folder / "store"))
    copy = object.__new__(Planted)
    copy.__dict__.update(sound.__dict__, root=root)
    plant(copy)
    return root


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("ledger") / "store", is_ledger=True)


def see_the_same(root: Path, code: str, *, is_warning: bool) -> None:
    told: dict[str, Any] = {command: run(root) for command, run in COMMANDS.items()}
    exit_code, codes = told["store verify"]
    assert codes[code] == ("WARN" if is_warning else "ERROR"), codes
    assert exit_code == (0 if is_warning else 1)
    for command, (other_exit, others) in told.items():
        assert (other_exit, others) == (exit_code, codes), command


@pytest.mark.parametrize("name", FAULTS)
def test_three_commands_see_the_same(sound: Planted, tmp_path: Path, name: str) -> None:
    plant, code = FAULTS[name]
    see_the_same(planted(sound, tmp_path, plant), code, is_warning=name in WARNINGS)


@pytest.mark.parametrize("name", OF_A_LEDGER)
def test_three_commands_see_the_same_in_a_dledger(
    ledger: Planted, tmp_path: Path, name: str
) -> None:
    plant, code = OF_A_LEDGER[name]
    see_the_same(planted(ledger, tmp_path, plant), code, is_warning=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_sound_member_of_a_dledger_raises_no_alarm(ledger: Planted, name: str) -> None:
    code, told = COMMANDS[name](ledger.root)
    assert (code, {one for one, severity in told.items() if severity != "INFO"}) == (0, set())


def test_the_messages_of_a_dledger_are_dumped(ledger: Planted) -> None:
    """The entry with which its term began holds none."""
    cluster = SimCluster()
    host = replace(cluster.world.add("admin").seams, disk=RealDisk())

    async def work(session: Session) -> int | None:
        session.output.as_json = True
        return dump_records(session, str(ledger.root))

    done = say(cluster, work, host)
    places = [json.loads(line)["physical_offset"] for line in done.out.splitlines()]
    assert (done.code, places) == (0, [one.at for one in ledger.placed])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_sound_store_raises_no_alarm(sound: Planted, tmp_path: Path, name: str) -> None:
    for number, plant in enumerate((lambda it: None, without_topic)):
        root = planted(sound, tmp_path / str(number), plant)
        code, told = COMMANDS[name](root)
        assert (code, {one for one, severity in told.items() if severity != "INFO"}) == (0, set())


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_crash_left_is_a_warning(sound: Planted, tmp_path: Path, name: str) -> None:
    """The next start wipes the record that is torn, and reads the rest from the log."""
    code, told = COMMANDS[name](planted(sound, tmp_path, crash))
    assert (code, told["TORN_TAIL"]) == (0, "WARN")
    assert "ERROR" not in told.values()


def test_flipped_bits_of_an_index_are_seen(sound: Planted, tmp_path: Path) -> None:
    """Twenty of any item: none of them was seen by `store verify` before."""
    random = Random(7)
    data = sound.index.read_bytes()
    used = FIRST_ITEM + 20 * (struct.unpack(">i", data[36:40])[0] - 1)
    for _ in range(20):
        at = random.randrange(FIRST_ITEM + 20, used)
        if (at - FIRST_ITEM) % 20 in (14, 15):  # a second or some: the time is not that exact
            continue
        root = planted(sound, tmp_path / str(at), lambda it, at=at: flip(it.index, at))
        assert any(code.startswith("INDEX_") for code in of_store_verify(root)[1]), at


@pytest.mark.parametrize("seed", range(10 * int(os.environ.get("RMQ_HA_PLANTED", "1"))))
@pytest.mark.parametrize("log", ["sound", "ledger"])
def test_random_bytes_anywhere_are_judged_alike(
    request: pytest.FixtureRequest, tmp_path: Path, seed: int, log: str
) -> None:
    """What makes the required entries differs: runs of records here, and numpy there."""
    random = Random(seed)
    sound: Planted = request.getfixturevalue(log)
    files = [path for path in sorted(sound.root.rglob("*")) if path.is_file()]
    file = random.choice(files).relative_to(sound.root)

    def spoil(it: Planted) -> None:
        data = bytearray((it.root / file).read_bytes())
        at = random.randrange(max(1, len(data.rstrip(b"\0"))))
        size = len(data[at : at + random.choice((1, 1, 4, 20, 200))])
        data[at : at + size] = random.randbytes(size)
        (it.root / file).write_bytes(data)

    root = planted(sound, tmp_path, spoil)
    assert of_store_verify(root) == of_verify_replica(root), file
