"""`rmqha-admin group inflight`: the popped messages of a group that are not acknowledged yet."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import click

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.wire.pop_reports import InFlightReport, QueueOut
from rmq_ha.client.lookup.administration import members_of
from rmq_ha.client.lookup.groups import in_flight
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, first_of_each, targets

COLUMNS = (
    "topic",
    "broker",
    "queue",
    "in_flight",
    "acked_ahead",
    "committed",
    "next",
    "waiting",
    "oldest_s",
    "first_due",
    "attempts",
    "client",
)
MOVES_COLUMNS = ("topic", "broker", "again", "retried", "dead", "gone")


class BrokerReport(NamedTuple):
    """
    One broker, and what it tells of a group's popped messages.

    :ivar clients: client id by address, of the members that are connected.
    """

    target: BrokerTarget
    report: InFlightReport
    clients: dict[str, str]


@click.command()
@click.argument("name", metavar="GROUP")
@click.option("--topic", "-t", default="", help="Show this topic and its retry topics only.")
@common_options
def inflight(name: str, topic: str) -> None:
    """
    Show for each queue which popped messages are out with consumers of GROUP.

    `in_flight` messages are out and not acknowledged. `acked_ahead` are acknowledged, although a
    message before them is not: the offset of the group, `committed`, is the first message that is
    not. `waiting` were never handed out. `oldest_s` is the age of the oldest lease, `attempts`
    counts how often its message was handed out, and `client` has it. `first_due` is when the first
    lease ends; then the message comes again.

    A second table counts since each broker's start: messages that were handed out `again`, that
    were moved to retry topics (`retried`) or to the dead letters (`dead`), and that retention
    deleted while they were out (`gone`).

    Exit code 3: the group pops nothing at any broker; 4: a broker does not answer.
    """

    async def work(session: Session) -> int | None:
        return await show_in_flight(session, name, topic)

    run(work)


async def show_in_flight(session: Session, group: str, topic: str = "") -> int | None:
    """
    Show the popped messages of a group.

    :returns: the exit code.
    :raises NothingFound: the group pops nothing at any broker.
    """
    asker, brokers = await targets(session)
    reports: list[BrokerReport] = []
    problems: list[str] = []
    silent: list[str] = []
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        try:
            report = await asker.run(in_flight(target.address, group, topic))
            members = await asker.run(members_of(target.address, group))
        except (RemotingError, BrokerRefused, ProtocolViolation) as error:
            problems.append(f"{target.address}: {error}")
            continue
        if report.state in ("", "off"):
            silent.append(f"{target.address}: {_why_silent(report.state)}")
            continue
        clients = {item.client_address: item.client_id for item in members.connections}
        reports.append(BrokerReport(target, report, clients))
    rows = [_row(item, queue) for item in reports for queue in item.report.queues]
    moves = [
        [move.topic, item.target.name, move.again, move.retried, move.dead, move.gone]
        for item in reports
        for move in item.report.moves
    ]
    if not rows and not moves and not problems:
        where = f" from {topic}" if topic else ""
        raise NothingFound(_reasons(f"the group {group} pops nothing{where}", silent))
    _show(session, group, rows, moves, [*problems, *_notes(reports)])
    return NO_ANSWER if problems else None


def _show(
    session: Session,
    group: str,
    rows: list[list[Any]],
    moves: list[list[Any]],
    problems: list[str],
) -> None:
    output, total = session.output, sum(row[3] for row in rows)
    if output.as_json:
        output.fields(
            {
                "group": group,
                "in_flight": total,
                "rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
                "moves": [dict(zip(MOVES_COLUMNS, row, strict=True)) for row in moves],
                "problems": problems or None,
            }
        )
        return
    output.table(group, COLUMNS, rows, in_flight=total)
    output.table("moves since the start", MOVES_COLUMNS, moves)
    for problem in problems:
        output.warn(problem)


def _row(item: BrokerReport, queue: QueueOut) -> list[Any]:
    oldest_s = first_due = None
    if queue.in_flight:
        oldest_s = round(max(0, item.report.now_ms - queue.oldest_ms) / 1000, 1)
        first_due = time_text(queue.due_ms)
    return [
        queue.topic,
        item.target.name or item.target.address,
        queue.queue_id,
        queue.in_flight,
        queue.acked_ahead,
        queue.committed,
        queue.next,
        max(0, queue.end - queue.next),
        oldest_s,
        first_due,
        queue.attempts or None,
        item.clients.get(queue.client, queue.client) or None,
    ]


def _notes(reports: Iterable[BrokerReport]) -> list[str]:
    return [
        f"{item.target.address}: {item.report.left_out} queues more are not shown"
        for item in reports
        if item.report.left_out
    ]


def _why_silent(state: str) -> str:
    return "popEnable is false" if state else "it runs RocketMQ, which does not tell"


def _reasons(text: str, silent: list[str]) -> str:
    return f"{text} ({'; '.join(silent)})" if silent else text
