"""README.md's client runs as it stands, against a broker in here."""

import ast
import asyncio
import contextlib
import re
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rmq_ha.client import SendResult
from tests.unit.client.whole_broker import Bench

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
LIMIT_S = 20.0


class Printed(Exception):
    """The program has printed the body, and would now wait for further messages."""


def test_the_client_of_the_readme_sends_and_consumes(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop", reason="pip install 'rmq-ha[test]'")
    (program,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    program, _, start = program.rpartition("\nasyncio.run(")
    assert start == "main())\n"
    bench = Bench(tmp_path)
    printed: list[object] = []

    def show(value: object) -> None:
        printed.append(value)
        if len(printed) == 2:
            raise Printed

    names: dict[str, object] = {"print": show}
    exec(program.replace("127.0.0.1:9876", bench.namesrv_addr), names)
    main = names["main"]
    assert callable(main)
    try:
        with (
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            pytest.raises(Printed),
        ):
            runner.run(asyncio.wait_for(main(), LIMIT_S))
    finally:
        bench.close()
    sent, body = printed
    assert isinstance(sent, SendResult)
    assert body == b"4711"


ASKED_FOR = {
    "mypy": "tests/unit/test_text_types.py is skipped without it",
}
"""Packages that the second command does not install, each with the reason why it still passes."""


def imported(path: Path) -> set[str]:
    """Return the packages that a file imports, by the first word of their names."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    whole = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    parts = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in [*whole, *parts] if name}


def installed_by(extras: Sequence[str]) -> set[str]:
    """Return the distributions that pip installs with rmq-ha and these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    found: set[str] = set()
    while lines:
        wanted = Requirement(lines.pop())
        name = canonicalize_name(wanted.name)
        if name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found.add(name)
            with contextlib.suppress(PackageNotFoundError):
                lines += requires(name) or []
    return found


def test_the_second_command_installs_what_the_inner_ring_imports(
    request: pytest.FixtureRequest,
) -> None:
    """In an empty environment, every test that it runs passes or says why it is skipped."""
    (extras,) = re.findall(r"-e '\.\[(.*?)\]' && \.venv/bin/python -m pytest$", TEXT, re.M)
    rings = request.config.getini("rings")
    outer = [ROOT / path for line in rings for path in line.partition(":")[2].split()]
    files = [
        path
        for folder in ("rmq_ha", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if not any(path.is_relative_to(other) for other in outer)
    ]
    packages = set().union(*map(imported, files)) - sys.stdlib_module_names
    ours = {path.stem for folder in (ROOT, ROOT / "bench") for path in folder.iterdir()}
    distributions = packages_distributions()
    there = installed_by(extras.split(","))
    missing = {
        package
        for package in packages - ours
        if not there & {canonicalize_name(name) for name in distributions.get(package, [package])}
    }
    assert missing == ASKED_FOR.keys()
