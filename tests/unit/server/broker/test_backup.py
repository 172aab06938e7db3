"""Backups of a broker that runs: continued, restored, and read to the last message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import DirectoryEntry
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.rules.messages import decode_messages
from rmq_ha.ops.offline.backup import Manifest, StoreDirectories, back_up, restore
from rmq_ha.server.broker.broker import Broker
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker

TARGET, NEW = "/backup", "/restored"


class SimFiles:
    """
    Reads what is on a simulated disk, as it is in this moment.

    :param kept: the disk with the backup, where it is another one.
    """

    def __init__(self, disk: Any, kept: Any = None) -> None:
        self._disk = disk
        self._kept = kept or disk

    def disk(self, path: str) -> Any:
        return self._kept if path.startswith(TARGET) else self._disk

    def list(self, path: str) -> list[DirectoryEntry]:
        found, disk = [], self.disk(path)
        for name in disk.list_dir(path):
            whole = f"{path}/{name}"
            is_directory = disk.is_dir(whole)
            found.append(
                DirectoryEntry(name, 0 if is_directory else disk.size(whole), is_directory)
            )
        return found

    def read(self, path: str, offset: int = 0, length: int = -1) -> bytes:
        data: bytes = self.disk(path).read_bytes(path)
        return data[offset:] if length < 0 else data[offset : offset + length]

    def window(self, path: str, offset: int, length: int) -> bytes:
        return self.read(path, offset, length)


class Machine:
    """A broker whose log has small files, and what an operator does beside it."""

    def __init__(self) -> None:
        self.broker = SimBroker()
        store = self.broker.configuration.store
        store.mapped_file_size_commit_log = 1 << 16
        self.broker.start()
        self.disk = self.broker.host.disk
        self.store = StoreDirectories(
            str(store.store_path_root_dir), str(store.store_path_commit_log), 1 << 16
        )
        self.bodies: list[bytes] = []

    def send(self, count: int) -> None:
        for _ in range(count):
            body = b"%06d" % len(self.bodies) * 100
            assert self.broker.send(body).code == ResponseCode.SUCCESS
            self.bodies.append(body)

    def back_up(self) -> tuple[Manifest, int]:
        done = back_up(
            SimFiles(self.disk), self.store, self.disk, TARGET, self.broker.host.now_ms()
        )
        return done.manifest, done.copied

    def restart_from_backup(self) -> None:
        """The machine is gone; what the backup has is all there is."""
        self.broker.stop()
        new = StoreDirectories(NEW, f"{NEW}/commitlog", 1 << 16)
        restore(SimFiles(self.disk), self.disk, TARGET, new, lambda count: None)
        configuration = self.broker.configuration
        configuration.store.store_path_root_dir = NEW
        configuration.store.store_path_commit_log = f"{NEW}/commitlog"
        self.broker.broker = Broker(self.broker.host.seams, configuration)
        self.broker.wait(self.broker.broker.start())

    def read_all(self) -> list[bytes]:
        found: list[bytes] = []
        while (answer := self.broker.pull(len(found))).code == ResponseCode.SUCCESS:
            found += [message.body for message in decode_messages(answer.body)]
        return found


def test_what_was_backed_up_while_the_broker_ran_is_restored_and_read_to_the_last_message() -> None:
    machine = Machine()
    machine.send(150)
    first, copied = machine.back_up()
    assert copied >= first.end > 1 << 16, "more than one file"
    machine.send(150)
    machine.broker.broker.consumer_offsets.commit("consumers", TOPIC, 0, 40)
    machine.broker.wait(machine.broker.host.seams.worker.call(lambda: None))
    machine.broker.world.clock.run_while(lambda: not _committed(machine), 30)
    second, copied = machine.back_up()
    assert second.runs == 2
    assert copied < second.end - first.end + (1 << 16), "only what is new, and the last piece again"
    sent = list(machine.bodies)
    machine.send(10)  # nobody has a copy of these
    machine.restart_from_backup()
    assert machine.read_all() == sent
    assert machine.broker.broker.consumer_offsets.query("consumers", TOPIC, 0) == 40
    machine.send(5)
    assert machine.read_all() == [*sent, *machine.bodies[-5:]], "it goes on behind its end"


def _committed(machine: Machine) -> bool:
    path = f"{machine.store.root}/config/consumerOffset.json"
    return machine.disk.exists(path) and b"40" in machine.disk.read_bytes(path)


def test_a_run_that_did_not_end_harms_no_backup() -> None:
    machine = Machine()
    machine.send(100)
    whole, _ = machine.back_up()
    sent = list(machine.bodies)
    machine.send(100)
    replace = machine.disk.replace

    def fail(path: str, data: bytes, **given: Any) -> None:
        if path.endswith("topics.json"):
            raise OSError(28, "No space left on device")
        replace(path, data, **given)

    machine.disk.replace = fail
    with pytest.raises(OSError, match="No space left"):
        machine.back_up()
    machine.disk.replace = replace
    assert json.loads(machine.disk.read_bytes(f"{TARGET}/backup.json"))["end"] == whole.end
    machine.restart_from_backup()
    assert machine.read_all() == sent


def test_another_log_does_not_continue_a_backup() -> None:
    one, other = Machine(), Machine()
    one.send(200)
    one.back_up()
    other.bodies = [b"x"]
    other.send(250)
    with pytest.raises(CannotDecide, match="differs from the log of this backup"):
        back_up(SimFiles(other.disk, one.disk), other.store, one.disk, TARGET, 0)


def test_nor_does_one_of_a_broker_that_began_anew_with_as_much() -> None:
    """A disk was lost, a new broker took its place, and the nightly backup goes on."""
    one, other = Machine(), Machine()
    one.send(5)
    one.back_up()
    whole = {path: one.disk.read_bytes(path) for path in [f"{TARGET}/backup.json"]}
    other.bodies = [b"x"]
    other.send(9)
    with pytest.raises(CannotDecide, match="begin a new backup in another directory"):
        back_up(SimFiles(other.disk, one.disk), other.store, one.disk, TARGET, 0)
    assert {path: one.disk.read_bytes(path) for path in whole} == whole


def test_a_damaged_log_is_said_and_not_copied_as_sound() -> None:
    machine = Machine()
    machine.send(50)
    path = f"{machine.store.log}/{0:020}"
    file = machine.disk.open(path, 1 << 16)
    file.pwrite(b"\xff" * 300, 5000)
    with pytest.raises(CannotDecide, match=r"has no record at \d+: the store is damaged there"):
        machine.back_up()


def test_of_a_record_that_is_being_written_nothing_is_copied() -> None:
    """No record follows what is none yet: it is the log's end, and comes with the next backup."""
    machine = Machine()
    machine.send(50)
    whole, _ = machine.back_up()
    file = machine.disk.open(f"{machine.store.log}/{0:020}", 1 << 16)
    file.pwrite(b"\xff" * 40, whole.end)
    again, _ = machine.back_up()
    assert again.end == whole.end


def test_a_log_that_is_not_whole_or_of_a_group_is_not_backed_up() -> None:
    machine = Machine()
    machine.send(200)
    store = machine.store
    with pytest.raises(CannotDecide, match="is not whole: files are missing, or of another size"):
        back_up(SimFiles(machine.disk), store._replace(file_size=1 << 17), machine.disk, TARGET, 0)
    group = store._replace(log=f"{store.root}/dledger-n0/data")
    machine.disk.open(f"{group.log}/{0:020}", 1 << 16).close()
    with pytest.raises(CannotDecide, match="a DLedger member's log is not backed up"):
        back_up(SimFiles(machine.disk), group, machine.disk, TARGET, 0)
    machine.disk.remove(f"{store.log}/{1 << 16:020}")
    with pytest.raises(CannotDecide, match="is not whole"):
        machine.back_up()
    assert not machine.disk.exists(f"{TARGET}/backup.json")


def test_a_directory_with_anything_else_in_it_is_no_backup_to_go_on_with() -> None:
    machine = Machine()
    machine.send(3)
    machine.disk.replace(f"{TARGET}/commitlog/{0:020}", b"somebody's")
    with pytest.raises(CannotDecide, match="holds files, but no backup: name another directory"):
        machine.back_up()
    machine.disk.replace(f"{TARGET}/backup.json", b"{")
    with pytest.raises(CannotDecide, match=r"backup\.json is damaged"):
        machine.back_up()


def test_a_backup_does_not_go_on_over_a_gap_or_with_other_files() -> None:
    machine = Machine()
    machine.send(150)
    first, _ = machine.back_up()
    machine.send(300)
    path = f"{TARGET}/backup.json"
    data = machine.disk.read_bytes(path)
    machine.disk.replace(path, data.replace(b'"fileSize":65536', b'"fileSize":131072'))
    with pytest.raises(CannotDecide, match="mappedFileSizeCommitLog was 131072: begin a new"):
        machine.back_up()
    machine.disk.replace(path, data)
    row = sorted(machine.disk.list_dir(machine.store.log))
    for name in row:
        if int(name) <= first.end:  # of the file where the backup ends nothing is left
            machine.disk.remove(f"{machine.store.log}/{name}")
    with pytest.raises(CannotDecide, match=f"deleted what came after {first.end}, where the"):
        machine.back_up()
    assert machine.disk.read_bytes(path) == data


def test_what_the_broker_deletes_stays_in_the_backup() -> None:
    machine = Machine()
    machine.send(150)
    first, _ = machine.back_up()
    machine.send(150)
    row = sorted(machine.disk.list_dir(machine.store.log))
    gone = [name for name in row if int(name) + (1 << 16) <= first.end]
    assert gone
    for name in gone:
        machine.disk.remove(f"{machine.store.log}/{name}")
    told: list[int] = []
    second = back_up(SimFiles(machine.disk), machine.store, machine.disk, TARGET, 0, told.append)
    assert second.manifest.begin == first.begin == 0
    assert sum(told) == second.copied > 0
    assert machine.disk.list_dir(f"{TARGET}/{first.tables}") == [], "the older tables are gone"
    told.clear()
    new = StoreDirectories(NEW, f"{NEW}/commitlog", 1 << 16)
    restore(SimFiles(machine.disk), machine.disk, TARGET, new, told.append)
    assert sum(told) == second.manifest.end
    assert machine.disk.exists(f"{NEW}/abort")


def test_nothing_is_restored_over_a_store_or_from_nothing() -> None:
    machine = Machine()
    machine.send(3)
    with pytest.raises(CannotDecide, match="holds no finished backup"):
        restore(
            SimFiles(machine.disk),
            machine.disk,
            TARGET,
            StoreDirectories(NEW, NEW, 1 << 16),
            lambda count: None,
        )
    machine.back_up()
    with pytest.raises(CannotDecide, match="is not empty: restore into a new store"):
        restore(SimFiles(machine.disk), machine.disk, TARGET, machine.store, lambda count: None)
    with pytest.raises(CannotDecide, match="set mappedFileSizeCommitLog=65536"):
        restore(
            SimFiles(machine.disk),
            machine.disk,
            TARGET,
            StoreDirectories(NEW, NEW, 1 << 20),
            lambda count: None,
        )
