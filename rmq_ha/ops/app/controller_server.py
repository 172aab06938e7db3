"""The server that `twistd rmqcontroller` runs."""

from twisted.logger import Logger

from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.plans import controller_port_plan
from rmq_ha.base.seams import Host
from rmq_ha.ops.app.exposure import controller_exposure
from rmq_ha.ops.app.lone_server import LoneServer
from rmq_ha.ops.app.page.port import PageSettings
from rmq_ha.ops.app.page.server_boards import ControllerBoard
from rmq_ha.ops.app.status.certificates import CertificatesStatus
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.server import StatusServer
from rmq_ha.server.controller.service import ControllerService


class ControllerServer(LoneServer):
    log = Logger()

    def __init__(self, host: Host, configuration: ControllerConfiguration) -> None:
        own, options = configuration.controller, configuration.plugin_options
        part = ControllerService(host, own, configuration.server, options)
        status = None
        if own.metrics_port:
            status = StatusServer(
                host,
                "rmqcontroller",
                own.metrics_port,
                own.metrics_address,
                PageSettings(own.page_token) if own.page_enable else None,
                own.metrics_host_names,
            )
            status.add(CertificatesStatus("rmqcontroller", part.tls))
            status.health = lambda: Health(*part.state())
        exposed = controller_exposure(own.bind_address, options, own)
        super().__init__(
            part,
            status,
            controller_port_plan(configuration),
            exposed,
            lambda: ControllerBoard(host, part),
        )
