"""
Facts that can be known before a broker starts: its file, its store, its ports, and the brokers that
are registered.
"""

from collections.abc import Iterator

from twisted.internet.defer import maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory

from rmq_ha.base.config.addresses import ANY_ADDRESS
from rmq_ha.base.errors import ProtocolViolation, RemotingError, StoreLocked
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.seams import Host
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import broker_config
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, NotLooked
from rmq_ha.ops.admin.doctor.findings import DoctorFinding, DoctorSeverity, Observation, Rule, judge
from rmq_ha.ops.admin.doctor.gather import (
    DoctorScope,
    look_at_machine,
    look_at_names,
    resolve_names,
)
from rmq_ha.ops.admin.doctor.local import LocalFacts
from rmq_ha.ops.admin.doctor.probe import port_at
from rmq_ha.ops.admin.session import Session

_TIMEOUT_S = 3.0
_LISTENED = ("bindAddress", "metricsAddress")
_TOLD = ("brokerIP1", "brokerIP2")
CODES = (
    "name-server-silent",
    "name-unresolved",
    "no-name-server",
    "one-name-server",
    "name-servers-differ",
    "file-wrong",
    "key-unknown",
    "value-doubtful",
    "address-is-name",
    "name-servers-misspelt",
    "log-missing",
    "table-damaged",
    "no-room",
    "set-aside-left",
    "store-new",
    "certificate-ended",
    "certificate-ends",
    "certificate-not-yet",
    "id-in-use",
    "port-taken",
    "store-open",
    "store-unusable",
    "slave-without-master",
    "bind-elsewhere",
    "address-elsewhere",
    "master-unreachable",
    "few-files",
)
"""Codes of the rules that need no running broker."""


async def look_before_start(session: Session, scope: DoctorScope) -> ClusterFacts:
    """Ask name servers, and look at this machine; the broker of the file does not run."""
    facts = ClusterFacts(now_ms=session.host.now_ms())
    look_at_machine(facts, session, scope)
    asker = await look_at_names(facts, session, scope)
    local = facts.local
    if local is None or local.error:
        return facts
    local.is_starting, local.most_files = True, scope.most_files
    await resolve_names(local, session)
    host = session.host
    await _look_at_addresses(host, local)
    await _look_at_master(asker, session, facts, local)
    for port, purpose in local.ports if not local.not_here else ():
        listener = await port_at(host, f"{local.bind_address or '127.0.0.1'}:{port}", _TIMEOUT_S)
        if listener.problem is None:
            local.taken_ports.append(f"{port}: {purpose}")
    for broker in facts.brokers:
        if broker.name == local.broker_name and broker.address != local.address:
            broker.plain = await port_at(host, broker.address, _TIMEOUT_S)
    local.is_writable = host.disk.may_write(local.store)
    if host.disk.exists(f"{local.store}/lock"):
        try:
            host.disk.lock(f"{local.store}/lock").release()
        except StoreLocked:
            local.is_open = True
    return facts


async def _look_at_addresses(host: Host, local: LocalFacts) -> None:
    """
    Note which addresses of the file are not of this machine: only a machine that has an address can
    listen there.
    """
    for foreign, keys in ((local.not_here, _LISTENED), (local.elsewhere, _TOLD)):
        for key in keys:
            value = local.settings.get(key, "")
            if value not in ANY_ADDRESS and not await _is_here(host, value):
                foreign.append(f"{key}={value}")


async def _is_here(host: Host, address: str) -> bool:
    try:
        listening = await host.network.server(0, address).listen(Factory())
    except CannotListenError:
        return False
    await maybeDeferred(listening.stopListening)
    return True


async def _look_at_master(
    asker: Asker, session: Session, facts: ClusterFacts, local: LocalFacts
) -> None:
    """Find the master's port for slaves and note whether this machine reaches it."""
    if local.role != BrokerRole.SLAVE.value:
        return
    address = local.settings.get("haMasterAddress", "")
    for broker in facts.brokers:
        if not address and (broker.name, broker.broker_id) == (local.broker_name, MASTER_ID):
            address = await _port_for_slaves(asker, facts, broker)
    if address:
        local.master_address = address
        local.master_problem = (await port_at(session.host, address, _TIMEOUT_S)).problem
        if address in {broker.address for broker in facts.brokers}:
            local.master_problem = "that is a port for clients (listenPort)"


async def _port_for_slaves(asker: Asker, facts: ClusterFacts, master: BrokerFacts) -> str:
    try:
        config = await asker.run(broker_config(master.address))
    except (RemotingError, BrokerRefused, ProtocolViolation) as error:
        facts.not_looked.append(NotLooked(f"the port for slaves of {master}", str(error)))
        return ""
    return f"{config.get('brokerIP2') or master.host}:{config.get('haListenPort', '10912')}"


def judge_before_start(facts: ClusterFacts, rules: tuple[Rule, ...]) -> list[DoctorFinding]:
    """Judge the facts by those rules that need no running broker."""
    return judge(facts, [rule for rule in rules if rule.code in CODES])


def _starting(facts: ClusterFacts) -> LocalFacts | None:
    return facts.local if facts.local is not None and facts.local.is_starting else None


def _id_in_use(facts: ClusterFacts) -> Iterator[Observation]:
    local = _starting(facts)
    for broker in facts.brokers if local else ():
        is_ours = local and (broker.name, broker.broker_id) == (local.broker_name, local.broker_id)
        if is_ours and broker.plain is not None and broker.plain.problem is None:
            name = f"{broker.name} with id {broker.broker_id}"
            yield Observation(
                local.file if local else "", f"{broker.address} runs, and is {name} already"
            )


def _port_taken(facts: ClusterFacts) -> Iterator[Observation]:
    local = _starting(facts)
    for text in local.taken_ports if local else ():
        yield Observation(local.file if local else "", f"something listens on port {text}")


def _store_open(facts: ClusterFacts) -> Iterator[Observation]:
    local = _starting(facts)
    if local and local.is_open:
        yield Observation(local.store, "another broker has it open")


def _store_unusable(facts: ClusterFacts) -> Iterator[Observation]:
    local = _starting(facts)
    if local and not local.is_writable:
        yield Observation(local.store, "nothing can be written or made there by this user")


def _without_master(facts: ClusterFacts) -> Iterator[Observation]:
    local = _starting(facts)
    if local is None or local.role != BrokerRole.SLAVE.value:
        return
    answering = [server for server in facts.name_servers if server.answers]
    known = [server.brokers.get(local.broker_name, {}) for server in answering]
    has_address = bool(local.settings.get("haMasterAddress"))
    if answering and not has_address and not any(MASTER_ID in ids for ids in known):
        yield Observation(local.file, f"no name server knows a master called {local.broker_name}")


def _bind_elsewhere(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.local:
        yield from _no_address(facts.local, facts.local.not_here)


def _address_elsewhere(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.local:
        yield from _no_address(facts.local, facts.local.elsewhere)


def _no_address(local: LocalFacts, texts: list[str]) -> Iterator[Observation]:
    for text in texts:
        yield Observation(local.file, f"{text} is no address of this machine")


def _master_unreachable(facts: ClusterFacts) -> Iterator[Observation]:
    local = _starting(facts)
    if local and local.master_problem is not None:
        yield Observation(
            local.file, f"its master's {local.master_address}: {local.master_problem}"
        )


RULES = (
    Rule(
        "bind-elsewhere",
        DoctorSeverity.ERROR,
        "before a start: this machine does not have the address to listen on, so the start "
        "would fail",
        "write an address that `ip address` shows here, or leave `bindAddress` "
        "(`metricsAddress`) empty for all addresses",
        _bind_elsewhere,
    ),
    Rule(
        "address-elsewhere",
        DoctorSeverity.NOTE,
        "before a start: this machine does not have the address that clients or slaves are told",
        "if the ports are forwarded (NAT, containers), the address is right; otherwise write an "
        "address that `ip address` shows here",
        _address_elsewhere,
    ),
    Rule(
        "master-unreachable",
        DoctorSeverity.ERROR,
        "before a start: the file is a slave's, and the port of its master for slaves cannot be "
        "reached from here, so the slave would not follow",
        "open the port in the firewall (`haListenPort` at the master, 10912 by default); check "
        "`brokerIP2` of the master, or `haMasterAddress` in this file",
        _master_unreachable,
    ),
    Rule(
        "id-in-use",
        DoctorSeverity.ERROR,
        "before a start: a running broker has the brokerName and brokerId of the properties "
        "file; the broker that registers last takes the name from the other",
        "give this broker another `brokerId` (a slave), or another `brokerName`; if it is to "
        "take the other broker's place: docs/failover.md",
        _id_in_use,
    ),
    Rule(
        "port-taken",
        DoctorSeverity.ERROR,
        "before a start: a port of the properties file is in use, so the start would fail",
        "stop what listens there (this broker may run already), or change `listenPort`",
        _port_taken,
    ),
    Rule(
        "store-open",
        DoctorSeverity.ERROR,
        "before a start: another process has the store open",
        "stop that process first; two brokers need two `storePathRootDir`",
        _store_open,
    ),
    Rule(
        "store-unusable",
        DoctorSeverity.ERROR,
        "before a start: this user cannot write to the store, or cannot create it",
        "correct `storePathRootDir`, give the broker's user the right to write there (run this "
        "command as that user), or mount the disk for writing",
        _store_unusable,
    ),
    Rule(
        "slave-without-master",
        DoctorSeverity.WARNING,
        "before a start: the file is a slave's, and no name server knows a master of its name",
        "start the master first, or compare `brokerName` and `namesrvAddr` of master and slave",
        _without_master,
    ),
)
