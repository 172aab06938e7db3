"""A checkpoint of ours under the real classes of RocketMQ 4.9.7 and 5.3.3, and what they leave."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rmq_ha.base.store_format.checkpoint import (
    CHECKPOINT_SIZE,
    NOTHING_WHOLE,
    CheckpointTimes,
    CompletePositions,
)
from tests.interop.conversation import HERE
from tests.interop.rig import PEER
from tests.interop.test_controller import PEER5
from tests.interop.test_controller import missing as missing5

OURS = CheckpointTimes(1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002, 4096, 2048)
WHOLE, PLACE = CompletePositions(4096, 20261125200000000, 77), b"1 2"
_REASON = missing5()


@pytest.mark.parametrize(
    "peer",
    [
        PEER,
        pytest.param(PEER5, marks=pytest.mark.skipif(_REASON is not None, reason=_REASON or "")),
    ],
    ids=["4.9.7", "5.3.3"],
)
def test_both_read_their_numbers_and_lose_none_of_ours(tmp_path: Path, peer: Path) -> None:
    """4.9.7 knows three; 5.3.3's masterFlushedOffset is 0, its confirmPhyOffset is ours."""
    path = tmp_path / "checkpoint"
    page = (OURS.encode() + WHOLE.encode(OURS, PLACE)).ljust(CHECKPOINT_SIZE, b"\0")
    assert CompletePositions.decode(page, PLACE) == WHOLE
    path.write_bytes(page)
    known = 3 if peer == PEER else 5
    expected = [*OURS[:3], 0, OURS.confirmed_offset][:known]
    assert _opened(peer, path) == expected
    left = path.read_bytes()
    assert len(left) == CHECKPOINT_SIZE
    assert left[40:] == page[40:]
    # Java has written since: neither how far the log is on the disk is known, nor what is whole.
    assert CompletePositions.decode(left, PLACE) == NOTHING_WHOLE
    times = CheckpointTimes.decode(left)
    assert times[:4] == (*(each + 1 for each in OURS[:3]), 0)
    assert times.confirmed_offset == OURS.confirmed_offset + (known > 3)


def _opened(peer: Path, path: Path) -> list[int]:
    found = subprocess.run([str(peer), "classpath"], capture_output=True, text=True, check=True)
    source = str(HERE / "java" / "Checkpoint.java")
    command = ["java", "-cp", found.stdout.strip(), source, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.splitlines()[-1].split()]
