"""
The commands `verify-offsets` and `snapshot`, which say whether a failover is safe. They need
neither Spark nor Java.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.host.blocking import now_ms, seconds
from rmq_ha.base.model.printable import in_json, one_line
from rmq_ha.ops.admin.options import common_options, current_options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.offsets.command import limit_options, options_of, pair_options
from rmq_ha.ops.offsets.digest import counts_of, digest_of_rows
from rmq_ha.ops.offsets.findings import COLUMNS, Outcome
from rmq_ha.ops.offsets.opening import look, look_at_pair
from rmq_ha.ops.offsets.places import parse_place
from rmq_ha.ops.offsets.repair import save
from rmq_ha.ops.offsets.snapshot_history import append
from rmq_ha.ops.offsets.summary import STRICT, Timings, outcome_of, summary_of, version
from rmq_ha.ops.offsets.verdict import answer


@click.command("verify-offsets")
@pair_options(required=True)
@limit_options
@click.option(
    "--findings", "shows", is_flag=True, help="Print each finding, not only their numbers."
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings, too.")
@click.option("--quiet", "-q", is_flag=True, help="Print no notes on stderr.")
@common_options
def verify_offsets(
    of_master: str, of_slaves: Sequence[str], shows: bool, strict: bool, quiet: bool, **given: Any
) -> None:
    """
    Can I fail over now, and what would be repeated, skipped or lost?

    Compares topics, groups, consumer offsets, delay offsets, queues and logs of a master and its
    slaves, over the wire or in their stores. Exit codes: 0 it is safe; 1 it is not; 2 wrong usage;
    3 it could not be decided; 4 it failed.
    """
    options, timings, began = current_options(), Timings(now_ms()), seconds()
    output = Output(options.as_json or quiet)
    patience, limits, repair = options_of(given)
    rows: list[Mapping[str, Any]] = []
    numbers: Mapping[str, Any] = {}

    def note(text: str) -> None:
        if not quiet:
            click.echo(one_line(text), err=True)

    try:
        places = [parse_place(text) for text in (of_master, *of_slaves)]
        with output.progress("looking at offsets", None):
            pairings = look_at_pair(options.client_config(), places, patience, note)
            told = answer(pairings, limits)
        outcome, verdict, numbers = told.outcome, told.verdict, told.numbers
        rows = [dict(zip(COLUMNS, finding, strict=True)) for finding in told.findings]
        if repair is not None:
            save(pairings, repair, limits.max_lag)
            note(f"a repair plan is in {repair}; nothing was done")
    # Whatever ends the look, the answer is "could not be decided" and never "it is safe".
    except (Exception, KeyboardInterrupt) as error:
        outcome, verdict = _refusal(error, raises=options.verbose)
    digest = digest_of_rows(rows, len(rows))
    strictly = outcome_of(outcome, digest, strict)
    verdict += STRICT if strictly is not outcome else ""
    if options.as_json:
        inputs = {"master": of_master, "slave": " ".join(of_slaves)}
        timings = timings._replace(run=seconds() - began)
        of = ("verify-offsets", version(), inputs, strictly, verdict, digest, numbers, timings)
        summary = {**summary_of(*of), "findings": digest.top}
        click.echo(in_json(json.dumps(summary, ensure_ascii=False)))
    else:
        told_lines = [_line(row) for row in digest.top] if shows else []
        click.echo("\n".join(map(one_line, [*told_lines, *counts_of(digest), verdict])))
    click.get_current_context().exit(int(strictly))


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


def _line(row: Mapping[str, Any]) -> str:
    names = (("group", "group "), ("queueId", "queue "), ("topic", "topic "))
    where = ", ".join(f"{word}{row[name]}" for name, word in names if row[name] is not None)
    values = f": {row['expected']} / {row['actual']}" if row["expected"] or row["actual"] else ""
    return f"{row['severity']:<5}  {row['code']}  {row['broker']} {where}{values}: {row['detail']}"


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
    Keep the offsets, topics and groups of PLACE for `verify-offsets`, as snapshot:DIR.

    A few kilobytes each time. Run it on master and slaves, by cron. Exit codes: 0 done; 2 wrong
    usage; 3 the place cannot be read; 4 it failed.
    """
    options = current_options()
    try:
        with Output(options.as_json).progress("looking at offsets", None):
            taken = look(options.client_config(), parse_place(place), is_slave=role == "slave")
        if taken.role is None:
            if role is None:
                raise WrongUsage(f"{place} does not say what it is: give --role master or slave")
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
