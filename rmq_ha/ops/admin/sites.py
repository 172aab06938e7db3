"""The machines and ports of the servers of a new cluster."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.networks import canonical, is_this_machine

LOOPBACK = "127.0.0.1"
_HOST_NAME = re.compile(r"[\w.-]+", re.ASCII)
_SEPARATORS = re.compile(r"[;\s|/]")
BROKER_STATUS, NAMESRV_STATUS, CONTROLLER_STATUS = 5557, 5558, 5559
_STATUS_STEP = 10
_BROKER_STEP = 100
_HIGHEST_BASE = 65535 - 3 * _BROKER_STEP - 1


class Site(NamedTuple):
    """
    The machines of a new cluster, and the names of cluster and brokers.

    :ivar hosts: addresses of the machines; empty: all servers run on 127.0.0.1, for a trial.
    :ivar data: the directory in which each server has one of its own.
    :ivar page_token: the token that a browser needs for pages that other machines reach.
    :ivar base_port: the lowest port; 0: the usual ports.
    :ivar has_grpc: whether the brokers serve clients of RocketMQ 5, on `listenPort`, too.
    """

    hosts: Sequence[str]
    cluster: str
    name: str
    data: str
    page_token: str = ""
    base_port: int = 0
    has_grpc: bool = False


def read_hosts(text: str) -> list[str]:
    """
    Return the machines of `--hosts A,B,...`.

    :raises WrongUsage: a host is not an address of a machine, or the addresses do not go together.
    """
    hosts = [host.strip().strip("[]") for host in text.split(",") if host.strip()]
    for host in hosts:
        _check_host(host)
    local = [host for host in hosts if is_this_machine(host)]
    if local and len(local) < len(hosts):
        raise WrongUsage(
            f"{local[0]} is this machine's address for itself: the other machines cannot reach it; "
            "give the address that they reach"
        )
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice and not local:
        raise WrongUsage(
            f"{twice[0]} comes twice: the servers of one machine die together; name different "
            "machines, or leave --hosts out for a trial on 127.0.0.1"
        )
    return hosts


def _check_host(host: str) -> None:
    address = canonical(host)
    if address in ("0.0.0.0", "::"):
        raise WrongUsage(
            f"{host} stands for all addresses: nobody can connect to it; name one address"
        )
    if address is not None or _HOST_NAME.fullmatch(host):
        return
    try:
        name = parse_host_port(host).host
    except ValueError:
        more = "; between two addresses is a comma" if _SEPARATORS.search(host) else ""
        raise WrongUsage(f"{host} is no address and no name of a machine{more}") from None
    raise WrongUsage(
        f"{host}: give the machine without a port, {name}; --base-port moves the ports"
    )


def bind_line(host: str) -> list[str]:
    """
    Return the line that makes a trial server listen on this machine only; none for a real machine.
    """
    return [f"bindAddress={host}"] if is_this_machine(host) else []


def status_lines(place: Site, host: str, port: int) -> list[str]:
    """
    Return the lines that say where a server shows its health, its metrics and its page.

    A server of a cluster shows them to other machines, because monitoring runs on another machine.
    """
    lines = [f"metricsPort={port}"]
    if not is_this_machine(host):
        lines += [f"metricsAddress={host}", f"pageToken={place.page_token}"]
    return lines


class Ports:
    """
    Gives each server of a machine ports of its own; `docs/install.md` has the same plan.

    :param base: the lowest port; 0: the usual ports.
    :raises WrongUsage: ports above 65535 would be needed.
    """

    def __init__(self, base: int = 0) -> None:
        if base > _HIGHEST_BASE:
            raise WrongUsage(f"--base-port is at most {_HIGHEST_BASE}: the ports lie above it")
        self._taken: set[tuple[str, int]] = set()
        self._namesrv, self._controller, self._member = 9876, 9878, 40911
        self._broker, self._status = 10911, BROKER_STATUS
        if base:
            self._namesrv, self._controller, self._member = base, base + 10, base + 20
            self._broker, self._status = base + 100, base + 57

    def namesrv(self, host: str) -> int:
        """Return the port of a name server."""
        return self._take(host, self._namesrv, 1)

    def controller(self, host: str) -> int:
        return self._take(host, self._controller, 1)

    def member(self, host: str) -> int:
        """Return the port of a member of a DLedger group for the other members."""
        return self._take(host, self._member, 1)

    def broker(self, host: str) -> int:
        """Return the port of a broker for its clients: `listenPort`."""
        return self._take(host, self._broker, _BROKER_STEP)

    def status(self, host: str, usual: int) -> int:
        """
        Return the port of a server's health, metrics and page.

        :param usual: `BROKER_STATUS`, `NAMESRV_STATUS` or `CONTROLLER_STATUS`.
        """
        return self._take(host, self._status + usual - BROKER_STATUS, _STATUS_STEP)

    def _take(self, host: str, lowest: int, step: int) -> int:
        """Return the first free port of `lowest`, `lowest + step` and so on."""
        port = lowest
        while (host, port) in self._taken:
            port += step
        self._taken.add((host, port))
        return port
