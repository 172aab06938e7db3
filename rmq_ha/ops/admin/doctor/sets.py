"""Asks controllers for their leader, and for the sets of brokers that have no master."""

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import is_this_machine
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, Asking, expect
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.doctor.facts import (
    ClusterFacts,
    Controller,
    LeaderlessSet,
    NotLooked,
    SetMember,
)
from rmq_ha.ops.admin.handover_set import ControlledSet, leader_named_by, set_of
from rmq_ha.server.controller.codec import decode_replicas, encode_names
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.controller.messages import ReplicasInfo, SetReplica

_FAULTS = (RemotingError, BrokerRefused, ProtocolViolation)


async def look_at_controllers(asker: Asker, facts: ClusterFacts, which: str = "") -> None:
    """
    Ask all controllers that brokers, the properties file and name servers name.

    :param which: see `DoctorScope.which`; other sets are left out.
    """
    known = [item for item in (set_of(broker.config) for broker in facts.brokers) if item]
    for address in _addresses(facts, known):
        facts.controllers.append(await _look_at_controller(asker, address))
    names = list(dict.fromkeys(item.broker_name for item in known if item.broker_name))
    if facts.local is not None and facts.local.controllers and facts.local.broker_name:
        names.append(facts.local.broker_name)
    if which and ":" not in which:
        names.append(which)
    for leader in dict.fromkeys(item.leader for item in facts.controllers if item.leader):
        try:
            told = await asker.run(_sets_of(leader, names))
        except _FAULTS as error:
            facts.not_looked.append(
                NotLooked(f"broker sets of the controller {leader}", str(error))
            )
            continue
        if which in told or ":" in which:
            told = {name: item for name, item in told.items() if name in (which, *names)}
        facts.leaderless = [
            LeaderlessSet(name, _members(item.in_sync), _members(item.not_in_sync))
            for name, item in told.items()
            if item.master_broker_id is None
        ]
        return


def _addresses(facts: ClusterFacts, known: list[ControlledSet]) -> list[str]:
    """Return the addresses of the controllers, each once."""
    addresses = [address for item in known for address in item.controllers]
    addresses += facts.local.controllers if facts.local else ()
    for server in facts.name_servers:
        for address in server.controllers:
            if is_this_machine(host_of(address)) and not is_this_machine(host_of(server.address)):
                why = f"the name server {server.address} alone reaches a controller at this address"
                facts.not_looked.append(NotLooked(f"controller {address}", why))
            else:
                addresses.append(address)
    return list(dict.fromkeys(addresses))


async def _look_at_controller(asker: Asker, address: str) -> Controller:
    try:
        leader = await asker.run(leader_named_by(address))
    except _FAULTS as error:
        return Controller(address, str(error))
    return Controller(address, leader=leader)


def _sets_of(controller: str, names: list[str]) -> Asking[dict[str, ReplicasInfo]]:
    """
    Return the sets of brokers that the leading controller knows, by name.

    :param controller: address of that controller.
    :param names: names of sets to ask for. A controller of RocketMQ tells only of these; a
        controller of rmq-ha tells of all sets.
    """
    told = yield from _sets_named(controller, [])
    missing = [name for name in names if name not in told]
    if missing:
        told = told | (yield from _sets_named(controller, missing))
    return told


def _sets_named(controller: str, names: list[str]) -> Asking[dict[str, ReplicasInfo]]:
    asked = RemotingCommand(ControllerRequestCode.GET_SYNC_STATE_DATA, body=encode_names(names))
    answer = yield from expect(Ask(asked, controller))
    return answer.read(decode_replicas)


def _members(replicas: tuple[SetReplica, ...]) -> tuple[SetMember, ...]:
    return tuple(SetMember(item.broker_id, item.address, item.alive) for item in replicas)
