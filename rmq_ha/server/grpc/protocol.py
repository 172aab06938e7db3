"""GrpcProtocol: one connection of a gRPC client, with its timers.

Spec: grpc.md, sections 2.1 and 14.1.
"""

from collections import deque
from math import inf
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.base.config.grpc_keys import GrpcConfig
from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.security import Security
from rmq_ha.base.remoting.protocol import PeerLimits
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.seams import Soon
from rmq_ha.base.timing.timer import LastTurn, rearm
from rmq_ha.base.tls.ends import address_text
from rmq_ha.base.tls.transport import TlsTransport
from rmq_ha.server.grpc.calls import GrpcConnection
from rmq_ha.server.grpc.limits import STALLED, GrpcPort

PIECE = 1024
"""Bytes that are served between two checks of the time that this connection has used."""
WRITE_BYTES = 1 << 16
STALL_S = 60.0
"""Seconds within which a client has to read some of the bytes that wait for it."""
PONG_S = 20.0
"""Seconds within which a silent client has to answer a PING."""
CLOSE_S = 5.0
"""Seconds within which a client has to take the last bytes of a connection that is closed."""


class Timing(NamedTuple):
    """
    The clock of a connection, and the settings of its timers.

    :ivar soon: `Host.soon`: calls a function at the end of the turn.
    """

    clock: IReactorTime
    soon: Soon
    config: GrpcConfig


@implementer(IPushProducer)
class GrpcProtocol(Protocol):
    """
    The shell of a `GrpcConnection`: it reads, writes, and runs the timers.

    It is the producer of its own transport: while the transport's buffer is full, answers stay in
    the queues of their streams, where they are counted, and no more requests are read.

    :ivar connection: the calls.
    :ivar lost: fires with None when the connection is gone.
    """

    log = Logger()
    transport: Any

    def __init__(
        self, connection: GrpcConnection, timing: Timing, port: GrpcPort, limits: PeerLimits
    ) -> None:
        self.connection = connection
        self._clock, self._soon, self._config = timing
        self._port = port
        self._refusals, self._frames, self._turns = limits
        self._inbox: deque[bytes] = deque()
        self._is_serving = self._waits = self._is_paused = self._is_put_off = False
        self._reads = True
        self._is_counted = self._flushes_soon = False
        self._leaves = False
        self._seen = self._paid = self._bytes = 0
        self._charging = 0 if self._turns is None else self._turns.charging
        self._heard = self._busy_at = self._progress_at = 0.0
        self._pinged_at: float | None = None
        self._timer: IDelayedCall | None = None
        self._last_turn = LastTurn()
        self.lost: Deferred[None] = Deferred()

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.connection.host

    def connectionMade(self) -> None:
        """Send the settings, and begin to watch the client."""
        connection, transport = self.connection, self.transport
        peer: Any = transport.getPeer()
        try:
            connection.remote = Address.parse(peer.host, peer.port)
        except (AttributeError, ValueError):
            pass
        connection.remote_text = str(connection.remote)
        connection.host = host_of(connection.remote_text)
        connection.local_text = address_text(transport.getHost())
        if isinstance(transport, TlsTransport):
            connection.security = Security(is_tls=True, names=transport.names)
        connection.on_output = self._output_waits
        self._heard = self._busy_at = self._progress_at = self._clock.seconds()
        self._port.connected(self)
        transport.registerProducer(self, True)
        self._flush(self._heard)

    def dataReceived(self, data: bytes) -> None:
        """Serve the requests that are whole, for this connection's share of the turn at most."""
        if not self.connection.is_open or self.connection.engine.fault:
            return
        now = self._heard = self._clock.seconds()
        self._pinged_at = None
        self._inbox.append(data)
        if self._waits:
            self._stop_reading()
        else:
            self._serve(now)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End all calls of this connection, as it is gone."""
        self._timer = rearm(self._clock, self._timer, None, self._look)
        self._inbox.clear()
        if self._frames is not None:
            self._frames.forget(self)
        if self._turns is not None:
            self._turns.forget(self)
        self._port.disconnected(self)
        self.connection.close()
        self.lost.callback(None)

    def leave(self) -> None:
        """Tell the client to open no more calls here, and close when those that are open end."""
        if self.connection.is_open:
            self._leaves = True
            self.connection.engine.leave()
            self._flush(self._clock.seconds())

    def abort(self) -> None:
        """Close the connection now; bytes that wait to be written are lost."""
        self.transport.abortConnection()

    def close_for(self, limit: str, reason: str) -> None:
        """
        Close the connection now, as a limit is reached.

        :param limit: the name of the limit, for the counters.
        :param reason: for the log.
        """
        self._port.counters.closed[limit] += 1
        self._tell(reason)
        self.abort()

    # IPushProducer, for the transport's write buffer

    def pauseProducing(self) -> None:
        """Write no more, and read no more requests."""
        self._is_paused = True
        self._stop_reading()

    def resumeProducing(self) -> None:
        """Go on to write answers and to serve requests."""
        self._is_paused = False
        now = self._progress_at = self._clock.seconds()
        if not self.connection.is_open:
            return
        if self._waits:
            self._flush(now)
        else:
            self._serve(now)
        self._resume_reading()

    def stopProducing(self) -> None:
        """Do nothing: `connectionLost` is called when the transport is gone."""

    # Called by `Turns` and `UnfinishedFrames`

    def go_on(self) -> None:
        """Serve the rest of the bytes that were read, then read on."""
        self._waits = False
        if self.connection.is_open:
            self._serve(self._clock.seconds())
            self._resume_reading()

    @property
    def waits_here(self) -> bool:
        """Whether requests of this connection wait until other connections were served."""
        return self._waits

    def put_off(self) -> None:
        """Stop reading, as older requests of this address come first."""
        self._is_put_off = True
        self._stop_reading()

    def let_read(self) -> None:
        """Read on, as there is room for the rest of the request."""
        self._is_put_off = False
        self._resume_reading()

    def overrun(self, violation: ProtocolViolation) -> None:
        """Close the connection now, as too many bytes wait here."""
        self._tell(str(violation))
        self.abort()

    # Serving

    def _serve(self, now: float) -> None:
        inbox, turns = self._inbox, self._turns
        if self._is_serving:
            return
        began = now
        ends = now + turns.share(self.host, now) if turns is not None else inf
        self._is_serving = True
        try:
            while inbox and now < ends and self._may_serve():
                data = inbox.popleft()
                if len(data) > PIECE:
                    inbox.appendleft(data[PIECE:])
                    data = data[:PIECE]
                self._bytes += len(data)
                self.connection.receive(data, now)
                if turns is not None:
                    now = self._clock.seconds()
        finally:
            self._is_serving = False
        if turns is not None and now > began:
            turns.note_turn(self.host, now - began)
        self._flush(now)
        if turns is not None:
            delay = self._pay(turns, now) if turns.charging else 0.0
            if delay > 0 or (inbox and self._may_serve()):
                self._wait(turns, delay)
        self._count()

    def _pay(self, turns: Turns, now: float) -> float:
        """Charge requests and bytes to the quotas; return the seconds that the connection waits."""
        connection = self.connection
        requests, size = connection.begun - self._paid, self._bytes
        self._paid, self._bytes = connection.begun, 0
        is_new, self._charging = self._charging != turns.charging, turns.charging
        if is_new or not (requests or size):  # older than the quota, or paid already
            return 0.0
        delay, key = turns.quotas.charge(self.host, connection.account, requests, size, now)
        if key:
            self._tell(f"its requests are read later, by {key}", "holding back")
        return delay

    def _wait(self, turns: Turns, seconds: float) -> None:
        """Let other connections be served before the rest of the bytes that were read here."""
        self._waits = True
        if seconds:
            self._stop_reading()
        turns.wait(self, seconds)

    def _may_serve(self) -> bool:
        connection = self.connection
        return connection.is_open and not self._is_paused and not connection.engine.fault

    def _count(self) -> None:
        """Report the bytes of unfinished requests to the limit of all connections."""
        connection = self.connection
        if self._frames is None or not (connection.unfinished or self._is_counted):
            return
        self._is_counted = connection.unfinished > 0
        self._frames.keep(self, connection.unfinished, connection.missing)

    def _stop_reading(self) -> None:
        if self._reads and self.connection.is_open:
            self._reads = False
            self.transport.pauseProducing()

    def _resume_reading(self) -> None:
        """Read on, unless another reason not to read remains."""
        has_reason = self._is_paused or self._waits or self._is_put_off
        if not (self._reads or has_reason) and self.connection.is_open:
            self._reads = True
            self.transport.resumeProducing()

    # Writing

    def _output_waits(self) -> None:
        """Write at the end of the turn, together with all answers of the turn."""
        if not self._is_serving and not self._flushes_soon:
            self._flushes_soon = True
            self._soon(self._flush_now)

    def _flush_now(self) -> None:
        self._flushes_soon = False
        self._flush(self._clock.seconds())

    def _flush(self, now: float) -> None:
        connection = self.connection
        if not connection.is_open:
            return
        engine = connection.engine
        had_queued = engine.queued
        while engine.has_output and not self._is_paused:
            data = connection.take_output(WRITE_BYTES)
            self._bytes += len(data)
            self.transport.write(data)
            self._progress_at = now
        if not had_queued:
            self._progress_at = now
        self._port.note_queued(self, engine.queued)
        if engine.fault:
            self._end_for_fault()
        elif (self._leaves or engine.peer_leaves) and connection.is_idle and not engine.has_output:
            self._close()
        else:
            self._watch(now)

    def _end_for_fault(self) -> None:
        engine, counters = self.connection.engine, self._port.counters
        if engine.fault_budget:
            counters.closed[engine.fault_budget] += 1
        else:
            counters.violations += 1
        self._tell(engine.fault)
        if self._is_paused:
            self.abort()
        else:
            self._close()

    def _close(self) -> None:
        """Close the connection once all written bytes are sent."""
        self._inbox.clear()
        self.connection.close()
        end = self._clock.seconds() + CLOSE_S
        rearm(self._clock, self._timer, None, self._look)
        self._timer = rearm(self._clock, None, end, self.abort)
        # This protocol is its transport's producer, and would keep the connection open.
        self.transport.unregisterProducer()
        self.transport.loseConnection()

    def _tell(self, reason: str, act: str = "closing") -> None:
        """Log why something is done to the connection, once a minute for each host and reason."""
        more = "" if self._refusals is None else self._refusals.admit(self.host, reason)
        if more is not None:
            self.log.warn(
                "{act} {peer}: {reason}{more}",
                act=act,
                peer=self.connection.remote_text,
                reason=reason,
                more=more,
            )

    # Times

    def _watch(self, now: float) -> None:
        """Set the timer to the next time at which `_look` has something to do."""
        self._timer = rearm(self._clock, self._timer, self._next_look(now), self._look)

    def _next_look(self, now: float) -> float:
        connection = self.connection
        idle = self._config.grpc_client_idle_time_mills / 1000
        if not connection.is_idle or connection.begun != self._seen:
            self._busy_at, self._seen = now, connection.begun
        if self._pinged_at is not None:
            ends = [self._pinged_at + PONG_S]
        else:
            ends = [(self._busy_at if connection.is_idle else self._heard) + idle]
        if connection.queued or self._is_paused:
            ends.append(self._progress_at + STALL_S)
        deadline = connection.next_deadline
        if deadline is not None:
            ends.append(deadline)
        return min(ends)

    def _look(self) -> None:
        """Act on times that are over: deadlines, an idle connection, a silent or slow client."""
        self._timer = None
        now = self._clock.seconds()
        connection = self.connection
        if not connection.is_open:
            return
        if self._is_overdue(now):
            # Bytes may have arrived in this very turn: wait one more before the connection ends.
            self._timer = self._last_turn.look_again(self._clock, self._look)
            if self._timer is None:
                self._end_overdue(now)
            return
        self._last_turn.reset()
        connection.advance(now)
        idle = self._config.grpc_client_idle_time_mills / 1000
        if connection.is_idle and now >= self._busy_at + idle:
            self._leaves = True
            connection.engine.leave()
        elif not connection.is_idle and self._pinged_at is None and now >= self._heard + idle:
            self._pinged_at = now
            connection.engine.ping()
        self._flush(now)

    def _is_overdue(self, now: float) -> bool:
        is_silent = self._pinged_at is not None and now >= self._pinged_at + PONG_S
        return is_silent or self._is_stalled(now)

    def _is_stalled(self, now: float) -> bool:
        waits = self.connection.queued or self._is_paused
        return bool(waits) and now >= self._progress_at + STALL_S

    def _end_overdue(self, now: float) -> None:
        if self._is_stalled(now):
            self.close_for(STALLED, f"it has read nothing for {STALL_S:.0f} s")
        else:
            self.log.debug("closing {peer}: silent", peer=self.connection.remote_text)
            self.abort()
