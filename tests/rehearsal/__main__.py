"""
`python -m tests.rehearsal [--hour SECONDS] [--busiest N]`: the whole life of a pair in minutes.

What systemd does is done by `manager.py`, through the same protocol; everything else is as on a
machine: installed commands, files of `rmqha-admin init`, signals, a small disk.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.rehearsal.play import Play


def main() -> int:
    parser = argparse.ArgumentParser(prog="rehearsal", description=__doc__)
    parser.add_argument("--hour", type=float, default=5.0, help="seconds an hour of the day takes")
    parser.add_argument("--busiest", type=float, default=200.0, help="messages a second at noon")
    options = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="rehearsal-") as folder,
        Play(Path(folder), options.hour, options.busiest) as play,
    ):
        play.run()
    print(f"\nNothing that was acknowledged is lost. {time.monotonic() - began:.0f} s")
    return 0


sys.exit(main())
