"""`rmqha-spark audit-messages`."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.moments import moment_ms, needed_span
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job, job_options, plain_command, run_job


@click.command("audit-messages")
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@click.option("--topics", "-t", metavar="A,B", help="Audit these topics only. Default: all.")
@click.option("--produced", metavar="FILE", help="Ledgers in which producers say what they sent.")
@click.option(
    "--delivered", metavar="FILE", help="Ledgers in which consumers say what they were given."
)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="NAME",
    help="Only rows of the ledgers that are about this broker; repeatable.",
)
@click.option(
    "--key",
    type=click.Choice(["uniqKey", "keys"]),
    default="uniqKey",
    show_default=True,
    help="The field by which two messages are told apart.",
)
@click.option("--window", default="1m", show_default=True, help="The width of one window of time.")
@click.option(
    "--from", "since", metavar="TIME", help="Begin here: 2026-01-31T12:00, ms, or an age like 7d."
)
@click.option("--to", "until", metavar="TIME", help="End before this time.")
@click.option(
    "--grace",
    default="10s",
    show_default=True,
    help="How long a message may take to its consumer, and how far clocks may differ.",
)
@click.option(
    "--ordered",
    multiple=True,
    metavar="GROUP",
    help="A group that promises the order of each queue; repeatable.",
)
@click.option(
    "--subscription",
    "subscriptions",
    multiple=True,
    metavar="GROUP=TAGS",
    help="A group that wants only these tags, as GROUP=TagA||TagB; repeatable.",
)
@job_options
def audit_messages(places: tuple[str, ...], **given: Any) -> None:
    """
    Audit the messages of PLACE: store directories, or brokers by namesrv://host:port/brokerName.

    Several places are brokers that share topics. The audit changes nothing.
    """

    def body(job: Job) -> JobResult:
        from rmq_ha.lake.spark.audit.job import audit
        from rmq_ha.lake.spark.audit.stored_rows import AuditRequest, client_options

        parsed = [job.place(text) for text in places]
        now = job.now_ms()
        since, until = given["since"], given["until"]
        asked = AuditRequest(
            places=parsed,
            topics=names_of(given["topics"]),
            produced=given["produced"],
            delivered=given["delivered"],
            brokers=frozenset(given["brokers"]),
            key=given["key"],
            window_ms=needed_span(given["window"], "--window"),
            from_ms=None if since is None else moment_ms(since, now),
            to_ms=None if until is None else moment_ms(until, now),
            grace_ms=needed_span(given["grace"], "--grace", 0),
            ordered=frozenset(given["ordered"]),
            tags=tags_of(given["subscriptions"]),
            options=client_options(parsed, job.client),
        )
        return audit(job, asked)

    inputs = {f"place{number or ''}": text for number, text in enumerate(places)}
    shown = ("topics", "produced", "delivered", "key", "window", "since", "until", "grace")
    inputs |= {name: given[name] for name in shown if given[name] is not None}
    run_job("audit-messages", inputs, body)


def names_of(listed: str | None) -> tuple[str, ...]:
    """Return the names in a list like `a, b`, without blanks around them; none for no list."""
    return tuple(part.strip() for part in (listed or "").split(",") if part.strip())


def tags_of(subscriptions: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """
    Parse texts like `GROUP=TagA||TagB` into sets of tags by group.

    :raises WrongUsage: a text has another form.
    """
    subscribed = {}
    for text in subscriptions:
        group, equals, tags = text.partition("=")
        names = frozenset(part.strip() for part in tags.split("||") if part.strip())
        if not (group and equals and names):
            raise WrongUsage(f"--subscription {text}: write GROUP=TagA||TagB")
        subscribed[group] = names
    return subscribed


plain_audit_messages = plain_command(audit_messages)
