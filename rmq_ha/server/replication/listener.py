"""A broker's replication port, and the slaves that are connected to it."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.entrance import Entrance
from rmq_ha.server.replication.lag import AppendTimes
from rmq_ha.server.replication.protocol import FeedOwner, FeedProtocol
from rmq_ha.server.replication.shared_secrets import SharedSecrets
from rmq_ha.server.replication.statistics import SlaveStatistics

F = TypeVar("F", bound=Any)


class _OpenSockets:
    """
    Counts a master's open sockets. The socket of a closed connection stays open for a moment, until
    its last bytes are sent.

    A service waits at its stop until all sockets are closed, because their timers could still fire.
    """

    def __init__(self) -> None:
        self._count = 0
        self._waiting: list[Deferred[None]] = []

    def add(self) -> None:
        self._count += 1

    def remove(self) -> None:
        self._count -= 1
        if not self._count:
            waiting, self._waiting = self._waiting, []
            for closed in waiting:
                closed.callback(None)

    async def wait(self) -> None:
        """Wait until all sockets are closed; call it only after the port is closed."""
        if self._count:
            closed: Deferred[None] = Deferred()
            self._waiting.append(closed)
            await closed


class ReplicationListener(Factory, Generic[F]):
    """
    Listens on listenPort + 1 and makes a feed for each slave that passes the entrance.

    :param make_feed: makes the dialect's feed for one slave.
    :param owner: is called for each event of a connection; its `slave_left` removes the connection
        from `connections`.
    :param is_open: returns whether this broker feeds slaves at all at the moment.
    :ivar tls: decides who may connect, and how a slave's link connects.
    :ivar secrets: the secrets that both ends may have to prove.
    :ivar entrance: checks each new connection.
    :ivar connections: the connections whose slaves have not left, the oldest first.
    :ivar times: when the log grew; note the log's end there once a turn.
    """

    noisy = False

    def __init__(
        self,
        host: Host,
        configuration: BrokerConfiguration,
        make_feed: Callable[[], F],
        owner: FeedOwner,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._host = host
        self._configuration = configuration
        self._make_feed = make_feed
        self._owner = owner
        self._sockets = _OpenSockets()
        self._port: IListeningPort | None = None
        self.connections: list[FeedProtocol[F]] = []
        self.times = AppendTimes()
        self.refusals = Refusals(host.clock)
        self.tls = HaTls(configuration.plugin_options, host.disk.read_bytes, host.now_ms)
        self.secrets = SharedSecrets(configuration.ours, host.disk.read_bytes)
        self.entrance = Entrance(
            host, configuration, self.tls, self.secrets, self.refusals, self._accept, is_open
        )

    def connector(self) -> MasterConnector:
        """Make a connector to a master, with the same TLS and secrets."""
        return MasterConnector(self._host, self._configuration, self.tls, self.secrets)

    @property
    def port(self) -> int | None:
        """Return the port to which slaves connect; None while not listening."""
        return None if self._port is None else getattr(self._port.getHost(), "port", None)

    def listen(self) -> "Deferred[None]":
        """
        Begin to listen.

        :returns: fires when listening; fails with CannotListenError.
        """
        port = self._configuration.server.listen_port
        bind_address = self._configuration.ours.bind_address
        endpoint = self._host.network.server(port + 1 if port else 0, bind_address)
        listening: Deferred[IListeningPort] = maybeDeferred(endpoint.listen, self)
        return listening.addCallback(self._listens)

    def _listens(self, port: IListeningPort) -> None:
        self._port = port

    async def stop_listening(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Return None to have the connection closed at once."""
        return self.entrance.meet(addr)

    def _accept(self) -> FeedProtocol[F]:
        self._sockets.add()
        clock, closed = self._host.clock, self._sockets.remove
        connection = FeedProtocol(self._make_feed(), self._owner, clock, closed)
        self.connections.append(connection)
        return connection

    def close_connections(self, why: str) -> None:
        """Close all connections, including those that have not passed the entrance yet."""
        self.entrance.close()
        for connection in self.connections[:]:
            connection.close(why)

    async def wait_closed(self) -> None:
        """Wait until every socket is closed; call it only after the port is closed."""
        await self._sockets.wait()

    def statistics(self) -> list[SlaveStatistics]:
        now = self._host.clock.seconds()
        return [
            SlaveStatistics(
                address=connection.peer,
                stage=feed.stage.value,
                requested=feed.requested,
                acked=feed.acked,
                lag=feed.lag,
                lag_seconds=self.times.seconds_behind(feed.acked, now),
                broker_id=feed.broker_id,
            )
            for connection in self.connections
            for feed in [connection.feed]
        ]
