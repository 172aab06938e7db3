"""What `twistd rmqnamesrv` runs."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.app.exposure import exposure
from rmq_ha.app.status.health import Health
from rmq_ha.app.status.namesrv import NamesrvStatus
from rmq_ha.app.status.server import StatusServer
from rmq_ha.config.load import PlannedPort, namesrv_port_plan
from rmq_ha.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.namesrv.controller import NamesrvController
from rmq_ha.seams import Host


class NamesrvServer:
    """A name server alone."""

    log = Logger()

    def __init__(self, host: Host, configuration: NamesrvConfiguration) -> None:
        self._configuration = configuration
        self._controller = NamesrvController(
            host,
            configuration.namesrv,
            configuration.server,
            interface=configuration.namesrv.bind_address,
            tls=configuration.plugin_options,
        )
        self._status: StatusServer | None = None
        own = configuration.namesrv
        if own.metrics_port:
            status = NamesrvStatus(host, self._controller)
            self._status = StatusServer(host, "rmqnamesrv", own.metrics_port, own.metrics_address)
            self._status.add(status)
            self._status.health = status.health

    def start(self) -> Deferred[Any]:
        """Listen."""
        own, options = self._configuration.namesrv, self._configuration.plugin_options
        warning = exposure(own.bind_address, options, has_acl=own.acl_enable)
        if warning:
            self.log.warn("{warning}", warning=warning)
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[Any]:
        """Close."""
        return Deferred.fromCoroutine(self._stop())

    def ports(self) -> list[PlannedPort]:
        """Those that it was planned to take."""
        return namesrv_port_plan(self._configuration)

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
