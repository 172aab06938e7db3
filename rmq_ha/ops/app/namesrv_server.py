"""The server that `twistd rmqnamesrv` runs."""

from dataclasses import replace
from typing import Any

from twisted.logger import Logger

from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.config.plans import namesrv_port_plan
from rmq_ha.base.seams import Host
from rmq_ha.ops.app.exposure import controller_exposure, exposure
from rmq_ha.ops.app.lone_server import LoneServer
from rmq_ha.ops.app.namesrv_part import NamesrvPart
from rmq_ha.ops.app.page.port import PageSettings
from rmq_ha.ops.app.page.server_boards import NamesrvBoard
from rmq_ha.ops.app.status.certificates import CertificatesStatus
from rmq_ha.ops.app.status.server import StatusServer


class NamesrvServer(LoneServer):
    """A name server, with or without a controller in it."""

    log = Logger()

    def __init__(self, host: Host, configuration: NamesrvConfiguration) -> None:
        own, options = configuration.namesrv, configuration.plugin_options
        controller = configuration.controller if own.enable_controller_in_namesrv else None
        part = NamesrvPart(host, own, controller, configuration.server, own.bind_address, options)
        part.namesrv.settings.unserved = configuration.unserved
        status = None
        if own.metrics_port:
            page = PageSettings(own.page_token, own.acl_enable, own.acl_enable)
            status = StatusServer(
                host,
                "rmqnamesrv",
                own.metrics_port,
                own.metrics_address,
                page if own.page_enable else None,
                own.metrics_host_names,
            )
            access = part.namesrv.access
            if status.page is not None and access is not None:
                status.page.administrator = access.is_administrator
            part.add_to(status)
            status.add(CertificatesStatus("rmqnamesrv", part.namesrv.tls))
            status.health = part.health
        exposed = exposure(own.bind_address, options, has_acl=own.acl_enable)
        if controller is not None:
            within = replace(controller, acl_enable=own.acl_enable)
            told = (exposed, controller_exposure(own.bind_address, options, within))
            exposed = ". And: ".join(filter(None, told)) or None
        self._part = part
        super().__init__(
            part,
            status,
            namesrv_port_plan(configuration),
            exposed,
            lambda: NamesrvBoard(host, part.namesrv, part.health),
        )

    def facts(self) -> dict[str, Any]:
        return super().facts() | self._part.facts()
