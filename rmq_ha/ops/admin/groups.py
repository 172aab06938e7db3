"""
Command groups whose commands are imported only when they are used: `rmqha-admin` and `rmqha-spark`
have many.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

from rmq_ha.ops.admin.file_errors import file_error_text

_FAILED = 4


class Lazy(NamedTuple):
    """
    The place of a command that is not imported yet.

    :ivar where: `module:attribute` of a `click.Command`.
    :ivar help: one line for the list of all commands.
    :ivar extra: the extra of rmq-ha that has the packages which the command needs.
    """

    where: str
    help: str
    extra: str = ""


class Commands(click.Group):
    """
    A click group whose commands stand in a table.

    :param table: commands by name; the user may type `verify-offsets` for `verify_offsets`.
    """

    def __init__(self, *given: Any, table: Mapping[str, Lazy], **more: Any) -> None:
        super().__init__(*given, **more)
        self._table = table

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._table)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import and return a command; None: no command has this name."""
        place = self._table.get(name.replace("_", "-"))
        if place is None:
            return None
        module, _, attribute = place.where.partition(":")
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            if package == "rmq_ha" or not place.extra:
                raise
            click.echo(
                f"Error: {package} is not installed: pip install 'rmq-ha[{place.extra}]'", err=True
            )
            context.exit(_FAILED)
        return command

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for a name that does not exist, the error suggests similar names."""
        try:
            return super().resolve_command(context, words)
        except click.UsageError as error:
            near = get_close_matches(words[0], self._table, 3, 0.6)
            advice = f"Did you mean {' or '.join(near)}?" if near else "-h lists all of them"
            if "id you mean" in error.message:
                raise  # click's own message suggests names
            raise click.UsageError(f"{error.message} {advice}", context) from None

    def invoke(self, context: click.Context) -> Any:
        """Run the command; what the disk refuses ends it with the path and the next step."""
        try:
            return super().invoke(context)
        except OSError as error:
            if not error.filename:  # of no file, such as a pipe that nobody reads: click knows it
                raise
            raise click.ClickException(file_error_text(error)) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help line of each command, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in self._table.items()])
