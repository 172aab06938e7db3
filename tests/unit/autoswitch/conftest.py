"""Makes this folder's helpers importable for its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "ha"))
sys.path.append(str(Path(__file__).parents[1] / "controller"))
