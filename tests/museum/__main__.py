"""
`python -m tests.museum [--only NAME ...] [--side ours|java]`: provoke everything, write the table.

Without the peer rig and Java their column stays as it was recorded.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.interop.rig import missing
from tests.museum.gallery import SIDES, exhibits, provoke, record


def main() -> int:
    parser = argparse.ArgumentParser(prog="museum", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these exhibits")
    parser.add_argument("--side", choices=SIDES.values(), help="one side only")
    options = parser.parse_args()
    reason = missing()
    if reason:
        print(f"Nothing is measured: {reason}", file=sys.stderr)
        return 2
    failed = 0
    for exhibit in exhibits():
        for java, side in SIDES.items():
            if options.only and exhibit.name not in options.only:
                continue
            if options.side not in (None, side) or (java and exhibit.not_java):
                continue
            began = time.monotonic()
            try:
                fact = provoke(exhibit, java)
            except Exception:
                traceback.print_exc()
                failed += 1
                continue
            record(exhibit.name, side, fact)
            verdict = "has it " if fact.has else "has not"
            seconds = time.monotonic() - began
            print(f"{exhibit.name:42} {side} {verdict} {seconds:5.1f} s  {fact.seen}", flush=True)
    return 1 if failed else 0


sys.exit(main())
