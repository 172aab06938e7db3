"""Works that must not run beside each other."""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure


class OneByOne:
    """
    Each begins when the one before is over, in the order in which they came.

    Twisted's `DeferredLock` calls itself once more for each that is over at once, and stays locked
    for good when so many of them waited that the stack ends: some hundred and twenty.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()
        self._running: tuple[Deferred[Any], Deferred[Any]] | None = None
        self._is_busy = False

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, function: Callable[[], Any]) -> "Deferred[Any]":
        """
        :param function: may return a Deferred; the next one waits for it.
        :returns: fires with its result or failure. Cancelled before its turn, it never begins;
            later, what it waits for is cancelled.
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
