"""`rmqha-admin ha status`: shows masters, their slaves, and how far the slaves are behind."""

from typing import Any

import click

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.pair import PairMember, look_at
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, targets

COLUMNS = (
    "broker",
    "id",
    "address",
    "role",
    "state",
    "log_end",
    "behind",
    "heard_s",
    "tables_s",
)


@click.group()
@common_options
def ha() -> None:
    """Show masters and slaves."""


@ha.command()
@click.argument("which", metavar="[BROKER|CLUSTER]", default="")
@common_options
def status(which: str) -> None:
    """
    Show masters and their slaves. `behind` is the number of bytes of the log that a slave lacks.
    `heard_s` is the time since the slave heard its master, and `tables_s` the time since it copied
    topics, groups and offsets, both in seconds.

    Exit code 4: a broker does not answer; 1: a name has no master or two, a slave does not follow,
    or a SYNC_MASTER has no slave.
    """

    async def work(session: Session) -> int | None:
        return await show_pairs(session, which)

    run(work)


async def show_pairs(session: Session, which: str) -> int | None:
    """
    Show masters with their slaves.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    members = [
        (target, await look_at(asker, target.address))
        for target in session.output.track("asking brokers", brokers)
    ]
    problems: list[str] = []
    rows: list[list[Any]] = []
    for name in dict.fromkeys(target.name for target in brokers):
        mine = [item for item in members if item[0].name == name]
        problems += _faults(name, mine)
        rows += _rows(mine)
    session.output.table("pairs", COLUMNS, rows, problems=problems or None)
    if any(member.problem for _, member in members):
        return NO_ANSWER
    return FAILED if problems else None


def _rows(members: list[tuple[BrokerTarget, PairMember]]) -> list[list[Any]]:
    end = max((member.end for _, member in members if member.is_master), default=None)
    rows = []
    for target, member in members:
        link, behind = member.link, None
        silent = None if link is None else link.silent_ms
        state: str | None = "does not answer"
        if member.role:
            state = None if link is None else link.state
        if member.is_master:
            slaves = member.replication.get("slaves")
            state = None if slaves is None else f"{len(slaves)} slaves"
        elif end is not None and member.role:
            behind = max(0, end - member.end)
        rows.append(
            [
                target.name or member.broker_name,
                target.broker_id,
                target.address,
                member.role,
                state,
                member.end if member.role else None,
                behind,
                None if silent is None else round(silent / 1000, 1),
                member.replication.get("tables_seconds"),
            ]
        )
    return rows


def _faults(name: str, members: list[tuple[BrokerTarget, PairMember]]) -> list[str]:
    """Return the faults of a broker name that an operator has to look at."""
    faults = [f"{m.address}: {m.problem}" for _, m in members if m.problem is not None]
    leading = [member for _, member in members if member.is_master]
    by_id = [target for target, _ in members if target.broker_id in (MASTER_ID, None)]
    if not by_id:
        faults.append(f"{name} has no master: docs/failover.md")
    if len(leading) > 1:
        faults.append(f"{name} has {len(leading)} masters: {', '.join(m.address for m in leading)}")
    for member in leading:
        is_alone = member.replication.get("slaves") == []
        if member.role == BrokerRole.SYNC_MASTER.value and is_alone:
            faults.append(f"{member.address}: a SYNC_MASTER without a slave")
    for _, member in members:
        link = member.link
        if link is not None and not link.is_followed:
            why = link.fault or link.state
            faults.append(f"{member.address} does not follow its master: {why}")
    return faults
