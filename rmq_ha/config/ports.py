"""The ports that a server takes, and that none of them is for two things."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmq_ha.config.settings import Setting

METRICS_PURPOSE = "metrics and health (metricsPort)"


class PlannedPort(NamedTuple):
    """:ivar purpose: who connects to it, and the key that moves it."""

    port: int
    purpose: str


def metrics_port(port: int) -> list[PlannedPort]:
    """The last part of every plan; nothing where it is off."""
    return [PlannedPort(port, METRICS_PURPOSE)] if port else []


def check_metrics_port(plan: Sequence[PlannedPort], settings: Mapping[str, Setting]) -> None:
    """:raises ConfigurationError: it is one of the other ports, too."""
    if plan[-1].purpose != METRICS_PURPOSE:
        return
    for planned in plan[:-1]:
        if planned.port == plan[-1].port:
            raise settings["metricsPort"].error(
                f"this port is for {planned.purpose}; set another, or 0 for no metrics"
            )
