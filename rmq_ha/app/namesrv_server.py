"""What `twistd rmqnamesrv` runs."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.app.exposure import exposure
from rmq_ha.config.load import PlannedPort
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

    def start(self) -> Deferred[Any]:
        """Listen."""
        warning = exposure(
            self._configuration.namesrv.bind_address, self._configuration.plugin_options
        )
        if warning:
            self.log.warn("{warning}", warning=warning)
        return self._controller.start()

    def stop(self) -> Deferred[Any]:
        """Close."""
        return self._controller.stop()

    def ports(self) -> list[PlannedPort]:
        """Its one port."""
        port = self._configuration.server.listen_port
        return [PlannedPort(port, "brokers and clients (listenPort)")]

    def reload(self) -> None:
        """New certificates; connections go on."""
        self._controller.tls.reload()

    def facts(self) -> dict[str, Any]:
        """The real port, if any free one was asked for."""
        return {"listenPort": self._controller.port}
