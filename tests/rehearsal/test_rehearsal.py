"""The rehearsal, in short; `RMQ_HA_REHEARSAL=5`: with hours of 5 s."""

from __future__ import annotations

import os
from pathlib import Path

from tests.rehearsal.play import Play

HOUR_S = float(os.environ.get("RMQ_HA_REHEARSAL", "0.1"))


def test_a_pair_lives_through_everything_and_loses_nothing(tmp_path: Path) -> None:
    with Play(tmp_path, HOUR_S, 50.0) as play:
        play.run()
    assert play.shown[-2].startswith("   signs of life")
