"""One connection, as request handlers and callers see it.

Spec: remoting.md, section 1.6.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime, ITransport
from twisted.logger import Logger

from rmq_ha.base.errors import RemotingConnectError, RmqHaError
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.security import PLAIN
from rmq_ha.base.remoting.pending import PendingCalls
from rmq_ha.base.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmq_ha.base.wire.frame import encode_frame

_UNKNOWN_ADDRESS = Address(b"\0\0\0\0", 0)
_CORK_LIMIT = 1 << 18


class Channel:
    """
    Sends commands over a transport and waits for responses.

    :ivar remote: the peer's address; 0.0.0.0:0 when the transport has none.
    :ivar remote_text: the peer's address as `ip:port`.
    :ivar host: the peer's address without its port.
    :ivar is_open: whether the connection is open, so that sent frames may arrive.
    :ivar last_io: when bytes were last read or written, in seconds of the clock.
    :ivar served_at: when the requests that are being served got their turn, in the same seconds.
    :ivar pending: this end's calls that wait for a response.
    :ivar account: the account that signed the peer's last accepted request; empty if none did.
    :ivar written: bytes of written frames since the protocol last set this to 0.
    :ivar held: bytes of requests that take several turns; the requests after them wait.
    :ivar on_release: called when no request is held any more.
    :ivar security: whether the connection is TLS, and the names in the peer's certificate.
    :ivar is_full: whether the peer reads too slowly, so that the transport buffers sent bytes.
    :ivar is_relayed: whether another broker passes requests of a client on by this connection;
        `remote` and `host` are the client's then.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime, transport: ITransport) -> None:
        self._clock = clock
        self._transport = transport
        peer: Any = transport.getPeer()
        try:
            self.remote = Address.parse(peer.host, peer.port)
        except (AttributeError, ValueError):
            self.remote = _UNKNOWN_ADDRESS
        self.remote_text = str(self.remote)
        self.host = host_of(self.remote_text)
        self.security = PLAIN
        self.is_open = True
        self.last_io = self.served_at = clock.seconds()
        self.pending = PendingCalls(clock, self.remote_text)
        self.is_full = self.is_relayed = False
        self.account = ""
        self.written = 0
        self.on_release: Callable[[], None] = lambda: None
        self.held = 0
        self._held: dict[Deferred[Any], int] = {}
        self._on_close: list[Callable[[Channel], object]] = []
        self._on_drain: list[Deferred[None]] = []
        self._is_gone = False
        self._corked: list[bytes] | None = None
        self._corked_size = 0

    def __repr__(self) -> str:
        return f"<Channel {self.remote_text}{'' if self.is_open else ' closed'}>"

    def send(self, command: RemotingCommand) -> None:
        """
        Send a command unchanged.

        :raises ProtocolViolation: the command does not fit into a frame.
        """
        self.write(encode_frame(command))

    def write(self, frames: bytes, now: float | None = None) -> None:
        """
        Send whole frames: at once, or with the other responses to the chunk being handled.

        :param now: the time in seconds, if the caller knows it.
        """
        if not self.is_open:
            return
        size = len(frames)
        self.written += size
        if self._corked is None:
            self.last_io = self._clock.seconds() if now is None else now
            self._transport.write(frames)
            return
        self._corked.append(frames)
        self._corked_size += size
        if self._corked_size > _CORK_LIMIT:
            self._flush()

    def invoke(self, command: RemotingCommand, timeout_ms: float) -> "Deferred[RemotingCommand]":
        """
        Send a request to the peer, with a new opaque, and wait for the response.

        :returns: fires with the response, whatever its code; fails with `RemotingTimeout`, with
            `RemotingConnectError`, or with `ProtocolViolation` if it does not fit into a frame.
        """
        if not self.is_open:
            return fail(RemotingConnectError(f"the connection to {self.remote_text} is closed"))
        opaque, waiting = self.pending.add(timeout_ms)
        flag = command.flag & ~(FLAG_RESPONSE | FLAG_ONEWAY)
        try:
            self.send(replace(command, opaque=opaque, flag=flag))
        except RmqHaError as error:
            self.pending.forget(opaque)
            return fail(error)
        return waiting

    def close(self) -> None:
        """Close the connection once all written bytes are sent. A second call changes nothing."""
        if self.is_open:
            self._flush()
            self.is_open = False
            # The protocol is its transport's producer, and would keep the connection open.
            self._transport.unregisterProducer()  # type: ignore[attr-defined]
            self._transport.loseConnection()

    def abort(self) -> None:
        """Close the connection now; buffered bytes are lost."""
        self.is_open = False
        abort = getattr(self._transport, "abortConnection", self._transport.loseConnection)
        abort()

    def on_close(self, callback: "Callable[[Channel], object]") -> None:
        """
        Have `callback(channel)` called once when the connection is gone.

        On a channel that is already gone it is called at once.
        """
        if self._is_gone:
            callback(self)
        else:
            self._on_close.append(callback)

    def writable(self) -> "Deferred[None]":
        """Wait until the channel is not full, or is closed; never fails."""
        later: Deferred[None] = Deferred()
        if self.is_full and not self._is_gone:
            self._on_drain.append(later)
        else:
            later.callback(None)
        return later

    def hold(self, size: int, work: "Deferred[Any]") -> None:
        """
        Serve no further request of this peer before a request is done, so that they stay in order.

        Requests in the same run do not wait.

        :param size: size of the request, in bytes.
        :param work: fires when the request is done; cancelled if the connection is lost before.
        """
        self._held[work] = size
        self.held += size
        work.addBoth(self._release, work)

    def _release(self, result: Any, work: "Deferred[Any]") -> Any:
        self.held -= self._held.pop(work)
        if not self._held:
            self.on_release()
        return result

    def stands_for(self, client: Address) -> None:
        """Take the requests of this connection as those of a client of another broker."""
        self.is_relayed = True
        self.remote, self.remote_text = client, str(client)
        self.host = host_of(self.remote_text)

    # Called by the protocol

    def drained(self) -> None:
        """Note that the transport has sent all buffered bytes."""
        self.is_full = False
        waiting, self._on_drain = self._on_drain, []
        for later in waiting:
            later.callback(None)

    def goes_through(self, transport: ITransport) -> None:
        """Replace the transport, for example by a TLS layer."""
        self._transport = transport

    def cork(self) -> None:
        """Collect written frames until `uncork`."""
        self._corked = []

    def uncork(self, now: float) -> None:
        """Send the collected frames in one write."""
        frames, self._corked, self._corked_size = self._corked, None, 0
        if frames:
            self.last_io = now
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def closed(self, reason: str, *, retriable: bool = True) -> None:
        """
        Fail pending calls and call the `on_close` callbacks, as the connection is gone.

        :param retriable: whether a new connection may succeed.
        """
        self.is_open = False
        self._is_gone = True
        text = f"lost the connection to {self.remote_text}: {reason}"
        self.pending.fail_all(text, retriable=retriable)
        self.drained()
        for work in list(self._held):
            work.cancel()
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                self.log.failure("after the loss of {peer}", peer=self.remote_text)

    def _flush(self) -> None:
        """Send the frames collected so far, and go on collecting."""
        if self._corked:
            self.uncork(self.last_io)
            self.cork()
