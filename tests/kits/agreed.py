"""
What is shown, held against what was agreed to once (`agreed/NAME.json`).

A test that fails here writes what is shown now when it is run with `RMQ_HA_SHEETS=1`; read what
changed (`git diff tests/kits/agreed`) before you keep it. A file is sorted and has one value a
line, so that a new row, key or rule is one more line in the middle of it.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "agreed"
_NOT_OURS = re.compile(
    r"python|twisted|version|process_|build_info|reactor|uptime|_created|_seconds_(sum|bucket)"
)
"""What is of this machine, of this release, or of how long a simulated packet takes."""
_COARSE_MS = 10_000
_AGE = re.compile(r"(?<=_seconds)(\{.*\}) (\d+\.\d+)$")
"""A sample that is a time: the simulated packets before it take another fraction of a second."""


def must_be_agreed(name: str, found: Any) -> None:
    """
    It is as it was agreed to, but for what is not ours to agree to.

    :param found: what JSON can hold.
    """
    path, shown = DATA / f"{name}.json", _agreed(found)
    if os.environ.get("RMQ_HA_SHEETS"):
        text = json.dumps(shown, indent=1, ensure_ascii=False, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")
    known = json.loads(path.read_text(encoding="utf-8"))
    assert shown.keys() == known.keys()
    for key, value in shown.items():
        assert value == known[key], key


def _agreed(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _agreed(item, name) for name, item in value.items() if is_ours(name)}
    if isinstance(value, list):
        return [_agreed(item, key) for item in value]
    if isinstance(value, int) and key.endswith("_ms"):
        return value // _COARSE_MS
    if isinstance(value, str):
        value = value.replace('maker="native"', 'maker="pure"')  # both show the same
        return _AGE.sub(lambda age: f"{age[1]} {float(age[2]):.0f}", value)
    digits = -1 if key.endswith("_ms") else 0 if key.endswith("_s") else 6
    return round(value, digits) if isinstance(value, float) else value


def is_ours(text: str) -> bool:
    """A key, or a line of a scrape, that is agreed to."""
    return _NOT_OURS.search(text) is None
