"""`rmqha-admin group clone`: copies the offsets of one group to another."""

from typing import Any

import click

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.administration import members_of
from rmq_ha.client.lookup.brokers import Offsets, consumer_offsets
from rmq_ha.client.lookup.lookups import commit_offset
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, ChangeRefused, NothingFound, Session, run
from rmq_ha.ops.admin.targets import masters, targets

COLUMNS = ("topic", "broker", "queue", "before", "after")


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("group", metavar="GROUP")
@click.option(
    "--topic",
    "-t",
    default="",
    help="Copy the offsets of this topic only. Default: every topic that FROM consumes.",
)
@sure_options
@common_options
def clone(source: str, group: str, topic: str, **sure: bool) -> None:
    """
    Copy the offsets of the group FROM to GROUP, which then continues at the place of FROM.

    FROM keeps its offsets, and may have members. The command refuses while GROUP has members,
    because they would overwrite the offsets. Exit code 1: it was refused, or a broker has other
    offsets afterwards; 3: FROM has no offsets.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await clone_offsets(session, source, group, topic, **sure)

    run(work)


async def clone_offsets(
    session: Session, source: str, group: str, topic: str = "", **sure: bool
) -> int | None:
    """
    Copy the offsets of one group to another: show them, ask, write, and check.

    :returns: the exit code.
    :raises NothingFound: the source has no offsets.
    :raises ChangeRefused: the group has members, or is the source.
    """
    if source == group:
        raise ChangeRefused(
            f"{group} is both FROM and GROUP: name FROM first, then the group that gets its offsets"
        )
    asker, brokers = await targets(session)
    chosen = masters(brokers)
    rows: list[list[Any]] = []
    where: dict[str, str] = {}
    for target in session.output.track("asking brokers", chosen):
        await _nobody_is_there(asker, target.address, group)
        where[target.name] = target.address
        rows += _rows(await asker.run(consumer_offsets(target.address)), target.name, source, group)
    rows = sorted(row for row in rows if topic in ("", row[0]))
    if not rows:
        about = f" in {topic}" if topic else ""
        raise NothingFound(f"{source} has no offsets{about}: `group list` shows all groups")
    session.output.table(f"{group} as {source}", COLUMNS, rows, done=False)
    if not is_wanted(f"Set {len(rows)} offsets of {group}?", **sure):
        return None
    for name, broker, number, _, after in session.output.track("setting offsets", rows):
        queue = MessageQueue(name, broker, number)
        await asker.run(commit_offset({MASTER_ID: where[broker]}, group, queue, after))
    wrong = await _differing(session, asker, where, group, rows)
    session.output.line(f"{group} goes on where {source} is", {"done": not wrong})
    return FAILED if wrong else None


async def _nobody_is_there(asker: Asker, address: str, group: str) -> None:
    """
    Check that a group has no members at a broker.

    :raises ChangeRefused: the group has members there.
    """
    members = await asker.run(members_of(address, group))
    if members.connections:
        who = ", ".join(sorted(item.client_id for item in members.connections))
        raise ChangeRefused(
            f"{group} has members, which would overwrite the copied offsets: stop {who}"
        )


def _rows(known: Offsets, broker: str, source: str, group: str) -> list[list[Any]]:
    """
    Return a row for each offset that a broker would change. The source's retry topic is left out,
    because a retry topic belongs to its own group.
    """
    rows: list[list[Any]] = []
    for key, offsets in known.items():
        topic, _, owner = key.rpartition("@")
        if owner == source and topic != RETRY_PREFIX + source:
            before = known.get(f"{topic}@{group}", {})
            rows += [[topic, broker, n, before.get(n), after] for n, after in offsets.items()]
    return rows


async def _differing(
    session: Session, asker: Asker, where: dict[str, str], group: str, rows: list[list[Any]]
) -> int:
    """Ask for the offsets again and return how many differ from those that were written."""
    tables = {}
    for broker in session.output.track("asking again", sorted({row[1] for row in rows})):
        tables[broker] = await asker.run(consumer_offsets(where[broker]))
    wrong = 0
    for topic, broker, number, _, after in rows:
        now = tables[broker].get(f"{topic}@{group}", {}).get(number)
        if now != after:
            wrong += 1
            present = "no offset" if now is None else f"offset {now}"
            text = f"{broker} has {present} for queue {number} of {topic}, not {after}"
            session.output.error(f"{text}: did {group} start meanwhile?", exit_code=FAILED)
    return wrong
