"""The properties files of a new cluster: text, by the name of the file. Nothing is written here."""

from collections.abc import Sequence
from typing import NamedTuple

from rmq_ha.errors import WrongUsage

LOOPBACK = "127.0.0.1"
_METRICS = 5557


class Site(NamedTuple):
    """
    Where files go, and what clusters and brokers are called.

    :ivar hosts: addresses of the machines; one that is named twice runs two servers.
    :ivar data: directory below which each server has one of its own.
    """

    hosts: Sequence[str]
    cluster: str
    name: str
    data: str


class Planned(NamedTuple):
    """:ivar command: what runs with this file, on `host`."""

    file: str
    host: str
    command: str
    text: str


def pair(place: Site) -> list[Planned]:
    """
    A SYNC_MASTER, its slave, and a name server beside each.

    :raises WrongUsage: not two hosts.
    """
    first, second = _hosts(place, 2)
    ports = Ports()
    servers = [_namesrv(place, host, number, ports) for number, host in enumerate((first, second))]
    names = ";".join(f"{host}:{port}" for host, port, _ in servers)
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


def dledger(place: Site) -> list[Planned]:
    """
    A group of three brokers that elect their master, and a name server beside two of them.

    :raises WrongUsage: not three hosts.
    """
    hosts = _hosts(place, 3)
    ports = Ports()
    servers = [_namesrv(place, host, number, ports) for number, host in enumerate(hosts[:2])]
    names = ";".join(f"{host}:{port}" for host, port, _ in servers)
    group = [f"n{number}-{host}:{ports.take(host, 40911)}" for number, host in enumerate(hosts)]
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


def controller(place: Site) -> list[Planned]:
    """
    One or three controllers for brokers of RocketMQ 5 in controller mode.

    :raises WrongUsage: another number of hosts.
    """
    hosts = list(place.hosts) or [LOOPBACK]
    if len(hosts) not in (1, 3):
        raise WrongUsage(f"one controller or three, not {len(hosts)}: --hosts A or A,B,C")
    ports = Ports()
    peers = [f"n{number}-{host}:{ports.take(host, 9878)}" for number, host in enumerate(hosts)]
    return [_controller(place, peers, number, host, ports) for number, host in enumerate(hosts)]


def failover(place: Site) -> list[Planned]:
    """
    A pair whose master is elected: by three controllers, two of them in the pair's name servers.

    :raises WrongUsage: not three hosts; on the last one there is a controller and nothing else.
    """
    hosts = _hosts(place, 3)
    ports = Ports()
    peers = [f"n{number}-{host}:{ports.take(host, 9878)}" for number, host in enumerate(hosts)]
    made, addresses = [], []
    for number, host in enumerate(hosts[:2]):
        address, port, planned = _namesrv(place, host, number, ports)
        within = ["enableControllerInNamesrv=true", *_member(place, peers, number)]
        made.append(planned._replace(text=planned.text + _text(within)))
        addresses.append(f"{address}:{port}")
    made.append(_controller(place, peers, 2, hosts[2], ports))
    for number, host in enumerate(hosts[:2]):
        lines = [
            f"brokerName={place.name}",
            "flushDiskType=ASYNC_FLUSH",
            "enableControllerMode=true",
            f"controllerAddr={_addr_list(peers)}",
            "allAckInSyncStateSet=true",
            *_addresses(host),
        ]
        file = f"broker-{number + 1}"
        made.append(_broker(place, host, file, ";".join(addresses), lines, ports))
    return made


class Ports:
    """Gives each server of a machine ports of its own."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, int]] = set()

    def take(self, host: str, lowest: int, step: int = 1) -> int:
        """
        The first free one from `lowest` on.

        :param step: how far the next try is away.
        """
        port = lowest
        while (host, port) in self._taken:
            port += step
        self._taken.add((host, port))
        return port


def _controller(place: Site, peers: Sequence[str], number: int, host: str, ports: Ports) -> Planned:
    lines = [
        f"# A controller; brokers in controller mode get controllerAddr={_addr_list(peers)}",
        *_member(place, peers, number),
        *_bound(host),
        f"metricsPort={ports.take(host, _METRICS)}",
    ]
    file = f"controller-n{number}.properties"
    return Planned(file, host, "rmqha-controller", _text(lines))


def _member(place: Site, peers: Sequence[str], number: int) -> list[str]:
    """Which of the controllers this one is."""
    return [
        f"controllerDLegerGroup={place.cluster}-controller",
        f"controllerDLegerPeers={';'.join(peers)}",
        f"controllerDLegerSelfId=n{number}",
        f"controllerStorePath={place.data}/controller-n{number}",
    ]


def _addr_list(peers: Sequence[str]) -> str:
    return ";".join(peer.partition("-")[2] for peer in peers)


def _hosts(place: Site, count: int) -> list[str]:
    hosts = list(place.hosts) or [LOOPBACK] * count
    if len(hosts) != count:
        raise WrongUsage(f"this needs {count} addresses, not {len(hosts)}: --hosts A,B,...")
    return hosts


def _bound(host: str) -> list[str]:
    """A trial on one machine is nobody else's business."""
    return [f"bindAddress={LOOPBACK}"] if host == LOOPBACK else []


def _addresses(host: str) -> list[str]:
    return [f"brokerIP1={host}", f"brokerIP2={host}", *_bound(host)]


def _namesrv(place: Site, host: str, number: int, ports: Ports) -> tuple[str, int, Planned]:
    port = ports.take(host, 9876)
    file = f"namesrv-{number + 1}"
    lines = [
        "# A name server: brokers register with all of them, clients ask any of them.",
        f"listenPort={port}",
        f"kvConfigPath={place.data}/{file}/kvConfig.json",
        *_bound(host),
        f"metricsPort={ports.take(host, _METRICS)}",
    ]
    return host, port, Planned(f"{file}.properties", host, "rmqha-namesrv", _text(lines))


def _broker(
    place: Site, host: str, file: str, names: str, lines: Sequence[str], ports: Ports
) -> Planned:
    port = ports.take(host, 10911, 100)
    text = [
        f"# Takes {port}, {port - 2} (clients' fast port); in a pair {port + 1} (replication).",
        f"brokerClusterName={place.cluster}",
        *lines,
        f"listenPort={port}",
        f"namesrvAddr={names}",
        f"storePathRootDir={place.data}/{file}",
        "deleteWhen=04",
        "fileReservedTime=72",
        f"metricsPort={ports.take(host, _METRICS)}",
    ]
    return Planned(f"{file}.properties", host, "rmqha-broker", _text(text))


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
