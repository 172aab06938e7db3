"""RemotingClient: sends requests to any address, over one connection per address.

Spec: remoting.md, sections 1.6, 1.10 and 1.11.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from twisted.internet.defer import Deferred, DeferredList, fail, succeed
from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocol, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout, may_pass
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import Handler, RequestDispatcher
from rmq_ha.base.remoting.protocol import RemotingProtocol
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.any_session import AnySession
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.ends import connect_tls
from rmq_ha.base.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand

CLOSE_SECONDS = 1.0


class ConnectingTls(Protocol):
    """Decides whether and how connections use TLS; `ClientTls` is the usual implementation."""

    @property
    def enabled(self) -> bool: ...

    def session(self, host: str) -> AnySession:
        """Make the TLS session for a connection to a host."""


class RemotingClient:
    """
    Connects with the first request to an address; all callers share the address's connection.

    :ivar routes: handlers of the peers' own requests, by request code.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        client_config: NettyClientConfig,
        tls: Mapping[str, str] | ConnectingTls | None = None,
    ) -> None:
        """
        :param tls: the `tls.*` keys, with RocketMQ's defaults for missing keys; or a
            `ConnectingTls`.
        :raises ConfigurationError: a `tls.*` key, or a file that it names, is not valid.
        """
        self._host = host
        self._config = client_config
        if tls is None or isinstance(tls, Mapping):
            read_bytes, enabled = host.disk.read_bytes, client_config.use_tls
            tls = ClientTls(tls or {}, read_bytes, host.now_ms, enabled=enabled)
        self._tls: ConnectingTls = tls
        self._dispatcher = RequestDispatcher()
        self.routes: dict[int, Handler] = self._dispatcher.routes
        self._peers: dict[str, _PeerConnection] = {}
        self._stopped = False

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        """
        Ask a peer and wait for its response.

        :param address: `host:port`.
        :param timeout_ms: time for connecting and the response together, in ms.
        :returns: fires with the response, whatever its code; fails with `RemotingTimeout`, with
            `RemotingConnectError`, or with `ProtocolViolation` if it does not fit into a frame.
        """
        peer = self._peers.get(address)
        if peer is not None and peer.channel is not None and peer.channel.is_open:
            return self._ask(peer.channel, command, timeout_ms)
        clock = self._host.clock
        deadline = clock.seconds() + timeout_ms / 1000.0
        connected = self._connect(address, timeout_ms / 1000.0)

        def ask(channel: Channel) -> "Deferred[RemotingCommand]":
            return self._ask(channel, command, (deadline - clock.seconds()) * 1000.0)

        return connected.addCallback(ask)

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]":
        """
        Send a request that gets no response.

        :returns: fires when the connection has the request; fails with `RemotingConnectError`, or
            with `ProtocolViolation` if it does not fit into a frame.
        """
        flag = (command.flag | FLAG_ONEWAY) & ~FLAG_RESPONSE
        request = replace(command, flag=flag)
        connected = self._connect(address, self._config.connect_timeout_millis / 1000.0)
        return connected.addCallback(lambda channel: channel.send(request))

    def open_channel(self, address: str) -> Channel | None:
        """Return the open connection to an address or None, for callers that write own frames."""
        peer = self._peers.get(address)
        if peer is None or peer.channel is None or not peer.channel.is_open:
            return None
        return peer.channel

    def close(self, address: str) -> None:
        """Close the connection to an address, if it is open; its pending calls fail."""
        peer = self._peers.get(address)
        if peer is not None and peer.channel is not None:
            peer.channel.close()

    def stop(self) -> "Deferred[None]":
        """Close all connections; pending and later calls fail."""
        self._stopped = True
        peers = list(self._peers.values())
        gone = [peer.stop() for peer in peers]
        timer = self._host.clock.callLater(CLOSE_SECONDS, _abort, peers) if peers else None

        def stopped(_: object) -> None:
            if timer is not None and timer.active():
                timer.cancel()

        return DeferredList(gone).addCallback(stopped)

    def _ask(
        self, channel: Channel, command: RemotingCommand, timeout_ms: float
    ) -> "Deferred[RemotingCommand]":
        waiting = channel.invoke(command, timeout_ms)
        if self._config.client_close_socket_if_timeout:
            waiting.addErrback(_close_if_silent, channel)
        return waiting

    def _connect(self, address: str, timeout: float) -> "Deferred[Channel]":
        """Return the open channel to an address, or connect within `timeout` seconds."""
        if self._stopped:
            return fail(RemotingConnectError(f"{address}: this client is stopped"))
        peer = self._peers.get(address)
        if peer is None:
            try:
                host, port = parse_host_port(address)
            except ValueError as error:
                return fail(RemotingConnectError(str(error)))
            peer = self._peers[address] = _PeerConnection(self, address, host, port)
        return peer.connect(timeout)

    # For _Peer

    def _open(self, host: str, port: int) -> "Deferred[IProtocol]":
        timeout = self._config.connect_timeout_millis / 1000.0
        endpoint = self._host.network.client(host, port, timeout)
        if self._tls.enabled:
            session = self._tls.session(host)
            return connect_tls(endpoint, self._host.clock, self._build_protocol, session)
        return endpoint.connect(_ClientFactory(self))

    def _build_protocol(self) -> RemotingProtocol:
        idle = float(self._config.client_channel_max_idle_time_seconds)
        return RemotingProtocol(self._host.clock, self._dispatcher, idle, accepts=False)

    def _forget(self, address: str) -> None:
        self._peers.pop(address, None)


class _PeerConnection:
    """The connection to one address, which may be missing, being made, or open."""

    def __init__(self, client: RemotingClient, address: str, host: str, port: int) -> None:
        self._client = client
        self._clock: IReactorTime = client._host.clock
        self._address = address
        self._host = host
        self._port = port
        self._connecting: Deferred[IProtocol] | None = None
        self._waiting: dict[Deferred[Channel], None] = {}
        self.channel: Channel | None = None

    def connect(self, timeout: float) -> "Deferred[Channel]":
        """Return the channel, or connect within `timeout` seconds."""
        if self.channel is not None and self.channel.is_open:
            return succeed(self.channel)
        waiting: Deferred[Channel] = Deferred(self._forget_caller)
        self._waiting[waiting] = None
        timer = self._clock.callLater(max(0.0, timeout), self._give_up, waiting, timeout)
        waiting.addBoth(_cancel_timer, timer)
        if self._connecting is None:
            self._connecting = self._client._open(self._host, self._port)
            self._connecting.addCallbacks(self._connected, self._failed)
        return waiting

    def stop(self) -> "Deferred[None]":
        """Close the connection, or stop connecting; fires when the connection is gone."""
        self._fail("this client is stopped")
        if self._connecting is not None:
            self._connecting.cancel()
        if self.channel is None:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self.channel.on_close(lambda _: gone.callback(None))
        self.channel.close()
        return gone

    def abort(self) -> None:
        if self.channel is not None:
            self.channel.abort()

    def _connected(self, protocol: IProtocol) -> None:
        self._connecting = None
        assert isinstance(protocol, RemotingProtocol)
        channel = self.channel = protocol.channel
        channel.on_close(self._lost)
        waiting, self._waiting = self._waiting, {}
        for caller in waiting:
            caller.callback(channel)

    def _failed(self, failure: Failure) -> None:
        self._connecting = None
        self._fail(failure.getErrorMessage(), retriable=may_pass(failure.value))
        if self._connecting is None:
            self._client._forget(self._address)

    def _lost(self, channel: Channel) -> None:
        if self.channel is channel and self._connecting is None:
            self._client._forget(self._address)

    def _fail(self, reason: str, *, retriable: bool = True) -> None:
        waiting, self._waiting = self._waiting, {}
        text = f"cannot connect to {self._address}: {reason.rstrip('.')}"
        for caller in waiting:
            caller.errback(RemotingConnectError(text, retriable=retriable))

    def _forget_caller(self, waiting: "Deferred[Channel]") -> None:
        self._waiting.pop(waiting, None)

    def _give_up(self, waiting: "Deferred[Channel]", timeout: float) -> None:
        if waiting in self._waiting:
            del self._waiting[waiting]
            waiting.errback(
                RemotingConnectError(
                    f"cannot connect to {self._address}: not within {timeout * 1000:.0f} ms"
                )
            )


class _ClientFactory(Factory):
    noisy = False

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    def buildProtocol(self, addr: IAddress | None) -> RemotingProtocol:
        return self._client._build_protocol()


def _cancel_timer(result: object, timer: IDelayedCall) -> object:
    if timer.active():
        timer.cancel()
    return result


def _close_if_silent(failure: Failure, channel: Channel) -> Failure:
    """Close the connection after a timeout: the peer may be gone, and the next call reconnects."""
    if isinstance(failure.value, RemotingTimeout):
        channel.abort()
    return failure


def _abort(peers: "list[_PeerConnection]") -> None:
    for peer in peers:
        peer.abort()
