"""Reads the options of `verify-fleet`, and runs the job."""

from collections.abc import Sequence

import click

from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job, job_options, plain_command, run_job
from rmq_ha.ops.offsets.command import DurationParam


@click.command("verify-fleet")
@click.argument("directory")
@click.option("--max-skew", type=DurationParam(), default="20s", show_default=True,
              help="How old a slave's copies of topics, groups and offsets may be.")  # fmt: skip
@click.option("--max-age", type=DurationParam(), default="24h", show_default=True,
              help="How old the facts about a store may be.")  # fmt: skip
@click.option("--alone", multiple=True, metavar="BROKER",
              help="A broker that has no slave on purpose; repeatable.")  # fmt: skip
@click.option("--no-fetch", is_flag=True, help="Name the windows that differ, and read no store.")
@click.option(
    "--ids",
    is_flag=True,
    help="Look for two messages with the same id (facts made with rmqha-scan --ids).",
)
@job_options
def verify_fleet(
    directory: str, max_skew: int, max_age: int, alone: Sequence[str], no_fetch: bool, ids: bool
) -> None:
    """
    Decide by the facts in DIRECTORY whether all replicas are equal, and whether each broker can
    fail over.

    The job reads no logs, except windows that differ, and only from stores that this machine can
    open.
    """

    def body(job: Job) -> JobResult:
        from rmq_ha.lake.scan.fleet.judging import JudgingLimits
        from rmq_ha.lake.spark.fleet import verify

        patience = JudgingLimits(max_skew, max_age, not no_fetch, frozenset(alone), ids)
        return verify(job, directory, patience, job.now_ms(), looks_for_ids=ids)

    run_job("verify-fleet", {"directory": directory}, body)


plain_verify_fleet = plain_command(verify_fleet)
