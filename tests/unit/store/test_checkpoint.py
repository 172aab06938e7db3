"""The checkpoint. Spec: store.md, section 5.1."""

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.host.disk import RealDisk
from rmq_ha.store.checkpoint import Checkpoint
from rmq_ha.store.format.checkpoint import CheckpointTimes

longs = st.integers(-(1 << 63), (1 << 63) - 1)


@given(longs, longs, longs)
def test_round_trip(physic, logics, index):
    """Three numbers, big-endian."""
    times = CheckpointTimes(physic, logics, index)
    assert CheckpointTimes.decode(times.encode() + bytes(4072)) == times


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
    assert checkpoint.times == (0, 0, 0)
    checkpoint.write(CheckpointTimes(1, 2, 3))
    checkpoint.close()
    again = Checkpoint(RealDisk(), path)
    again.load()
    again.close()
    assert again.times == (1, 2, 3)
    assert RealDisk().size(path) == 4096


def test_a_short_file():
    """Damage means: read everything again."""
    assert CheckpointTimes.decode(b"\x01" * 23) == (0, 0, 0)
