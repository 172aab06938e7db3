"""The life of pods, in short; `RMQ_HA_PODS=1`, or `RMQ_HA_PODS=all` for every step."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WANTED = os.environ.get("RMQ_HA_PODS")


@pytest.mark.skipif(not WANTED, reason="a minute of real processes: set RMQ_HA_PODS=1")
def test_pods_are_restarted_one_by_one_and_nothing_is_lost() -> None:
    """In a process of its own, as names are looked up in a file before Twisted is imported."""
    command = [sys.executable, "-m", "tests.rehearsal.pods"]
    command += [] if WANTED == "all" else ["--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 missing, " in done.stdout
    assert ", 0 out of order" in done.stdout
