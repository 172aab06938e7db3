"""The port for RocketMQ 5's clients is a port of its own, or the port of remoting's clients."""

import pytest

from rmq_ha.base.config.load import load_broker
from rmq_ha.base.config.plans import port_plan
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError

HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)


def test_a_port_of_its_own_is_in_the_plan() -> None:
    plan = port_plan(load_broker("grpcServerPort=8081\n", HERE).configuration)
    assert (8081, "clients of RocketMQ 5 (grpcServerPort)") in plan


def test_the_shared_port_is_in_the_plan_once() -> None:
    plan = port_plan(load_broker("grpcServerPort=10911\n", HERE).configuration)
    assert [port for port, _ in plan].count(10911) == 1
    assert plan[0] == (10911, "clients, and clients of RocketMQ 5 (listenPort, grpcServerPort)")


@pytest.mark.parametrize("port", [10909, 10912, 5557])
def test_a_port_with_another_purpose_is_refused(port: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"{port}.*this port is for"):
        load_broker(f"grpcServerPort={port}\nmetricsPort=5557\n", HERE)


def test_the_shared_port_is_not_for_metrics() -> None:
    with pytest.raises(ConfigurationError, match="metricsPort"):
        load_broker("grpcServerPort=10911\nmetricsPort=10911\n", HERE)
