"""
`handover` of a classic pair: the master and a slave exchange their roles while both run.
"""

from collections.abc import Sequence
from contextlib import suppress

from twisted.internet.task import deferLater

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, Asking, expect
from rmq_ha.client.lookup.lookups import cluster_info
from rmq_ha.ops.admin.confirm import is_wanted
from rmq_ha.ops.admin.session import NO_ANSWER, ChangeRefused, NothingFound, Session
from rmq_ha.ops.admin.targets import BrokerTarget, targets_of

TIMEOUT_MS = 30_000
NAMED_S = 40.0
LOOK_S = 0.2


async def exchange_roles(
    session: Session, broker_name: str, to: str | None, **sure: bool
) -> int | None:
    """
    Have the master of a classic pair hand over to a slave.

    :param to: brokerId or `host:port` of the slave; None: the only one.
    :returns: the exit code.
    :raises NothingFound: the name servers know no master, or no such slave.
    :raises ChangeRefused: there are several slaves, and `to` names none.
    :raises BrokerRefused: the master keeps its role, for the reason in the text.
    """
    asker = Asker(await session.client())
    known = targets_of(await asker.run(cluster_info()))
    members = [item for item in known if item.name == broker_name]
    master = next((item for item in members if item.broker_id == MASTER_ID), None)
    if master is None:
        raise NothingFound(
            f"the name servers know no master of {broker_name}, so nobody can hand over: see"
            " docs/failover.md"
        )
    slave = _choose(broker_name, members, to)
    if slave == master:
        session.output.line(
            f"{slave.address} is the master of {broker_name} already",
            {"master": slave.address, "changed": False},
        )
        return None
    plan = (
        f"{master.address} hands {broker_name} over to {slave.address}, and becomes its slave; for"
        " about a second no message is taken"
    )
    if not is_wanted(f"{plan}. Do it?", **sure):
        session.output.line(f"dry run: {plan}", {"master": master.address, "to": slave.address})
        return None
    with session.output.progress("handing over", None):
        await _order_to(asker, master.address, slave.address)
        is_named = await _is_named(session, asker, slave)
    if not is_named:
        session.output.error(
            f"{slave.address} is the master of {broker_name}, but no name server says so after"
            f" {NAMED_S:g} s: clients do not find it. Look at the name servers",
            exit_code=NO_ANSWER,
        )
        return NO_ANSWER
    session.output.line(
        f"{slave.address} is the master of {broker_name}; {master.address} is its slave",
        {"master": slave.address, "slave": master.address, "changed": True},
    )
    return None


async def _order_to(asker: Asker, master: str, slave: str) -> None:
    try:
        await asker.run(_order(master, slave))
    except RemotingError as error:
        raise type(error)(
            f"{error}. {master} may hand over all the same, also later: `rmqha-admin ha status` "
            "says who leads. If its process is frozen or its machine is cut off, end it for good "
            "first (docs/failover.md, step 2), then type `rmqha-admin promote`"
        ) from None


async def _is_named(session: Session, asker: Asker, slave: BrokerTarget) -> bool:
    """Wait until a name server sends clients to the new master; return whether one does."""
    deadline = session.host.clock.seconds() + NAMED_S
    while session.host.clock.seconds() < deadline:
        with suppress(RemotingError):
            known = targets_of(await asker.run(cluster_info()))
            if slave._replace(broker_id=MASTER_ID) in known:
                return True
        await deferLater(session.host.clock, LOOK_S, lambda: None)
    return False


def _order(master: str, slave: str) -> Asking[None]:
    order = RemotingCommand(RequestCode.HAND_OVER_PAIR, {"to": slave})
    yield from expect(Ask(order, master, TIMEOUT_MS))


def _choose(broker_name: str, members: Sequence[BrokerTarget], to: str | None) -> BrokerTarget:
    if to is not None:
        for item in members:
            if to in (str(item.broker_id), item.address):
                return item
        known = ", ".join(f"{item.broker_id} ({item.address})" for item in members)
        raise NothingFound(f"{broker_name} has no broker {to}; it has {known}")
    slaves = [item for item in members if item.broker_id != MASTER_ID]
    if not slaves:
        raise NothingFound(f"{broker_name} has no slave to hand over to: start one first")
    if len(slaves) > 1:
        known = ", ".join(f"{item.broker_id} ({item.address})" for item in slaves)
        raise ChangeRefused(f"{broker_name} has several slaves: name one by --to: {known}")
    return slaves[0]
