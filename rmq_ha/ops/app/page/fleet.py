"""Asks the other brokers of the cluster for their state while a page is open."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList, succeed

from rmq_ha.base.config.addresses import ANY_ADDRESS
from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.host_port import HostPort, parse_host_port
from rmq_ha.base.model.networks import is_loopback
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.route_bodies import ClusterInfo
from rmq_ha.client.lookup.asking import Asking
from rmq_ha.client.lookup.brokers import broker_config, replication_of, runtime_info
from rmq_ha.client.lookup.lookups import cluster_info
from rmq_ha.ops.app.page.values import MachineRow, Tone

EVERY_S = 10.0
MOST_MACHINES = 48
REMEMBERED_S = 600.0
UNLISTED = "answers, and the name server does not list it"
TIMEOUT_MS = 3000

T = TypeVar("T")


class Fleet:
    """
    Asks a name server for the registered brokers, and each broker for its counters.

    :param calls: sends the requests; signed, if this broker has an account.
    :param name_servers: `host:port` of each.
    :param own: returns the state of this broker, which is not asked.
    :ivar machines: brokers of the last round.
    :ivar note: why some brokers are missing.
    """

    def __init__(
        self,
        host: Host,
        calls: Calls,
        name_servers: Callable[[], list[str]],
        own: Callable[[], MachineRow],
    ) -> None:
        self._host = host
        self._calls = calls
        self._name_servers = name_servers
        self._own = own
        self._at: float | None = None
        self._asking = False
        self._listed: dict[str, tuple[str, str, float]] = {}
        self._pages: dict[str, tuple[float, str]] = {}
        self.machines: list[MachineRow] = []
        self.note = ""

    def look(self) -> None:
        """
        Ask the brokers, unless that was done a moment ago. Called for each look at a page; returns
        at once.
        """
        now = self._host.clock.seconds()
        if self._asking or (self._at is not None and now - self._at < EVERY_S):
            return
        self._at, self._asking = now, True
        Deferred.fromCoroutine(self._ask_all()).addErrback(self._failed).addBoth(self._ask_ended)

    def _ask_ended(self, _: object) -> None:
        self._asking = False

    def _failed(self, failure: Any) -> None:
        self.note = f"the brokers of the cluster are not known: {failure.getErrorMessage()}"

    async def _ask_all(self) -> None:
        cluster = await self._cluster()
        if cluster is None:
            return
        names = {name: key for key, members in cluster.clusters.items() for name in members}
        brokers = [
            (names.get(name, ""), name, number, address)
            for name, route in sorted(cluster.brokers.items())
            for number, address in sorted(route.addresses.items())
        ]
        more = len(brokers) - MOST_MACHINES
        self.note = f"{more} more brokers are registered" if more > 0 else ""
        asked = [self._machine(*broker) for broker in brokers[:MOST_MACHINES]]
        asked += [self._machine(*broker) for broker in self._unlisted_brokers(brokers)]
        machines = [item for is_good, item in await DeferredList(asked) if is_good]
        self.machines = with_distance(machines)

    def _unlisted_brokers(
        self, brokers: Sequence[tuple[str, str, int, str]]
    ) -> list[tuple[str, str, None, str]]:
        """
        Return brokers that were registered a while ago and are not now, since they may still run.

        At a change of roles a broker is not registered until it registers with its new id.
        """
        now = self._host.clock.seconds()
        for cluster, name, _, address in brokers:
            self._listed.pop(address, None)
            self._listed[address] = (cluster, name, now)
        for address, (_, _, at) in list(self._listed.items()):
            if now - at > REMEMBERED_S or len(self._listed) > 2 * MOST_MACHINES:
                del self._listed[address]
        own, present = self._own().address, {address for _, _, _, address in brokers}
        missing = [
            (cluster, name, None, address)
            for address, (cluster, name, _) in self._listed.items()
            if address not in present and address != own
        ]
        return missing[: max(0, MOST_MACHINES - len(brokers))]

    async def _cluster(self) -> ClusterInfo | None:
        for address in self._name_servers():
            try:
                return await self._run(cluster_info(), address)
            except RmqHaError as error:
                self.note = f"the name server {address} gives no answer: {error}"
        if not self._name_servers():
            self.note = "this broker has no name server"
        return None

    def _machine(
        self, cluster: str, name: str, number: int | None, address: str
    ) -> "Deferred[MachineRow]":
        """
        Ask a broker for its counters.

        :param number: its id; None: it is not registered at the moment.
        """
        own = self._own()
        if address == own.address:
            return succeed(own)
        asked = Deferred.fromCoroutine(self._run(runtime_info(address), address))

        page = self._pages.get(address)
        if page is None or self._host.clock.seconds() - page[0] > REMEMBERED_S:
            Deferred.fromCoroutine(self._look_for_page(address, own.address))

        def machine(info: dict[str, str]) -> MachineRow:
            # Texts of another broker may have any length, so they are cut for the table.
            pair = replication_of(info)
            role = "" if number is None else ("master" if number == 0 else "slave")
            return MachineRow(
                set_name=name,
                broker_id=number,
                address=address,
                cluster=cluster,
                role=str(pair.get("role") or role)[:40],
                tone=Tone.WARN if number is None else Tone.GOOD,
                note=UNLISTED if number is None else "",
                version=info.get("brokerVersionDesc", "")[:40],
                put_rate=_number(info, "putTps"),
                get_rate=_number(info, "getTransferedTps"),
                disk_used=_number(info, "commitLogDiskRatio"),
                log_end=int(_number(info, "commitLogMaxOffset") or 0),
                seen_ms=self._host.now_ms(),
                page=self._pages.get(address, (0.0, ""))[1],
            )

        def silent(failure: Any) -> MachineRow:
            return MachineRow(
                set_name=name,
                broker_id=number,
                address=address,
                cluster=cluster,
                role="" if number is None else ("master" if number == 0 else "slave"),
                tone=Tone.ERROR,
                note=str(failure.getErrorMessage())[:200],
            )

        return asked.addCallback(machine).addErrback(silent)

    async def _look_for_page(self, address: str, own: str) -> None:
        """Ask a broker for its settings, and note the address of its page for some minutes."""
        now = self._host.clock.seconds()
        if len(self._pages) > 2 * MOST_MACHINES:
            self._pages.clear()
        self._pages[address] = (now, self._pages.get(address, (0.0, ""))[1])
        try:
            config = await self._run(broker_config(address), address)
        except (RmqHaError, ValueError):
            return
        self._pages[address] = (now, page_address(config, address, own))

    async def _run(self, asking: Asking[T], address: str) -> T:
        """Send each request to this address, unless the request names another one."""
        value: Any = None
        while True:
            try:
                ask = asking.send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            value = await self._calls.invoke(ask.address or address, ask.command, TIMEOUT_MS)


def page_address(config: Mapping[str, str], address: str, own: str) -> str:
    """
    Return the address of a broker's page; empty: it has none, or it is for its own machine only.

    :param config: the broker's settings, as it tells them.
    :param address: the broker's address for clients.
    :param own: this broker's address for clients: on its machine loopback addresses are reached.
    :raises ValueError: an address has no port.
    """
    port, host = config.get("metricsPort", "0"), config.get("metricsAddress", "")
    if config.get("pageEnable") != "true" or not port.isdecimal() or port == "0":
        return ""
    host_there, own_host = parse_host_port(address).host, parse_host_port(own).host
    if host in ANY_ADDRESS:
        host = host_there
    elif is_loopback(host) and host_there != own_host:
        return ""
    return f"http://{HostPort(host, int(port))}/"


def with_distance(machines: list[MachineRow]) -> list[MachineRow]:
    """
    Return the machines with the distance of each log to that of its set's master. All were read at
    about the same time.
    """
    ends = {(item.cluster, item.set_name): item.log_end for item in machines if item.broker_id == 0}
    return [
        item
        if item.log_end is None or (end := ends.get((item.cluster, item.set_name))) is None
        else replace(item, behind_bytes=max(0, end - item.log_end))
        for item in machines
    ]


def _number(info: dict[str, str], key: str) -> float | None:
    """Return the first of the numbers in a value."""
    try:
        return float(info.get(key, "").split()[0])
    except (ValueError, IndexError):
        return None
