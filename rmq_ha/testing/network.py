"""A network in memory: endpoints, delays, partitions, resets, half-open links, back-pressure.

`SimNetwork` is the cable; each machine has a `HostNetwork`, which is a `rmq_ha.base.seams.Network`.
"""

from collections.abc import Callable
from random import Random

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import (
    CannotListenError,
    ConnectError,
    ConnectingCancelledError,
    ConnectionLost,
    ConnectionRefusedError,
    DNSLookupError,
    NoProtocol,
    TimeoutError,
)
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.testing.clock import SimClock
from rmq_ha.testing.trace import FAULT
from rmq_ha.testing.transport import Machine, SimTransport

WINDOW = 131072
_SYN_RETRY = 1.0


class SimNetwork:
    """
    The cable between simulated machines.

    :param random: draws delays and chunk sizes.
    :ivar window: bytes that may be on the way in one direction of a connection.
    :ivar latency: shortest and longest time that a segment travels, in seconds.
    :ivar split: the chance that arriving bytes reach the protocol in more than one piece.
    """

    def __init__(self, clock: SimClock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self.window = WINDOW
        self.latency = (0.0001, 0.0008)
        self.split = 0.15
        self.hosts: dict[str, HostNetwork] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self.stalled: dict[SimTransport, None] = {}
        self._slow: dict[tuple[str, str], float] = {}
        self._blocked: dict[tuple[str, int, str], None] = {}

    def attach(self, name: str, ip: str, index: int = 0) -> "HostNetwork":
        """Connect a machine; a restarted one takes the place of its former self."""
        self.hosts[name] = HostNetwork(self, name, ip, index)
        return self.hosts[name]

    def find(self, host: str) -> "HostNetwork | None":
        """Return a machine by name or address; None: there is none."""
        for network in self.hosts.values():
            if host in (network.name, network.ip):
                return network
        return None

    # Faults

    def cut(self, source: str, destination: str) -> None:
        """Lose all segments from one machine to the other; the way back stays open."""
        self._cut[source, destination] = None

    def partition(self, machine: str, other: str) -> None:
        """Lose all segments between two machines, in both directions."""
        self.cut(machine, other)
        self.cut(other, machine)

    def block(self, host: str, port: int, source: str = "") -> None:
        """
        Block connections to a port of a machine, as a firewall does.

        :param source: only for this other machine; empty: for all.
        """
        self._blocked[host, port, source] = None

    def slow(self, source: str, destination: str, seconds: float) -> None:
        """Delay each segment by up to that many seconds more."""
        self._slow[source, destination] = seconds

    def heal(self) -> None:
        """End cuts, blocked ports and delays; segments that TCP kept are sent again."""
        self._cut.clear()
        self._blocked.clear()
        self._slow.clear()
        waiting = dict.fromkeys([*self.stalled, *self.ends()])
        self.stalled.clear()
        for end in waiting:
            end.healed()

    def ends(self) -> list[SimTransport]:
        """Return both ends of all connections, in the order of machines and connections."""
        return [end for host in self.hosts.values() for end in host.connections]

    def connections_between(self, machine: str, other: str) -> list[SimTransport]:
        """Return the first machine's ends of its connections with the second."""
        host = self.hosts[machine]
        return [end for end in host.connections if end.peer.owner.name == other]

    def drop(self, end: SimTransport) -> None:
        """Reset a connection; both sides are told."""
        self.trace(FAULT, end, 1)
        end.peer.lose(ConnectionLost("reset in the network"))
        end.lose(ConnectionLost("reset in the network"))

    def half_open(self, end: SimTransport) -> None:
        """Lose this end without telling the other one, which goes on as if nothing had happened."""
        self.trace(FAULT, end, 2)
        end.vanished = True
        end.lose(ConnectionLost("timed out in the network"))

    # Called by transports

    def is_up(self, name: str) -> bool:
        """Return whether the machine is up and answers."""
        return self.hosts[name].is_up

    def is_cut(self, source: SimTransport, destination: SimTransport) -> bool:
        """Return whether segments of this direction get lost."""
        return bool(self._cut) and (source.owner.name, destination.owner.name) in self._cut

    def is_way_cut(self, source: str, destination: str) -> bool:
        """Return whether segments from one machine to another get lost."""
        return (source, destination) in self._cut

    def is_blocked(self, host: str, port: int, source: str) -> bool:
        """Return whether a machine cannot connect to this port of another one."""
        return any((host, port, who) in self._blocked for who in ("", source))

    def delay(self, source: Machine, destination: Machine) -> float:
        """Return the seconds that the next segment travels."""
        low, high = self.latency
        delay = low + self.random.random() * (high - low)
        if self._slow:
            extra = self._slow.get((source.name, destination.name))
            if extra:
                delay += self.random.random() * extra
        return delay

    def chunk(self, size: int) -> int:
        """Return how many of the waiting bytes the next `dataReceived` gets."""
        if size > 1 and self.random.random() < self.split:
            return 1 + int(self.random.random() * (size - 1))
        return size

    def trace(self, kind: int, end: SimTransport, number: int, data: bytes = b"") -> None:
        """Note an event of a connection."""
        self.clock.trace.add(kind, end.owner.index, self.clock.seconds(), number, data)


class HostNetwork:
    """The network of one machine, a `rmq_ha.base.seams.Network`."""

    def __init__(self, network: SimNetwork, name: str, ip: str, index: int) -> None:
        self.network = network
        self.name = name
        self.ip = ip
        self.index = index
        self.is_up = True
        self.is_alive = True
        self.ports: dict[int, SimPort] = {}
        self.connections: dict[SimTransport, None] = {}
        self._next_port = 40000

    def client(self, host: str, port: int, timeout: float = 3.0) -> "SimClientEndpoint":
        """Return an endpoint that connects to a peer; `timeout` in seconds."""
        return SimClientEndpoint(self, host, port, timeout)

    def server(self, port: int, interface: str = "") -> "SimServerEndpoint":
        """Return an endpoint that listens; port 0 picks a free one."""
        return SimServerEndpoint(self, port, interface)

    def look_up(self, name: str) -> "Deferred[list[str]]":
        """Return the address of a machine by its name."""
        machine = self.network.find(name)
        return succeed([] if machine is None else [machine.ip])

    def free_port(self) -> int:
        """Return a free port, for an outgoing connection or a listener that accepts any."""
        self._next_port += 1
        return self._next_port

    def forget(self, end: SimTransport) -> None:
        """Forget a connection that is lost."""
        self.connections.pop(end, None)

    def crash(self, silent: bool) -> None:
        """
        Drop all connections and ports.

        :param silent: the machine is gone and tells its peers nothing; otherwise the process died
            and its kernel closes the connections.
        """
        self.is_alive = False
        self.is_up = not silent
        self.ports.clear()
        for end in list(self.connections):
            end.vanish()
            if not silent and not self.network.is_cut(end, end.peer):
                self.network.clock.call_at(
                    self.network.clock.seconds() + self.network.delay(self, end.peer.owner),
                    end.peer.lose_by,
                    ConnectionLost("the other process died"),
                )
        self.connections.clear()


@implementer(IListeningPort)
class SimPort:
    """A listening port."""

    def __init__(self, network: HostNetwork, port: int, factory: IProtocolFactory) -> None:
        self.factory = factory
        self._network = network
        self._address = IPv4Address("TCP", network.ip, port)

    def startListening(self) -> None:
        """
        Accept connections.

        :raises CannotListenError: the port is taken.
        """
        port = self._address.port
        if port in self._network.ports:
            raise CannotListenError(self._network.ip, port, OSError("Address already in use"))  # type: ignore[no-untyped-call]
        self.factory.doStart()
        self._network.ports[port] = self

    def stopListening(self) -> Deferred[None]:
        """Accept no more; connections stay."""
        if self._network.ports.get(self._address.port) is self:
            del self._network.ports[self._address.port]
            self.factory.doStop()
        return succeed(None)

    def getHost(self) -> IPv4Address:
        """Return the address that the port listens on."""
        return self._address


@implementer(IStreamServerEndpoint)
class SimServerEndpoint:
    """Listens on a simulated machine."""

    def __init__(self, network: HostNetwork, port: int, interface: str) -> None:
        self._network = network
        self._port = port
        self._interface = interface

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """Fires with the port; fails with CannotListenError."""
        network = self._network
        if self._interface not in ("", "0.0.0.0", "::", network.ip, network.name):
            error = OSError(f"Cannot assign requested address {self._interface}")
            return fail(CannotListenError(self._interface, self._port, error))  # type: ignore[no-untyped-call]
        port = SimPort(network, self._port or network.free_port(), protocolFactory)
        try:
            port.startListening()
        except CannotListenError:
            return fail(Failure())  # type: ignore[no-untyped-call]
        return succeed(port)


@implementer(IStreamClientEndpoint)
class SimClientEndpoint:
    """Connects from a simulated machine."""

    def __init__(self, network: HostNetwork, host: str, port: int, timeout: float) -> None:
        self._network = network
        self._host = host
        self._port = port
        self._timeout = timeout

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Fires with the protocol; fails with TimeoutError, ConnectionRefusedError, NoProtocol,
        DNSLookupError, or ConnectingCancelledError when it is cancelled.
        """
        attempt = _ConnectAttempt(
            self._network, self._host, self._port, self._timeout, protocolFactory
        )
        attempt.start()
        return attempt.done


class _ConnectAttempt:
    """
    An attempt to connect to a machine, until the connection stands, is refused, or times out.

    :ivar done: fires with the protocol, or fails with Twisted's error for the reason.
    """

    def __init__(
        self,
        network: HostNetwork,
        host: str,
        port: int,
        timeout: float,
        factory: IProtocolFactory,
    ) -> None:
        self.done: Deferred[IProtocol] = Deferred(self._cancel)
        self._from = network
        self._cable = network.network
        self._clock = network.network.clock
        self._host = host
        self._port = port
        self._timeout = timeout
        self._factory = factory
        self._over = False
        self._near: SimTransport | None = None

    def start(self) -> None:
        self._factory.doStart()
        here = self._host in ("localhost", "127.0.0.1") and self._cable.find(self._host) is None
        host = self._from.name if here else self._host
        if self._cable.find(host) is None:
            self._fail(DNSLookupError(f"no simulated machine {host!r}"))
            return
        self._host = host
        self._call_after(self._timeout, self._fail, TimeoutError())  # type: ignore[no-untyped-call]
        self._send()

    def _call_after(self, delay: float, function: Callable[..., None], *args: object) -> None:
        self._clock.call_at(self._clock.seconds() + delay, function, *args)

    def _send(self) -> None:
        """Send a SYN, and again each second until one arrives."""
        if self._over or not self._from.is_alive:
            return
        target = self._cable.find(self._host)
        assert target is not None
        self._call_after(self._cable.delay(self._from, target), self._arrived)

    def _arrived(self) -> None:
        if self._over or not self._from.is_alive:
            return
        target = self._cable.find(self._host)
        assert target is not None
        ways = [(self._from.name, target.name), (target.name, self._from.name)]
        shut = self._cable.is_blocked(target.name, self._port, self._from.name)
        if shut or not target.is_up or any(self._cable.is_way_cut(*way) for way in ways):
            self._call_after(_SYN_RETRY, self._send)
            return
        back = self._cable.delay(target, self._from)
        port = target.ports.get(self._port)
        if port is None:
            self._call_after(back, self._fail, ConnectionRefusedError())  # type: ignore[no-untyped-call]
        else:
            self._accept(target, port, back)

    def _accept(self, target: HostNetwork, port: SimPort, back: float) -> None:
        """
        Make the connection. The other machine has it from now on; this machine knows of it a moment
        later.
        """
        near_address = IPv4Address("TCP", self._from.ip, self._from.free_port())
        far_address = IPv4Address("TCP", target.ip, self._port)
        near = SimTransport(self._cable, self._from, near_address, far_address)
        far = SimTransport(self._cable, target, far_address, near_address)
        near.peer, far.peer = far, near
        self._near = near
        target.connections[far] = None
        self._from.connections[near] = None
        far.last_arrival = self._clock.seconds() + back
        self._call_after(back, self._established, near)
        protocol = port.factory.buildProtocol(near_address)
        if protocol is None:
            far.loseConnection()
        else:
            far.establish(protocol)

    def _established(self, near: SimTransport) -> None:
        if not self._from.is_alive:
            return
        if self._over or not near.connected:
            near.abortConnection()
            self._fail(ConnectError(string="reset while connecting"))  # type: ignore[no-untyped-call]
            return
        try:
            protocol = self._factory.buildProtocol(near.getPeer())
        except Exception as error:  # Twisted's endpoints fail with any such exception as well
            self._fail(error)
            return
        if protocol is None:
            near.abortConnection()
            self._fail(NoProtocol())
            return
        self._over = True
        near.serves = self._factory  # type: ignore[assignment]
        near.establish(protocol)
        self.done.callback(protocol)

    def _fail(self, error: Exception) -> None:
        if not self._over and self._from.is_alive:
            self._over = True
            if self._near is not None:  # the connection is being made: the kernel closes it at once
                self._near.abortConnection()
                self._from.forget(self._near)
            self._factory.doStop()
            self.done.errback(error)

    def _cancel(self, done: Deferred[IProtocol]) -> None:
        self._fail(ConnectingCancelledError(IPv4Address("TCP", self._host, self._port)))  # type: ignore[no-untyped-call]
