"""A server of one part, with a status port beside it: what name server and controller share."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, Logger

from rmq_ha.base.config.ports import PlannedPort
from rmq_ha.ops.app.page.board import Board
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.server import StatusServer


class _Tls(Protocol):
    def reload(self) -> object: ...


class Part(Protocol):
    @property
    def port(self) -> int: ...

    @property
    def tls(self) -> _Tls: ...

    def start(self) -> Deferred[Any]:
        """Fires when it listens."""

    def stop(self) -> Deferred[Any]:
        """Fires when all is closed."""


class LoneServer:
    """
    Starts the status port first and stops it last, so that /healthz can say what goes on.

    :cvar log: each server has its own, so that a line says whose it is.
    :ivar part: what serves.
    :ivar status: None without `metricsPort`.
    :ivar plan: the ports that it was planned to take.
    :ivar exposed: the warning that strangers reach it; None when they do not.
    :ivar make_board: what the page shows; None: nothing.
    """

    log: Logger

    def __init__(
        self,
        part: Part,
        status: StatusServer | None,
        plan: Sequence[PlannedPort],
        exposed: str | None,
        make_board: Callable[[], Board] | None = None,
    ) -> None:
        self.part = part
        self.status = status
        self.plan = plan
        self.exposed = exposed
        self.make_board = make_board

    def start(self) -> Deferred[Any]:
        if self.exposed is not None:
            self.log.warn("{warning}", warning=self.exposed)
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._stop())

    def ports(self) -> list[PlannedPort]:
        """Those that it was planned to take."""
        return list(self.plan)

    def reload(self) -> None:
        """New certificates; connections go on."""
        self.part.tls.reload()

    def observe(self, event: LogEvent) -> None:
        """A line of the log of this process, for the page."""
        if self.status is not None:
            self.status.observe(event)

    def facts(self) -> dict[str, Any]:
        """The real ports, if any free one was asked for."""
        facts = {"listenPort": self.part.port}
        if self.status is not None:
            facts["metricsPort"] = self.status.port
        return facts

    async def _start(self) -> None:
        if self.status is not None:
            await self.status.start()
        await self.part.start()
        if self.status is not None and self.make_board is not None:
            self.status.show(self.make_board())

    async def _stop(self) -> None:
        if self.status is not None:
            self.status.withdraw(Health(False, "stopping"))
        try:
            await self.part.stop()
        finally:
            if self.status is not None:
                await self.status.stop()
