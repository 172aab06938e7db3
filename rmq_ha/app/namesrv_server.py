"""What `twistd rmqnamesrv` runs."""

from twisted.logger import Logger

from rmq_ha.app.exposure import exposure
from rmq_ha.app.lone_server import LoneServer
from rmq_ha.app.status.certificates import CertificatesStatus
from rmq_ha.app.status.namesrv import NamesrvStatus
from rmq_ha.app.status.server import StatusServer
from rmq_ha.config.load import namesrv_port_plan
from rmq_ha.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.namesrv.controller import NamesrvController
from rmq_ha.seams import Host


class NamesrvServer(LoneServer):
    """A name server alone."""

    log = Logger()

    def __init__(self, host: Host, configuration: NamesrvConfiguration) -> None:
        own, options = configuration.namesrv, configuration.plugin_options
        part = NamesrvController(
            host, own, configuration.server, interface=own.bind_address, tls=options
        )
        status = None
        if own.metrics_port:
            told = NamesrvStatus(host, part)
            status = StatusServer(host, "rmqnamesrv", own.metrics_port, own.metrics_address)
            status.add(told)
            status.add(CertificatesStatus("rmqnamesrv", part.tls))
            status.health = told.health
        exposed = exposure(own.bind_address, options, has_acl=own.acl_enable)
        super().__init__(part, status, namesrv_port_plan(configuration), exposed)
