"""The command `snapshot`, which stores a broker's offsets for `verify-offsets`."""

from dataclasses import replace

import click

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.model.printable import one_line
from rmq_ha.ops.admin.options import common_options, current_options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.opening import look
from rmq_ha.ops.offsets.places import parse_place
from rmq_ha.ops.offsets.snapshot_history import append


def _refusal(error: BaseException, *, raises: bool) -> tuple[Outcome, str]:
    if isinstance(error, WrongUsage):
        raise click.UsageError(str(error)) from None
    if isinstance(error, CannotDecide):
        return Outcome.UNDECIDED, f"could not decide: {error}"
    if isinstance(error, click.ClickException) or raises:
        raise error
    if isinstance(error, KeyboardInterrupt):
        return Outcome.FAILED, "failed: interrupted, so there is no verdict; run it again"
    return Outcome.FAILED, f"failed: {type(error).__name__}: {error} (--verbose shows where)"


@click.command("snapshot")
@click.argument("place", metavar="PLACE")
@click.option(
    "--to",
    "directory",
    required=True,
    metavar="DIR",
    help="The directory of the history. Each run adds to it.",
)
@click.option(
    "--role",
    type=click.Choice(["master", "slave"]),
    help="The role of the broker. A store does not say it.",
)
@click.option("--broker-name", help="The brokerName. A store does not say it.")
@common_options
def snapshot(place: str, directory: str, role: str | None, broker_name: str | None) -> None:
    """
    Store the offsets, topics and groups of PLACE in DIR, for `verify-offsets snapshot:DIR`.

    A snapshot takes a few kilobytes. Run the command by cron, for a master and its slaves. Exit
    codes: 0 done; 2 wrong usage; 3 the place cannot be read; 4 the command failed.
    """
    options = current_options()
    try:
        with Output(options.as_json).progress("looking at offsets", None):
            taken = look(options.client_config(), parse_place(place), is_slave=role == "slave")
        if taken.role is None:
            if role is None:
                raise WrongUsage(
                    f"{place} does not say whether its broker is a master: give --role master "
                    "or --role slave"
                )
            taken = replace(taken, role="SLAVE" if role == "slave" else "ASYNC_MASTER")
        if taken.broker is None:
            taken = replace(taken, broker=broker_name)
        click.echo(append(taken, directory.removeprefix("snapshot:")))
        for code, where in taken.faults:
            click.echo(one_line(f"{code}: {where}. The snapshot says so, too."), err=True)
    except (Exception, KeyboardInterrupt) as error:
        outcome, verdict = _refusal(error, raises=options.verbose)
        click.echo(one_line(f"Error: {verdict}"), err=True)
        click.get_current_context().exit(int(outcome))
