"""The plugin of mypy that finds texts with Python values in them (tests/kits/text_types.py)."""

import re
from pathlib import Path

import pytest

from tests.kits.pages import REPO

api = pytest.importorskip("mypy.api", reason="pip install 'rmq-ha[dev]'")

_SAMPLE = """
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

from twisted.logger._logger import Logger

class Kind(Enum):
    FULL = 1

class Word(StrEnum):
    FULL = "full"

@dataclass
class Row:
    id: int

class Named(NamedTuple):
    id: int

    def __str__(self) -> str:
        return f"row {self.id}"

class Other:
    def __repr__(self) -> str:
        return f"<Other {[1]}>"

def show(names: list[str], table: dict[str, int], kind: Kind, word: Word, row: Row) -> None:
    log = Logger()
    f"{names}"  # a list
    f"{len(names)} of {', '.join(names)}"
    f"{table!r}"  # a dict
    f"{table['a']:,} {names[0]!r}"
    f"{set(names)} and {1, 2}"  # a set and a tuple
    f"{kind}"  # Kind
    f"{kind.value} {word}"
    f"{word!r}"  # Word
    f"{row}"  # Row
    f"{Named(1)} {row.id} {Other()}"
    f"{Named(1)!r}"  # a tuple by its repr
    f"{show}"  # a function
    "{} {}".format(1, names)  # a list
    "{} {}".format(*names)
    str(table)  # a dict
    print(names)  # a list
    log.info("{names} of {row}", names=names, row=1)  # a list
    log.info("{count} names", count=1, names=names)
    log.warn("{row!r}", row=row)  # Row
    f"{row}"  # type: ignore[python-text]
"""
_LOGGER = """
class Logger:
    def info(self, format: str | None = None, **values: object) -> None: ...
    def warn(self, format: str | None = None, **values: object) -> None: ...
"""


def test_each_text_with_a_python_value_is_found_and_no_other(tmp_path: Path) -> None:
    """The lines that are to be found have a comment that says why."""
    for path, text in {
        "rmq_ha/__init__.py": "",
        "rmq_ha/sample.py": _SAMPLE,
        "twisted/__init__.py": "",
        "twisted/logger/__init__.py": "",
        "twisted/logger/_logger.py": _LOGGER,
        "mypy.ini": f"[mypy]\nplugins = {REPO}/tests/kits/text_types.py\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache")]
    shown, errors, _ = api.run([*options, str(tmp_path / "rmq_ha/sample.py")])
    assert errors == ""
    found = {int(line) for line in re.findall(r":(\d+): error: .*\[python-text\]", shown)}
    wanted = {
        number
        for number, line in enumerate(_SAMPLE.splitlines(), 1)
        if "  # " in line and "type: ignore" not in line
    }
    assert found == wanted, shown
