"""
`rmqha-admin handover`: has the leader of a DLedger group, or the master of a classic pair or of a
set in controller mode, hand over.
"""

from typing import Any

import click

from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.errors import RemotingError
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import broker_config
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.dledger import NamedGroup, client_of, group_options, known_group, show_members
from rmq_ha.ops.admin.dledger_group import GroupRefused, MemberStatus, leader_of
from rmq_ha.ops.admin.handover_pair import exchange_roles
from rmq_ha.ops.admin.handover_set import elect, set_of
from rmq_ha.ops.admin.options import common_options, refuse_given
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import targets

_CLASSIC = "{which} is in no DLedger group; for a classic pair, type rmqha-admin handover BROKER"


@click.command()
@click.argument("which", metavar="[BROKER|HOST:PORT]", default="")
@click.option(
    "--to",
    metavar="MEMBER|ID",
    help="The member that shall lead. Default: the one with the most of the log, or the next "
    "one in sync.",
)
@group_options
@sure_options
@common_options
def handover(which: str, to: str | None, yes: bool, dry_run: bool, **named: Any) -> None:
    """
    Give the lead of a DLedger group, or of a pair, to another member, for example before a machine
    is taken down. Both brokers have to run.

    BROKER names the group or pair; a group may also be named by --group with --peers, or by
    --config. For about a second no message is taken. If the master of a classic pair is dead, use
    `promote` instead.

    Exit code 0: the other member leads; 1: it does not lead; 4: too few members answer.
    """
    must_be_askable(yes=yes, dry_run=dry_run)
    known = None
    if which:
        refuse_given(("group", "peers", "config"), "BROKER says which group it is. Leave one out")
    else:
        try:
            known = known_group(named["group"], named["peers"], named["config"])
        except click.UsageError as error:
            if named["config"] is None:
                raise
            what = f"the broker of {named['config'].name}"
            raise click.UsageError(f"{error.message}; else {_CLASSIC.format(which=what)}") from None

    async def work(session: Session) -> int | None:
        if known is not None:
            return await give_over(session, known, to, yes=yes, dry_run=dry_run)
        return await give_over_of(session, which, to, yes=yes, dry_run=dry_run)

    run(work)


async def give_over_of(session: Session, which: str, to: str | None, **sure: bool) -> int | None:
    """
    Hand over in the DLedger group, the controlled set or the classic pair that the configuration of
    broker `which` names.

    :returns: the exit code.
    :raises NothingFound: there is no such broker.
    """
    asker, brokers = await targets(session, which)
    problem: RemotingError | None = None
    for target in brokers:
        try:
            config = await asker.run(broker_config(target.address))
        except RemotingError as error:
            problem = error
            continue
        if (controlled := set_of(config)) is not None:
            return await elect(session, Asker(await session.direct()), controlled, to, **sure)
        if config.get("enableDLegerCommitLog") != "true":
            return await exchange_roles(session, config.get("brokerName", ""), to, **sure)
        known = NamedGroup(config["dLegerGroup"], parse_peers(config["dLegerPeers"]))
        return await give_over(session, known, to, **sure)
    raise problem or NothingFound(f"no broker is called {which}")


async def give_over(
    session: Session, known: NamedGroup, to: str | None, **sure: bool
) -> int | None:
    """
    Hand over leadership in a DLedger group: choose a follower, ask, and transfer.

    :returns: the exit code.
    """
    client = client_of(session, known)
    members = await client.status()
    leader = leader_of(members)
    show_members(session, known, members)
    chosen = to or _best_follower(members, leader)
    if leader is None or chosen is None:
        text = "nobody leads" if leader is None else "no other member answers"
        session.output.error(f"{known.group}: {text}, so nobody can hand over", exit_code=NO_ANSWER)
        return NO_ANSWER
    if leader.member == chosen:
        session.output.line(
            f"{chosen} leads {known.group} already", {"leader": chosen, "changed": False}
        )
        return None
    plan = f"{leader.member} hands {known.group} over to {chosen}"
    if not is_wanted(f"{plan}. Do it?", **sure):
        session.output.line(f"dry run: {plan}", {"leader": leader.member, "to": chosen})
        return None
    try:
        with session.output.progress("handing over", None):
            term = await client.transfer(chosen)
    except GroupRefused as error:
        session.output.error(str(error), exit_code=FAILED, code=error.code)
        return FAILED
    text = f"{chosen} leads {known.group} in term {term}"
    session.output.line(text, {"leader": chosen, "term": term, "changed": True})
    return None


def _best_follower(members: list[MemberStatus], leader: MemberStatus | None) -> str | None:
    """Return the follower that lacks the fewest entries; the first of several."""
    others = [member for member in members if member is not leader and member.problem is None]
    followers = [member for member in others if member.lag is not None]
    return min(followers, key=lambda member: member.lag or 0).member if followers else None
