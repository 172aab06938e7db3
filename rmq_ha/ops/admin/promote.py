"""`rmqha-admin promote`: makes the slave of a pair its master."""

from typing import Any

import click

from rmq_ha.base.config.controller_mode import is_controlled
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.admin.confirm import must_be_askable
from rmq_ha.ops.admin.handover_set import take_over
from rmq_ha.ops.admin.options import common_options, refuse_given
from rmq_ha.ops.admin.pair import (
    GroupStanding,
    Lack,
    PairMember,
    RegisteredName,
    lacks,
    look_at,
    standings,
)
from rmq_ha.ops.admin.role_change import (
    OF_A_CLASSIC_PAIR,
    ChangeOptions,
    RoleChange,
    change_options,
)
from rmq_ha.ops.admin.role_file import RoleFile, must_be_a_brokers
from rmq_ha.ops.admin.session import NO_ANSWER, ChangeRefused, Session, run
from rmq_ha.server.store.local.refetch import RefetchLog

_COLUMNS = ("topic", "queue", "group", "here", "there", "lacks")
_ROLES = (BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER)


@click.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in _ROLES]),
    default=BrokerRole.SYNC_MASTER.value,
    show_default=True,
    help="The role that the broker gets.",
)
@click.option(
    "--less",
    is_flag=True,
    help="Promote this slave although another slave has more messages. The messages that this "
    "slave lacks are set aside.",
)
@change_options
@common_options
def promote(config: str, role: str, less: bool, **given: Any) -> None:
    """
    Make the slave of a pair its master, after the old master died. Run it on the slave's machine.

    The command shows which messages the slave lacks, asks, changes the properties file, has the
    broker restarted, and waits until the broker is the master and name servers say so. It refuses
    while the old master answers. Without --less it also refuses if another slave has more messages,
    or if this one does not run. If the command was interrupted, run it again: it continues. In
    controller mode the controllers elect this broker, and the file stays as it is. See
    docs/failover.md.

    Exit code 1: the change was not made; the output says why. 4: the broker is the master, but no
    name server answers, so no client finds it.
    """
    how = ChangeOptions(**given)
    must_be_a_brokers(config)
    must_be_askable(yes=how.yes, dry_run=how.dry_run)

    async def work(session: Session) -> int | None:
        file = RoleFile(session.host.disk, config, real_surroundings("."))
        if is_controlled(file.configuration):
            refuse_given(("role", "less", "restart", "wait"), OF_A_CLASSIC_PAIR)
            return await take_over(session, file, yes=how.yes, dry_run=how.dry_run)
        change = RoleChange(session, file, how)
        return await promote_broker(change, BrokerRole(role), less=less)

    run(work)


async def promote_broker(change: RoleChange, role: BrokerRole, *, less: bool = False) -> int | None:
    """
    Make the broker of the file the master: check, ask, write, restart and verify.

    :param less: promote even if another slave has more messages.
    :returns: the exit code.
    :raises ChangeRefused: the change is not made, or does not take effect.
    """
    try:
        return await _promote(change, role, less)
    finally:
        if change.session.output.as_json:
            change.session.output.fields(change.report)


async def _promote(change: RoleChange, role: BrokerRole, less: bool) -> int | None:
    file, report, say = change.file, change.report, change.session.output.say
    changes = file.changes(role, MASTER_ID)
    own, known = await change.own_member(), await change.registered()
    report["role"] = own.role
    say(f"{file.broker_name} at {file.address} {_now(own)}, and becomes {role.value}")
    if known.problem:
        change.warn(f"{known.problem}. Clients find a master only through name servers")
    await _look_at_old_master(change, own, known)
    await _look_at_other_slaves(change, own, known, less)
    _refuse_unfetched_tail(change, own)
    change.plan(changes)
    if own.is_master and not changes:
        say(
            f"{file.address} is the master already; to promote a slave of it, give the slave's file"
        )
    if not own.is_master or changes:
        if not change.is_wanted(f"Make {file.address} the master?"):
            return None
        await change.carry_out(changes, restarts=not own.is_master)
    new = await _verify(change, own)
    report["role"], report["done"] = new.role, True
    say(f"{file.address} is {new.role} of {file.broker_name}; its log ends at {new.end}")
    if known.problem:
        return NO_ANSWER
    await _verify_route(change)
    say("Name servers send clients to it. On the old master's machine, this makes it a slave:")
    say("  rmqha-admin demote --config ITS_FILE --restart COMMAND")
    return None


def _now(own: PairMember) -> str:
    return f"does not answer ({own.problem})" if own.role is None else f"is {own.role} now"


async def _look_at_old_master(change: RoleChange, own: PairMember, known: RegisteredName) -> None:
    """
    Look at the registered master. If it answers, report which messages this slave lacks; else
    report what the slave itself knows.

    :raises ChangeRefused: the old master answers, and the command is no dry run.
    """
    if own.is_master:
        return
    address = known.master if known.master != change.file.address else None
    old = None if address is None else await look_at(await change.asker(), address)
    if old is not None:
        told = {"address": old.address, "role": old.role, "end": old.end, "problem": old.problem}
        change.report["old_master"] = told
    if old is not None and old.is_master:
        await _show_lacks(change, own, old)
        if not change.how.dry_run:
            raise ChangeRefused(
                f"the old master {old.address} answers. Two masters would take different messages."
                " Stop the old master's service, so that its slave gets all messages, or cut its"
                " power; then type this command again"
            )
        change.warn(f"the old master {old.address} answers: stop it before you promote a slave")
        return
    if old is not None:
        change.warn(
            f"name servers still list the old master {old.address}, which does not answer here"
            f" ({old.problem}). If it is only frozen, or cut off from this machine, end it first:"
            " messages that it takes from now on will be set aside"
        )
    await _tell_unknown(change, own)


async def _show_lacks(change: RoleChange, own: PairMember, old: PairMember) -> None:
    output = change.session.output
    lacking: list[Lack] = []
    if own.role is not None:
        with output.progress("comparing queues", None) as steps:
            asker = await change.asker()
            lacking = await lacks(asker, own.address, old.address, steps.advance)
    rows = [[i.topic, i.queue, i.group or None, i.here, i.other, i.missing] for i in lacking]
    change.report["lacks"] = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    messages = sum(item.missing for item in lacking if not item.group)
    output.say(f"At this moment {own.address} lacks {messages} messages that its master has")
    if rows and not output.as_json:
        output.table("", _COLUMNS, rows)


async def _tell_unknown(change: RoleChange, own: PairMember) -> None:
    """
    Report what this slave knows of its dead master: the end of its own log, when it last heard the
    master, when it last copied the master's tables, and the offsets of groups.
    """
    say = change.session.output.say
    link = own.link
    copied = own.replication.get("tables_seconds")
    told = own.replication.get("master") or {}
    change.report["slave"] = {"end": own.end, "tables_seconds": copied, **told}
    if own.role is None:
        change.warn("this broker does not run, so nobody can say which messages it has")
        return
    say(f"Its log ends at {own.end}. Only the old master could say whether it has more messages:")
    say("  each message that a SYNC_MASTER answered with SEND_OK is on a slave; others may not be")
    if link is not None and link.silent_ms is not None:
        say(f"  this slave last heard its master {link.silent_ms / 1000:.0f} s ago")
    if copied is None and own.replication:
        change.warn(
            "this slave has not copied topics, groups and offsets of its master since it started"
        )
    await _show_groups(change, own, copied)
    if link is not None and link.fault:
        change.warn(f"this slave did not follow its master: {link.fault}")
    say("  `rmqha-admin demote` later sets aside the messages that only the old master has")


async def _show_groups(change: RoleChange, own: PairMember, copied: float | None) -> None:
    """
    Show which messages each group gets again from this broker, and which it would skip.

    :param copied: for how many seconds the slave has not copied the offsets of its master; None: it
        has not copied them since its start.
    """
    output = change.session.output
    asker = await change.asker()
    with output.progress("comparing offsets of groups", None) as steps:
        standings_here = await standings(asker, own.address, steps.advance)
    change.report["groups"] = [item._asdict() for item in standings_here]
    if copied is not None:
        waiting = sum(item.waiting for item in standings_here)
        which = (
            f"{waiting} messages come after these offsets, and those of them that a group consumed"
            f" in these {copied:.0f} s come again"
            if waiting
            else "no message comes after these offsets, so none comes again"
        )
        output.say(
            f"  groups continue at the offsets that this slave copied {copied:.0f} s ago: {which}"
        )
    if standings_here and not output.as_json:
        output.table("", GroupStanding._fields, [list(item) for item in standings_here])
    ahead = [item for item in standings_here if item.beyond]
    if not change.file.configuration.ours.check_committed_offsets:
        for item in ahead:
            change.warn(
                f"the group {item.group} will skip the next {item.beyond} messages of"
                f" {item.topic}, because its offsets are beyond the ends of the queues. With"
                f" checkCommittedOffsets=true in {change.file.path} it skips none"
            )
    elif ahead:
        output.say(
            f"  {len(ahead)} groups consumed messages that this slave lacks (column beyond). They"
            " continue at the ends of the queues, and skip nothing"
        )


async def _look_at_other_slaves(
    change: RoleChange, own: PairMember, known: RegisteredName, less: bool
) -> None:
    """
    Compare this slave with the other slaves.

    :param less: whether to warn only, and not refuse, if another slave has more messages.
    :raises ChangeRefused: another slave has more messages, `less` is false, the command is no dry
        run, and this broker is not the master already.
    """
    for number, address in sorted(known.addresses.items()):
        if number == MASTER_ID or address == change.file.address:
            continue
        other = await look_at(await change.asker(), address)
        name = f"the slave {address} (brokerId {number})"
        if other.role is None:
            change.warn(
                f"{name} does not answer ({other.problem}): it may have messages that this slave"
                " lacks"
            )
        if other.role is None or other.whole_end <= own.whole_end:
            continue
        text = (
            f"{name} has more messages: its log ends at {other.whole_end}, the log of this slave"
            f" at {own.whole_end}. Promote {address} instead"
        )
        if own.role is None:
            text = (
                f"{name} runs, and its log ends at {other.whole_end}. This slave does not run, so"
                " the logs cannot be compared. Start this slave and type this command again, or"
                f" promote {address} instead"
            )
        if less or change.how.dry_run or own.is_master:
            change.warn(text)
        else:
            raise ChangeRefused(
                f"{text}. To promote this slave without the messages that only {address} has, add"
                " --less"
            )


def _refuse_unfetched_tail(change: RoleChange, own: PairMember) -> None:
    """
    Check that the slave has fetched again all messages that it set aside when its log was damaged.

    :raises ChangeRefused: messages are still missing, so the broker would not start as a master. In
        a dry run, and with keepDamagedLog=false, there is a warning instead.
    """
    if own.role is None or own.is_master:
        return
    for missing in RefetchLog(change.session.host.disk, own.root).open():
        if missing.end <= own.end:
            continue
        text = (
            "this slave set messages aside because its log was damaged, and has not fetched all of"
            f" them again: its log ends at {own.end}, and has to reach {missing.end}"
            f" ({missing.path}). If the old master still has its disk, start the old master again"
        )
        if not change.file.configuration.ours.keep_damaged_log:
            change.warn(
                f"{text}. keepDamagedLog=false lets this slave start without these messages; remove"
                " it from the file afterwards"
            )
        elif change.how.dry_run:
            change.warn(text)
        else:
            raise ChangeRefused(
                f"{text}. To promote this slave without these messages, add keepDamagedLog=false to"
                f" {change.file.path}, and type this command again"
            )


async def _verify(change: RoleChange, before: PairMember) -> PairMember:
    """
    Wait until the broker is the master, and compare its log with that before the change.

    :param before: the broker as it was before the change.
    :raises ChangeRefused: the broker is not the master in time, or its log is shorter than before.
    """
    last: list[PairMember] = []

    async def is_master() -> PairMember | None:
        last[:] = [await change.own_member()]
        return last[0] if last[0].is_master else None

    new = await change.wait_until("until it is the master", is_master)
    if new is None:
        raise ChangeRefused(
            f"not done: the file {change.file.path} makes the broker the master, but"
            f" {change.file.address} {_now(last[0])}. Restart the broker (without --set"
            " brokerRole), then type this command again"
        )
    if new.end < before.whole_end:
        raise ChangeRefused(
            f"{new.address} is the master, but its log ended at {before.whole_end} before the"
            f" restart and ends at {new.end} now. Read the broker's log file, and look into the"
            " folder setaside of its store"
        )
    return new


async def _verify_route(change: RoleChange) -> None:
    """
    Check that the name servers send clients to this broker.

    :raises ChangeRefused: name servers send clients elsewhere.
    """

    async def is_routed() -> RegisteredName | None:
        registered = await change.registered()
        return registered if registered.master == change.file.address else None

    if await change.wait_until("until name servers send clients to it", is_routed) is None:
        now = await change.registered()
        change.report["done"] = False
        raise ChangeRefused(
            f"{change.file.address} is a master, but name servers do not send clients to it:"
            f" {now.problem or f'the master that they name is {now.master}'}. Look whether the old"
            " master runs again"
        )
