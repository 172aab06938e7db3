"""GrpcServer: listens for gRPC clients, and serves the methods of a front.

Spec: grpc.md, section 2.1.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort, IProtocol
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from rmq_ha.base.config.grpc_keys import GrpcConfig
from rmq_ha.base.remoting.protocol import PeerLimits
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.ends import TlsDoor
from rmq_ha.base.tls.first_byte import HTTP2
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.server import AlpnTls, ServerTls
from rmq_ha.server.grpc.calls import GrpcConnection
from rmq_ha.server.grpc.face import Method
from rmq_ha.server.grpc.limits import QUEUED_IN_ALL, CallLimits, GrpcCounters
from rmq_ha.server.grpc.protocol import GrpcProtocol, Timing
from rmq_ha.server.grpc.wire.table import SERVICE

FIRST_BYTE_S = 20.0


class GrpcDoor(TlsDoor):
    """Tells TLS from plain connections; a client without a certificate gets no line in the log."""

    def _tell_entry(self) -> None:
        if self._tls is not None and self._tls.identity:
            super()._tell_entry()


class GrpcServer:
    """
    A server with any number of listening ports and the methods of one front.

    :ivar counters: numbers of connections and calls, for metrics.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        config: GrpcConfig,
        methods: Sequence[Method],
        tls: ServerTls | None = None,
        limits: PeerLimits | None = None,
    ) -> None:
        """
        :param methods: the methods of RocketMQ's service that are served; calls of all others end
            with `UNIMPLEMENTED`.
        :param tls: the TLS settings of the port; None for plain connections only.
        :param limits: limits that this server shares with others; None for none.
        """
        self._host = host
        self._config = config
        self._methods = {method.name: method for method in methods}
        self._tls = tls
        limits = limits or PeerLimits()
        self._refusals = limits.refusals or Refusals(host.clock)
        self._limits = limits._replace(refusals=self._refusals)
        self._ports: list[IListeningPort] = []
        self._doors: dict[TlsDoor, None] = {}
        self._queued: dict[GrpcProtocol, int] = {}
        self._queued_in_all = 0
        self.counters = GrpcCounters()

    @property
    def peers(self) -> list[GrpcConnection]:
        """All open connections, oldest first."""
        return [protocol.connection for protocol in self._queued]

    @property
    def queued(self) -> int:
        """Bytes of answers that wait until clients read them."""
        return self._queued_in_all

    def listen(self, port: int, interface: str = "") -> "Deferred[IListeningPort]":
        """
        Accept connections.

        :param port: 0 picks a free one.
        :returns: fires with the port, or fails with Twisted's `CannotListenError`.
        """
        listening = self._host.network.server(port, interface).listen(_GrpcFactory(self.build))
        return listening.addCallback(self._note_port)

    def drain(self) -> None:
        """
        Tell all clients by GOAWAY to open no more calls on their connections. Each connection is
        closed when its open calls have ended.
        """
        for protocol in list(self._queued):
            protocol.leave()

    def stop(self) -> "Deferred[None]":
        """
        Accept no more connections, and close all. Streams, and polls without an answer, end at
        once. Other calls have `grpcShutdownTimeSeconds` to end.

        :returns: fires when all connections are gone.
        """
        ports, self._ports = self._ports, []
        waiting: list[Deferred[object]] = [maybeDeferred(port.stopListening) for port in ports]
        protocols = list(self._queued)
        waiting += [_when_gone(protocol) for protocol in protocols]
        for door in list(self._doors):
            door.abort()
        for protocol in protocols:
            protocol.connection.end_waiting()
        self.drain()
        seconds = self._config.grpc_shutdown_time_seconds
        timer = self._host.clock.callLater(seconds, self._abort_all) if protocols else None

        def stopped(_: object) -> None:
            if timer is not None and timer.active():
                timer.cancel()

        return DeferredList(waiting, consumeErrors=True).addCallback(stopped)

    def build(self) -> IProtocol:
        """Make the protocol of a new connection."""
        if self._tls is None:
            return self.build_plain()
        return GrpcDoor(
            self._host.clock,
            self.build_plain,
            AlpnTls(self._tls, (HTTP2,)),
            self._refusals,
            FIRST_BYTE_S,
            self._doors,
        )

    # Called by the protocols

    def connected(self, protocol: GrpcProtocol) -> None:
        """Count a new connection, and watch its answers that wait."""
        self.counters.accepted += 1
        self._queued[protocol] = 0

    def disconnected(self, protocol: GrpcProtocol) -> None:
        """Note that a connection is gone."""
        self._queued_in_all -= self._queued.pop(protocol, 0)

    def note_queued(self, protocol: GrpcProtocol, size: int) -> None:
        """
        Note how many bytes of answers wait on a connection.

        If those of all connections are more than `grpcMaxQueuedBytes`, the connection with most of
        them is closed.
        """
        before = self._queued.get(protocol)
        if before is None or before == size:
            return
        self._queued[protocol] = size
        self._queued_in_all += size - before
        most = self._config.grpc_max_queued_bytes
        if self._queued_in_all > most:
            slowest = max(self._queued, key=lambda item: self._queued[item])
            self.disconnected(slowest)
            text = f"more than {most} bytes wait until clients read (grpcMaxQueuedBytes)"
            slowest.close_for(QUEUED_IN_ALL, text)

    def build_plain(self) -> GrpcProtocol:
        """Make the protocol of a new connection on which TLS, if any, is served already."""
        config = self._config
        most = CallLimits(config.grpc_max_inbound_message_size, config.grpc_max_queued_bytes // 2)
        return GrpcProtocol(
            GrpcConnection(SERVICE, self._methods, most, self.counters),
            Timing(self._host.clock, self._host.soon, config),
            self,
            self._limits,
        )

    def _note_port(self, port: IListeningPort) -> IListeningPort:
        self._ports.append(port)
        return port

    def _abort_all(self) -> None:
        for protocol in list(self._queued):
            protocol.abort()


def _when_gone(protocol: GrpcProtocol) -> "Deferred[object]":
    gone: Deferred[object] = Deferred()
    protocol.lost.addCallback(gone.callback)
    return gone


class _GrpcFactory(Factory):
    noisy = False

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def buildProtocol(self, addr: IAddress | None) -> Any:
        return self._build()
