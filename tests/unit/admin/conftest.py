"""Makes this folder's helpers and the simulated cluster of the client's tests importable."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "client")]
