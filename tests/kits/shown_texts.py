"""
A plugin of pytest: no text that a test brings to the log or to the terminal shows a Python value.

`python_value` finds `{'a': 1}`, `['a']`, `Row(id=1)`, `<rmq_ha.x.Y object at 0x7f>`, an empty set,
or None in place of a value. While tests of `LOOKED_AT` run, each log event of rmq-ha from level
info on, and each text for the terminal, passes it. A test that shows such a text fails. JSON is for
programs and is left out. `text_types.py` looks for the same in the code, by types.

This module is a plugin of pytest, which `tests/conftest.py` names.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import click
import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

_PYTHON_VALUE = re.compile(
    r"\{'|\['|\('[^']*',"  # a dict, a list, a tuple of texts
    r"|\[<\w|\(\('|\(\(\d+,|\[\("  # of objects, of tuples
    r"|<rmq_ha\b|\bobject at 0x"
    r"|\b(?:set|frozenset)\(|(?<!\")(?:=|[=:] )(?:\{\}|\[\]|None\b)"
    r"|\b[A-Z]\w+\([a-z_]+="  # a dataclass
    r"|\b(?:is|at|by|of|to|not|has) None\b"
)
LOOKED_AT = tuple(
    f"tests/unit/{folder}/" for folder in (*("base", "client", "ops", "server", "testing"),)
)
"""Folders whose tests fail for such a text."""
_SHOWN_LEVELS = (LogLevel.info, LogLevel.warn, LogLevel.error, LogLevel.critical)
_faults: list[str] = []


def python_value(text: str) -> str | None:
    """Return a piece of a text that shows a Python value; None if there is none."""
    if text.lstrip()[:1] in ("{", "["):
        return None
    found = _PYTHON_VALUE.search(text)
    return None if found is None else text[max(0, found.start() - 40) : found.end() + 40]


def _look(text: str) -> None:
    found = python_value(text)
    if found is not None:
        _faults.append(found)


def _observe(event: LogEvent) -> None:
    if (
        event.get("log_level") in _SHOWN_LEVELS
        and event.get("log_failure") is None
        and str(event.get("log_namespace", "")).startswith("rmq_ha")
    ):
        _look(formatEvent(event))


def _texts_of(shown: Iterable[Any]) -> Iterator[str]:
    """
    Yield the texts in the objects that a console prints: plain texts, and the cells of tables.
    """
    for item in shown:
        if isinstance(item, Text | str):
            yield str(item)
        elif isinstance(item, Table):
            for column in item.columns:
                yield from _texts_of(column.cells)


@pytest.fixture(scope="session", autouse=True)
def texts_are_looked_at() -> Iterator[None]:
    """Look at log events and at texts for the terminal while any test runs."""
    echo, show = click.echo, Console.print

    def echo_and_look(message: Any = None, *args: Any, **options: Any) -> None:
        _look(str(message or ""))
        echo(message, *args, **options)

    def show_and_look(console: Console, *shown: Any, **options: Any) -> None:
        for text in _texts_of(shown):
            _look(text)
        show(console, *shown, **options)

    globalLogPublisher.addObserver(_observe)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(click, "echo", echo_and_look)
        patched.setattr(Console, "print", show_and_look)
        yield
    globalLogPublisher.removeObserver(_observe)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of these folders if it brought such a text to the log or the terminal."""
    _faults.clear()
    yield
    # Random bytes of a peer may look like a value of Python, and the log repeats them.
    is_random = item.get_closest_marker("hypothesis") is not None
    if item.nodeid.startswith(LOOKED_AT) and not is_random:
        assert _faults == [], "a text for people shows a Python value"
