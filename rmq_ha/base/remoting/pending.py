"""Calls that wait for their response: by opaque, with one timer for all of them.

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
    """Who wants to know what became of a call; a Deferred is one."""

    def callback(self, result: RemotingCommand, /) -> Any: ...

    def errback(self, fail: Exception, /) -> Any:
        """None will come: `RemotingTimeout` or `RemotingConnectError`."""


class PendingCalls:
    """
    The calls of one connection.

    Calls that time out are looked for when the earliest deadline is reached, at most every 10 ms:
    a call that is answered in time costs no timer.
    """

    def __init__(self, clock: IReactorTime, peer: str) -> None:
        """
        :param peer: who is asked, for the messages of errors.
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

        :returns: its opaque, and what fires with the response or fails with `RemotingTimeout` or
            `RemotingConnectError`.
        """
        waiting: Deferred[RemotingCommand] = Deferred(lambda _: self.forget(opaque))
        deadline = self._clock.seconds() + max(0.0, timeout_ms) / 1000.0
        opaque = self.note(waiting, deadline, timeout_ms)
        return opaque, waiting

    def note(self, waiting: Waiting, deadline: float, timeout_ms: float) -> int:
        """
        As `add`, for who is told himself.

        :param deadline: in the clock's seconds.
        :param timeout_ms: what that was, for the message of an error.
        :returns: its opaque.
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
        """Fire the call that this answers; False when there is none (any more)."""
        call = self._calls.pop(response.opaque, None)
        if call is None:
            return False
        call[2].callback(response)
        return True

    def forget(self, opaque: int) -> None:
        """Nobody waits for this call any more."""
        self._calls.pop(opaque, None)

    def fail_all(self, reason: str, *, retriable: bool = True) -> None:
        """The connection is gone: every call fails with `RemotingConnectError`."""
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
