"""Questions before a change: a command that changes something shows the change first, and asks."""

import click

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.printable import one_line
from rmq_ha.ops.admin.options import combine_options
from rmq_ha.ops.admin.output import is_interactive


class NotAgreed(RmqHaError):
    pass


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what the command would do, and do nothing."
)
sure_options = combine_options(
    dry_run_option, click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
)


def must_be_askable(*, yes: bool, dry_run: bool) -> None:
    """
    Refuse to start a change that could not be confirmed.

    :raises click.UsageError: no terminal is attached, and neither `--yes` nor `--dry-run` was
        given.
    """
    if not (yes or dry_run or is_interactive()):
        raise click.UsageError(
            "no terminal is there to answer the question: give --yes, or --dry-run"
        )


def is_wanted(question: str, *, yes: bool, dry_run: bool) -> bool:
    """
    Ask whether to make the change; `--yes` answers it.

    :returns: false for `--dry-run`.
    :raises NotAgreed: the user answers no.
    """
    if dry_run or yes:
        return not dry_run
    try:
        agreed = click.confirm(one_line(question), err=True)
    except click.Abort:
        agreed = False
    if not agreed:
        raise NotAgreed("nothing was changed")
    return True
