"""
The output of commands: tables and lines for people, or JSON for programs.

Names, tags, properties, client ids and remarks come from strangers, and a terminal acts on control
characters in them. This module is the only one that prints, and makes each text printable. A caller
prints a text of several lines one line at a time.
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


class OutputRows(NamedTuple):
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
    Prints results on stdout, and everything else on stderr.

    :ivar as_json: print JSON, for programs.
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
        Print rows of values.

        :param columns: the columns' names; in JSON they are the members of each row.
        :param more: in JSON members beside `rows`, otherwise a line below the table.
        """
        if self.as_json:
            values = [dict(zip(columns, row, strict=True)) for row in rows]
            self._write({**more, "rows": values})
            return
        self._print_whole(_table(OutputRows(title, columns, list(rows))))
        if more:
            parts = [
                f"not {name} yet"
                if name in ("done", "deleted") and value is False
                else f"{name}: {words_of(value)}"
                for name, value in more.items()
            ]
            self._print(", ".join(parts))

    def _print_whole(self, table: Table) -> None:
        """Print a table whose values are never cut, however narrow the terminal is."""
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
        """Print one line of a stream at once: the text, or in JSON the values."""
        if self.as_json:
            self._write(values)
        else:
            self._print(text)
        self._console.file.flush()

    def say(self, text: str) -> None:
        """Print a line for people on stdout; nothing in JSON."""
        if not self.as_json:
            self._print(text)

    def note(self, text: str) -> None:
        """Print a remark for people on stderr; nothing in JSON."""
        if not self.as_json:
            self._errors.print(_plain(text), style="dim")

    def warn(self, text: str) -> None:
        """Print a warning on stderr."""
        if self.as_json:
            self._errors.file.write(json.dumps({"warning": text}) + "\n")
        else:
            self._errors.print(f"[yellow]warning:[/] {_plain(text)}")

    def error(self, text: str, **values: Any) -> None:
        """Print an error on stderr, after removing a progress bar."""
        if self._bar is not None:
            self._bar.stop()
        if self.as_json:
            self._errors.file.write(json.dumps({"error": text, **values}) + "\n")
        else:
            self._errors.print(f"[bold red]error:[/] {_plain(text)}")

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Steps]:
        """
        Show a progress bar on stderr while the block runs, if stderr is a terminal.

        :param total: number of steps; None: not known.
        """
        if self.as_json or not self._errors.is_terminal or self._bar is not None:
            yield _NoSteps()  # only the outer one of two bars is shown
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
        """Yield the items, with a progress bar of how many are done."""
        with self.progress(title, len(items)) as steps:
            for item in items:
                yield item
                steps.advance()

    @contextmanager
    def screen(self) -> Iterator["Screen"]:
        """
        Show tables that replace each other while the block runs; in JSON one object for each
        update.
        """
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


def _table(rows: OutputRows) -> Table:
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
    """Shows tables in place of those shown before."""

    def show(self, tables: Sequence[OutputRows], problems: Sequence[str]) -> None:
        """
        Show these tables.

        :param problems: lines below the tables.
        """


class _Lines:
    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write_value = write

    def show(self, tables: Sequence[OutputRows], problems: Sequence[str]) -> None:
        value: dict[str, Any] = {
            table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
            for table in tables
        }
        self._write_value({**value, "problems": list(problems)})


class _Pages:
    """Prints tables one after the other where stdout is not a terminal and cannot replace them."""

    def __init__(self, write: Callable[[Table], None], warn: Callable[[str], None]) -> None:
        self._write_table = write
        self._warn = warn

    def show(self, tables: Sequence[OutputRows], problems: Sequence[str]) -> None:
        for table in tables:
            self._write_table(_table(table))
        for problem in problems:
            self._warn(problem)


class _Live:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, tables: Sequence[OutputRows], problems: Sequence[str]) -> None:
        below = [Text(one_line(problem), style="yellow") for problem in problems]
        self._live.update(Group(*map(_table, tables), *below), refresh=True)


def _plain(text: str) -> str:
    """
    Return text that rich prints unchanged: foreign data must not act as its markup or as control
    characters.
    """
    return escape(one_line(text))


def is_interactive() -> bool:
    """Return whether a user at a terminal can be asked."""
    return sys.stdin.isatty()
