"""`rmqha-admin group clients`: what each member of a group has, and how fast it is."""

from collections import defaultdict
from typing import Any

import click

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.client.lookup.administration import members_of
from rmq_ha.client.lookup.running_info import RunningInfo, running_info
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import first_of_each, targets

COLUMNS = (
    "client_id",
    "address",
    "topic",
    "queues",
    "cached",
    "consumed_s",
    "failed_s",
    "takes_ms",
)


@click.command()
@click.argument("name", metavar="GROUP")
@click.option(
    "--stacks",
    is_flag=True,
    help="Print the stacks of the members' threads. Only Java clients have any.",
)
@common_options
def clients(name: str, stacks: bool) -> None:
    """
    What each member of GROUP has: queues, messages that wait in it, messages a second over the last
    minute, and how long one takes. The members themselves are asked, through their brokers.

    Exit code 3: it has no members; 4: one does not answer.
    """

    async def work(session: Session) -> int | None:
        return await show_clients(session, name, stacks=stacks)

    run(work)


async def show_clients(session: Session, name: str, *, stacks: bool = False) -> int | None:
    """
    Show what each member of a group has and how fast it is.

    :returns: the exit code.
    :raises NothingFound: the group has no members.
    """
    asker, brokers = await targets(session)
    where: dict[str, tuple[Connection, str]] = {}
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        members = await asker.run(members_of(target.address, name))
        for item in members.connections:
            where.setdefault(item.client_id, (item, target.address))
    if not where:
        raise NothingFound(f"{name} has no members: `group show {name}` shows what is known of it")
    rows: list[list[Any]] = []
    problems: list[str] = []
    shown: dict[str, str] = {}
    for client_id in session.output.track("asking members", sorted(where)):
        member, address = where[client_id]
        try:
            info = await asker.run(running_info(address, name, client_id, stacks=stacks))
        except (BrokerRefused, RemotingError, ProtocolViolation) as error:
            problems.append(f"{client_id}: {error}")
            rows.append([client_id, member.client_address, *[None] * 6])
            continue
        rows += _rows(member, info)
        shown[client_id] = info.stacks
    more = {"stacks": shown} if stacks and session.output.as_json else {}
    session.output.table(name, COLUMNS, rows, **more)
    if stacks:
        for client_id, text in shown.items():
            for line in ("", client_id, *text.expandtabs().splitlines()):
                session.output.say(line)
    for problem in problems:
        session.output.warn(problem)
    return NO_ANSWER if problems else None


def _rows(member: Connection, info: RunningInfo) -> list[list[Any]]:
    """
    Return a row for each topic of a member, or one row without a topic if the member has none.
    """
    names: dict[str, list[str]] = defaultdict(list)
    cached: dict[str, int] = defaultdict(int)
    for item in info.queues:
        names[item.queue.topic].append(f"{item.queue.broker_name}:{item.queue.queue_id}")
        cached[item.queue.topic] += item.cached
    pace = {item.topic: item for item in info.pace}
    rows: list[list[Any]] = []
    for topic in sorted({*names, *pace}) or [""]:
        row: list[Any] = [member.client_id, member.client_address, topic or None]
        row += [" ".join(names[topic]) or None, cached[topic]] if topic else [None, None]
        own = pace.get(topic)
        row += [None] * 3 if own is None else [round(value, 2) for value in own[1:]]
        rows.append(row)
    return rows
