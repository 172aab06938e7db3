"""A long mixed load over a SYNC_MASTER pair of ours, under the simulator's faults.

    python bench/soak.py --faults [--minutes 60] [--seed N] [--flush SYNC_FLUSH] [--only KIND ...]

Our clients (`soak_load.py`) send, delay, end transactions late, and consume, while faults of
`tests/sim_kit/faults.py` happen to real processes (`soak_victims.py`), one after the other. Prints
a table; exits with 1 when a rule is violated:

- what was answered SEND_OK can be read at both members at the end, and at once at a slave that was
  made master (with ASYNC_FLUSH not what a master lost that lost power and went on as master);
- nothing is stored more often than it was sent; transactions that were committed are there once;
- no group goes back by more than it committed in the last 20 s before a change;
- after each fault SEND_OK comes again without a hand, and both logs are the same byte for byte; a
  damaged slave may instead refuse to start and say why;
- memory, descriptors and timers do not grow; there is no traceback.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak_faulty import Soak
from soak_pair import FaultyPair

from tests.interop.rig import Rig, rig_in
from tests.sim_kit.faults import SOAK_KINDS


def run(options: argparse.Namespace, rig: Rig) -> int:
    """The whole soak; the exit code."""
    pair = FaultyPair(rig, options.flush)
    try:
        soak = Soak(options, pair)
        text = "\n".join(soak.run())
    finally:
        pair.close()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text + "\n")
    print(text)
    return 1 if soak.violations else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", action="store_true", required=True, help="real faults happen")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=40, help="messages a second of each stream")
    parser.add_argument("--churn", type=float, default=10, help="seconds between joins and leaves")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--only", nargs="+", choices=sorted(SOAK_KINDS), help="kinds of faults")
    parser.add_argument("--flush", default="ASYNC_FLUSH", choices=["ASYNC_FLUSH", "SYNC_FLUSH"])
    parser.add_argument("--keep", action="store_true", help="keep stores and logs")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "soak.md")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=options.work))
    code = 1
    try:
        with rig_in(directory) as rig:
            code = run(options, rig)
    finally:
        if options.keep or code:
            print(f"stores and logs: {directory}", file=sys.stderr)
        else:
            subprocess.run(["rm", "-rf", str(directory)], check=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
