"""`rmqha-spark archive` and `rmqha-spark replay`."""

from typing import Any

import click

from rmq_ha.base.host.files import absolute
from rmq_ha.lake.spark.audit.command import names_of
from rmq_ha.lake.spark.moments import moment_ms
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job, job_options, run_job

ALL = "now"
_FORM = click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="What the archive is a table of.",
)


@click.command("archive")
@click.argument("place")
@click.option("--to", required=True, metavar="DIR", help="The archive; made if it is not there.")
@_FORM
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
        from rmq_ha.lake.spark.archive.job import Asked
        from rmq_ha.lake.spark.archive.job import archive as run
        from rmq_ha.lake.spark.audit.stored import client_options

        parsed = job.place(place)
        before = given["before"]
        asked = Asked(
            place=parsed,
            to=absolute(to),
            form=given["form"],
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
    run_job("archive", inputs, body, rows_in_java=True)


@click.command("replay")
@click.argument("archive_", metavar="ARCHIVE")
@_FORM
@click.option("--topic", required=True, metavar="TOPIC", help="Of the archive.")
@click.option("--as", "to", metavar="TOPIC", help="Where to; default: the same topic.")
@click.option("--from", "since", metavar="TIME", help="Only what was stored then or later.")
@click.option("--until", metavar="TIME", help="Only what was stored before.")
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    metavar="N",
    help="Messages a second at most; default: all.",
)
@click.option("--again", is_flag=True, help="Also what the topic has already, by its id.")
@job_options
def replay(archive_: str, topic: str, **given: Any) -> None:
    """
    Send archived messages into a topic of the brokers of --namesrv, each queue's in its order.

    What the topic has already is left out, so that a replay that failed can be repeated.
    """

    def body(job: Job) -> JobResult:
        from rmq_ha.lake.spark.archive.replay import Asked
        from rmq_ha.lake.spark.archive.replay import replay as run

        now = job.now_ms()
        since, until = given["since"], given["until"]
        asked = Asked(
            archive=absolute(archive_),
            form=given["form"],
            topic=topic,
            to=given["to"] or topic,
            from_ms=None if since is None else moment_ms(since, now),
            to_ms=None if until is None else moment_ms(until, now),
            rate=given["rate"],
            again=given["again"],
        )
        return run(job, asked)

    named = {"archive": archive_, "topic": topic, "as": given["to"] or topic}
    times = {name: given[name] for name in ("since", "until") if given[name]}
    run_job("replay", named | times, body, rows_in_java=True)
