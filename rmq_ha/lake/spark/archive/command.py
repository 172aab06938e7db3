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
    help="The format of the table in which the archive is kept.",
)


@click.command("archive")
@click.argument("place")
@click.option(
    "--to",
    required=True,
    metavar="DIR",
    help="The directory of the archive. It is made if it does not exist.",
)
@_FORM
@click.option(
    "--before",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Archive messages that were stored before then: 2026-01-31, ms, an age like 7d, or "
    "`now` for everything. A fail-over may still remove young messages, which the archive "
    "would keep.",
)
@click.option(
    "--topics",
    "-t",
    metavar="A,B",
    help="Archive these topics only. Default: all but those in which brokers keep messages on "
    "their way.",
)
@click.option(
    "--broker-name",
    default="",
    metavar="NAME",
    help="The brokerName of the broker whose store PLACE is.",
)
@click.option(
    "--run-messages",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    help="How many messages are committed at once. After a crash so many are done again.",
)
@job_options
def archive(place: str, to: str, **given: Any) -> None:
    """
    Archive cold messages of PLACE: a store directory, or namesrv://host:port/brokerName.

    The job continues where the last run ended. It deletes nothing from the broker.
    """

    def body(job: Job) -> JobResult:
        from rmq_ha.lake.spark.archive.job import ArchiveRequest
        from rmq_ha.lake.spark.archive.job import archive as run
        from rmq_ha.lake.spark.audit.stored_rows import client_options

        parsed = job.place(place)
        before = given["before"]
        asked = ArchiveRequest(
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
    run_job("archive", inputs, body)


@click.command("replay")
@click.argument("archive_", metavar="ARCHIVE")
@_FORM
@click.option("--topic", required=True, metavar="TOPIC", help="The topic in the archive.")
@click.option("--as", "to", metavar="TOPIC", help="The topic to send to. Default: the same topic.")
@click.option(
    "--from", "since", metavar="TIME", help="Send messages that were stored then or later."
)
@click.option("--until", metavar="TIME", help="Send messages that were stored before then.")
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    metavar="N",
    help="Messages to send in a second at most. Default: no limit.",
)
@click.option("--again", is_flag=True, help="Also send messages whose id the topic has already.")
@job_options
def replay(archive_: str, topic: str, **given: Any) -> None:
    """
    Send archived messages into a topic of the brokers of --namesrv, each queue's in its order.

    Messages that the topic has already are left out, so a replay that failed can be repeated.
    """

    def body(job: Job) -> JobResult:
        from rmq_ha.lake.spark.archive.replay import ReplayRequest
        from rmq_ha.lake.spark.archive.replay import replay as run

        now = job.now_ms()
        since, until = given["since"], given["until"]
        asked = ReplayRequest(
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
    run_job("replay", named | times, body)
