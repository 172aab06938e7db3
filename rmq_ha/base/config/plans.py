"""Lists the ports that each kind of server takes, with the purpose of each port."""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfig, ControllerConfiguration
from rmq_ha.base.config.controller_mode import is_controlled
from rmq_ha.base.config.dledger import dledger_port, is_dledger
from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.config.ports import (
    CONTROLLER_PURPOSE,
    GRPC_PURPOSE,
    SHARED_PURPOSE,
    PlannedPort,
    metrics_port,
)
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.status import BrokerRole

DLEDGER_PURPOSE = "the DLedger group's other members (dLegerPeers)"


def embeds_namesrv(configuration: BrokerConfiguration) -> bool:
    """
    Whether a broker runs a name server in its process.

    It does where its configuration names no name server and it is a master that nobody elects, or
    where it runs a controller, which needs a name server around it.
    """
    return configuration.ours.enable_controller_in_namesrv or (
        configuration.broker.namesrv_addr is None
        and configuration.store.broker_role is not BrokerRole.SLAVE
        and not is_dledger(configuration)
        and not is_controlled(configuration)
    )


def port_plan(configuration: BrokerConfiguration) -> list[PlannedPort]:
    """Return every port that a broker takes."""
    port = configuration.server.listen_port
    grpc = configuration.ours.grpc_server_port
    plan = [
        PlannedPort(port, SHARED_PURPOSE if grpc == port else "clients (listenPort)"),
        PlannedPort(port - 2, "clients' fast port, no pulls (listenPort - 2)"),
    ]
    if is_dledger(configuration):
        plan.append(PlannedPort(dledger_port(configuration), DLEDGER_PURPOSE))
    else:
        plan.append(PlannedPort(port + 1, "replication (listenPort + 1)"))
    if embeds_namesrv(configuration):
        embedded = configuration.ours.embedded_namesrv_port
        plan.append(PlannedPort(embedded, "embedded name server (embeddedNamesrvPort)"))
    if configuration.ours.enable_controller_in_namesrv:
        plan.append(_controller_port(configuration.controller))
    if grpc not in (0, port):
        plan.append(PlannedPort(grpc, GRPC_PURPOSE))
    return plan + metrics_port(configuration.ours.metrics_port)


def namesrv_port_plan(configuration: NamesrvConfiguration) -> list[PlannedPort]:
    """Return every port that a name server takes."""
    plan = [PlannedPort(configuration.server.listen_port, "brokers and clients (listenPort)")]
    if configuration.namesrv.enable_controller_in_namesrv:
        plan.append(_controller_port(configuration.controller))
    return plan + metrics_port(configuration.namesrv.metrics_port)


def controller_port_plan(configuration: ControllerConfiguration) -> list[PlannedPort]:
    """Return every port that a controller takes."""
    plan = [_controller_port(configuration.controller)]
    return plan + metrics_port(configuration.controller.metrics_port)


def _controller_port(own: ControllerConfig) -> PlannedPort:
    """Return the port of the controller's own entry in controllerDLegerPeers."""
    address = parse_peers(own.controller_dleger_peers)[own.controller_dleger_self_id]
    return PlannedPort(parse_host_port(address).port, CONTROLLER_PURPOSE)
