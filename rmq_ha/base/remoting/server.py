"""RemotingServer: listens, and answers with a dispatcher.

Spec: remoting.md, sections 1.1, 1.10 and 1.11.
"""

from collections.abc import Mapping

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import BuildHttp2, PeerLimits, ServerProtocol
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.remoting.unfinished_frames import UnfinishedFrames
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.server import ServerTls

CLOSE_SECONDS = 1.0


class RemotingServer:
    """
    A server with any number of listening ports and one dispatcher.

    :ivar channels: the channels of the open connections.
    :ivar accepted: how many connections were accepted so far.
    :ivar frames: counts and limits the bytes of unfinished frames.
    :ivar build_http2: makes the protocol of a connection whose client speaks HTTP/2 on a port of
        this server. That protocol's maker closes such connections. None to serve remoting only.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        server_config: NettyServerConfig,
        dispatcher: RequestDispatcher,
        tls: Mapping[str, str] | ServerTls | None = None,
        frames: UnfinishedFrames | None = None,
        turns: Turns | None = None,
    ) -> None:
        """
        :param tls: the `tls.*` keys, with RocketMQ's defaults for missing keys, or a `ServerTls`
            that several servers share; None for plain connections only.
        :param frames: limits that several servers share; None for limits of this server's own.
        :param turns: shares of turns for several servers; None for this server's own.
        :raises ConfigurationError: a `tls.*` key, or a file that it names, is not valid.
        """
        self._host = host
        self._config = server_config
        self.dispatcher = dispatcher
        if isinstance(tls, Mapping):
            tls = ServerTls(tls, host.disk.read_bytes, host.now_ms)
        self._tls = tls
        self._refusals = Refusals(host.clock)
        self.frames = frames or UnfinishedFrames(server_config, host.clock)
        self.turns = turns or Turns(host.clock, server_config, host.soon)
        self._ports: list[IListeningPort] = []
        self._protocols: dict[ServerProtocol, None] = {}
        self.accepted = 0
        self.build_http2: BuildHttp2 | None = None

    @property
    def channels(self) -> list[Channel]:
        """The channels of all open connections, oldest first."""
        return [protocol.channel for protocol in self._protocols]

    @property
    def connections(self) -> int:
        return len(self._protocols)

    def listen(self, port: int, interface: str = "") -> "Deferred[IListeningPort]":
        """
        Accept connections.

        :param port: 0 picks a free one.
        :returns: fires with the port, or fails with Twisted's `CannotListenError`.
        """
        listening = self._host.network.server(port, interface).listen(_ServerFactory(self))
        return listening.addCallback(self._listening)

    def stop(self) -> "Deferred[None]":
        """Accept nothing more and close all connections; those that linger are aborted."""
        ports, self._ports = self._ports, []
        waiting: list[Deferred[object]] = [maybeDeferred(port.stopListening) for port in ports]
        protocols = list(self._protocols)
        waiting += [_when_lost(protocol) for protocol in protocols]
        for protocol in protocols:
            protocol.channel.close()
        timer = self._host.clock.callLater(CLOSE_SECONDS, self._abort_all) if protocols else None

        def stopped(_: object) -> None:
            if timer is not None and timer.active():
                timer.cancel()

        return DeferredList(waiting, consumeErrors=True).addCallback(stopped)

    def build_protocol(self) -> ServerProtocol:
        self.accepted += 1
        return ServerProtocol(
            self._host.clock,
            self.dispatcher,
            float(self._config.server_channel_max_idle_time_seconds),
            self._protocols,
            self._tls,
            PeerLimits(self._refusals, self.frames, self.turns),
            self.build_http2,
        )

    def _listening(self, port: IListeningPort) -> IListeningPort:
        self._ports.append(port)
        return port

    def _abort_all(self) -> None:
        for protocol in list(self._protocols):
            protocol.channel.abort()


def _when_lost(protocol: ServerProtocol) -> "Deferred[object]":
    gone: Deferred[object] = Deferred()
    protocol.lost.addCallback(gone.callback)
    return gone


class _ServerFactory(Factory):
    noisy = False

    def __init__(self, server: RemotingServer) -> None:
        self._server = server

    def buildProtocol(self, addr: IAddress | None) -> ServerProtocol:
        return self._server.build_protocol()
