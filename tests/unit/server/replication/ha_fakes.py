"""A network without sockets: the test is the other end."""

import random
from collections.abc import Mapping
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.seams import Host
from rmq_ha.server.replication.classic.frames import encode_report
from rmq_ha.server.replication.classic.service import HAService
from tests.unit.server.replication.memory_log import MemoryLog


class FakeListener:
    """What listen() gives."""

    def __init__(self, port: int, interface: str, factory: Any) -> None:
        self.port, self.interface, self.factory = port, interface, factory
        self.is_open = True

    def getHost(self) -> IAddress:
        return IPv4Address("TCP", self.interface or "0.0.0.0", self.port)

    def stopListening(self) -> None:
        self.is_open = False


class Wire(StringTransport):
    """One end of a connection; the protocol is at it."""

    def __init__(self, protocol: Any, peer: str = "10.0.0.2", port: int = 5000) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", peer, port))
        self.end = protocol
        self.aborted = False
        protocol.makeConnection(self)

    def abortConnection(self) -> None:
        self.aborted = True
        self.lose()

    def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.end.dataReceived(chunk)

    def report(self, offset: int) -> None:
        self.send(encode_report(offset))

    def take(self) -> bytes:
        data = self.value()
        self.clear()
        return data

    def lose(self) -> None:
        if self.connected:
            self.connected = False
            self.end.connectionLost(Failure(ConnectionDone()))


class Attempt:
    """A connect that waits for the test to decide."""

    def __init__(self, address: tuple[str, int], factory: IProtocolFactory) -> None:
        self.address, self.factory = address, factory
        self.deferred: Deferred[Any] = Deferred()

    def refuse(self) -> None:
        self.deferred.errback(ConnectionRefusedError())

    def accept(self) -> Wire:
        protocol: Any = self.factory.buildProtocol(IPv4Address("TCP", *self.address))
        wire = Wire(protocol, *self.address)
        self.deferred.callback(protocol)
        return wire


class FakeNetwork:
    """Remembers what was asked for."""

    def __init__(self) -> None:
        self.listeners: list[FakeListener] = []
        self.attempts: list[Attempt] = []

    def client(self, host: str, port: int, timeout: float = 3.0) -> "FakeNetwork._Client":
        return self._Client(self, (host, port))

    def server(self, port: int, interface: str = "") -> "FakeNetwork._Server":
        return self._Server(self, port, interface)

    class _Client:
        def __init__(self, network: "FakeNetwork", address: tuple[str, int]) -> None:
            self.network, self.address = network, address

        def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
            self.network.attempts.append(Attempt(self.address, factory))
            return self.network.attempts[-1].deferred

    class _Server:
        def __init__(self, network: "FakeNetwork", port: int, interface: str) -> None:
            self.network, self.port, self.interface = network, port, interface

        def listen(self, factory: IProtocolFactory) -> Deferred[FakeListener]:
            listener = FakeListener(self.port, self.interface, factory)
            self.network.listeners.append(listener)
            return succeed(listener)


class NoFiles:
    """A disk with nothing on it."""

    def read_bytes(self, path: str) -> bytes:
        raise FileNotFoundError(path)


class Station:
    """A service on a fake network, and the raw slaves that connect to it."""

    def __init__(
        self,
        role: BrokerRole,
        log: MemoryLog,
        *,
        ours: Mapping[str, Any] = {},
        **store: Any,
    ) -> None:
        self.log = log
        self.clock = Clock()
        self.network = FakeNetwork()
        self.configuration = BrokerConfiguration()
        self.configuration.server.listen_port = 10911
        self.configuration.store.broker_role = role
        for name, value in ours.items():
            setattr(self.configuration.ours, name, value)
        for name, value in store.items():
            setattr(self.configuration.store, name, value)
        host = Host(
            clock=self.clock,  # type: ignore[arg-type]
            now_ms=lambda: 1_700_000_000_000 + round(self.clock.seconds() * 1000),
            network=self.network,  # type: ignore[arg-type]
            disk=NoFiles(),  # type: ignore[arg-type]
            worker=None,  # type: ignore[arg-type]
            random=random.Random(7),
        )
        self.service = HAService(host, self.configuration, log)

    def start(self) -> "Station":
        self.service.start()
        return self

    def slave(self, report: int | None = None, peer: str = "10.0.0.2", port: int = 5000) -> Wire:
        """A raw slave connects and, maybe, reports."""
        factory = self.network.listeners[0].factory
        wire = Wire(factory.buildProtocol(IPv4Address("TCP", peer, port)), peer, port)
        if report is not None:
            wire.report(report)
        return wire

    def put(self, data: bytes) -> int:
        end = self.log.put(data)
        self.service.appended()
        return end

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
