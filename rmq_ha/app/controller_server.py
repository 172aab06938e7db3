"""What `twistd rmqcontroller` runs."""

from twisted.logger import Logger

from rmq_ha.app.exposure import exposure
from rmq_ha.app.lone_server import LoneServer
from rmq_ha.app.page.other import ControllerBoard
from rmq_ha.app.page.port import PageSettings
from rmq_ha.app.status.certificates import CertificatesStatus
from rmq_ha.app.status.health import Health
from rmq_ha.app.status.server import StatusServer
from rmq_ha.config.controller import ControllerConfiguration
from rmq_ha.config.plans import controller_port_plan
from rmq_ha.controller.service import ControllerService
from rmq_ha.seams import Host


class ControllerServer(LoneServer):
    """A controller alone."""

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
        exposed = exposure(own.bind_address, options)
        super().__init__(
            part,
            status,
            controller_port_plan(configuration),
            exposed,
            lambda: ControllerBoard(host, part),
        )
