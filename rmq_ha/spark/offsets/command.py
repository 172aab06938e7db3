"""The commands `verify-offsets` and `snapshot`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rmq_ha.spark.failing import meaning_of
from rmq_ha.spark.offsets.sampling import Patience
from rmq_ha.spark.places import SnapshotPlace, parse_place
from rmq_ha.spark.result import JobResult, WrongUsage
from rmq_ha.spark.running import Job, job_options, job_options_of_pairs, run_job

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


if TYPE_CHECKING:
    from rmq_ha.spark.offsets.model import Snapshot

    _ParamType = click.ParamType[int]
else:  # older ones cannot be subscripted
    _ParamType = click.ParamType


class Span(_ParamType):
    """A length of time: `20s`, `500ms`, `2m`; a bare number is seconds. As ms."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """:raises click.BadParameter: it is none."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        unit = next((unit for unit in ("ms", "s", "m", "h") if text.endswith(unit)), "")
        try:
            number = float(text.removesuffix(unit))
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e9:
            self.fail(f"{value!r}: write a time as 20s, 500ms or 2m", param, ctx)
        return round(number * _UNITS[unit or "s"])


@click.command("verify-offsets")
@click.option(
    "--master",
    "of_master",
    required=True,
    metavar="PLACE",
    help="The master: /store/root, broker://host:port, namesrv://host:port/brokerName or"
    " snapshot:DIR.",
)
@click.option(
    "--slave",
    "of_slaves",
    required=True,
    multiple=True,
    metavar="PLACE",
    help="A slave, as often as there are some; one that is safe to fail over to is enough.",
)
@click.option(
    "--max-skew",
    type=Span(),
    default="20s",
    show_default=True,
    help="How old a slave's tables may be: it copies every 10 s, its master writes files every 5 s."
    " Two stores at rest may differ by nothing.",
)
@click.option(
    "--wait",
    type=Span(),
    default=None,
    help="How long to look again at a slave that lacks something; default: --max-skew and 3 s. A"
    " shorter time may leave the question open (exit code 3).",
)
@click.option(
    "--max-lag",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Messages that each queue of a slave may lack.",
)
@click.option(
    "--max-repeats",
    type=click.IntRange(min=0),
    help="More repeated messages than that are not safe; default: any number is.",
)
@click.option(
    "--history",
    metavar="snapshot:DIR",
    help="Snapshots of these replicas, to look for rollbacks and jumps in the past.",
)
@click.option("--record", is_flag=True, help="Add what is seen to --history first.")
@click.option(
    "--repair", metavar="DIR", help="Write a repair plan and merged tables there; nothing is done."
)
@job_options_of_pairs
def verify_offsets(
    of_master: str,
    of_slaves: Sequence[str],
    max_skew: int,
    wait: int | None,
    max_lag: int,
    max_repeats: int | None,
    history: str | None,
    record: bool,
    repair: str | None,
) -> None:
    """
    Can I fail over now, and what would be repeated, skipped or lost?

    Compares topics, groups, consumer offsets, delay offsets, queues and logs of a master and its
    slaves, over the wire or in their stores.
    """
    patience = Patience(max_skew, max_skew + 3_000 if wait is None else wait)
    inputs = {"master": of_master, "slave": " ".join(of_slaves)}
    if history:
        inputs["history"] = history

    def body(job: Job) -> JobResult:
        from rmq_ha.spark.offsets.job import Limits, verify
        from rmq_ha.spark.offsets.opening import seen

        past = _directory(history)
        if record and past is None:
            raise WrongUsage("--record adds to a history: name it with --history snapshot:DIR")
        pairings = seen(job, of_master, of_slaves, patience)
        if record and past is not None:
            from rmq_ha.spark.offsets.history import append

            append(_as(pairings[0].masters[-1], "ASYNC_MASTER"), past)
            for pairing in pairings:
                append(_as(pairing.slave, "SLAVE"), past)
        result = verify(job.spark, pairings, Limits(max_lag, max_repeats), past)
        if repair is not None:
            from rmq_ha.spark.offsets.repair import save

            save(pairings, repair, max_lag)
            job.note(f"a repair plan is in {repair}; nothing was done")
        return result

    run_job("verify-offsets", inputs, body, quick=True)


def _as(taken: "Snapshot", role: str) -> "Snapshot":
    """A store does not say what it is, but the command line did."""
    return replace(taken, role=taken.role or role)


def _directory(history: str | None) -> str | None:
    if history is None:
        return None
    place = parse_place(history)
    if not isinstance(place, SnapshotPlace):
        raise WrongUsage(f"--history {history}: write snapshot:DIR")
    return place.uri


@click.command("snapshot")
@click.argument("place", metavar="PLACE")
@click.option(
    "--to", "directory", required=True, metavar="DIR", help="The history, a directory; it grows."
)
@click.option(
    "--role",
    type=click.Choice(["master", "slave"]),
    help="Of a store, which does not say whose it is.",
)
@click.option("--broker-name", help="Of a store, which does not say.")
@job_options
def snapshot(place: str, directory: str, role: str | None, broker_name: str | None) -> None:
    """
    Keep the offsets, topics and groups of PLACE for `verify-offsets --history snapshot:DIR`.

    A few kilobytes each time; needs no Java. Run it on master and slaves, by cron.
    """
    from rmq_ha.spark.offsets.history import append
    from rmq_ha.spark.offsets.opening import look

    def body() -> None:
        taken = look(place, is_slave=role == "slave")
        if taken.role is None:
            if role is None:
                raise WrongUsage(f"{place} does not say what it is: give --role master or slave")
            taken = replace(taken, role="SLAVE" if role == "slave" else "ASYNC_MASTER")
        if taken.broker is None:
            taken = replace(taken, broker=broker_name)
        click.echo(append(taken, directory.removeprefix("snapshot:")))

    try:
        body()
    except Exception as error:
        outcome, reason = meaning_of(error)
        click.echo(f"Error: {reason}", err=True)
        click.get_current_context().exit(int(outcome))
