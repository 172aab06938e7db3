"""Transcripts: what our member does when it is told the same; `dledger_script.py` explains."""

import sys
from pathlib import Path

import pytest

from tests.spec.dledger.dledger_script import Player

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    """
    As written; `python -m tests.spec.dledger.test_dledger_scripts FILE` prints what it is now.
    """
    assert Player().play(path.read_text()) == path.read_text()


if __name__ == "__main__":
    player = Player()
    try:
        player.play(Path(sys.argv[1]).read_text())
    finally:
        print("\n".join(player.lines))
