"""
Compares what users see (columns, metrics, help texts) with the sheets in `agreed/NAME.json`.

Run a test that fails here with `RMQ_HA_SHEETS=1`, and it writes its sheet anew. Read the change
(`git diff tests/kits/agreed`) before you keep it. A sheet is sorted and has one value a line, so
that a new row, key or rule is one more line in the middle of it.
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
"""
Names of values that depend on the machine, the release, or the time that a simulated packet takes.
Sheets leave them out.
"""
_COARSE_MS = 10_000
_AGE = re.compile(r"(?<=_seconds)(\{.*\}) (\d+\.\d+)$")
"""A sample that is an age in seconds. It depends on the time that simulated packets took before."""


def must_be_agreed(name: str, found: Any) -> None:
    """
    Fail unless the value equals its sheet. Values that `is_ours` refuses are left out.

    :param found: a value that JSON can hold.
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
    """Return whether sheets keep this key, or this line of a scrape."""
    return _NOT_OURS.search(text) is None
