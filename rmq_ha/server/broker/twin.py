"""Twin: the connection to the new master that stands for one client connection of a former one.

The former master introduces the client (RELAY_CLIENT), and then passes requests on in the order in
which they came. Answers come back by their opaque, as each end numbers its requests itself.
"""

from collections import deque
from enum import Enum
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import Handler
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand

MOST_BYTES = 1 << 20
"""Bytes of bodies that may wait for answers of one twin; then the client is not read."""
MOST_COPIES = 16
INTRODUCE_MS = 1000
ANSWER_MS = 10_000
"""How long the new master may take for an answer; clients have given up by then."""
AGAIN_S = 0.03
"""Pause before a broker that is not the master yet is asked again, in seconds."""
CONNECT_S = 3.0
"""How long requests wait for the new master; then they are refused as by a slave."""
NOT_LEADING = "notLeading"
"""Field of a refusal by a broker that has not looked at the request, as it does not lead."""

HELD = (RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION)
"""Requests that a master may hold until messages come; later ones do not wait for their answers."""
FROM_BROKERS = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
"""Requests of the new master that are passed to the client."""


class Way(Enum):
    """Who answers a request: this broker, nobody yet, or the new master."""

    HERE = "here"
    WAIT = "wait"
    ON = "on"


class Link(NamedTuple):
    """A client for a connection of its own, and calls that sign for this broker's account."""

    client: RemotingClient
    calls: Calls


class Director(Protocol):
    """Decides for all twins which way requests go."""

    master: str
    forwarded: int

    def way(self, client: Channel) -> Way: ...

    def serve(self, handler: Handler, client: Channel, request: RemotingCommand) -> Any:
        """Have this broker answer a request itself, in place of the new master."""

    def open_link(self) -> Link: ...

    def cannot(self, why: str) -> None:
        """Note that the new master takes no requests of this broker."""

    def forget(self, twin: "Twin") -> None: ...


class _AwaitedRequest(NamedTuple):
    """A request in its place; `handler` is None for a copy, whose answer nobody wants."""

    request: RemotingCommand
    handler: Handler | None
    answer: "Deferred[RemotingCommand | None]"


class Twin:
    """
    Keeps one client's requests in order while a hand-over decides who answers them.

    :ivar client: the client's connection.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime, director: Director, client: Channel) -> None:
        self._clock = clock
        self._director = director
        self.client = client
        self._queue: deque[_AwaitedRequest] = deque()
        self._gates: list[Deferred[None]] = []
        self._link: Link | None = None
        self._channel: Channel | None = None
        self._master = ""
        self._gives_up_s: float | None = None
        self._failed_s: float | None = None
        self._again: IDelayedCall | None = None
        self._in_flight = self._held = self._bytes = self._returned = 0
        self._is_pumping = self._is_over = self._is_doubtful = False
        client.on_close(lambda _: self.end())

    @property
    def is_awaited(self) -> bool:
        """Whether the new master has not answered all requests yet, held ones left aside."""
        return self._in_flight > 0

    def ask(self, request: RemotingCommand, handler: Handler) -> "Deferred[RemotingCommand | None]":
        """
        Have a request answered by this broker's `handler` or by the new master, in its turn.

        The client is not read while its request waits for its turn.
        """
        waiting = _AwaitedRequest(request, handler, Deferred())
        self._queue.append(waiting)
        self.pump()
        if self._queue and not self._is_over:
            gate: Deferred[None] = Deferred()
            self._gates.append(gate)
            self.client.hold(len(request.body or b""), gate)
            gate.addErrback(lambda _: None)  # cancelled, as the connection was lost
        return waiting.answer

    def copy(self, request: RemotingCommand) -> None:
        """Pass a request on that this broker answers itself."""
        if len(self._queue) < MOST_COPIES:
            self._queue.append(_AwaitedRequest(request, None, Deferred()))
            self.pump()

    def pump(self) -> None:
        """Let all requests go whose turn it is."""
        if self._is_pumping or self._is_over:
            return
        self._is_pumping = True
        try:
            while self._queue and self._go():
                pass
        finally:
            self._is_pumping = False
        if not self._queue:
            gates, self._gates = self._gates, []
            for gate in gates:
                gate.callback(None)
            is_idle = not self._in_flight and not self._held
            if is_idle and self._director.way(self.client) is Way.HERE:
                self.end()

    def _go(self) -> bool:
        """Let the next request go; return False if it has to wait."""
        way = self._director.way(self.client)
        if way is Way.WAIT:
            return False
        if way is Way.HERE or self._has_failed:
            if self._in_flight:  # a request before it is with the other broker
                return False
            self._serve(self._take())
            return True
        if (
            self._is_doubtful
            or self._channel is None
            or not self._channel.is_open
            or self._master != self._director.master
        ):
            self._introduce()
            return False
        if self._channel.is_full or self._bytes > MOST_BYTES:
            if self._channel.is_full:
                self._channel.writable().addCallback(lambda _: self.pump())
            return False
        self._forward(self._take(), self._channel)
        return True

    def _take(self) -> _AwaitedRequest:
        self._returned = max(0, self._returned - 1)
        return self._queue.popleft()

    @property
    def _has_failed(self) -> bool:
        """Whether the new master could not be reached lately; it is tried again every second."""
        return self._failed_s is not None and self._clock.seconds() < self._failed_s + 1

    def _serve(self, waiting: _AwaitedRequest) -> None:
        if waiting.handler is not None:
            serve = self._director.serve
            answer = maybeDeferred(serve, waiting.handler, self.client, waiting.request)
            answer.chainDeferred(waiting.answer)

    # ------------------------------------------------------------ the new master

    def _introduce(self) -> None:
        """Connect to the new master, and say for whom this connection stands."""
        is_connecting = self._link is not None and self._channel is None
        if self._again is not None or is_connecting:
            return
        if self._in_flight or self._held:  # with an earlier master
            return
        self._unlink()
        if self._gives_up_s is None:
            self._gives_up_s = self._clock.seconds() + CONNECT_S
        master = self._master = self._director.master
        link = self._link = self._director.open_link()
        for code in FROM_BROKERS:
            link.client.routes[code] = self._pass_back
        self._channel = None
        told = RemotingCommand(RequestCode.RELAY_CLIENT, {"client": self.client.remote_text})
        link.calls.invoke(master, told, INTRODUCE_MS).addCallbacks(
            self._introduced, self._not_reached, callbackArgs=(link,), errbackArgs=(link,)
        )

    def _introduced(self, answer: RemotingCommand, link: Link) -> None:
        if link is not self._link:
            return
        channel = link.client.open_channel(self._master)
        if answer.code == ResponseCode.SUCCESS and channel is not None:
            self._failed_s = self._gives_up_s = None
            self._is_doubtful = False
            self._channel = channel
            channel.on_close(self._lost)
            self.pump()
        elif answer.code in (ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE):
            self._try_again(answer.remark or "the connection was closed")
        else:
            self._unlink()
            self._director.cannot(f"code {answer.code}: {answer.remark}")
            self.pump()

    def _not_reached(self, failure: Failure, link: Link) -> None:
        if link is self._link:
            self._try_again(failure.getErrorMessage())

    def _try_again(self, why: str) -> None:
        self._unlink()
        if self._gives_up_s is not None and self._clock.seconds() < self._gives_up_s:
            self._again = self._clock.callLater(AGAIN_S, self._on_again)
            return
        self._failed_s, self._gives_up_s = self._clock.seconds(), None
        self.log.warn(
            "requests of {client} cannot go on to {master}, and are refused: {why}",
            client=self.client.remote_text,
            master=self._master,
            why=why,
        )
        self.pump()

    def _on_again(self) -> None:
        self._again = None
        self.pump()

    def _forward(self, waiting: _AwaitedRequest, channel: Channel) -> None:
        request = waiting.request
        self._director.forwarded += 1
        if request.is_oneway:
            channel.send(request)
            waiting.answer.callback(None)
            return
        size = len(request.body or b"")
        if request.code in HELD:
            self._held += 1
        else:
            self._in_flight += 1
        self._bytes += size
        timeout_ms = ANSWER_MS + _hold_ms(request)
        answer: Deferred[Any] = channel.invoke(request, timeout_ms)
        answer.addBoth(self._answered, waiting, size)

    def _answered(
        self, answer: RemotingCommand | Failure, waiting: _AwaitedRequest, size: int
    ) -> None:
        """
        Pass an answer to the client.

        A client gets no answer if the link is lost: its connection is closed, as it would have lost
        its connection to the master itself. A broker that does not lead any more and has not looked
        at the request says so: the request gets its place back until it is known who leads.
        """
        if waiting.request.code in HELD:
            self._held -= 1
        else:
            self._in_flight -= 1
        self._bytes -= size
        if isinstance(answer, Failure):
            waiting.answer.callback(None)
            if waiting.handler is not None and not isinstance(answer.value, RemotingTimeout):
                self.client.close()
        elif (
            waiting.handler is not None
            and answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            and NOT_LEADING in (answer.ext or {})
        ):
            self._is_doubtful = True
            self._queue.insert(self._returned, waiting)
            self._returned += 1
        else:
            waiting.answer.callback(answer)
        self.pump()

    def _lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._unlink()
            self.pump()

    # ------------------------------------------------------------ the other direction

    def _pass_back(self, channel: Channel, request: RemotingCommand) -> Any:
        """Pass a request of the new master to the client, and the client's answer back."""
        if request.is_oneway:
            self.client.send(request)
            return None
        answer: Deferred[Any] = self.client.invoke(request, ANSWER_MS)
        return answer.addErrback(lambda _: None)

    # ------------------------------------------------------------ the end

    def end(self) -> None:
        """Close the link; nothing goes on to the new master any more."""
        if self._is_over:
            return
        self._is_over = True
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._unlink()
        self._queue.clear()
        self._director.forget(self)

    def _unlink(self) -> None:
        link, self._link, self._channel = self._link, None, None
        if link is not None:
            link.client.stop()


def _hold_ms(request: RemotingCommand) -> int:
    """Return for how many ms the new master may hold a pop until messages come."""
    text = (request.ext or {}).get("pollTime") or "0"
    return min(int(text), 60_000) if text.isdecimal() else 0
