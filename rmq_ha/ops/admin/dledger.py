"""`rmqha-admin dledger`: the state of a DLedger group, and handing over its leadership."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.config.properties import decode, parse
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.dledger_convert import convert_command
from rmq_ha.ops.admin.dledger_group import GroupClient, GroupRefused, MemberStatus, leader_of
from rmq_ha.ops.admin.options import combine_options, common_options
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, Session, run
from rmq_ha.server.dledger.codes import DLedgerRequestCode

# A transferee may wait a second for entries, then stands for election.
_TRANSFER_MS = 10_000
COLUMNS = (
    "member",
    "address",
    "kind",
    "role",
    "term",
    "leader",
    "begin",
    "end",
    "committed",
    "lag",
    "problem",
)


class NamedGroup(NamedTuple):
    """A DLedger group as the command line names it."""

    group: str
    peers: Mapping[str, str]


group_options = combine_options(
    click.option("--group", "-g", metavar="NAME", help="The group's dLegerGroup."),
    click.option("--peers", metavar="n0-HOST:PORT;...", help="The group's dLegerPeers."),
    click.option(
        "--config",
        type=click.File("rb"),
        help="Properties file of a member: dLegerGroup and dLegerPeers.",
    ),
)
"""Options that name a group; see `known_group`."""


def known_group(group: str | None, peers: str | None, config: Any) -> NamedGroup:
    """
    Return the group that the options name; `--group` and `--peers` win over the file.

    :raises click.UsageError: the options do not name a group and its members.
    """
    if config is not None:
        settings = {item.key: item.value.strip() for item in parse(decode(config.read()))}
        group, peers = group or settings.get("dLegerGroup"), peers or settings.get("dLegerPeers")
    if not group or not peers:
        raise click.UsageError("give --group and --peers, or the --config file of a member")
    try:
        return NamedGroup(group, parse_peers(peers))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None


def client_of(session: Session, known: NamedGroup) -> GroupClient:
    """Return a client that asks the members with the account and TLS of the command line."""

    async def invoke(address: str, command: RemotingCommand) -> RemotingCommand:
        transfers = command.code == DLedgerRequestCode.LEADERSHIP_TRANSFER
        return await session.exchange(address, command, _TRANSFER_MS if transfers else 0)

    return GroupClient(known.group, known.peers, invoke)


@click.group(short_help="A DLedger group: its members, and who leads.")
def dledger() -> None:
    """
    Show the members of a DLedger group, and hand leadership over.

    The members may run rmq-ha or Java. They are asked at the ports in dLegerPeers.
    """


@dledger.command()
@group_options
@common_options
def status(group: str | None, peers: str | None, config: Any) -> None:
    """
    Show the role, the term and the ledger of each member.

    `lag` is the number of entries that a member lacks of the leader's ledger. Members that run
    Java do not report the index up to which they have committed. Exit code 4: a member does not
    answer; 1: no member leads.
    """
    known = known_group(group, peers, config)

    async def work(session: Session) -> int | None:
        return await show_status(session, known)

    run(work)


async def show_status(session: Session, known: NamedGroup) -> int | None:
    """
    Show the members of a group and report a missing leader.

    :returns: the exit code.
    """
    members = await client_of(session, known).status()
    show_members(session, known, members)
    if leader_of(members) is None:
        return FAILED
    return NO_ANSWER if any(member.problem for member in members) else None


def show_members(session: Session, known: NamedGroup, members: list[MemberStatus]) -> None:
    """Show a row for each member, and the reason for each member that is not known."""
    rows = [[getattr(member, column) for column in COLUMNS] for member in members]
    problems = [f"{member.member}: {member.problem}" for member in members if member.problem]
    columns = COLUMNS if session.output.as_json else COLUMNS[:-1]
    shown = [row[: len(columns)] for row in rows]
    leader = leader_of(members)
    session.output.table(
        f"group {known.group}", columns, shown, leader=leader.member if leader else None
    )
    for problem in problems:
        session.output.warn(problem)


@dledger.command()
@click.option(
    "--to", required=True, metavar="MEMBER", help="The id of the member that is to lead, like n1."
)
@group_options
@sure_options
@common_options
def transfer(
    to: str, group: str | None, peers: str | None, config: Any, yes: bool, dry_run: bool
) -> None:
    """
    Hand leadership over to a member; for about a second no message is taken.

    Exit code 0: the member leads; 1: it does not lead. Then the old leader goes on, or the members
    elect another one.
    """
    must_be_askable(yes=yes, dry_run=dry_run)
    known = known_group(group, peers, config)

    async def work(session: Session) -> int | None:
        return await hand_over(session, known, to, yes=yes, dry_run=dry_run)

    run(work)


async def hand_over(session: Session, known: NamedGroup, to: str, **sure: bool) -> int | None:
    """
    Show the plan, ask, and hand leadership over to a member.

    :returns: the exit code.
    """
    client = client_of(session, known)
    if not sure["yes"]:
        show_members(session, known, await client.status())
    if not is_wanted(f"Hand {known.group} over to {to}? It takes no messages meanwhile", **sure):
        return None
    try:
        with session.output.progress("handing over", None):
            term = await client.transfer(to)
    except GroupRefused as error:
        session.output.error(str(error), exit_code=FAILED, code=error.code)
        return FAILED
    if term is None:
        text = f"{to} leads {known.group} already"
    else:
        text = f"{to} leads {known.group} in term {term}"
    session.output.line(text, {"leader": to, "term": term, "changed": term is not None})
    return None


dledger.add_command(convert_command)
