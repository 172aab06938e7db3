"""
Selects the tests of a run by rings.

`rings` in `pyproject.toml` lists the outer rings: a name, then its folders and files.
`@pytest.mark.NAME` moves one slow test of another file there. All other tests are the inner ring.
Without a path on the command line `pytest` runs the inner ring. With a path it runs all tests below
that path. `--ring NAME` takes the tests of one ring, and `--ring all` takes every test.

This module is a plugin of pytest, which `tests/conftest.py` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

INNER, ALL = "inner", "all"
COMMANDS = {
    "peers": "tox -e peers: Java and Go",
    "lake": "tox -e lake: Spark",
    "trials": "tox -e trials: faults, museum, packages, the page, long real-process tests",
}


class Rings:
    """
    The rings that `pyproject.toml` declares, and the rings that this run wants.

    :param lines: `NAME: PATH PATH ...`; several lines may have the same name.
    :param wanted: names of rings.
    :raises pytest.UsageError: a line names an unknown ring, or a path that is not there.
    """

    def __init__(self, root: Path, lines: Sequence[str], wanted: Sequence[str]) -> None:
        self._ring_of: dict[Path, str] = {}
        for line in lines:
            name, _, paths = line.partition(":")
            if name not in COMMANDS:
                raise pytest.UsageError(
                    f"pyproject.toml, rings: {name!r} is not one of {', '.join(COMMANDS)}"
                )
            for path in paths.split():
                if not (root / path).exists():
                    raise pytest.UsageError(
                        f"pyproject.toml, rings: {path} is not there; write its new name"
                    )
                self._ring_of[root / path] = name
        everything = ALL in wanted
        self.left_out = [name for name in COMMANDS if not everything and name not in wanted]
        self._takes_inner = everything or INNER in wanted

    def leaves_out_path(self, path: Path) -> bool:
        """Return whether a whole folder or file belongs to a ring that this run does not want."""
        return self._ring_of.get(path) in self.left_out

    def takes(self, item: pytest.Item) -> bool:
        """
        Return whether this run wants a test, by the ring of its mark, or else of its file or
        folder.
        """
        ring = next((name for name in COMMANDS if item.get_closest_marker(name)), None)
        if ring is None:
            above = (item.path, *item.path.parents)
            ring = next((self._ring_of[path] for path in above if path in self._ring_of), INNER)
        return self._takes_inner if ring == INNER else ring not in self.left_out

    def header(self) -> Iterator[str]:
        """Yield a line for each ring that this run leaves out, with the command that runs it."""
        if not self._takes_inner:
            yield "this run leaves out the inner ring; `pytest` runs it"
        for name in self.left_out:
            yield f"this run leaves out the tests of the ring {name} ({COMMANDS[name]})"


KEY = pytest.StashKey[Rings]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option `--ring`, and the key `rings` of `pyproject.toml`."""
    parser.addini("rings", "outer rings of tests: NAME: PATH PATH ...", type="linelist")
    parser.addoption(
        "--ring",
        action="append",
        choices=(INNER, *COMMANDS, ALL),
        help="run the tests of this ring; may be given several times. Without it: the inner ring "
        "if no path is given, else all tests below the path",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Find the rings of this run before xdist starts its workers, which get the same rings."""
    for name, command in COMMANDS.items():
        config.addinivalue_line("markers", f"{name}: is in an outer ring of tests ({command})")
    if not config.option.ring:
        is_whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        config.option.ring = [INNER if is_whole_suite else ALL]
    config.stash[KEY] = Rings(config.rootpath, config.getini("rings"), config.option.ring)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """
    Print the header of this plugin: `-q`, which `pyproject.toml` sets, hides the header of pytest.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        for line in session.config.stash[KEY].header():
            reporter.write_line(line)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the folders of rings that this run leaves out, so that they are not imported."""
    return config.stash[KEY].leaves_out_path(collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of rings that this run does not want out of the list."""
    taken: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (taken if config.stash[KEY].takes(item) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = taken
