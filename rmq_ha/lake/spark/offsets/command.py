"""Reads the options of `verify-offsets`, and runs the job."""

from collections.abc import Sequence
from typing import Any

import click

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job, job_options_of_pairs, plain_command, run_job
from rmq_ha.ops.offsets.command import OffsetOptions, limit_options, options_of, pair_options
from rmq_ha.ops.offsets.pair_lists import Pair, pairs_in
from rmq_ha.ops.offsets.places import SnapshotPlace, parse_place


@click.command("verify-offsets")
@pair_options(required=False)
@click.option(
    "--pairs",
    "listed",
    type=click.File(),
    help="A file of pairs. Each line has the places of a master and its slaves, with blanks "
    "between them.",
)
@click.option(
    "--cluster",
    metavar="namesrv://host:port[/NAME]",
    help="Check every broker that these name servers know, or every broker of one cluster.",
)
@limit_options
@click.option(
    "--history",
    metavar="snapshot:DIR",
    help="Snapshots of these replicas, in which to look for rollbacks and jumps.",
)
@click.option("--record", is_flag=True, help="Add the current state to --history first.")
@job_options_of_pairs
def verify_offsets(
    of_master: str | None,
    of_slaves: Sequence[str],
    listed: Any,
    cluster: str | None,
    history: str | None,
    record: bool,
    **given: Any,
) -> None:
    """
    Decide whether a broker can fail over now, and which messages would be repeated, skipped or
    lost.

    Compares topics, groups, consumer offsets, delay offsets, queues and logs of a master and its
    slaves, over the wire or in their stores. One pair: --master and --slave (`rmqha-admin
    verify-offsets` answers that without Spark); many: --pairs or --cluster.
    """
    limits = options_of(given)
    is_pair = bool(of_master)
    if is_pair + bool(listed) + bool(cluster) != 1 or is_pair != bool(of_slaves):
        raise click.UsageError("give --master and --slave, or --pairs, or --cluster")
    if limits.repair is not None and not is_pair:
        raise click.UsageError("--repair is for one pair: give --master and --slave")
    inputs = {
        "master": of_master,
        "slave": " ".join(of_slaves),
        "pairs": listed and listed.name,
        "cluster": cluster,
        "history": history,
    }

    def body(job: Job) -> JobResult:
        past = _directory(history)
        if record and past is None:
            raise WrongUsage("--record adds to a history: name it with --history snapshot:DIR")
        if of_master:
            return _verify_one_pair(job, [of_master, *of_slaves], limits, past, record)
        from rmq_ha.ops.offsets.opening import pairs_of_cluster

        pairs = pairs_of_cluster(job.client, cluster) if cluster else pairs_in(listed.read())
        return _verify_many_pairs(job, pairs, limits, past, record)

    run_job("verify-offsets", {name: text for name, text in inputs.items() if text}, body)


def _verify_one_pair(
    job: Job, pair: Pair, limits: OffsetOptions, past: str | None, record: bool
) -> JobResult:
    """Look at a pair and judge it; write the repair plan, if that is asked for."""
    from rmq_ha.lake.spark.offsets.job import verify
    from rmq_ha.ops.offsets.opening import look_at_pair
    from rmq_ha.ops.offsets.repair import save
    from rmq_ha.ops.offsets.snapshot_history import append_pairings

    pairings = look_at_pair(
        job.client, [job.place(text) for text in pair], limits.patience, job.note
    )
    if record and past is not None:
        append_pairings(pairings, past)
    result = verify(job.engine, pairings, limits.limits, past)
    if limits.repair is not None:
        save(pairings, limits.repair, limits.limits.max_lag)
        job.note(f"a repair plan is in {limits.repair}; nothing was done")
    return result


def _verify_many_pairs(
    job: Job, pairs: Sequence[Pair], limits: OffsetOptions, past: str | None, record: bool
) -> JobResult:
    """Look at many pairs and judge them, by tasks."""
    from rmq_ha.lake.spark.offsets.many_pairs import PairWork, verify

    places = [[job.place(text) for text in pair] for pair in pairs]
    pair_work = PairWork(job.client, limits.patience, limits.limits, past if record else None)
    with job.progress(f"looking at {len(places)} pairs"):
        return verify(job.engine(), places, pair_work, past)


def _directory(history: str | None) -> str | None:
    """Return the directory of a history, or raise WrongUsage; None: none was given."""
    if history is None:
        return None
    place = parse_place(history)
    if not isinstance(place, SnapshotPlace):
        raise WrongUsage(f"--history {history}: write snapshot:DIR")
    return place.uri


plain_verify_offsets = plain_command(verify_offsets)
