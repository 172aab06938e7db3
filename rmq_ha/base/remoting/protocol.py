"""RemotingProtocol: reads frames; gives requests to the dispatcher and responses to their calls.

Spec: remoting.md, sections 1.2, 1.6, 1.10 and 1.11.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocol, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.base.errors import ProtocolViolation, RmqHaError, TlsRefused, may_pass
from rmq_ha.base.model.security import Security
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.remoting.unfinished_frames import UnfinishedFrames
from rmq_ha.base.timing.timer import LastTurn, rearm
from rmq_ha.base.tls.first_byte import HTTP2, HTTP2_FIRST, FirstByte
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.transport import TlsTransport
from rmq_ha.base.wire.command import FLAG_RESPONSE
from rmq_ha.base.wire.frame import MAX_FRAME_SIZE, Frame, FrameReader, FrameRun, decode_frame

if TYPE_CHECKING:  # clients need no server TLS
    from rmq_ha.base.tls.server import ServerTls

_IDLE_SLACK = 0.001
_CHUNK = 131072


@implementer(IPushProducer)
class RemotingProtocol(Protocol):
    """
    Either end of a connection.

    The accepting end stops reading while its peer does not read; it is the producer of its own
    transport. The connecting end goes on reading and only notes that its peer does not read. Else
    both ends could wait for each other for ever.

    :ivar channel: set while connected.
    :ivar host: the peer's address without its port.
    :ivar lost: fires with None when the connection is gone.
    """

    log = Logger()
    channel: Channel
    transport: Any

    def __init__(
        self, clock: IReactorTime, dispatcher: RequestDispatcher, idle: float, *, accepts: bool
    ) -> None:
        """
        :param idle: seconds without read and write after which the connection is closed; 0 for
            never.
        :param accepts: whether this is the accepting end.
        """
        self._clock = clock
        self._dispatcher = dispatcher
        self._idle = idle
        self._accepts = accepts
        self._reader = FrameReader(cut=dispatcher.cut)
        self._frame_began = 0.0
        self._frames: UnfinishedFrames | None = None
        self._turns: Turns | None = None
        self._refusals: Refusals | None = None
        self._waits = self._is_counted = self._is_put_off = False
        self._reads = True
        self._requests = self._bytes = self._charging = 0
        self.host = ""
        self._backlog: deque[Frame | FrameRun] = deque()
        self._paused = False
        self._running = False
        self._idle_timer: IDelayedCall | None = None
        self._last_turn = LastTurn()
        self.lost: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        """Start the idle timer, and on the accepting end watch the peer's reading."""
        self.channel = Channel(self._clock, self.transport)
        self.channel.on_release = self._released
        self.host = self.channel.host
        self._watch_idle()
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        """Handle all whole frames; their synchronous responses leave as one write."""
        channel = self.channel
        reader = self._reader
        now = channel.last_io = self._clock.seconds()
        begins = not reader.unfinished
        try:
            frames = reader.receive_data(data)
        except ProtocolViolation as violation:
            self._violated(violation)
            return
        if self._waits:
            self._stop_reading()
        if frames or begins:
            self._frame_began = now
        if self._charging:
            for item in frames:
                self._requests += 1 if type(item) is tuple else len(item)
            self._bytes += len(data)
        if frames:
            self._handle(frames, now)
        if reader.fault is not None:
            self._violated(reader.fault)
        elif self._frames is not None and (
            reader.unfinished or self._backlog or channel.held or self._is_counted
        ):
            self._count(self._frames)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fail the calls that wait and tell the channel's watchers."""
        if self._idle_timer is not None and self._idle_timer.active():
            self._idle_timer.cancel()
        self._backlog.clear()
        if self._frames is not None:
            self._frames.forget(self)
        if self._turns is not None:
            self._turns.forget(self)
        self.channel.closed(reason.getErrorMessage(), retriable=may_pass(reason.value))
        self.lost.callback(None)

    # IPushProducer, for the transport's write buffer

    def pauseProducing(self) -> None:
        """Read no more requests of a peer that reads too slowly."""
        self.channel.is_full = True
        if not self._accepts:
            return
        self._paused = True
        self._stop_reading()

    def resumeProducing(self) -> None:
        """Go on, as the write buffer is empty: serve the rest of the last chunk, then read on."""
        self._paused = False
        self.channel.drained()
        if not self._accepts:
            return
        self._read_on()

    def stopProducing(self) -> None:
        """Do nothing: `connectionLost` is called when the transport is gone."""

    # Frames

    def _handle(self, frames: list[Frame | FrameRun], now: float) -> None:
        """
        Put frames behind the backlog, and serve as much of it as this turn allows.

        :param now: the clock's time, in seconds.
        """
        backlog = self._backlog
        backlog.extend(frames)
        # `_running`: a handler called this again, and the loop below goes on with the new frames.
        # `_waits`: this connection has used its share, or an earlier request takes several turns.
        if self._running or self._waits:
            return
        channel, turns = self.channel, self._turns
        began = channel.served_at = now
        ends = now + turns.share(self.host, now) if turns is not None else inf
        self._running = True
        channel.cork()
        try:
            while (
                backlog and not self._paused and not channel.held and channel.is_open and now < ends
            ):
                item: Any = backlog.popleft()
                if type(item) is tuple:
                    self._dispatch(channel, item)
                else:
                    self._dispatcher.dispatch_run(channel, item)
                if turns is not None:
                    now = channel.served_at = self._clock.seconds()
        except ProtocolViolation as violation:
            self._violated(violation)
        finally:
            self._running = False
            channel.uncork(now)
        if turns is not None:
            turns.note_turn(self.host, now - began)
        # The rest waits: for a request that takes several turns, for the end of a quota's wait, or
        # for the next turn because the share of this one is used up.
        if channel.held:
            self._waits = True
            self._stop_reading()
        elif turns is not None:
            delay = self._pay(turns, now) if turns.charging else 0.0
            is_over = delay > 0 or (backlog and now >= ends)
            if is_over and not self._paused and channel.is_open:
                self._wait(turns, delay)

    def _pay(self, turns: Turns, now: float) -> float:
        """Charge served requests and bytes; return how many seconds this connection has to wait."""
        channel = self.channel
        requests, size = self._requests, self._bytes + channel.written
        self._requests = self._bytes = channel.written = 0
        is_new, self._charging = self._charging != turns.charging, turns.charging
        if is_new or not (requests or size):  # older than the quota, or paid already
            return 0.0
        delay, key = turns.quotas.charge(self.host, channel.account, requests, size, now)
        if key and self._refusals is not None:
            more = self._refusals.admit(self.host, key)
            if more is not None:
                self.log.warn(
                    "{peer} (account {account!r}) is held back for {delay:.1f} s by {key}{more}",
                    peer=channel.remote_text,
                    account=channel.account,
                    delay=delay,
                    key=key,
                    more=more,
                )
        return delay

    def _wait(self, turns: Turns, seconds: float) -> None:
        """
        Let other connections be served before the rest of this backlog.

        If the wait is only one turn, reading goes on: mostly no further chunk comes until then, and
        stopping and starting to read would cost two system calls for each connection.
        """
        self._waits = True
        if seconds:
            self._stop_reading()
        turns.wait(self, seconds)

    def _stop_reading(self) -> None:
        self._reads = False
        if self.channel.is_open:
            self.transport.pauseProducing()

    def _released(self) -> None:
        """Go on in the next turn with the requests after one that took several turns."""
        if self._waits and self.channel.is_open:
            self._clock.callLater(0, self.go_on)

    def go_on(self) -> None:
        """Serve what is left of the last chunk, then read on."""
        self._waits = False
        if self.channel.is_open:
            self._read_on()

    def _read_on(self) -> None:
        now = self._frame_began = self._clock.seconds()  # this end did not read until now
        self._handle([], now)
        if self._frames is not None:
            self._count(self._frames)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Read on, unless another reason not to read remains."""
        has_reason = self._paused or self._waits or self._is_put_off
        if not (self._reads or has_reason) and self.channel.is_open:
            self._reads = True
            self.transport.resumeProducing()

    # Called by `UnfinishedFrames`

    @property
    def waits_here(self) -> bool:
        """Whether requests here wait for their turn, or for a request that takes several turns."""
        return self._waits

    def put_off(self) -> None:
        """Stop reading, as older frames of this address come first."""
        self._is_put_off = True
        self._stop_reading()

    def let_read(self) -> None:
        """Read on, as there is room for the rest of the frame."""
        self._is_put_off = False
        self._resume_reading()

    def _dispatch(self, channel: Channel, frame: Frame) -> None:
        command = decode_frame(*frame)
        if not command.flag & FLAG_RESPONSE:
            self._dispatcher.dispatch(channel, command)
        elif not channel.pending.resolve(command):
            self.log.debug(
                "{peer} answers {opaque}, which nobody waits for",
                peer=channel.remote_text,
                opaque=command.opaque,
            )

    def _count(self, frames: UnfinishedFrames) -> None:
        """Report the bytes that wait for the rest of their frame, or until the peer reads."""
        size = self._reader.unfinished + self.channel.held
        if self._backlog:
            waiting = sum(map(_size_of, self._backlog))
            if self._paused or waiting > _CHUNK:  # the chunk of one that waits its turn is small
                size += waiting
        self._is_counted = size > 0
        frames.keep(self, size, self._reader.missing)

    def overrun(self, violation: ProtocolViolation) -> None:
        """Close the connection now and free its memory, as too many bytes wait here."""
        self._reader.give_up(violation)
        self._violated(violation)
        self.channel.abort()

    def _violated(self, violation: RmqHaError) -> None:
        if self.channel.is_open:
            self._dispatcher.violations += 1
            self._tell(violation)
            self.channel.close()

    def _tell(self, violation: RmqHaError) -> None:
        self.log.warn("closing {peer}: {reason}", peer=self.channel.remote_text, reason=violation)

    def _watch_idle(self) -> None:
        """Look again when the connection could be idle, or its frame could have taken too long."""
        now = self._clock.seconds()
        ends = [self.channel.last_io + self._idle] if self._idle > 0 else []
        timeout = 0 if self._frames is None else self._frames.timeout
        if timeout:
            waits = self._reader.unfinished and not self._paused
            ends.append((self._frame_began if waits else now) + timeout)
        if ends:
            call_later: Callable[..., IDelayedCall] = self._clock.callLater
            self._idle_timer = call_later(max(0.0, min(ends) - now), self._check_idle)

    def _check_idle(self) -> None:
        now = self._clock.seconds()
        is_idle = self._idle > 0 and _is_over(self.channel.last_io + self._idle, now)
        is_too_slow = self._is_too_slow(now)
        if not is_idle and not is_too_slow:
            self._last_turn.reset()
            self._watch_idle()
            return
        # Bytes may have arrived in this very turn: wait one more before the connection ends.
        self._idle_timer = self._last_turn.look_again(self._clock, self._check_idle)
        if self._idle_timer is not None:
            return
        if is_too_slow:
            assert self._frames is not None
            self.overrun(self._frames.drop_too_slow(self))
            return
        self.log.debug("closing {peer}: idle", peer=self.channel.remote_text)
        self.channel.abort()

    def _is_too_slow(self, now: float) -> bool:
        if self._frames is None or not self._frames.timeout or self._paused or self._waits:
            return False
        is_over = _is_over(self._frame_began + self._frames.timeout, now)
        return self._reader.unfinished > 0 and is_over


def _size_of(item: Frame | FrameRun) -> int:
    return len(item[1]) + len(item[2]) if isinstance(item, tuple) else item.size


def _is_over(deadline: float, now: float) -> bool:
    """Whether a deadline is over, with a slack for rounding errors of seconds."""
    return now > deadline - _IDLE_SLACK


class PeerLimits(NamedTuple):
    """
    The limits that a server keeps for all its connections together.

    :ivar refusals: limits log lines about refusals; None to log every refusal.
    :ivar frames: limits the bytes of unfinished frames of all connections; None for no limit but
        the largest size of each frame.
    :ivar turns: limits the time of a reactor turn that a connection's requests may take; None for
        no limit.
    """

    refusals: Refusals | None = None
    frames: UnfinishedFrames | None = None
    turns: Turns | None = None


_NO_LIMITS = PeerLimits()
BuildHttp2 = Callable[[], IProtocol]


class ServerProtocol(RemotingProtocol):
    """
    The accepting end. The first byte tells TLS from plain connections, and HTTP/2 from remoting.
    """

    def __init__(
        self,
        clock: IReactorTime,
        dispatcher: RequestDispatcher,
        idle: float,
        connected: "dict[ServerProtocol, None]",
        tls: "ServerTls | None" = None,
        limits: PeerLimits = _NO_LIMITS,
        build_http2: BuildHttp2 | None = None,
    ) -> None:
        """
        :param connected: contains this protocol while it serves a connection of remoting.
        :param tls: TLS settings of the port; None to accept plain connections only.
        :param build_http2: makes the protocol that serves this connection if its client speaks
            HTTP/2; None to serve remoting only.
        """
        super().__init__(clock, dispatcher, idle, accepts=True)
        self._refusals, frames, self._turns = limits
        self._frames = frames
        most = MAX_FRAME_SIZE if frames is None else frames.max_header_size
        self._reader = FrameReader(max_header_size=most, cut=dispatcher.cut)
        if self._turns is not None:
            self._charging = self._turns.charging
        self._connected = connected
        self._rules = tls
        self._tls: TlsTransport | None = None
        self._build_http2 = build_http2
        self._http2: IProtocol | None = None

    def connectionMade(self) -> None:
        """Wait for the first byte."""
        super().connectionMade()
        self._connected[self] = None
        if self._rules is not None or self._build_http2 is not None:
            # An attribute of the instance: later chunks go straight to the method.
            self.dataReceived = self._first_data  # type: ignore[method-assign]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._connected.pop(self, None)
        tls = self._tls
        if tls is not None:
            reason = tls.connection_lost(reason)
            if not tls.is_secured and not tls.has_failed and self.channel.is_open:
                self._tell(TlsRefused(reason.getErrorMessage()))
        if self._http2 is not None:
            self._http2.connectionLost(reason)
        super().connectionLost(reason)

    def _first_data(self, data: bytes) -> None:
        del self.__dict__["dataReceived"]
        rules = self._rules
        verdict = FirstByte.PLAIN if rules is None else rules.judge(data[0])
        if verdict is FirstByte.PLAIN:
            self._choose(self.transport, data)
        elif verdict is FirstByte.START_TLS:
            assert rules is not None
            self._start_tls(rules).receive_data(data)
        else:
            assert rules is not None
            self._violated(TlsRefused(rules.refusal(data[0])))

    def _choose(self, transport: Any, data: bytes) -> None:
        """
        Serve the first bytes within TLS, or of a plain connection: HTTP/2 or remoting.

        Later bytes go straight to the method that serves them.
        """
        deliver: Callable[[bytes], object] = super().dataReceived
        if data[0] == HTTP2_FIRST and self._build_http2 is not None and self.channel.is_open:
            deliver = self._hand_over(transport, self._build_http2())
        if self._tls is not None:
            self._tls.deliver_to(deliver)
        deliver(data)

    def _hand_over(self, transport: Any, http2: IProtocol) -> Callable[[bytes], object]:
        """Leave the connection to the protocol of HTTP/2, and return the method for its bytes."""
        self._http2 = http2
        self._connected.pop(self, None)
        self._idle_timer = rearm(self._clock, self._idle_timer, None, self._check_idle)
        transport.unregisterProducer()
        http2.makeConnection(transport)
        if self._tls is None:
            self.dataReceived = http2.dataReceived  # type: ignore[method-assign]
        return http2.dataReceived

    def _start_tls(self, rules: "ServerTls") -> TlsTransport:
        tls = self._tls = TlsTransport(
            self.transport,
            rules.session((HTTP2,) if self._build_http2 is not None else ()),
            self._clock,
            secured=self._secured,
            deliver=self.dataReceived,
            failed=self._tls_failed,
        )
        if self._build_http2 is not None:
            tls.deliver_to(partial(self._choose, tls))
        self.channel.goes_through(tls)
        self.dataReceived = tls.receive_data  # type: ignore[method-assign]
        return tls

    def _secured(self) -> None:
        assert self._tls is not None
        self.channel.security = Security(is_tls=True, names=self._tls.names)
        if self._tls.identity:
            self.log.info(
                "{peer} is in: {description}",
                peer=self.channel.remote_text,
                description=self._tls.description,
            )

    def _tls_failed(self, reason: str) -> None:
        if self._http2 is not None:
            self.transport.abortConnection()
        else:
            self._violated(TlsRefused(reason))

    def _tell(self, violation: RmqHaError) -> None:
        """Log a violation, at most once a minute for each host and reason."""
        host = self.channel.host
        more = "" if self._refusals is None else self._refusals.admit(host, str(violation))
        if more is not None:
            self.log.warn(
                "closing {peer}: {reason}{more}",
                peer=self.channel.remote_text,
                reason=violation,
                more=more,
            )
