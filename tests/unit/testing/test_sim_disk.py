"""What the simulated disk keeps and what it loses."""

from itertools import pairwise
from random import Random

import pytest

from rmq_ha.base.errors import StoreLocked
from rmq_ha.testing.disk import SECTOR, SimDisk


def make_disk(seed=1):
    return SimDisk(Random(seed), lambda: 1_700_000_000_000)


def after_power_loss(prepare, path="/d/file", size=8192, seeds=60):
    """The file's content after a power loss, for many seeds; None when it is gone."""
    contents = []
    for seed in range(seeds):
        disk = make_disk(seed)
        prepare(disk)
        disk = disk.crash()
        contents.append(disk.read_bytes(path) if disk.exists(path) else None)
    return contents


def write_all(disk):
    """Each sector of a file, and nothing of it is safe."""
    file = disk.open("/d/file", 8192)
    file.sync()
    file.pwrite(b"x" * 8192, 0)


def test_synced_bytes_survive():
    """What was synced is there after every power loss."""

    def prepare(disk):
        file = disk.open("/d/file", 8192)
        file.pwrite(b"x" * 5000, 100)
        file.sync()

    assert set(after_power_loss(prepare)) == {bytes(100) + b"x" * 5000 + bytes(3092)}


def test_unsynced_sectors_are_lost_one_by_one():
    """Of what was not synced all, nothing or any part may be left, and single sectors may tear."""

    contents = after_power_loss(write_all)
    assert bytes(8192) in contents
    assert b"x" * 8192 in contents
    sectors = [
        content[start : start + SECTOR] for content in contents for start in range(0, 8192, SECTOR)
    ]
    assert any(0 < sector.count(b"x") < SECTOR for sector in sectors)


def test_nothing_of_what_follows_a_torn_sector_is_there():
    """A sector tears as the power fails, so what should have come next was never written."""

    torn = 0
    for content in after_power_loss(write_all, seeds=300):
        counts = [content[start : start + SECTOR].count(b"x") for start in range(0, 8192, SECTOR)]
        for count, following in pairwise(counts):
            if 0 < count < SECTOR:
                torn += 1
                assert not following
    assert torn > 100


def test_mapped_writes_count_as_unsynced():
    """A change through the map is lost like any other."""

    def prepare(disk):
        file = disk.open("/d/file", 8192)
        file.sync()
        file.map()[0:3] = b"new"

    contents = {content[:3] for content in after_power_loss(prepare)}
    assert {b"new", bytes(3)} <= contents


def test_new_files_may_vanish_or_be_cut_short():
    """A file whose creation was not synced is there, gone or empty; opening makes it whole."""

    def prepare(disk):
        disk.open("/d/file", 100)

    contents = after_power_loss(prepare)
    assert {None, b"", bytes(100)} == set(contents)
    for seed in range(60):
        disk = make_disk(seed)
        disk.open("/d/file", 100)
        assert disk.crash().open("/d/file", 100).size == 100


def test_removed_files_may_come_back():
    """A removal is not safe before something is synced."""

    def prepare(disk):
        disk.open("/d/file", 10).sync()
        disk.remove("/d/file")

    assert {None, bytes(10)} == set(after_power_loss(prepare))


def test_names_are_lost_latest_first():
    """Of names that were not synced the later ones are lost first."""
    for seed in range(40):
        disk = make_disk(seed)
        for number in range(5):
            disk.open(f"/d/{number}", 10).pwrite(b"x", 0)
        disk = disk.crash()
        there = [
            disk.exists(f"/d/{number}") and disk.size(f"/d/{number}") > 0 for number in range(5)
        ]
        assert there == sorted(there, reverse=True)


def test_replaced_files_survive():
    """`replace` is durable when it returns."""

    def prepare(disk):
        disk.replace("/d/file", b"one")
        disk.replace("/d/file", b"two", backup=True)

    assert set(after_power_loss(prepare)) == {b"two"}


def test_a_killed_process_loses_nothing():
    """Without a power loss the page cache stays."""
    disk = make_disk()
    disk.open("/d/file", 10).pwrite(b"x", 3)
    assert disk.crash(power=False).read_bytes("/d/file") == b"\0\0\0x" + bytes(6)


def test_old_handles_are_dead():
    """After a crash nothing of the former boot can touch the disk."""
    disk = make_disk()
    file = disk.open("/d/file", 10)
    lock = disk.lock("/d/lock")
    new = disk.crash()
    for call in (
        lambda: file.pwrite(b"x", 0),
        lambda: file.sync(),
        lambda: disk.open("/d/file", 10),
        lambda: disk.replace("/d/x", b""),
    ):
        with pytest.raises(OSError, match="crashed"):
            call()
    held = new.lock("/d/lock")
    lock.release()
    with pytest.raises(StoreLocked):
        new.lock("/d/lock")
    held.release()


def test_full_disk():
    """A full disk takes what fits into pages that it already gave, and no more."""
    disk = make_disk()
    file = disk.open("/d/file", 16384)
    file.pwrite(b"x", 0)
    disk.is_full = True
    file.pwrite(b"y" * 4096, 0)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"z" * 200, 4000)
    assert file.pread(4096, 0) == b"y" * 4000 + b"z" * 96
    with pytest.raises(OSError, match="No space"):
        file.reserve(8192, 10)
    with pytest.raises(OSError, match="No space"):
        disk.replace("/d/small", b"x")
    usage = disk.usage("/d")
    assert usage.usable == 0
    disk.is_full = False
    file.pwrite(b"z" * 200, 4000)


def test_failing_sync():
    """A sync that fails makes nothing safe."""
    disk = make_disk()
    file = disk.open("/d/file", 10)
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
