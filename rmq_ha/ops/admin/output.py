"""
What commands print: tables and lines for people, or JSON for programs.

Names, tags, properties, client ids and remarks come from others, and a terminal acts on control
characters. Everything is therefore made printable here, in the one place where it goes out: who
has a line of several lines to say says one line after the other.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any, NamedTuple, Protocol, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rmq_ha.base.model.printable import in_json, one_line, words_of

T = TypeVar("T")
_WIDEST = 10_000


class Steps(Protocol):
    def advance(self, count: float = 1) -> None: ...


class Rows(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class _NoSteps:
    def advance(self, count: float = 1) -> None:
        pass


class _Bar:
    def __init__(self, progress: Progress, title: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=total)

    def advance(self, count: float = 1) -> None:
        self._progress.advance(self._task, count)


class Output:
    """
    Results on stdout, all else on stderr.

    :ivar as_json: for programs.
    """

    def __init__(
        self, as_json: bool, console: Console | None = None, errors: Console | None = None
    ) -> None:
        self.as_json = as_json
        self._console = console or Console(soft_wrap=True, highlight=False)
        self._errors = errors or Console(stderr=True, soft_wrap=True, highlight=False)
        self._bar: Progress | None = None

    def table(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], **more: Any
    ) -> None:
        """
        Rows of values.

        :param columns: their names; with JSON the members of each row.
        :param more: members beside `rows` in JSON, a line below the table else.
        """
        if self.as_json:
            values = [dict(zip(columns, row, strict=True)) for row in rows]
            self._write({**more, "rows": values})
            return
        self._print_whole(_table(Rows(title, columns, list(rows))))
        if more:
            parts = [
                f"not {name} yet"
                if name in ("done", "deleted") and value is False
                else f"{name}: {words_of(value)}"
                for name, value in more.items()
            ]
            self._print(", ".join(parts))

    def _print_whole(self, table: Table) -> None:
        """Values are never cut, however narrow the terminal is."""
        console, width = self._console, self._console.width
        needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
        console.width = max(width, needed)
        console.print(table)
        console.width = width

    def fields(self, values: dict[str, Any]) -> None:
        if self.as_json:
            self._write(values)
            return
        width = max(map(len, values), default=0)
        for name, value in values.items():
            self._print(f"{name:<{width}}  {words_of(value)}")

    def line(self, text: str, values: dict[str, Any]) -> None:
        """One of many: a line of text, or the values as a line of JSON; flushed at once."""
        if self.as_json:
            self._write(values)
        else:
            self._print(text)
        self._console.file.flush()

    def say(self, text: str) -> None:
        """For people only, on stdout; nothing with JSON."""
        if not self.as_json:
            self._print(text)

    def note(self, text: str) -> None:
        """For who looks on, on stderr; nothing with JSON."""
        if not self.as_json:
            self._errors.print(_plain(text), style="dim")

    def warn(self, text: str) -> None:
        """Print a warning on stderr."""
        if self.as_json:
            self._errors.file.write(json.dumps({"warning": text}) + "\n")
        else:
            self._errors.print(f"[yellow]warning:[/] {_plain(text)}")

    def error(self, text: str, **values: Any) -> None:
        """On stderr; a bar that it came out of is gone first."""
        if self._bar is not None:
            self._bar.stop()
        if self.as_json:
            self._errors.file.write(json.dumps({"error": text, **values}) + "\n")
        else:
            self._errors.print(f"[bold red]error:[/] {_plain(text)}")

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Steps]:
        """
        A bar on stderr while the block runs, if somebody looks.

        :param total: None: nobody knows.
        """
        if self.as_json or not self._errors.is_terminal or self._bar is not None:
            yield _NoSteps()  # of two at the same time the outer one is shown
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(
            *columns, TimeElapsedColumn(), console=self._errors, transient=True
        ) as progress:
            self._bar = progress
            try:
                yield _Bar(progress, _plain(title), total)
            finally:
                self._bar = None

    def track(self, title: str, items: Sequence[T]) -> Iterator[T]:
        """One after the other, with a bar that says how many are done."""
        with self.progress(title, len(items)) as steps:
            for item in items:
                yield item
                steps.advance()

    @contextmanager
    def screen(self) -> Iterator["Screen"]:
        """Tables that replace each other while the block runs; JSON: an object for each time."""
        if self.as_json:
            yield _Lines(self._write)
        elif not self._console.is_terminal:
            yield _Pages(self._print_whole, self.warn)
        else:
            with Live(console=self._console, auto_refresh=False) as live:
                yield _Live(live)

    def _print(self, text: str) -> None:
        self._console.print(Text(one_line(text)), crop=False, overflow="ignore")

    def _write(self, value: Any) -> None:
        text = in_json(json.dumps(value, ensure_ascii=False, default=str))
        self._console.file.write(text + "\n")


def _table(rows: Rows) -> Table:
    title = Text(one_line(rows.title), style="table.title")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(rows.columns):
        kinds = {type(row[number]) for row in rows.rows} - {NoneType}
        header = _plain(column)
        if kinds and kinds <= {int, float}:  # "ignore" would leave it on the left
            table.add_column(header, justify="right", no_wrap=True, overflow="crop")
        else:
            table.add_column(header, no_wrap=True, overflow="ignore")
    for row in rows.rows:
        table.add_row(*[Text(words_of(value)) for value in row])
    return table


class Screen(Protocol):
    """What is shown now, in place of what was."""

    def show(self, tables: Sequence[Rows], problems: Sequence[str]) -> None:
        """:param problems: lines below the tables."""


class _Lines:
    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write_value = write

    def show(self, tables: Sequence[Rows], problems: Sequence[str]) -> None:
        value: dict[str, Any] = {
            table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
            for table in tables
        }
        self._write_value({**value, "problems": list(problems)})


class _Pages:
    """One after the other, where nobody can see them replaced."""

    def __init__(self, write: Callable[[Table], None], warn: Callable[[str], None]) -> None:
        self._write_table = write
        self._warn = warn

    def show(self, tables: Sequence[Rows], problems: Sequence[str]) -> None:
        for table in tables:
            self._write_table(_table(table))
        for problem in problems:
            self._warn(problem)


class _Live:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, tables: Sequence[Rows], problems: Sequence[str]) -> None:
        below = [Text(one_line(problem), style="yellow") for problem in problems]
        self._live.update(Group(*map(_table, tables), *below), refresh=True)


def _plain(text: str) -> str:
    """What rich prints as it is: others' data hold neither its markup nor a terminal's."""
    return escape(one_line(text))


def is_interactive() -> bool:
    """Somebody sits at the keyboard who can be asked."""
    return sys.stdin.isatty()
