"""The name server of a process, with or without a controller in it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.seams import Host
from rmq_ha.ops.app.status.certificates import CertificatesStatus
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.namesrv import NamesrvStatus
from rmq_ha.ops.app.status.server import StatusServer
from rmq_ha.server.controller.service import ControllerService
from rmq_ha.server.controller.settings import group_settings
from rmq_ha.server.namesrv.namesrv import Namesrv


class NamesrvPart:
    """
    Starts the name server first and stops it last: brokers look for both as soon as the name server
    answers.

    :param controller: the controller; None: none.
    :param interface: the address that both listen on, so that no more machines reach the controller
        than its name server. Both accept signatures of the same accounts.
    :ivar namesrv: the name server.
    :ivar controller: the controller; None: it was not asked for.
    """

    def __init__(
        self,
        host: Host,
        namesrv: NamesrvConfig,
        controller: ControllerConfig | None,
        server: NettyServerConfig,
        interface: str,
        tls: Mapping[str, str],
    ) -> None:
        peers = () if controller is None else group_settings(controller).peers.values()
        self.namesrv = Namesrv(host, namesrv, server, interface, tls, tuple(peers))
        self.controller: ControllerService | None = None
        self._status = NamesrvStatus(host, self.namesrv)
        if controller is not None:
            within = replace(
                controller,
                bind_address=interface,
                acl_enable=namesrv.acl_enable,
                acl_directory=namesrv.acl_directory,
            )
            self.controller = ControllerService(host, within, server, tls)
            self.controller.settings.file = self.namesrv.settings.file

    @property
    def port(self) -> int:
        return self.namesrv.port

    @property
    def tls(self) -> "NamesrvPart":
        return self

    def reload(self) -> None:
        """Read the TLS certificates again; open connections go on."""
        self.namesrv.tls.reload()
        if self.controller is not None:
            self.controller.tls.reload()

    def start(self) -> Deferred[Any]:
        """Start; the Deferred fires when both listen."""
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[Any]:
        """Stop; the Deferred fires when both are closed."""
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        await self.namesrv.start()
        if self.controller is not None:
            await self.controller.start()

    async def _stop(self) -> None:
        try:
            if self.controller is not None:
                await self.controller.stop()
        finally:
            await self.namesrv.stop()

    def add_to(self, status: StatusServer) -> None:
        """
        Add the metrics of the name server, and the certificates of the controller, to the status
        port.
        """
        status.add(self._status)
        if self.controller is not None:
            status.add(CertificatesStatus("rmqcontroller", self.controller.tls))

    def health(self) -> Health:
        """Return whether clients, and brokers in controller mode, can be served."""
        own, told = self._status.health(), self.controller_health()
        return own if told is None else own.combine(told)

    def controller_health(self) -> Health | None:
        """Return the controller's health; None without a controller."""
        if self.controller is None:
            return None
        is_ready, why = self.controller.state()
        return Health(is_ready, f"controller: {why}")

    def facts(self) -> dict[str, Any]:
        """Return the controller's port, if the process has a controller."""
        return {} if self.controller is None else {"controllerPort": self.controller.port}
