"""The checkpoint. Spec: store.md, section 5.1."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.host.disk import RealDisk
from rmq_ha.store.checkpoint import Checkpoint
from rmq_ha.store.format.checkpoint import CheckpointTimes

longs = st.integers(-(1 << 63), (1 << 63) - 1)


@given(longs, longs, longs, longs)
def test_round_trip(physic, logics, index, flushed):
    """Four numbers, big-endian, where Java looks and behind."""
    times = CheckpointTimes(physic, logics, index, flushed)
    assert times.encode()[:24] == struct.pack(">qqq", physic, logics, index)
    assert CheckpointTimes.decode(times.encode() + bytes(4072)) == times


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
    checkpoint = Checkpoint(RealDisk(), path)
    checkpoint.load()
    assert checkpoint.times == (0, 0, 0, 0)
    checkpoint.write(CheckpointTimes(1, 2, 3))
    checkpoint.close()
    again = Checkpoint(RealDisk(), path)
    again.load()
    again.close()
    assert again.times == (1, 2, 3, 0)
    assert RealDisk().size(path) == 4096


def test_a_short_file():
    """Damage means: read everything again."""
    assert CheckpointTimes.decode(b"\x01" * 23) == (0, 0, 0, 0)
