"""A slave's connection to its master, kept up.

Spec: ha.md, sections 4.7, 9 and 18.
"""

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.errors import StoreError, TlsRefused
from rmq_ha.ha.protocol import ReplicaProtocol
from rmq_ha.ha.replica import Replica
from rmq_ha.host.timer import rearm
from rmq_ha.interfaces import ICommitLog
from rmq_ha.seams import Host
from rmq_ha.tls.ends import connect_tls
from rmq_ha.tls.ha import HaTls

CONNECT_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 5.0
"""After a failed connect, and when our disk refuses."""
REFUSED_SECONDS = (1.0, 3.0)
"""After a protocol error, and when the master closed without a frame: at random in this range."""
REJOIN_SECONDS = (0.05, 0.3)
"""After the end of a connection that worked."""


def split_address(address: str) -> tuple[str, int]:
    """
    Host and port of `host:port`; the host of an IPv6 address may stand in brackets.

    :raises ValueError: it is none.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is no host:port")
    return host.strip("[]"), int(port)


class MasterLink:
    """
    A slave's connection to its master, again and again.

    One at a time; a changed address takes effect at the next connect. A reason for leaving that
    repeats itself is logged once.
    """

    log = Logger()

    def __init__(
        self, host: Host, configuration: BrokerConfiguration, log: ICommitLog, tls: HaTls
    ) -> None:
        self._tls = tls
        self.address: str | None = None
        self.state = "no address"
        self._host = host
        self._config = configuration.store
        self._commit_log = log
        self._attempt: Deferred[Any] | None = None
        self._connection: ReplicaProtocol | None = None
        self._timer: IDelayedCall | None = None
        self._is_running = False
        self._gone: Deferred[None] | None = None
        self._last_reason = ""

    def start(self) -> None:
        """Connect as soon as there is an address."""
        self._is_running = True
        self._connect()

    def set_address(self, address: str) -> None:
        """
        Where the master's HA listener is.

        :raises ValueError: not `host:port`.
        """
        split_address(address)
        if address == self.address:
            return
        self.address = address
        if self._is_running and self._attempt is None and self._connection is None:
            self._later(0.0)

    def stop(self) -> "Deferred[None]":
        """Leave the master; fires when the connection is closed."""
        self._is_running = False
        self.state = "stopped"
        self._timer = rearm(self._host.clock, self._timer, None, self._connect)
        if self._attempt is not None:
            self._attempt.cancel()
        done: Deferred[None] = Deferred()
        if self._connection is None:
            done.callback(None)
        else:
            self._gone = done
            self._connection.close()
        return done

    def statistics(self) -> dict[str, Any]:
        """Where the master is and how well we follow it."""
        replica = self._connection.replica if self._connection else None
        silent = self._host.clock.seconds() - replica.last_read if replica else None
        return {
            "address": self.address,
            "state": self.state,
            "reported": replica.reported if replica else None,
            "frames": replica.frames if replica else 0,
            "silent_ms": None if silent is None else round(silent * 1000),
        }

    def _later(self, seconds: float) -> None:
        clock = self._host.clock
        self._timer = rearm(clock, self._timer, None, self._connect)
        self._timer = rearm(clock, self._timer, clock.seconds() + seconds, self._connect)

    def _connect(self) -> None:
        if not self._is_running or self.address is None:
            return
        self.state = "connecting"
        self._attempt = maybeDeferred(self._open, *split_address(self.address))
        self._attempt.addCallbacks(self._connected, self._failed)

    def _open(self, host: str, port: int) -> "Deferred[Any]":
        endpoint = self._host.network.client(host, port, timeout=CONNECT_TIMEOUT_SECONDS)
        if self._tls.is_enabled:
            session = self._tls.link_session(host)
            return connect_tls(endpoint, self._host.clock, self._build, session)
        factory = Factory.forProtocol(self._build)
        factory.noisy = False
        return endpoint.connect(factory)

    def _build(self) -> ReplicaProtocol:
        clock = self._host.clock
        replica = Replica(self._commit_log, self._config, clock.seconds())
        return ReplicaProtocol(replica, self, clock)

    def _connected(self, connection: ReplicaProtocol) -> None:
        self._attempt = None
        if connection.is_lost:
            return
        self._connection = connection
        self.state = "connected"
        if not self._is_running:
            connection.close()

    def _failed(self, failure: Failure) -> None:
        self._attempt = None
        if not self._is_running:
            return
        self.state = "unreachable"
        if not isinstance(failure.value, ConnectError | DNSLookupError | OSError | TlsRefused):
            self.log.failure("connecting to the master at {peer}", failure, peer=self.address)
        self._tell(f"cannot connect: {failure.getErrorMessage()}")
        self._later(RETRY_SECONDS)

    def followed(self, connection: ReplicaProtocol) -> None:
        """The first frame fits: all is well."""
        self.state = "following"
        self._last_reason = ""
        self.log.info(
            "following the master at {peer} from {physical_offset}",
            peer=self.address,
            physical_offset=connection.replica.reported,
        )

    def lost(self, connection: ReplicaProtocol, error: Exception | None, why: str) -> None:
        """Come back: soon when it went well, later when somebody has to do something first."""
        self._connection = None
        if not self._is_running:
            if self._gone is not None:
                self._gone.callback(None)
            return
        self.state = "disconnected"
        random = self._host.random
        if isinstance(error, StoreError):
            seconds = RETRY_SECONDS
        elif error is not None or not connection.replica.frames:
            seconds = random.uniform(*REFUSED_SECONDS)
        else:
            seconds = random.uniform(*REJOIN_SECONDS)
        self._tell(why)
        self._later(seconds)

    def _tell(self, reason: str) -> None:
        if reason != self._last_reason:
            self._last_reason = reason
            self.log.warn(
                "not following the master at {peer}: {error}; trying again and again",
                peer=self.address,
                error=reason,
            )
