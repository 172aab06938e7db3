"""
All that commands say in a test is held against what was agreed to, word by word.

`RMQ_HA_SHEETS=1 python -m pytest -n0 tests/unit/admin` writes what is said now; look at
what changed (`git diff tests/kits/agreed`) before you keep it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner, Result

from tests.kits.agreed import must_be_agreed
from tests.unit.admin import admin_kit, typing_kit

_MOST_LINES, _MOST_CHARACTERS = 20, 1_500
_CHANGING = re.compile(
    r"[0-9A-F]{24,32}|1[67]\d{11}|(?<![\d.])\d+\.\d+(?![.\d])|\d\d:\d\d:\d\d|\b\d{5}@\S+|\d+ ms"
    r"|/tmp/[^\s\"',]*"
)
"""Ids, moments, directories of a test, and what takes as long as a simulated packet takes."""
_WIDE = re.compile(r" {3,}|─+|━+")
"""As wide as a directory's name."""
_ADVICE = re.compile(r', "fix": "(?:[^"\\]|\\.)*"')
"""It stands in `docs/doctor.md`, which is held against the rules."""


def _kept(text: str) -> Iterator[str]:
    """As lines; of what is long the checksum of the rest will do."""
    told = _WIDE.sub("  ", _ADVICE.sub("", _CHANGING.sub("#", text)))
    lines = [line.rstrip() for line in told.splitlines()]
    for line in lines[:_MOST_LINES]:
        rest = line[_MOST_CHARACTERS:]
        yield line[:_MOST_CHARACTERS] + (f" and {crc32(rest.encode()):x}" if rest else "")
    if lines[_MOST_LINES:]:
        rest = "\n".join(lines[_MOST_LINES:])
        yield f"{len(lines)} lines, {crc32(rest.encode()):x}"


@pytest.fixture(autouse=True)
def said(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What each command of this test says, on its way to the test."""
    heard: list[list[Any]] = []

    def hear(line: str, code: int, *texts: str) -> None:
        heard.append([_CHANGING.sub("#", line), code, *(each for t in texts for each in _kept(t))])

    class Said(admin_kit.Said):
        def __init__(self, code: int, out: str, err: str) -> None:
            super().__init__(code, out, err)
            hear("", code, out, err)

    class Typed(CliRunner):
        def invoke(self, cli: Any, args: Any = None, *more: Any, **named: Any) -> Result:
            done = super().invoke(cli, args, *more, **named)
            hear(" ".join(args or ()), done.exit_code, done.stdout, done.stderr)
            return done

    monkeypatch.setattr(admin_kit, "Said", Said)
    for module in (typing_kit, request.module):
        if hasattr(module, "CliRunner"):
            monkeypatch.setattr(module, "CliRunner", Typed)
    yield
    if heard:
        must_be_agreed(
            f"said/{Path(request.path).stem}", {request.node.name: heard}, is_whole=False
        )
