"""`rmqha-admin dledger convert`, on the stores of a simulated group, written to a real disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.host.disk import RealDisk, RealFile
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.seams import DiskUsage
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.store_format.dledger_values import TERM_TOPIC
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.ops.admin.dledger_convert import ConvertOptions, convert_store
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.session import FAILED, USAGE
from rmq_ha.ops.admin.store import show_faults
from rmq_ha.ops.offline.conversion import SHIFT
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.ledger import EntryPlace
from rmq_ha.ops.offline.records import Damage, records
from rmq_ha.testing.cluster import ROOT
from tests.sim_kit.group import GROUP, BrokerGroup
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say

FILE_SIZE = 32768
TOPIC = "TBW102"
AROUND = Surroundings(
    environ={}, home="/", host_name="h", address="10.0.0.1", directory="/", resolve=str
)


class Stores:
    """The stores of a group's members, at some moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, group: BrokerGroup, name: str) -> Path:
        """Write the files of a member's machine to this disk, as they are now."""
        (member,) = [one for one in group.members if one.host.name == name]
        root = self.folder / name
        shutil.rmtree(root, ignore_errors=True)
        for path in member.host.disk.paths(ROOT):
            made = root / path.removeprefix(f"{ROOT}/")
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(member.host.disk.content(path))
        store = member.configuration.store
        (self.folder / f"{name}.properties").write_text(
            f"storePathRootDir={root}\nenableDLegerCommitLog=true\ndLegerGroup={GROUP}\n"
            f"dLegerPeers={store.dleger_peers}\ndLegerSelfId={name}\nlistenPort=10911\n"
            f"mappedFileSizeCommitLog={FILE_SIZE}\nmappedFileSizeConsumeQueue=1000\n"
            "maxHashSlotNum=50\nmaxIndexNum=150\n"
        )
        return root

    def convert(self, name: str, target: Path, *, disk: RealDisk | None = None, **how: Any) -> Said:
        cluster = SimCluster()
        host = replace(cluster.world.add("admin").seams, disk=disk or RealDisk())
        config = str(self.folder / f"{name}.properties")
        options = ConvertOptions(AROUND, **how)
        return say(cluster, lambda s: convert_store(s, config, str(target), options), host)


def put(
    group: BrokerGroup, count: int, queue_id: int = 0, topic: str = TOPIC, **properties: str
) -> None:
    text = "\x02".join([f"{key}\x01{value}" for key, value in properties.items()])
    master = group.wait_for_master()
    for number in range(count):
        body = f"{topic} {queue_id} {number}".encode().ljust(200, b".")
        request = send_request("p", topic, queue_id, body, text, 1)
        assert group.call(master, request).code == 0


def stop(group: BrokerGroup) -> None:
    group.run(5.0)
    for member in group.members:
        member.stop()
    group.wait_until(lambda: all(member.state == "down" for member in group.members))


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stores, Stores]:
    """A group's stores while it ran, and when it was stopped."""
    group = BrokerGroup(3).start()
    put(group, 3, queue_id=1, TAGS="a", KEYS="k", UNIQ_KEY="0A00")
    put(group, 150)
    put(group, 2, DELAY="5")
    put(group, 1, queue_id=2)
    group.run(4.0)
    early, late = (Stores(tmp_path_factory.mktemp(name)) for name in ("early", "late"))
    for number in range(3):
        early.take(group, f"n{number}")
    put(group, 120, TAGS="b")
    stop(group)
    for number in range(3):
        late.take(group, f"n{number}")
    return early, late


@pytest.fixture
def stores(moments: tuple[Stores, Stores], tmp_path: Path) -> tuple[Stores, Stores]:
    copies = []
    for one in moments:
        shutil.copytree(one.folder, tmp_path / one.folder.name)
        copy = Stores(tmp_path / one.folder.name)
        for path in copy.folder.glob("*.properties"):
            path.write_text(path.read_text().replace(str(one.folder), str(copy.folder)))
        copies.append(copy)
    return copies[0], copies[1]


def messages(root: Path) -> list[Record]:
    """All records of a store without damage, the marks of new terms left out."""
    found = []
    for piece in records(StoreFiles(str(root), LocalFiles(), str(root), damaged=True)):
        assert not isinstance(piece, Damage), piece
        record = decode_record(piece.data)
        if record.topic != TERM_TOPIC:
            found.append(record)
    return found


def without_place(record: Record) -> Record:
    return record._replace(physical_offset=0)


def log_of(root: Path) -> list[tuple[str, bytes]]:
    return [(path.name, path.read_bytes()) for path in sorted((root / "commitlog").iterdir())]


def newest(stores: Stores) -> tuple[str, EntryPlace, dict[str, EntryPlace]]:
    """The member with the newest ledger, its end, and the ends of the others."""
    ends = {}
    for name in ("n0", "n1", "n2"):
        said = stores.convert(name, stores.folder / f"look-{name}")
        term, _, index = said.json["rows"][0]["ends"].partition(".")
        ends[name] = EntryPlace(int(term), int(index))
    best = max(ends, key=lambda name: ends[name])
    return best, ends.pop(best), ends


def faults(root: Path) -> list[str]:
    cluster = SimCluster()
    host = replace(cluster.world.add("admin").seams, disk=RealDisk())

    async def look(session: Any) -> Any:
        return show_faults(session, str(root))

    said = say(cluster, look, host)
    (found, *_) = map(json.loads, said.out.splitlines())
    return [row["code"] for row in found["rows"] if row["severity"] == "ERROR"]


def test_a_converted_store_has_all_messages_and_goes_on_where_it_was(
    stores: tuple[Stores, Stores], tmp_path: Path
) -> None:
    """The first run while the member runs, the last one when the group is stopped."""
    early, late = stores
    target = tmp_path / "new"
    name, end, others = newest(late)
    first = early.convert(name, target)
    assert first.code == 0, first.err
    assert first.json["rows"][0]["final"] == "no"
    some = len(messages(target))
    said = late.convert(name, target, is_final=True, others=others)
    assert said.code == 0, said.err
    row = said.json["rows"][0]
    assert (row["converted"], row["ends"], row["final"]) == (str(end), str(end), "yes")
    assert 0 < row["written"] < first.json["rows"][0]["written"] * 2
    before, after = messages(late.folder / name), messages(target)
    assert some < len(after)
    assert list(map(without_place, after)) == list(map(without_place, before))
    assert min(record.physical_offset for record in after) > SHIFT
    assert {record.topic for record in after} >= {TOPIC, SCHEDULE_TOPIC}
    assert not faults(target)
    assert not (target / "abort").exists()
    for table in ("topics.json", "consumerOffset.json", "delayOffset.json"):
        one, other = (root / "config" / table for root in (late.folder / name, target))
        assert one.exists() == other.exists()
        assert not one.exists() or one.read_bytes() == other.read_bytes()
    again = late.convert(name, target, is_final=True, others=others)
    assert (again.code, "is final" in again.err) == (FAILED, True)


def test_the_logs_of_all_members_are_equal_as_far_as_they_go(
    stores: tuple[Stores, Stores], tmp_path: Path
) -> None:
    """Also if one of them has deleted its oldest file."""
    _, late = stores
    name, _, others = newest(late)
    assert late.convert(name, tmp_path / "new", is_final=True, others=others).code == 0
    whole = b"".join(data for _, data in log_of(tmp_path / "new")).rstrip(b"\0")
    for other in others:
        part = b"".join(data for _, data in log_of(late.folder / f"look-{other}")).rstrip(b"\0")
        assert len(part) > FILE_SIZE
        assert whole.startswith(part)
    (late.folder / name / f"dledger-{name}" / "data" / ("0" * 20)).unlink()
    said = late.convert(name, tmp_path / "short", is_final=True, others=others)
    assert said.code == 0, said.err
    assert log_of(tmp_path / "short") == log_of(tmp_path / "new")[1:]
    store = StoreFiles("s", LocalFiles(), str(tmp_path / "short"))
    assert store.queue(TOPIC, 0).max_offset == 270
    expired = store.queue(TOPIC, 1)
    assert (expired.min_offset, expired.max_offset) == (3, 3), "its numbers would begin again"


class FailingDisk(RealDisk):
    """Writes a part of what it shall write, and then fails: as a kill."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def open(self, path: str, size: int) -> RealFile:
        file = super().open(path, size)
        if "/commitlog/" not in path or "new" not in path:
            return file
        whole = file.pwrite

        def pwrite(data: Any, position: int) -> None:
            part = bytes(data)[: self.left]
            self.left -= len(part)
            whole(part, position)
            if not self.left:
                raise OSError(5, "killed", path)

        file.pwrite = pwrite  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("left", [34_000, 60_001])
def test_a_run_that_was_killed_is_started_again(
    stores: tuple[Stores, Stores], tmp_path: Path, left: int
) -> None:
    _, late = stores
    whole = tmp_path / "whole"
    name, _, others = newest(late)
    assert late.convert(name, whole, is_final=True, others=others).code == 0
    target = tmp_path / "new"
    killed = late.convert(name, target, disk=FailingDisk(left), is_final=True, others=others)
    assert (killed.code, "killed" in killed.err) == (1, True)
    said = late.convert(name, target, is_final=True, others=others)
    assert said.code == 0, said.err
    assert log_of(target) == log_of(whole)
    assert not faults(target)


def damaged(stores: Stores, name: str, number: int = 7, file: int = 0) -> None:
    path = sorted((stores.folder / name / f"dledger-{name}" / "data").iterdir())[file]
    data = bytearray(path.read_bytes())
    at = data.index(f"{TOPIC} 0 {number}.".encode())
    data[at] ^= 1
    path.write_bytes(data)


def with_timers(stores: Stores, name: str) -> None:
    folder = stores.folder / name / "consumequeue" / "rmq_sys_wheel_timer" / "0"
    folder.mkdir(parents=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [(damaged, "is damaged or missing"), (with_timers, "timer messages")],
)
def test_what_cannot_be_converted_is_refused(
    stores: tuple[Stores, Stores],
    tmp_path: Path,
    change: Callable[[Stores, str], None],
    words: str,
) -> None:
    _, late = stores
    change(late, "n0")
    said = late.convert("n0", tmp_path / "new")
    assert (said.code, words in said.err) == (FAILED, True), said.err


class FullDisk(RealDisk):
    def usage(self, path: str) -> DiskUsage | None:
        known = super().usage(path)
        return known and known._replace(usable=FILE_SIZE)


def test_a_disk_without_room_is_noticed_first(
    stores: tuple[Stores, Stores], tmp_path: Path
) -> None:
    _, late = stores
    said = late.convert("n0", tmp_path / "new", disk=FullDisk())
    assert (said.code, f"{FILE_SIZE} free" in said.err) == (FAILED, True), said.err
    assert not (tmp_path / "new").exists()


def test_a_member_that_may_lack_messages_is_refused(
    stores: tuple[Stores, Stores], tmp_path: Path
) -> None:
    _, late = stores
    name, end, others = newest(late)
    other = next(iter(others))
    for told, words in (
        ({}, "give --others for 1 of them"),
        ({other: EntryPlace(end.term, end.index + 1)}, f"run --final at {other}"),
        ({other: EntryPlace(end.term + 1, 0)}, f"run --final at {other}"),
        ({"n9": end}, "n9 is no other member"),
    ):
        said = late.convert(name, tmp_path / "new", is_final=True, others=told)
        assert (said.code, words in said.err) == (FAILED, True), said.err
        assert not (tmp_path / "new").exists()


def test_damage_at_the_end_is_no_end_of_what_was_committed(
    stores: tuple[Stores, Stores], tmp_path: Path
) -> None:
    _, late = stores
    name, _, others = newest(late)
    damaged(late, name, 119, -1)
    others = dict.fromkeys(others, EntryPlace(1, 0))
    said = late.convert(name, tmp_path / "new", is_final=True, others=others)
    assert (said.code, "the group has committed" in said.err) == (FAILED, True), said.err


def test_a_store_on_which_a_broker_ran_is_not_changed(
    stores: tuple[Stores, Stores], tmp_path: Path
) -> None:
    early, late = stores
    target = tmp_path / "new"
    assert early.convert("n0", target).code == 0
    last = max((target / "commitlog").iterdir())
    data = bytearray(last.read_bytes())
    end = len(data.rstrip(b"\0"))
    start = max(at for at in range(end - 1000, end) if data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7")
    record = bytearray(data[start:end])
    record[28:36] = (int(last.name) + end).to_bytes(8, "big")
    data[end : end + len(record)] = record
    last.write_bytes(data)
    before = log_of(target)
    said = late.convert("n0", target)
    assert (said.code, "a broker has written there" in said.err) == (FAILED, True), said.err
    assert log_of(target) == before


def test_queues_of_deleted_topics_stay_deleted(
    stores: tuple[Stores, Stores], tmp_path: Path
) -> None:
    """As Java leaves them: no file says that they were deleted, and the log has their messages."""
    _, late = stores
    shutil.rmtree(late.folder / "n0" / "consumequeue" / TOPIC / "2")
    target = tmp_path / "new"
    said = late.convert("n0", target)
    assert said.code == 0, said.err
    store = StoreFiles("s", LocalFiles(), str(target))
    assert store.queue(TOPIC, 2).max_offset == 0
    assert store.queue(TOPIC, 1).max_offset == 3
    assert (target / "config" / "deletedQueues.json").exists()


def test_others_are_read_as_they_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "n0.properties"
    path.write_text("brokerName=b\n")
    words = ["dledger", "convert", str(tmp_path / "new"), "-c", str(path)]
    result = CliRunner().invoke(main, [*words, "--final", "--others", "n1:7"])
    assert (result.exit_code, "not like n1=7.1234" in result.output) == (USAGE, True)
    assert str(EntryPlace(7, 1234)) == "7.1234"
