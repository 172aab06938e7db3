"""Makes the properties files of a new cluster: text by file name. This module writes no file."""

from collections.abc import Sequence
from typing import NamedTuple

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.model.host_port import HostPort
from rmq_ha.base.model.networks import canonical
from rmq_ha.ops.admin.sites import (
    BROKER_STATUS,
    CONTROLLER_STATUS,
    LOOPBACK,
    NAMESRV_STATUS,
    Ports,
    Site,
    bind_line,
    status_lines,
)

SCRAPE_FILE = "prometheus.yml"


class PlannedServer(NamedTuple):
    """
    A properties file that a layout plans for one server.

    :ivar command: the program that runs with this file, on `host`.
    :ivar status: the port of the server's health, metrics and page.
    """

    file: str
    host: str
    command: str
    text: str
    status: int


def scrape_file(planned: Sequence[PlannedServer]) -> str:
    """Return a configuration with which Prometheus scrapes these servers."""
    targets = ", ".join(f'"{HostPort(item.host, item.status)}"' for item in planned)
    return _text(
        [
            "# Prometheus for these servers. Check: promtool check config prometheus.yml",
            "global:",
            "  scrape_interval: 15s",
            "  evaluation_interval: 15s",
            "# For the alerts, copy conf/monitoring/alerts.yml of rmq-ha beside this file:",
            "#rule_files: [alerts.yml]",
            "scrape_configs:",
            "  - job_name: rmq-ha",
            "    static_configs:",
            f"      - targets: [{targets}]",
        ]
    )


def pair(place: Site) -> list[PlannedServer]:
    """
    Plan a SYNC_MASTER, its slave, and a name server beside each.

    :raises WrongUsage: not exactly two hosts are given.
    """
    first, second = _hosts(place, 2)
    ports = Ports(place.base_port)
    servers = [_namesrv(place, host, number, ports) for number, host in enumerate((first, second))]
    names = ";".join(str(HostPort(host, port)) for host, port, _ in servers)
    made = [planned for _, _, planned in servers]
    for host, role, number, file in (
        (first, "SYNC_MASTER", 0, "broker-master"),
        (second, "SLAVE", 1, "broker-slave"),
    ):
        lines = [
            f"brokerName={place.name}",
            f"brokerId={number}",
            f"brokerRole={role}",
            "flushDiskType=ASYNC_FLUSH",
            *_addresses(host),
        ]
        made.append(_broker(place, host, file, names, lines, ports))
    return made


def dledger(place: Site) -> list[PlannedServer]:
    """
    Plan three brokers that elect their master (DLedger), and a name server beside two of them.

    :raises WrongUsage: not exactly three hosts are given.
    """
    hosts = _hosts(place, 3)
    ports = Ports(place.base_port)
    servers = [_namesrv(place, host, number, ports) for number, host in enumerate(hosts[:2])]
    names = ";".join(str(HostPort(host, port)) for host, port, _ in servers)
    group = [f"n{number}-{HostPort(host, ports.member(host))}" for number, host in enumerate(hosts)]
    made = [planned for _, _, planned in servers]
    for number, host in enumerate(hosts):
        lines = [
            f"brokerName={place.name}",
            "flushDiskType=ASYNC_FLUSH",
            "enableDLegerCommitLog=true",
            f"dLegerGroup={place.name}",
            f"dLegerPeers={';'.join(group)}",
            f"dLegerSelfId=n{number}",
            *_addresses(host),
        ]
        made.append(_broker(place, host, f"broker-n{number}", names, lines, ports))
    return made


def controller(place: Site) -> list[PlannedServer]:
    """
    Plan one or three controllers for brokers of RocketMQ 5 in controller mode.

    :raises WrongUsage: the number of hosts is neither one nor three, or brokers are asked for.
    """
    if place.has_grpc:
        raise WrongUsage("--grpc goes with brokers: controllers serve no clients of RocketMQ 5")
    hosts = list(place.hosts) or [LOOPBACK]
    if len(hosts) not in (1, 3):
        raise WrongUsage(f"give one controller or three, not {len(hosts)}: --hosts A or A,B,C")
    ports = Ports(place.base_port)
    peers = [
        f"n{number}-{HostPort(host, ports.controller(host))}" for number, host in enumerate(hosts)
    ]
    return [_controller(place, peers, number, host, ports) for number, host in enumerate(hosts)]


def failover(place: Site) -> list[PlannedServer]:
    """
    Plan a pair whose master is elected by three controllers; two of them run in the pair's name
    servers.

    :raises WrongUsage: not exactly three hosts are given; the last one has only a controller.
    """
    hosts = _hosts(place, 3)
    ports = Ports(place.base_port)
    peers = [
        f"n{number}-{HostPort(host, ports.controller(host))}" for number, host in enumerate(hosts)
    ]
    made, addresses = [], []
    for number, host in enumerate(hosts[:2]):
        address, port, planned = _namesrv(place, host, number, ports)
        within = [
            "enableControllerInNamesrv=true",
            *_member(place, peers, number),
            *_hosts_line("controllerAllowedBrokers", hosts[:2]),
        ]
        made.append(planned._replace(text=planned.text + _text(within)))
        addresses.append(str(HostPort(address, port)))
    made.append(_controller(place, peers, 2, hosts[2], ports, brokers=hosts[:2]))
    for number, host in enumerate(hosts[:2]):
        lines = [
            f"brokerName={place.name}",
            "flushDiskType=ASYNC_FLUSH",
            "enableControllerMode=true",
            f"controllerAddr={_addr_list(peers)}",
            "allAckInSyncStateSet=true",
            *_hosts_line("haAllowedSlaves", hosts[:2]),
            f"haTrustedMasters={','.join(dict.fromkeys(hosts[:2]))}",
            *_addresses(host),
        ]
        file = f"broker-{number + 1}"
        made.append(_broker(place, host, file, ";".join(addresses), lines, ports))
    return made


def _controller(
    place: Site,
    peers: Sequence[str],
    number: int,
    host: str,
    ports: Ports,
    brokers: Sequence[str] = (),
) -> PlannedServer:
    status = ports.status(host, CONTROLLER_STATUS)
    lines = [
        f"# A controller; brokers in controller mode get controllerAddr={_addr_list(peers)}",
        *_member(place, peers, number),
        *(_hosts_line("controllerAllowedBrokers", brokers) if brokers else ()),
        *bind_line(host),
        *status_lines(place, host, status),
    ]
    file = f"controller-n{number}.properties"
    return PlannedServer(file, host, "rmqha-controller", _text(lines), status)


def _member(place: Site, peers: Sequence[str], number: int) -> list[str]:
    """Return the lines that say which of the controllers this one is."""
    return [
        f"controllerDLegerGroup={place.cluster}-controller",
        f"controllerDLegerPeers={';'.join(peers)}",
        f"controllerDLegerSelfId=n{number}",
        f"controllerStorePath={place.data}/controller-n{number}",
    ]


def _hosts_line(key: str, hosts: Sequence[str]) -> list[str]:
    """
    Return a key's line with the allowed hosts. If one is a name, the line asks the operator for
    addresses, because the server that reads the list looks no names up.
    """
    known = ",".join(dict.fromkeys(hosts))
    if all(canonical(host) for host in hosts):
        return [f"{key}={known}"]
    return [f"# Write the addresses of {known} here, or strangers may come: {key}="]


def _addr_list(peers: Sequence[str]) -> str:
    return ";".join(peer.partition("-")[2] for peer in peers)


def _hosts(place: Site, count: int) -> list[str]:
    hosts = list(place.hosts) or [LOOPBACK] * count
    if len(hosts) != count:
        raise WrongUsage(f"this needs {count} addresses, not {len(hosts)}: --hosts A,B,...")
    return hosts


def _addresses(host: str) -> list[str]:
    return [f"brokerIP1={host}", f"brokerIP2={host}", *bind_line(host)]


def _namesrv(place: Site, host: str, number: int, ports: Ports) -> tuple[str, int, PlannedServer]:
    port, status = ports.namesrv(host), ports.status(host, NAMESRV_STATUS)
    file = f"namesrv-{number + 1}"
    lines = [
        "# A name server: brokers register with all of them, clients ask any of them.",
        f"listenPort={port}",
        f"kvConfigPath={place.data}/{file}/kvConfig.json",
        *bind_line(host),
        *status_lines(place, host, status),
    ]
    planned = PlannedServer(f"{file}.properties", host, "rmqha-namesrv", _text(lines), status)
    return host, port, planned


def _broker(
    place: Site, host: str, file: str, names: str, lines: Sequence[str], ports: Ports
) -> PlannedServer:
    port, status = ports.broker(host), ports.status(host, BROKER_STATUS)
    text = [
        f"# Takes {port}, {port - 2} (clients' fast port); in a pair {port + 1} (replication).",
        f"brokerClusterName={place.cluster}",
        *lines,
        f"listenPort={port}",
        f"namesrvAddr={names}",
        f"storePathRootDir={place.data}/{file}",
        "deleteWhen=04",
        "fileReservedTime=72",
        "timerWheelEnable=true",
        *([f"grpcServerPort={port}", "popEnable=true"] if place.has_grpc else ()),
        *status_lines(place, host, status),
    ]
    return PlannedServer(f"{file}.properties", host, "rmqha-broker", _text(text), status)


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
