"""Calls that wait for their response: opaque to Deferred, with one timer for all of them.

Spec: remoting.md, sections 1.6 and 1.11.
"""

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.timing.timer import LastTurn
from rmq_ha.wire.command import RemotingCommand

_LAST_OPAQUE = 2**31 - 1
_GRANULARITY = 0.01


class _Call(NamedTuple):
    deadline: float
    timeout_ms: float
    waiting: "Deferred[RemotingCommand]"


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
        self._calls: dict[int, _Call] = {}
        self._timer: IDelayedCall | None = None
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
        opaque = self._next_opaque()
        waiting: Deferred[RemotingCommand] = Deferred(lambda _: self.forget(opaque))
        deadline = self._clock.seconds() + max(0.0, timeout_ms) / 1000.0
        self._calls[opaque] = _Call(deadline, timeout_ms, waiting)
        self._wake_at(deadline)
        return opaque, waiting

    def resolve(self, response: RemotingCommand) -> bool:
        """Fire the call that this answers; False when there is none (any more)."""
        call = self._calls.pop(response.opaque, None)
        if call is None:
            return False
        call.waiting.callback(response)
        return True

    def forget(self, opaque: int) -> None:
        """Nobody waits for this call any more."""
        self._calls.pop(opaque, None)

    def fail_all(self, reason: str, *, retriable: bool = True) -> None:
        """The connection is gone: every call fails with `RemotingConnectError`."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.waiting.errback(RemotingConnectError(reason, retriable=retriable))

    def _next_opaque(self) -> int:
        while True:
            self._opaque = self._opaque + 1 if self._opaque < _LAST_OPAQUE else 1
            if self._opaque not in self._calls:
                return self._opaque

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.getTime() <= deadline:
                return
            self._timer.cancel()
        call_later: Callable[..., IDelayedCall] = self._clock.callLater
        self._timer = call_later(max(0.0, deadline - self._clock.seconds()), self._expire)

    def _expire(self) -> None:
        self._timer = self._last_turn.again(self._clock, self._expire)
        if self._timer is not None:
            return
        now = self._clock.seconds()
        late = [opaque for opaque, call in self._calls.items() if call.deadline <= now]
        calls = [self._calls.pop(opaque) for opaque in late]
        if self._calls:
            earliest = min(call.deadline for call in self._calls.values())
            self._wake_at(max(earliest, now + _GRANULARITY))
        for call in calls:
            call.waiting.errback(
                RemotingTimeout(f"no response from {self._peer} within {call.timeout_ms:.0f} ms")
            )
