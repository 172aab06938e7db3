"""
The common base of the processes of name servers and controllers: one part that serves, and a status
port.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, Logger

from rmq_ha.base.config.ports import PlannedPort
from rmq_ha.ops.app.page.board import Board
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.server import StatusServer


class _ReloadableTls(Protocol):
    def reload(self) -> object: ...


class ServerPart(Protocol):
    @property
    def port(self) -> int: ...

    @property
    def tls(self) -> _ReloadableTls: ...

    def start(self) -> Deferred[Any]:
        """Start; the Deferred fires when the server listens."""

    def stop(self) -> Deferred[Any]:
        """Stop; the Deferred fires when all ports are closed."""


class LoneServer:
    """
    Starts the status port first and stops it last, so that /healthz can tell the state meanwhile.

    :cvar log: the class's logger, so that a line says which server wrote it.
    :ivar part: the name server or controller that serves.
    :ivar status: None without `metricsPort`.
    :ivar plan: the ports that it was planned to take.
    :ivar exposed: a warning that strangers reach the server; None: strangers cannot reach it.
    :ivar make_board: makes the board that the page shows; None: no page.
    """

    log: Logger

    def __init__(
        self,
        part: ServerPart,
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
        """Return the ports that this server was planned to listen on."""
        return list(self.plan)

    def reload(self) -> None:
        """Read the TLS certificates again; open connections go on."""
        self.part.tls.reload()

    def observe(self, event: LogEvent) -> None:
        """Pass an event of this process's log to the page."""
        if self.status is not None:
            self.status.observe(event)

    def facts(self) -> dict[str, Any]:
        """Return the real ports, in case a free port was asked for."""
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
