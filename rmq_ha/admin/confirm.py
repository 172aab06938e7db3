"""Whoever changes something for all shows it first, and asks."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rmq_ha.admin.output import is_interactive
from rmq_ha.errors import RmqHaError

F = TypeVar("F", bound=Callable[..., Any])


class NotAgreed(RmqHaError):
    """Somebody said no."""


def sure_options(function: F) -> F:
    """`--dry-run` and `--yes`."""
    for option in (
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    ):
        function = option(function)
    return function


def must_be_askable(*, yes: bool, dry_run: bool) -> None:
    """:raises click.UsageError: nobody is there who could say yes."""
    if not (yes or dry_run or is_interactive()):
        raise click.UsageError("nobody is there to ask: give --yes, or --dry-run")


def is_wanted(question: str, *, yes: bool, dry_run: bool) -> bool:
    """
    Ask.

    :returns: false for `--dry-run`.
    :raises NotAgreed: no.
    """
    if dry_run or yes:
        return not dry_run
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        agreed = False
    if not agreed:
        raise NotAgreed("nothing was changed")
    return True
