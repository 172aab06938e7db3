"""Runs functions one after the other."""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure


class OneByOne:
    """
    Begins each function when the one before has ended, in the order of the calls.

    Twisted's `DeferredLock` calls itself once more for each function that ends at once. When some
    hundred and twenty of them wait, the stack ends, and the lock stays locked for good.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()
        self._running: tuple[Deferred[Any], Deferred[Any]] | None = None
        self._is_busy = False

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, function: Callable[[], Any]) -> "Deferred[Any]":
        """
        Run a function when all earlier ones have ended.

        :param function: may return a Deferred; the next function waits for it.
        :returns: fires with the function's result or failure. If it is cancelled before its turn,
            the function never begins; later, the Deferred that the function returned is cancelled.
        """
        done: Deferred[Any] = Deferred(self._cancel)
        self._waiting.append((function, done))
        if not self._is_busy:
            self._is_busy = True
            Deferred.fromCoroutine(self._run_all())
        return done

    def _cancel(self, done: "Deferred[Any]") -> None:
        if self._running is not None and self._running[0] is done:
            self._running[1].cancel()

    async def _run_all(self) -> None:
        while self._waiting:
            function, done = self._waiting.popleft()
            if done.called:
                continue
            self._running = (done, maybeDeferred(function))
            try:
                result = await self._running[1]
            except Exception:
                result = Failure()  # type: ignore[no-untyped-call]
            self._running = None
            if not done.called:
                done.callback(result)
        self._is_busy = False
