"""
`handover`, `promote` and `demote` in controller mode: the controllers elect the master.

Spec: controller.md, sections 5.1 and 10.4.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, Asking, expect
from rmq_ha.client.lookup.brokers import broker_config
from rmq_ha.ops.admin.confirm import is_wanted
from rmq_ha.ops.admin.role_file import RoleFile
from rmq_ha.ops.admin.session import ChangeRefused, Session
from rmq_ha.server.controller.codec import decode_header, decode_set
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.controller.messages import (
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetadataResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
)


class ControlledSet(NamedTuple):
    """
    Brokers of one name to which controllers give their roles.

    :ivar controllers: addresses of the controllers.
    :ivar waits_for_all: `allAckInSyncStateSet`: whether each broker in sync has a message before it
        is acknowledged.
    """

    cluster: str
    broker_name: str
    controllers: tuple[str, ...]
    waits_for_all: bool = True


class SetMaster(NamedTuple):
    """The master of a set, as its controllers say."""

    controller: str
    master_id: int | None
    master_address: str | None
    members: tuple[int, ...]


def set_of(config: Mapping[str, str]) -> ControlledSet | None:
    """
    Return the set that a broker with this configuration is in; None: it is not in controller mode.
    """
    if config.get("enableControllerMode") != "true":
        return None
    addresses = [text.strip() for text in config.get("controllerAddr", "").split(";")]
    return ControlledSet(
        config.get("brokerClusterName", ""),
        config.get("brokerName", ""),
        tuple(address for address in addresses if address),
        config.get("allAckInSyncStateSet") != "false",
    )


def leading(known: ControlledSet) -> Asking[SetMaster]:
    """
    Ask the controllers for the master of a set.

    :raises ChangeRefused: no controller knows the leader of the controllers.
    :raises BrokerRefused: the controllers do not know the set.
    :raises RemotingError: the leading controller does not answer.
    """
    controller = yield from _leader(known)
    header = GetReplicaInfoRequest(broker_name=known.broker_name)
    asked = RemotingCommand(ControllerRequestCode.GET_REPLICA_INFO, ext=ext_fields(header))
    answer = yield from expect(Ask(asked, controller))
    info = decode_header(GetReplicaInfoResponse, answer.ext)
    members = answer.read(decode_set).members
    return SetMaster(controller, info.master_broker_id, info.master_address, members)


def _leader(known: ControlledSet) -> Asking[str]:
    problem = "controllerAddr is empty"
    for address in known.controllers:
        try:
            leader = yield from leader_named_by(address)
        except RemotingError as error:
            problem = str(error)
            continue
        if leader:
            return leader
        problem = f"{address} knows no leader of the controllers"
    raise ChangeRefused(f"no controller can elect: {problem}")


def leader_named_by(controller: str) -> Asking[str]:
    """
    Ask a controller for the address of the leading controller; empty: it knows no leader.

    :raises BrokerRefused: the controller does not say.
    :raises RemotingError: the controller does not answer.
    """
    asked = RemotingCommand(ControllerRequestCode.GET_METADATA_INFO)
    answer = yield from expect(Ask(asked, controller))
    return decode_header(GetMetadataResponse, answer.ext).controller_leader_address or ""


async def elect(
    session: Session, asker: Asker, known: ControlledSet, to: str | None, **sure: bool
) -> int | None:
    """
    Have the controllers elect another broker of the set that is in sync.

    :param to: id of the broker to be elected; None: the smallest id of the others.
    :returns: the exit code.
    :raises ChangeRefused: the broker `to`, or without `to` every other broker of the set, could not
        be elected without a loss of messages.
    """
    current = await asker.run(leading(known))
    chosen = _choose(current, to)
    if chosen == current.master_id:
        session.output.line(
            f"{chosen} leads {known.broker_name} already", {"leader": chosen, "changed": False}
        )
        return None
    plan = (
        f"{current.master_id} ({current.master_address}) hands {known.broker_name} over to {chosen}"
    )
    if current.master_id is None:
        plan = f"nobody leads {known.broker_name}: {chosen} is elected"
    elif not known.waits_for_all:
        session.output.warn(
            "allAckInSyncStateSet=false: the master acknowledges messages before all others have "
            "them, and such messages of this moment may be lost. Set it to true first "
            "(`rmqha-admin broker config set`), or stop sends"
        )
    if not is_wanted(f"{plan}. Do it?", **sure):
        session.output.line(f"dry run: {plan}", {"leader": current.master_id, "to": chosen})
        return None
    request = ElectMasterRequest(
        cluster_name=known.cluster,
        broker_name=known.broker_name,
        broker_id=chosen,
        designate_elect=True,
    )
    asked = RemotingCommand(ControllerRequestCode.ELECT_MASTER, ext=ext_fields(request))
    with session.output.progress("electing", None):
        answer = await asker.run(expect(Ask(asked, current.controller)))
    elected = decode_header(ElectMasterResponse, answer.ext)
    text = f"{chosen} ({elected.master_address}) leads {known.broker_name}"
    session.output.line(
        f"{text} in epoch {elected.master_epoch}",
        {"leader": chosen, "epoch": elected.master_epoch, "changed": True},
    )
    return None


async def take_over(session: Session, file: RoleFile, **sure: bool) -> int | None:
    """
    Have this broker elected (`promote`); its properties file stays as it is.

    :returns: the exit code.
    :raises ChangeRefused: the broker does not run, has no role yet, or would lose messages.
    """
    asker = Asker(await session.direct())
    known, number = await _own_set(asker, file)
    if number == MASTER_ID:
        text = f"{file.address} leads {known.broker_name} already"
        session.output.line(text, {"changed": False})
        return None
    return await elect(session, asker, known, str(number), **sure)


async def step_back(session: Session, file: RoleFile, **sure: bool) -> int | None:
    """
    Have another broker elected if this one leads (`demote`); this broker then follows by itself.

    :returns: the exit code.
    :raises ChangeRefused: this broker does not run, has no role yet, or no other broker is in sync.
    """
    asker = Asker(await session.direct())
    known, number = await _own_set(asker, file)
    if number == MASTER_ID:
        return await elect(session, asker, known, None, **sure)
    text = f"{file.address} follows in {known.broker_name} already: its brokerId is {number}"
    session.output.line(text, {"changed": False})
    return None


async def _own_set(asker: Asker, file: RoleFile) -> tuple[ControlledSet, int]:
    """Return the set of this broker, and its brokerId, which is `MASTER_ID` while it leads."""
    try:
        config = await asker.run(broker_config(file.address))
    except RemotingError as error:
        raise ChangeRefused(
            f"{error}. Start the broker of {file.path}: in controller mode a broker that comes back"
            " follows by itself, and sets aside the messages that only it had"
        ) from None
    known, number = set_of(config), int(config.get("brokerId", "-1"))
    if known is None or known.broker_name != file.broker_name:
        raise ChangeRefused(
            f"the broker at {file.address} does not run as {file.path} says, in controller mode"
            f" with brokerName={file.broker_name}: restart it, or give its own file"
        )
    if number < MASTER_ID:
        raise ChangeRefused(
            f"no controller has said yet whether {file.address} is a master: see its /healthz"
        )
    return known, number


def _choose(current: SetMaster, to: str | None) -> int:
    who = ", ".join(map(str, current.members)) or "nobody"
    if to is not None:
        if not to.isdecimal() or int(to) not in current.members:
            raise ChangeRefused(f"broker {to} is not in sync ({who} are): it would lose messages")
        return int(to)
    others = [number for number in sorted(current.members) if number != current.master_id]
    if not others:
        raise ChangeRefused(
            f"no other broker is in sync ({who} is): start it, or see why it does not follow"
        )
    return others[0]
