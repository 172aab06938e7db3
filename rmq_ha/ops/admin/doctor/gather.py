"""Gathers facts: asks name servers, brokers and their ports, and notes what cannot be asked."""

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.task import deferLater

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.host_port import host_of, parse_host_port
from rmq_ha.base.wire.bodies import decode_string_list
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import (
    CONTROLLERS,
    RIVALS,
    ClusterInfo,
    decode_controllers,
    decode_rivals,
)
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, expect
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.settings import name_servers
from rmq_ha.ops.admin.doctor.brokers import look_at_broker, metrics_at
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, NameServer, NotLooked
from rmq_ha.ops.admin.doctor.groups import look_again, look_at_groups, waits_for_members
from rmq_ha.ops.admin.doctor.local import LocalFacts
from rmq_ha.ops.admin.doctor.machine import look_at_file, look_at_store
from rmq_ha.ops.admin.doctor.sets import look_at_controllers
from rmq_ha.ops.admin.session import NothingFound, Session

Step = Callable[[], object]


class DoctorScope(NamedTuple):
    """
    The servers and files that doctor looks at.

    :ivar which: a broker's name or `host:port`, or a cluster; empty: all brokers.
    :ivar here: this machine's address.
    :ivar again_s: seconds until the second look; 0: no second look.
    :ivar config: a broker's properties file on this machine; empty: none.
    :ivar store: a broker's store on this machine; empty: the store that `config` names, if any.
    :ivar surroundings: the surroundings with which the file is read.
    :ivar overrides: keys and values that win over the file's.
    :ivar most_files: how many files this process may open; 0: unknown.
    """

    which: str = ""
    here: str = ""
    again_s: float = 6.0
    config: str = ""
    store: str = ""
    surroundings: Surroundings | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    most_files: int = 0


async def gather(session: Session, scope: DoctorScope, step: Step = lambda: None) -> ClusterFacts:
    """
    Gather all facts about the chosen brokers.

    :param step: called after each broker.
    :raises ConfigurationError: neither a name server nor an address was given.
    :raises NothingFound: no such broker is registered.
    """
    facts = ClusterFacts(now_ms=session.host.now_ms())
    look_at_machine(facts, session, scope)
    asker = await look_at_names(facts, session, scope)
    if facts.local is not None:
        await resolve_names(facts.local, session)
    for broker in facts.brokers:
        facts.not_looked += await look_at_broker(asker, session, facts, broker, scope.here)
        step()
    await _look_at_hidden_masters(asker, session, facts, scope.here)
    await look_at_controllers(asker, facts, scope.which)
    await look_at_groups(asker, facts, step)
    await _look_again(asker, session, facts, scope.again_s)
    return facts


def look_at_machine(facts: ClusterFacts, session: Session, scope: DoctorScope) -> None:
    """Look at the files of this machine that were asked for."""
    disk = session.host.disk
    if scope.config and scope.surroundings is not None:
        look_at_file(facts, disk, scope.config, scope.surroundings, scope.overrides)
    if scope.store:
        look_at_store(facts, disk, scope.store)
    if facts.local is not None and facts.local.has_abort and not facts.local.address:
        facts.not_looked.append(
            NotLooked(f"whether a broker runs on {facts.local.store}", "only --config says where")
        )
    if facts.local is None:
        facts.not_looked.append(
            NotLooked("files of this machine", "no --config and no --store was given")
        )


async def look_at_names(facts: ClusterFacts, session: Session, scope: DoctorScope) -> Asker:
    """
    Ask the name servers, and fill in which brokers are registered. If none is known, or only one
    broker is asked for by its address, the facts get the addresses of these brokers instead.

    :returns: a client for further requests.
    :raises ConfigurationError: neither a name server nor an address was given.
    :raises NothingFound: no registered broker or cluster has the name in `scope.which`.
    """
    own = facts.local.address if facts.local else ""
    given = session.options.namesrv or (facts.local.name_servers if facts.local else "")
    if ":" in scope.which or not given:
        addresses = [item for item in dict.fromkeys((scope.which, own)) if item]
        if not addresses and not facts.local:
            await session.client()  # raises an error that no name server was given
        facts.brokers = [BrokerFacts(address=item) for item in addresses]
        why = f"only {scope.which} was asked for" if scope.which else "none is known"
        facts.not_looked.append(NotLooked("name servers", why))
        return Asker(await session.direct())
    asker = Asker(await session.direct())
    for address in name_servers(given):
        facts.name_servers.append(await _look_at_name_server(asker, session, address))
    facts.brokers = _registered_brokers(facts.name_servers, scope.which)
    known = sorted({name for server in facts.name_servers for name in server.brokers})
    if known and not facts.brokers:
        raise NothingFound(
            f"no broker or cluster is called {scope.which} (brokers: {', '.join(known)})"
        )
    if own and own not in {broker.address for broker in facts.brokers}:
        facts.brokers.append(BrokerFacts(address=own))
    return asker


async def resolve_names(local: LocalFacts, session: Session) -> None:
    addresses = [*local.name_servers.split(";"), local.settings.get("haMasterAddress", "")]
    for address in addresses:
        name = host_of(address)
        if name and _is_name(name) and not await session.host.network.look_up(name):
            local.unresolved.append(name)


async def _look_again(asker: Asker, session: Session, facts: ClusterFacts, again_s: float) -> None:
    """
    Look a second time after `again_s`: counters that grow, and offsets that do not, show faults
    that go on now.
    """
    counting = [b.status for b in facts.brokers if b.status is not None and b.status.metrics]
    is_overtaken = any(queue.acked_ahead for item in facts.pops for queue in item.report.queues)
    if not (counting or waits_for_members(facts.groups) or is_overtaken):
        return
    if not again_s:
        facts.not_looked.append(NotLooked("what happens now", "--look-again 0"))
        return
    await deferLater(session.host.clock, again_s, lambda: None)
    facts.again_s = again_s
    await look_again(asker, facts)
    for status in counting:
        try:
            status.later = await metrics_at(session, status.address)
        except (OSError, ValueError) as error:
            facts.not_looked.append(NotLooked(f"/metrics of {status.address} again", str(error)))


async def _look_at_name_server(asker: Asker, session: Session, address: str) -> NameServer:
    host, _ = parse_host_port(address)
    resolves = bool(await session.host.network.look_up(host)) if _is_name(host) else True
    if not resolves:
        return NameServer(address=address, problem="unknown name", resolves=False)
    try:
        command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        response = await asker.run(expect(Ask(command, address)))
        cluster = ClusterInfo.decode(response.body or b"{}")
        ext = response.ext or {}
        rivals = decode_rivals(ext.get(RIVALS))
        controllers = decode_controllers(ext.get(CONTROLLERS))
    except RemotingError as error:
        return NameServer(address=address, problem=str(error))
    except (BrokerRefused, ProtocolViolation) as error:
        return NameServer(address=address, refused=str(error))
    topics = None
    try:
        command = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        response = await asker.run(expect(Ask(command, address)))
        topics = frozenset(decode_string_list(response.body or b"{}", "topicList"))
    except (RemotingError, BrokerRefused, ProtocolViolation):
        pass  # an account may be allowed to see brokers and no topics
    return NameServer(
        address=address,
        topics=topics,
        rivals=rivals,
        controllers=controllers,
        brokers={
            name: dict(sorted(item.addresses.items())) for name, item in cluster.brokers.items()
        },
        clusters={name: item.cluster for name, item in cluster.brokers.items()},
    )


async def _look_at_hidden_masters(
    asker: Asker, session: Session, facts: ClusterFacts, here: str
) -> None:
    """
    Look at masters that no name server lists, because another broker holds their name and id there.

    A slave may follow such a master, and a name server of rmq-ha tells which brokers claim a taken
    id.
    """
    known = {broker.address for broker in facts.brokers}
    clusters = {broker.name: broker.cluster for broker in facts.brokers if broker.name}
    hidden = [(rival.address, rival.broker_name) for rival in facts.rivals()]
    for slave in facts.brokers:
        link = slave.link
        try:
            followed = parse_host_port(str((link and link.address) or ""))
        except ValueError:
            continue
        hidden.append((str(followed.with_distance(-1)), slave.name))  # unless the port was changed
    for address, name in hidden:
        if address in known or name not in clusters:
            continue
        known.add(address)
        master = BrokerFacts(address=address, name=name, cluster=clusters[name])
        missing = await look_at_broker(asker, session, facts, master, here)
        if master.answers and master.own_name == name:
            facts.brokers.append(master)
            facts.not_looked += missing


def _is_name(host: str) -> bool:
    """Return whether a host is a name. Text with a colon is an IPv6 address."""
    return ":" not in host and not host.replace(".", "").isdecimal()


def _registered_brokers(servers: list[NameServer], which: str) -> list[BrokerFacts]:
    """
    Return the registered brokers, slaves first. A master's end of log is then read after the ends
    of its slaves, so no slave seems to be ahead.
    """
    brokers = {
        (name, number, address): BrokerFacts(
            address=address, name=name, cluster=server.clusters.get(name, ""), broker_id=number
        )
        for server in servers
        for name, ids in server.brokers.items()
        for number, address in ids.items()
        if which in ("", name, server.clusters.get(name, ""))
    }
    order = sorted(brokers, key=lambda key: (key[0], -key[1], key[2]))
    return [brokers[key] for key in order]
