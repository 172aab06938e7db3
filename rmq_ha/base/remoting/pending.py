"""PendingCalls: calls that wait for their response, with one timer for all of them.

Spec: remoting.md, sections 1.6 and 1.11.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.timing.timer import LastTurn
from rmq_ha.base.wire.command import RemotingCommand

_LAST_OPAQUE = 2**31 - 1
_GRANULARITY = 0.01


class Waiting(Protocol):
    """Gets the response or the error of a call; a Deferred is an example."""

    def callback(self, result: RemotingCommand, /) -> Any: ...

    def errback(self, fail: Exception, /) -> Any:
        """Take a `RemotingTimeout` or `RemotingConnectError`, as no response will come."""


class PendingCalls:
    """
    The calls of one connection.

    The timer fires at the earliest deadline, at most every 10 ms, and looks for calls that have
    timed out. So a call that is answered in time needs no timer of its own.
    """

    def __init__(self, clock: IReactorTime, peer: str) -> None:
        """
        :param peer: the peer's address, for the messages of errors.
        """
        self._clock = clock
        self._peer = peer
        self._calls: dict[int, tuple[float, float, Waiting]] = {}  # deadline, timeout in ms, who
        self._timer: IDelayedCall | None = None
        self._wakes = inf
        self._last_turn = LastTurn()
        self._opaque = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, timeout_ms: float) -> "tuple[int, Deferred[RemotingCommand]]":
        """
        Note a call that is about to be sent.

        :returns: its opaque, and a Deferred that fires with the response or fails with
            `RemotingTimeout` or `RemotingConnectError`.
        """
        waiting: Deferred[RemotingCommand] = Deferred(lambda _: self.forget(opaque))
        deadline = self._clock.seconds() + max(0.0, timeout_ms) / 1000.0
        opaque = self.note(waiting, deadline, timeout_ms)
        return opaque, waiting

    def note(self, waiting: Waiting, deadline: float, timeout_ms: float) -> int:
        """
        Note a call that is about to be sent, whose response or error goes to `waiting`.

        :param deadline: when the call times out, in the clock's seconds.
        :param timeout_ms: the timeout in ms, for the message of an error.
        :returns: the call's opaque.
        """
        opaque, calls = self._opaque, self._calls
        while True:
            opaque = opaque + 1 if opaque < _LAST_OPAQUE else 1
            if opaque not in calls:
                break
        self._opaque = opaque
        calls[opaque] = deadline, timeout_ms, waiting
        if deadline < self._wakes:
            self._wake_at(deadline)
        return opaque

    def resolve(self, response: RemotingCommand) -> bool:
        """Give a response to its call; return False if no call waits for it."""
        call = self._calls.pop(response.opaque, None)
        if call is None:
            return False
        call[2].callback(response)
        return True

    def forget(self, opaque: int) -> None:
        """Forget a call, whose response is not wanted any more."""
        self._calls.pop(opaque, None)

    def fail_all(self, reason: str, *, retriable: bool = True) -> None:
        """Fail all calls with `RemotingConnectError`, as the connection is gone."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        calls, self._calls = self._calls, {}
        for _, _, waiting in calls.values():
            waiting.errback(RemotingConnectError(reason, retriable=retriable))

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes = deadline
        call_later: Callable[..., IDelayedCall] = self._clock.callLater
        self._timer = call_later(max(0.0, deadline - self._clock.seconds()), self._expire)

    def _expire(self) -> None:
        self._timer = self._last_turn.look_again(self._clock, self._expire)
        if self._timer is not None:
            return
        self._wakes = inf
        now = self._clock.seconds()
        late = [opaque for opaque, (deadline, _, _) in self._calls.items() if deadline <= now]
        calls = [self._calls.pop(opaque) for opaque in late]
        if self._calls:
            earliest = min(deadline for deadline, _, _ in self._calls.values())
            self._wake_at(max(earliest, now + _GRANULARITY))
        for _, timeout_ms, waiting in calls:
            waiting.errback(
                RemotingTimeout(f"no response from {self._peer} within {timeout_ms:.0f} ms")
            )
