"""The checkpoint. Spec: store.md, section 5.1."""

import struct
import zlib
from errno import EIO, ENOSPC
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import NotNow
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.store_format.checkpoint import NOTHING_WHOLE, CheckpointTimes, CompletePositions
from rmq_ha.server.store.log.checkpoint import StoreCheckpoint
from rmq_ha.testing.disk import SimDisk

PATH = "/store/checkpoint"

longs = st.integers(-(1 << 63), (1 << 63) - 1)


confirmed_offsets = st.integers(0, (1 << 63) - 1).filter(
    lambda value: value & 0xFFFFFFFF or not value
)


@given(longs, longs, longs, longs, confirmed_offsets)
def test_round_trip(physic, logics, index, flushed, confirmed):
    """Numbers, big-endian, where Java looks, and one of ours where it does not."""
    times = CheckpointTimes(physic, logics, index, flushed, confirmed)
    assert times.encode()[:40] == struct.pack(">qqqqq", physic, logics, index, 0, confirmed)
    assert CheckpointTimes.decode(times.encode().ljust(4096, b"\0")) == times


@given(longs, longs, st.integers(1, (1 << 63) - 1))
def test_what_ours_once_wrote_is_read(physic, other, flushed):
    """As long as Java has not been there; then it is no confirmPhyOffset of Java's either."""
    checksum = zlib.crc32(struct.pack(">qq", physic, flushed))
    once = struct.pack(">qqqqI", physic, 2, 3, flushed, checksum).ljust(4096, b"\0")
    assert CheckpointTimes.decode(once) == (physic, 2, 3, flushed, 0)
    then = struct.pack(">q", other) + once[8:]
    assert CheckpointTimes.decode(then)[3:] in ((0, 0), (flushed * (other == physic), 0))


def test_what_java_5_writes_is_read():
    """Its masterFlushedOffset says nothing of our disk."""
    javas = struct.pack(">qqqqq", 1, 2, 3, 4, 5).ljust(4096, b"\0")
    assert CheckpointTimes.decode(javas) == (1, 2, 3, 0, 5)


@given(longs, longs, longs)
def test_the_flushed_offset_counts_only_with_its_time(physic, flushed, other):
    """Java changes the three times and lets the rest stay: then nothing is known of the rest."""
    data = bytearray(CheckpointTimes(physic, 1, 2, flushed).encode())
    data[:8] = struct.pack(">q", other)
    assert CheckpointTimes.decode(bytes(data)).flushed_offset in (0, flushed * (other == physic))


def test_derived_times():
    """Three seconds of grace, not for the index, never below 0."""
    times = CheckpointTimes(10000, 9000, 5000)
    assert times.min_timestamp == 6000
    assert times.min_timestamp_index == 5000
    assert CheckpointTimes(2000, 9000, 0).min_timestamp == 0


def test_file(tmp_path):
    """Missing means zeros; written values come back; the file has 4096 bytes."""
    path = str(tmp_path / "checkpoint")
    checkpoint = StoreCheckpoint(RealDisk(), path)
    checkpoint.load()
    assert checkpoint.times == (0, 0, 0, 0, 0)
    checkpoint.write(CheckpointTimes(1, 2, 3))
    checkpoint.close()
    again = StoreCheckpoint(RealDisk(), path)
    again.load()
    again.close()
    assert again.times == (1, 2, 3, 0, 0)
    assert RealDisk().size(path) == 4096


@pytest.fixture
def disk():
    """One that loses what was not synced."""
    return SimDisk(Random(1), lambda: 0)


def loaded(disk):
    checkpoint = StoreCheckpoint(disk, PATH)
    checkpoint.load()
    return checkpoint


def test_what_is_written_is_safe(disk):
    """All five, and whether all of them or only the log's part is written."""
    checkpoint = loaded(disk)
    checkpoint.write(CheckpointTimes(1, 2, 3, 4, 3))
    assert disk.is_safe(PATH)
    checkpoint.write_flushed(5, 6, 7)
    assert disk.is_safe(PATH)
    assert checkpoint.written == (5, 2, 3, 6, 7)
    assert loaded(disk.crash()).times == (5, 2, 3, 6, 7)


def test_nothing_is_whole_any_more_once_a_start_has_asked(disk):
    """Also where lost power ends that start: it may have changed anything."""
    checkpoint = loaded(disk)
    whole = CompletePositions(700, 20, 3)
    checkpoint.write(CheckpointTimes(1, 2, 3, 4), whole)
    disk = disk.crash()
    assert loaded(disk).take_whole() == whole
    assert loaded(disk.crash()).take_whole() == NOTHING_WHOLE


def test_to_know_nothing_is_safe_too(disk):
    """A checkpoint that outlived its log vouches for another one's messages."""
    checkpoint = loaded(disk)
    checkpoint.write(CheckpointTimes(1, 2, 3, 4))
    checkpoint.set(CheckpointTimes(5, 5, 5, 5, 5))
    checkpoint.give_up(0, 0)
    assert checkpoint.times == checkpoint.written == (0, 0, 0, 0, 0)
    assert loaded(disk.crash()).times == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("operation", "number", "raised"),
    [("pwrite", ENOSPC, NotNow), ("pwrite", EIO, OSError), ("sync", EIO, OSError)],
)
def test_what_the_disk_refused_was_not_written(disk, operation, number, raised):
    """A full disk may pass; anything else is told as it is."""
    checkpoint = loaded(disk)
    checkpoint.write(CheckpointTimes(1, 2, 3, 4))
    disk.fault = lambda called, path: number if called == operation else None
    with pytest.raises(raised):
        checkpoint.write(CheckpointTimes(9, 9, 9, 9))
    assert checkpoint.written == (1, 2, 3, 4, 0)


@pytest.mark.parametrize("size", [None, 0, 1, 4096])
def test_a_disk_that_gets_full_later_takes_it(disk, size):
    """Its room was taken when it was loaded: what the log's files still take can be noted."""
    if size is not None:
        disk.open(PATH, size)
    checkpoint = loaded(disk)
    disk.is_full = True
    checkpoint.write_flushed(5, 6, 0)
    assert checkpoint.written == (5, 0, 0, 6, 0)


def test_a_disk_that_is_full_already_is_no_reason_not_to_start(disk):
    """Nothing is noted until there is room."""
    disk.is_full = True
    checkpoint = loaded(disk)
    with pytest.raises(NotNow):
        checkpoint.write_flushed(5, 6, 0)
    disk.is_full = False
    checkpoint.write_flushed(5, 6, 0)
    assert checkpoint.written == (5, 0, 0, 6, 0)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 8192])
def test_a_file_of_another_size_is_made_anew(disk, size):
    disk.replace(PATH, CheckpointTimes(1, 2, 3, 4).encode().ljust(4096, b"\0")[:size])
    if size > 4096:
        disk.replace(PATH, CheckpointTimes(1, 2, 3, 4).encode().ljust(size, b"\0"))
    assert loaded(disk).times == ((1, 2, 3, 4, 0) if size == 4096 else (0,) * 5)
    assert disk.size(PATH) == 4096


def test_nothing_is_known_before_it_is_loaded_nor_written_once_it_is_closed(disk):
    checkpoint = StoreCheckpoint(disk, PATH)
    assert checkpoint.times == checkpoint.written == (0, 0, 0, 0, 0)
    checkpoint.load()
    checkpoint.write(CheckpointTimes(1, 2, 3, 4))
    checkpoint.close()
    checkpoint.close()
    checkpoint.write(CheckpointTimes(9, 9, 9, 9))
    assert loaded(disk).times == (1, 2, 3, 4, 0)


def test_a_short_file():
    """Damage means: read everything again."""
    assert CheckpointTimes.decode(b"\x01" * 23) == (0, 0, 0, 0, 0)


def test_what_java_wrote_stays_as_it_is():
    """Nothing was flushed that we know of: our bytes are zeros, as Java leaves them."""
    assert CheckpointTimes(1, 2, 3).encode()[24:] == bytes(len(CheckpointTimes().encode()) - 24)
