"""
The tables of `docs/doctor.md`: what a rule says, and which test makes its fault.

`python -m tests.unit.ops.admin.doctor.document` writes them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmq_ha.ops.admin.doctor.rules import RULES

DOCUMENT = Path(__file__).parents[5] / "docs" / "doctor.md"
TESTS = Path(__file__).parents[4]
PLACES = ("unit/ops/admin/doctor/test_*.py", "live/test_doctor.py", "interop/test_*.py")
CODES, PROVOKED = "code | severity | cause | what to do", "code | provoked by"
MET = "fault | code"
NOT_PROVOKED: dict[str, str] = {
    "flush-behind": "not here: it takes 256 MiB in memory that no disk has",
    "grpc-slow": "not here: the package protobuf decides when it is imported, before any test",
}
"""Codes whose fault no test makes, and why; each is judged on facts in `test_doctor_rules.py`."""


def provoking_tests() -> dict[str, list[str]]:
    """By code: the tests that call `finds` with it, as file and name."""
    found: dict[str, list[str]] = {}
    for path in (path for place in PLACES for path in sorted(TESTS.glob(place))):
        for test in _functions(ast.parse(path.read_text())):
            for code in _found_in(test):
                found.setdefault(code, []).append(f"{path.relative_to(TESTS.parent)}::{test.name}")
    return {code: list(dict.fromkeys(tests)) for code, tests in found.items()}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def _found_in(test: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "finds":
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield str(first.value)


def rows(head: str) -> list[str]:
    """Of one of the tables, as they have to be."""
    if head == CODES:
        return [f"`{r.code}` | {r.severity.value} | {r.cause} | {r.fix}" for r in RULES]
    tests = provoking_tests()
    return [f"`{rule.code}` | {_evidence(rule.code, tests)}" for rule in RULES]


def _evidence(code: str, tests: dict[str, list[str]]) -> str:
    if code in tests:
        return f"`{tests[code][0]}`"
    return NOT_PROVOKED.get(code, "nothing")


def written(head: str) -> list[str]:
    """The same, as the document has them."""
    lines = iter(DOCUMENT.read_text().splitlines())
    for line in lines:
        if line == f"| {head} |":
            next(lines)
            return [text.strip("| ") for text in _until_empty(lines)]
    return []


def _until_empty(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def write() -> None:
    """Put the tables into the document, in the place of those that are there."""
    text = DOCUMENT.read_text()
    for head in (CODES, PROVOKED):
        table = "".join(f"| {row} |\n" for row in rows(head))
        head_lines = re.escape(f"| {head} |\n") + r"\|[-|]+\n"
        text = re.sub(
            f"({head_lines})(?:\\|.*\n)*", lambda found, table=table: found[1] + table, text
        )
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    write()
