"""
Rules: which servers answer, and whether other servers and clients can reach them at their
addresses.
"""

import ipaddress
from collections.abc import Iterator

from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import is_this_machine
from rmq_ha.ops.admin.doctor.facts import ClusterFacts
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

SLOW_MS = 1_000
_CONTAINERS = ipaddress.ip_network("172.17.0.0/16")


def _silent_name_servers(facts: ClusterFacts) -> Iterator[Observation]:
    for server in facts.name_servers:
        if server.problem is not None and server.resolves:
            yield Observation(server.address, f"the name server does not answer: {server.problem}")


def _name_unresolved(facts: ClusterFacts) -> Iterator[Observation]:
    for server in facts.name_servers:
        if not server.resolves:
            yield Observation(server.address, "no address is known for this name of a name server")
    for name in facts.local.unresolved if facts.local else ():
        yield Observation(name, "a name in the properties file stands for no address")


def _no_name_server(facts: ClusterFacts) -> Iterator[Observation]:
    for server in facts.name_servers:
        if server.refused is not None:
            yield Observation(server.address, f"asked for the brokers it says: {server.refused}")


def _one_name_server(facts: ClusterFacts) -> Iterator[Observation]:
    if len(facts.name_servers) == 1:
        yield Observation(
            facts.name_servers[0].address, "it is the only name server that was given"
        )


def _no_brokers(facts: ClusterFacts) -> Iterator[Observation]:
    """
    Report name servers without brokers. If brokers wait for their controllers, the rules
    `nobody-leads` and `no-controller` report that instead.
    """
    waits = bool(facts.controllers) and not facts.controllers_lead()
    if facts.none_registered() and (facts.leaderless or waits):
        return
    for server in facts.name_servers:
        if server.answers and not server.brokers:
            yield Observation(server.address, "no broker is registered with this name server")


def _differ(facts: ClusterFacts) -> Iterator[Observation]:
    telling = [server for server in facts.name_servers if server.answers]
    every = {(n, i) for s in telling for n, ids in s.brokers.items() for i in ids}
    for name, number in sorted(every):
        seen = {s.address: s.brokers.get(name, {}).get(number) for s in telling}
        if len(set(seen.values())) > 1:
            told = ", ".join(f"{who}: {what or 'none'}" for who, what in seen.items())
            yield Observation(name, f"name servers differ about id {number} of it ({told})")


def _silent_brokers(facts: ClusterFacts) -> Iterator[Observation]:
    known_why = {said.about for why in (_loopback, _container) for said in why(facts)}
    for broker in facts.brokers:
        refuses = broker.plain is None or broker.plain.problem is not None
        own = facts.local is not None and broker.address == facts.local.address  # see not-running
        if broker.problem is None or not refuses or own or str(broker) in known_why:
            continue
        what = "registered, but nobody answers there" if broker.name else "nobody answers there"
        yield Observation(str(broker), f"{what}: {broker.problem}")


def _speaks_otherwise(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.brokers:
        if broker.problem is not None and broker.plain and broker.plain.problem is None:
            yield Observation(
                str(broker),
                f"the port takes connections, but does not answer as a broker: {broker.problem}",
            )


def _not_allowed(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.brokers:
        if broker.refused is not None:
            yield Observation(str(broker), broker.refused)


def _loopback(facts: ClusterFacts) -> Iterator[Observation]:
    if all(is_this_machine(host_of(server.address)) for server in facts.name_servers):
        return
    for broker in facts.brokers:
        if is_this_machine(broker.host):
            yield Observation(str(broker), "it registered an address that means this very machine")


def _container(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.brokers:
        try:
            inside = ipaddress.ip_address(broker.host) in _CONTAINERS
        except ValueError:
            inside = False
        if inside and broker.problem is not None:
            yield Observation(str(broker), "it registered an address of Docker's own network")


def _slow(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.took_ms > SLOW_MS:
            yield Observation(str(broker), f"its answer took {broker.took_ms / 1000:.1f} s")


def _ha_blocked(facts: ClusterFacts) -> Iterator[Observation]:
    """
    Report a blocked port for slaves, unless a slave follows: slaves may have a network of their
    own.
    """
    for broker in facts.answering():
        if broker.ha is not None and broker.ha.problem is not None and not broker.slaves:
            yield Observation(
                str(broker),
                f"clients reach it, but not its port for slaves, {broker.ha.address}: "
                f"{broker.ha.problem}",
            )


def _fast_blocked(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.fast is not None and broker.fast.problem is not None:
            yield Observation(
                str(broker), f"its fast port, {broker.fast.address}: {broker.fast.problem}"
            )


def _status_silent(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.status is not None and broker.status.problem is not None:
            yield Observation(
                str(broker), f"no /healthz at {broker.status.address}: {broker.status.problem}"
            )


def _not_ready(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        status = broker.status
        if status is not None and status.problem is None and not status.is_ready:
            yield Observation(str(broker), f"/healthz: {status.health}")


def _broker_unrouted(facts: ClusterFacts) -> Iterator[Observation]:
    for server in facts.name_servers:
        for broker in facts.answering():
            if server.topics is None or broker.topics is None or not broker.is_master:
                continue
            if broker.name not in server.brokers:
                continue
            missing = sorted(broker.topics - server.topics)
            if missing:
                named = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
                yield Observation(
                    server.address,
                    f"it has no route for {len(missing)} topics of {broker}: {named}",
                )


RULES = (
    Rule(
        "name-server-silent",
        DoctorSeverity.ERROR,
        "a name server does not answer; clients that know only this name server find no broker",
        "start the name server, or remove it from NAMESRV_ADDR and from `namesrvAddr` of every "
        "broker; check whether a firewall blocks it",
        _silent_name_servers,
    ),
    Rule(
        "name-unresolved",
        DoctorSeverity.ERROR,
        "a host name has no address on this machine",
        "correct DNS or /etc/hosts, or write an IP address in place of the host name",
        _name_unresolved,
    ),
    Rule(
        "no-name-server",
        DoctorSeverity.ERROR,
        "the program at a name server's address is no name server, or it needs an account",
        "give the name server's port (9876 by default; 10911 is a broker's), and an account if "
        "the name server asks for one",
        _no_name_server,
    ),
    Rule(
        "one-name-server",
        DoctorSeverity.NOTE,
        "there is only one name server: while it is down, no client that starts finds a broker",
        "run a second name server on another machine, and give both to every broker and client "
        "(`a:9876;b:9876`)",
        _one_name_server,
    ),
    Rule(
        "no-broker",
        DoctorSeverity.ERROR,
        "a name server knows no broker",
        "look into the brokers' logs for registrations; compare the brokers' `namesrvAddr` with "
        "this address; in controller mode give `--config FILE` on a broker's machine, so that "
        "doctor can ask the controllers which broker has to be started",
        _no_brokers,
    ),
    Rule(
        "name-servers-differ",
        DoctorSeverity.ERROR,
        "the name servers know different brokers or addresses: clients of one do not find what "
        "clients of another find",
        "give every broker all name servers in `namesrvAddr`; a broker registers again within "
        "30 s, and a dead one is removed after 120 s",
        _differ,
    ),
    Rule(
        "topics-unrouted",
        DoctorSeverity.WARNING,
        "a master has topics that a name server does not know: clients get no route",
        "wait 30 s for the next registration; if it does not help, the name server refuses the "
        "registration (`maxTopicsOfBroker`, `maxTopicRoutes`), and the name server's log says "
        "why",
        _broker_unrouted,
    ),
    Rule(
        "broker-silent",
        DoctorSeverity.ERROR,
        "a registered broker cannot be reached at its address",
        "look at the broker's process and its `/healthz`; if it runs, a firewall blocks it, or "
        "`brokerIP1` is an address that others cannot reach; if the broker is a master and "
        "dead: docs/failover.md",
        _silent_brokers,
    ),
    Rule(
        "speaks-otherwise",
        DoctorSeverity.ERROR,
        "a broker's port takes connections and does not answer: it takes TLS only, the broker "
        "is frozen, or the port belongs to another program",
        "try --tls (with --tls-ca); look into the broker's log for refused connections, and at "
        "its `/healthz`",
        _speaks_otherwise,
    ),
    Rule(
        "not-allowed",
        DoctorSeverity.WARNING,
        "a broker answers, but refuses the requests of `doctor`: most rules could not check it",
        "give an admin's account (`RMQHA_ACCESS_KEY`, `RMQHA_SECRET_KEY`); if the address is a "
        "name server's, give it with -n",
        _not_allowed,
    ),
    Rule(
        "loopback-registered",
        DoctorSeverity.ERROR,
        "a broker registered a loopback address, at which other machines reach only themselves",
        "set the broker's `brokerIP1` to an address that all clients reach, and restart the broker",
        _loopback,
    ),
    Rule(
        "container-address",
        DoctorSeverity.ERROR,
        "a broker in a container registered its address inside the container, which other "
        "machines cannot reach",
        "set `brokerIP1` (and `brokerIP2`) to the machine's address and publish listenPort, "
        "listenPort - 2 and the port for slaves",
        _container,
    ),
    Rule(
        "broker-slow",
        DoctorSeverity.WARNING,
        "a broker takes more than a second to answer a request that needs no work",
        "look at `rmqha_reactor_lag_seconds`, at the machine's load and disk, and at the network",
        _slow,
    ),
    Rule(
        "ha-port-blocked",
        DoctorSeverity.ERROR,
        "a master answers clients, but its port for slaves cannot be reached from here",
        "open the port in the firewall (`haListenPort`, 10912 by default); slaves connect to "
        "the address in `brokerIP2`",
        _ha_blocked,
    ),
    Rule(
        "fast-port-blocked",
        DoctorSeverity.WARNING,
        "listenPort - 2 cannot be reached: clients with vipChannelEnabled send nothing, and "
        "Java slaves copy no topics, groups and offsets from there",
        "open the port in the firewall, or switch vipChannelEnabled off at the clients",
        _fast_blocked,
    ),
    Rule(
        "status-silent",
        DoctorSeverity.WARNING,
        "a status port is configured, is meant for the network, and cannot be reached",
        "open `metricsPort` for the machines that watch",
        _status_silent,
    ),
    Rule(
        "not-ready",
        DoctorSeverity.ERROR,
        "/healthz of a broker says that the broker cannot serve, and why",
        'do what the line of /healthz says; docs/operations.md, "Metrics and health"',
        _not_ready,
    ),
)
