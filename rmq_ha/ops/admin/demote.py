"""`rmqha-admin demote`: brings the old master of a pair back as a slave."""

from typing import Any

import click

from rmq_ha.base.config.controller_mode import is_controlled
from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.bodies import read_body
from rmq_ha.base.wire.stat_bodies import ASIDE
from rmq_ha.ops.admin.confirm import must_be_askable
from rmq_ha.ops.admin.handover_set import step_back
from rmq_ha.ops.admin.options import common_options, refuse_given
from rmq_ha.ops.admin.pair import PairMember, RegisteredName, look_at
from rmq_ha.ops.admin.role_change import (
    OF_A_CLASSIC_PAIR,
    ChangeOptions,
    RoleChange,
    change_options,
)
from rmq_ha.ops.admin.role_file import RoleFile, must_be_a_brokers
from rmq_ha.ops.admin.session import ChangeRefused, Session, run
from rmq_ha.ops.admin.setaside import summary_of
from rmq_ha.server.store.log.setaside import ABOUT, FOLDER


@click.command()
@click.option(
    "--id",
    "broker_id",
    type=click.IntRange(min=1),
    help="The broker's new brokerId. Default: the one in its file, or a free one.",
)
@change_options
@common_options
def demote(config: str, broker_id: int | None, **given: Any) -> None:
    """
    Bring an old master back as a slave of the new one. Run it on the old master's machine.

    The command checks that another broker is the master, asks, changes the properties file, has the
    broker started, and waits until it follows and has the master's log. Messages that only this
    broker had are set aside, and shown. If the command was interrupted, run it again: it continues.
    In controller mode another broker is elected if this one leads; this broker then follows by
    itself. See docs/failover.md.

    Exit code 1: the change was not made; the output says why.
    """
    how = ChangeOptions(**given)
    must_be_a_brokers(config)
    must_be_askable(yes=how.yes, dry_run=how.dry_run)

    async def work(session: Session) -> int | None:
        file = RoleFile(session.host.disk, config, real_surroundings("."))
        if is_controlled(file.configuration):
            refuse_given(("broker_id", "restart", "wait"), OF_A_CLASSIC_PAIR)
            return await step_back(session, file, yes=how.yes, dry_run=how.dry_run)
        await demote_broker(RoleChange(session, file, how), broker_id)
        return None

    run(work)


async def demote_broker(change: RoleChange, broker_id: int | None) -> None:
    """
    Make the broker of the file a slave: check, ask, write, restart and verify.

    :raises ChangeRefused: the change is not made, or does not take effect.
    """
    try:
        await _demote(change, broker_id)
    finally:
        if change.session.output.as_json:
            change.session.output.fields(change.report)


async def _demote(change: RoleChange, broker_id: int | None) -> None:
    file, report, say = change.file, change.report, change.session.output.say
    began_ms = change.session.host.now_ms()
    if not file.configuration.broker.namesrv_addr:
        raise ChangeRefused(
            f"{file.path}: set namesrvAddr to a name server outside of this broker's process. A"
            " slave learns there which broker is its master"
        )
    own = await change.own_member()
    known = await _new_master(change, own)
    master = await look_at(await change.asker(), known.master or "")
    if not master.is_master:
        raise ChangeRefused(
            f"name servers name {master.address} the master, but"
            f" {f'it is {master.role}' if master.role else f'no answer comes: {master.problem}'}"
        )
    report["role"], report["master"] = own.role, master.address
    changes = file.changes(BrokerRole.SLAVE, broker_id or _free_id(change, known))
    now = f"is {own.role} now" if own.role else "does not run now"
    say(f"{file.broker_name} at {file.address} {now}, and becomes a slave of {master.address}")
    if own.replication.get(ASIDE):
        say(f"It stands aside for {own.replication[ASIDE]}, and takes no messages")
    elif own.is_master:
        change.warn("it runs as a second master: messages that it takes now will be set aside")
    if not file.configuration.ours.ha_set_aside_diverged_tail:
        change.warn(
            "haSetAsideDivergedTail=false: if this broker has messages that the master lacks, it"
            " will not follow the master"
        )
    else:
        say(f"Messages that only it has go into {FOLDER}/ of its store, and are not served")
    change.plan(changes)
    is_slave = own.role == BrokerRole.SLAVE.value and not changes
    if not is_slave:
        if not change.is_wanted(f"Make {file.address} a slave?"):
            return
        await change.carry_out(changes, restarts=True)
    new = await _verify(change, master)
    report["role"], report["done"] = new.role, True
    _show_set_aside(change, new, began_ms)
    say(f"{file.address} follows {master.address}; its log ends at {new.end}")


async def _new_master(change: RoleChange, own: PairMember) -> RegisteredName:
    """
    Wait until the name servers know another master, and return the brokers that they know. In a dry
    run, or while this broker runs as a master, the name servers are asked only once.

    :raises ChangeRefused: no other master is registered.
    """

    async def look() -> RegisteredName | None:
        registered = await change.registered()
        return registered if registered.master not in (None, change.file.address) else None

    if own.is_master or change.how.dry_run:
        registered = await look()
    else:
        registered = await change.wait_until("until there is a new master", look)
    if registered is not None:
        return registered
    now = await change.registered()
    if own.is_master:
        raise ChangeRefused(
            f"name servers send clients to {own.address} itself: promote its slave first. If that"
            " is done, stop this broker and type this command again"
        )
    raise ChangeRefused(
        f"no other master of {change.file.broker_name} is known:"
        f" {now.problem or 'promote its slave first'}"
    )


def _free_id(change: RoleChange, known: RegisteredName) -> int:
    """Return the brokerId of the file if it is a slave's and free, else the lowest free one."""
    taken = {n for n, address in known.addresses.items() if address != change.file.address}
    wished = change.file.configuration.broker.broker_id
    if wished > MASTER_ID and wished not in taken:
        return wished
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


async def _verify(change: RoleChange, master: PairMember) -> PairMember:
    """
    Wait until the broker follows the new master and has its whole log.

    :param master: the new master before the change. The log has to reach the end of its log then.
    :raises ChangeRefused: the broker does not follow in time.
    """
    last: list[PairMember] = []

    async def follows() -> PairMember | None:
        last[:] = [await change.own_member()]
        own = last[0]
        if own.role != BrokerRole.SLAVE.value or own.end < master.end:
            return None
        return own if own.link is None or own.link.is_followed else None

    new = await change.wait_until("until it has the master's whole log", follows)
    if new is not None:
        return new
    own = last[0]
    if own.role is None:
        why = f"it does not answer ({own.problem})"
    elif own.role != BrokerRole.SLAVE.value:
        why = f"it still runs as {own.role}: restart it"
    else:
        link = own.link
        why = (link and link.fault) or (
            f"its state is {link.state if link else 'SLAVE'}: its log ends at {own.end}, the"
            f" master's at {master.end}"
        )
    raise ChangeRefused(f"not done: the file {change.file.path} makes it a slave, but {why}")


def _show_set_aside(change: RoleChange, new: PairMember, began_ms: int) -> None:
    """
    Show the folders of messages that were set aside since `began_ms`, or name the older folders.
    The store is on this machine.
    """
    disk = change.session.host.disk
    folder = f"{new.root}/{FOLDER}"
    set_aside, earlier = [], []
    for name in disk.list_dir(folder):
        path = f"{folder}/{name}"
        try:
            about = read_body(disk.read_bytes(f"{path}/{ABOUT}"), summary_of)
        except (OSError, ProtocolViolation):
            change.session.output.note(f"{path} is not readable, so its messages are not counted")
            continue
        if about["time"] >= began_ms:
            set_aside.append({"folder": path, **about})
        else:
            earlier.append(path)
    change.report["set_aside"] = set_aside
    for item in set_aside:
        topics = ", ".join(f"{topic}: {count}" for topic, count in item["topics"].items())
        change.session.output.say(
            f"{item['messages']} messages are set aside in {item['folder']} ({topics})"
        )
    if earlier and not set_aside:
        change.session.output.say(
            "Nothing was set aside while this command ran. Folders of earlier times: "
            + ", ".join(earlier)
        )
    elif not set_aside:
        change.session.output.say("It had no message that the master lacks")
