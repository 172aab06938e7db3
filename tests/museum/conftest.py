"""Lets these tests import what lies beside them and beside the interop tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
sys.path.insert(0, str(Path(__file__).parent))
