"""`python stepped.py OFFSET_FILE PROGRAM ...`: a machine whose wall clock somebody sets.

The file holds seconds by which the wall clock is off. Nothing but `time.time` and `time.time_ns`
is changed, before Twisted is imported: the monotonic clock and every wait of the kernel go on, as
they do where an operator or NTP sets the clock. The program is `twistd` or a Python file.
"""

import runpy
import sys
import time
from pathlib import Path

OFFSET = Path(sys.argv.pop(1))
_time, _time_ns = time.time, time.time_ns


def _offset() -> int:
    return int(OFFSET.read_text())


time.time = lambda: _time() + _offset()
time.time_ns = lambda: _time_ns() + _offset() * 1_000_000_000

if __name__ == "__main__":
    del sys.argv[0]
    if sys.argv[0] == "twistd":
        from twisted.scripts.twistd import run

        run()
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
