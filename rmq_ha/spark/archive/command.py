"""`rmqha-spark archive`."""

from typing import Any

import click

from rmq_ha.spark.audit.command import names_of
from rmq_ha.spark.audit.spans import moment_ms
from rmq_ha.spark.result import JobResult
from rmq_ha.spark.running import Job, job_options, run_job

ALL = "now"


@click.command("archive")
@click.argument("place")
@click.option("--to", required=True, metavar="DIR", help="The archive; made if it is not there.")
@click.option(
    "--before",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Only what was stored before: 2026-01-31, ms, an age like 7d; `now` for everything. What"
    " is young could still be lost by a fail-over, and then the archive would know better.",
)
@click.option(
    "--topics",
    "-t",
    metavar="A,B",
    help="Only these; default: all but those in which brokers keep messages on their way.",
)
@click.option("--broker-name", default="", metavar="NAME", help="Whose store PLACE is.")
@click.option(
    "--run-messages",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    help="Messages committed at once; so much is done again after a crash.",
)
@job_options
def archive(place: str, to: str, **given: Any) -> None:
    """
    Archive cold messages of PLACE: a store directory, or namesrv://host:port/brokerName.

    Goes on where the last run ended. Nothing is deleted from the broker.
    """

    def body(job: Job) -> JobResult:
        from rmq_ha.spark.archive.job import Asked
        from rmq_ha.spark.archive.job import archive as run
        from rmq_ha.spark.audit.stored import client_options

        parsed = job.place(place)
        before = given["before"]
        asked = Asked(
            place=parsed,
            to=to,
            topics=names_of(given["topics"]),
            before_ms=None if before == ALL else moment_ms(before, job.now_ms()),
            broker_name=given["broker_name"],
            most=given["run_messages"],
            options=client_options([parsed], job.client),
        )
        return run(job, asked)

    inputs = {"place": place, "to": to, "before": given["before"]}
    if given["topics"]:
        inputs["topics"] = given["topics"]
    run_job("archive", inputs, body)
