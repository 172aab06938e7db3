"""A reactor inside a running asyncio loop. It neither stops nor closes that loop."""

from asyncio import AbstractEventLoop
from typing import Any

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.posixbase import PosixReactorBase

from rmq_ha.base.host.clock import monotonic


class LoopReactor(AsyncioSelectorReactor):
    """
    Serves sockets and timers of one client. It is no global reactor, and a process may have
    several.

    :param loop: a selector loop or uvloop's, running now.
    """

    seconds = staticmethod(monotonic)

    def __init__(self, loop: AbstractEventLoop) -> None:
        super().__init__(loop)
        self.startRunning(installSignalHandlers=False)

    def crash(self) -> None:
        """Mark this reactor as ended; the loop goes on."""
        PosixReactorBase.crash(self)

    def close(self) -> None:
        """End the reactor's threads, timers and descriptors."""
        inner: Any = self
        self.fireSystemEvent("shutdown")
        for reader in inner._internalReaders:
            inner.removeReader(reader)
            reader.connectionLost(None)
        if inner._timerHandle is not None:
            inner._timerHandle.cancel()
