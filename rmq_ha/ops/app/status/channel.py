"""
Connections of the status port: they take small requests only, and serve one request in a turn of
the reactor.

Anybody who reaches the port may send anything. So requests must not take more from a broker's
clients than the share of a turn that the whole port has.
"""

from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.server import NOT_DONE_YET, Request

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.tls.ends import address_text

MOST_BODY = 4096
"""Bytes of the largest body. Only the proof of POST /api/session has a body, and it is shorter."""
MOST_HEADERS = 100
TURN_MILLIS = 5
IDLE_S = 60
_TOO_LARGE = (
    b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
)
_WHY_TOO_LARGE = (
    b"no request of this port has a body of more than %d bytes, or one in chunks\n" % MOST_BODY
)


class PortTurns(Turns):
    """
    The turns of all connections of a status port, which together have the share of one address.

    Time that a request took beyond the share is taken from the turns after it.
    """

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__(clock, NettyServerConfig(turn_millis=0, turn_millis_per_ip=TURN_MILLIS))

    def serve(self, channel: "StatusChannel", request: "StatusRequest") -> None:
        """Answer a request, and count the time that it took."""
        began = self._clock.seconds()
        request.serve()
        self.note_turn(channel.host, self._clock.seconds() - began)


class StatusRequest(Request):
    """A request that is parsed and answered when the turn of its connection has come."""

    channel: "StatusChannel"
    _line: tuple[bytes, bytes, bytes]

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        self._line = (command, path, version)
        self.channel.put_off(self)

    def serve(self) -> None:
        super().requestReceived(*self._line)  # type: ignore[no-untyped-call]

    def render(self, resrc: Any) -> None:
        """Answer HEAD with the headers of GET. Twisted would log each as a Python object."""
        if self.method != b"HEAD":
            super().render(resrc)  # type: ignore[no-untyped-call]
            return
        body = resrc.render(self)
        if body is not NOT_DONE_YET:
            self.setHeader(b"content-length", b"%d" % len(body))  # type: ignore[no-untyped-call]
            self.write(b"")  # type: ignore[no-untyped-call]
            self.finish()  # type: ignore[no-untyped-call]


class StatusChannel(HTTPChannel):
    """
    A connection that serves one request in a turn and refuses large bodies. Twisted's own channel
    serves in one turn all requests that came in one chunk, and reads any body.

    :ivar host: the same text for all connections, not the peer's address, because the whole port
        has one share of a turn.
    """

    log = Logger()
    maxHeaders = MOST_HEADERS
    host = "the status port"
    site: Any
    transport: Any
    _turns: PortTurns
    _waiting: StatusRequest | None = None
    _is_full = False
    _is_refused = False

    def connectionMade(self) -> None:
        """Take part in the turns of the port."""
        self._turns = self.site.turns
        super().connectionMade()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Drop the waiting request, because the client is gone."""
        self._waiting = None
        self._turns.forget(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def timeoutConnection(self) -> None:
        """Close an idle connection. Twisted's own method logs the peer as a Python object."""
        peer = address_text(self.transport.getPeer())
        self.log.info("closing an idle connection of the status port: {peer}", peer=peer)
        if self.abortTimeout is not None:
            cut = self.callLater(self.abortTimeout, self.forceAbortClient)  # type: ignore[no-untyped-call]
            self._abortingCall = cut
        self.loseConnection()  # type: ignore[no-untyped-call]

    def forceAbortClient(self) -> None:
        """Cut a connection that was closed when it was idle, and whose peer reads nothing."""
        self._abortingCall = None
        self.transport.abortConnection()

    def headerReceived(self, line: bytes) -> bool:
        """Refuse a length of thousands of digits, which Python does not convert to a number."""
        try:
            return bool(super().headerReceived(line))  # type: ignore[no-untyped-call]
        except ValueError:
            self._respondToBadRequestAndDisconnect()  # type: ignore[no-untyped-call]
            return False

    def allHeadersReceived(self) -> None:
        """Refuse a body that is too large before a byte of it is read."""
        if self.length is not None and self.length <= MOST_BODY:
            super().allHeadersReceived()  # type: ignore[no-untyped-call]
            return
        self._is_refused = True
        self.transport.write(_TOO_LARGE % (len(_WHY_TOO_LARGE), _WHY_TOO_LARGE))
        self.loseConnection()  # type: ignore[no-untyped-call]

    def rawDataReceived(self, data: bytes) -> None:
        """Ignore the beginning of a refused body, which may come together with the header."""
        if not self._is_refused:
            super().rawDataReceived(data)

    def put_off(self, request: StatusRequest) -> None:
        """Keep a complete request until its turn comes, and until the peer has read all answers."""
        self._waiting = request
        if self._is_full:
            self.setTimeout(IDLE_S)  # type: ignore[no-untyped-call]
        else:
            self._turns.wait(self, 0)

    def go_on(self) -> None:
        request, self._waiting = self._waiting, None
        if request is not None:
            self._turns.serve(self, request)

    def pauseProducing(self) -> None:
        self._is_full = True
        super().pauseProducing()  # type: ignore[no-untyped-call]

    def resumeProducing(self) -> None:
        self._is_full = False
        super().resumeProducing()  # type: ignore[no-untyped-call]
        if self._waiting is not None:
            self.setTimeout(None)  # type: ignore[no-untyped-call]
            self._turns.wait(self, 0)
