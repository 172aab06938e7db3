"""What `twistd rmqcontroller` runs."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.app.exposure import exposure
from rmq_ha.app.status.health import Health
from rmq_ha.app.status.server import StatusServer
from rmq_ha.config.controller import ControllerConfiguration
from rmq_ha.config.load import PlannedPort
from rmq_ha.config.load_controller import controller_port_plan
from rmq_ha.controller.service import ControllerService
from rmq_ha.seams import Host


class ControllerServer:
    """A controller alone."""

    log = Logger()

    def __init__(self, host: Host, configuration: ControllerConfiguration) -> None:
        self._configuration = configuration
        own = configuration.controller
        self._controller = ControllerService(
            host, own, configuration.server, configuration.plugin_options
        )
        self._status: StatusServer | None = None
        if own.metrics_port:
            self._status = StatusServer(
                host, "rmqcontroller", own.metrics_port, own.metrics_address
            )
            self._status.health = lambda: Health(*self._controller.state())

    def start(self) -> Deferred[Any]:
        """Listen."""
        warning = exposure(
            self._configuration.controller.bind_address, self._configuration.plugin_options
        )
        if warning:
            self.log.warn("{warning}", warning=warning)
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[Any]:
        """Close."""
        return Deferred.fromCoroutine(self._stop())

    def ports(self) -> list[PlannedPort]:
        """Those that it was planned to take."""
        return controller_port_plan(self._configuration)

    def reload(self) -> None:
        """New certificates; connections go on."""
        self._controller.tls.reload()

    def facts(self) -> dict[str, Any]:
        """The real ports, if any free one was asked for."""
        facts = {"listenPort": self._controller.port}
        if self._status is not None:
            facts["metricsPort"] = self._status.port
        return facts

    async def _start(self) -> None:
        if self._status is not None:
            await self._status.start()
        await self._controller.start()

    async def _stop(self) -> None:
        if self._status is not None:
            self._status.withdraw(Health(False, "stopping"))
        try:
            await self._controller.stop()
        finally:
            if self._status is not None:
                await self._status.stop()
