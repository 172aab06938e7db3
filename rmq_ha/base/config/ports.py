"""The ports that a server takes, and the check that no port has two purposes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmq_ha.base.config.settings import Setting

CONTROLLER_PURPOSE = "brokers, tools and the other controllers (controllerDLegerPeers)"
GRPC_PURPOSE = "clients of RocketMQ 5 (grpcServerPort)"
SHARED_PURPOSE = "clients, and clients of RocketMQ 5 (listenPort, grpcServerPort)"
METRICS_PURPOSE = "metrics and health (metricsPort)"


class PlannedPort(NamedTuple):
    """
    A port that a server takes.

    :ivar purpose: who connects to the port, and the key that moves it.
    """

    port: int
    purpose: str


def metrics_port(port: int) -> list[PlannedPort]:
    """Return the last part of every plan: the port of the metrics; empty where it is 0."""
    return [PlannedPort(port, METRICS_PURPOSE)] if port else []


def check_metrics_port(plan: Sequence[PlannedPort], settings: Mapping[str, Setting]) -> None:
    """
    Check that metricsPort is not another port of the server.

    :raises ConfigurationError: two ports are the same.
    """
    if plan[-1].purpose != METRICS_PURPOSE:
        return
    for planned in plan[:-1]:
        if planned.port == plan[-1].port:
            raise settings["metricsPort"].error(
                f"this port is for {planned.purpose}; set another, or 0 for no metrics"
            )


def check_grpc_port(plan: Sequence[PlannedPort], settings: Mapping[str, Setting]) -> None:
    """
    Check that grpcServerPort is listenPort, or no other port of the broker.

    :raises ConfigurationError: two ports are the same.
    """
    own = [planned.port for planned in plan if planned.purpose == GRPC_PURPOSE]
    for planned in plan:
        if planned.port in own and planned.purpose not in (GRPC_PURPOSE, METRICS_PURPOSE):
            raise settings["grpcServerPort"].error(
                f"this port is for {planned.purpose}; set another, such as 8081, or listenPort's"
            )


def check_controller_port(plan: Sequence[PlannedPort], settings: Mapping[str, Setting]) -> None:
    """
    Check that a controller's own port is not another port of its name server.

    :raises ConfigurationError: two ports are the same.
    """
    own = [planned.port for planned in plan if planned.purpose == CONTROLLER_PURPOSE]
    for planned in plan:
        if planned.port in own and planned.purpose not in (CONTROLLER_PURPOSE, METRICS_PURPOSE):
            raise settings["controllerDLegerPeers"].error(
                f"the own entry's port {planned.port} is for {planned.purpose}; give it another"
            )
