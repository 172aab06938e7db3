"""The port of /metrics: off by default, in the plan of ports, never one of the others."""

import pytest

from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.base.config.load_controller import load_controller
from rmq_ha.base.config.log_format import LogFormat
from rmq_ha.base.config.plans import namesrv_port_plan, port_plan
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError

HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)


def test_it_is_off_without_a_setting_and_then_on_loopback() -> None:
    own = load_broker("", HERE).configuration.ours
    assert (own.metrics_port, own.metrics_address) == (0, "127.0.0.1")
    assert "metrics" not in str(port_plan(load_broker("", HERE).configuration))
    assert len(namesrv_port_plan(load_namesrv("", HERE).configuration)) == 1


def test_it_is_in_the_plan() -> None:
    configuration = load_broker("metricsPort=5557\n", HERE).configuration
    assert port_plan(configuration)[-1] == (5557, "metrics and health (metricsPort)")
    namesrv = load_namesrv("metricsPort=5558\n", HERE).configuration
    assert namesrv_port_plan(namesrv)[-1].port == 5558


def test_the_names_of_metrics_are_this_machines_own_unless_others_are_given() -> None:
    """In all three servers' files."""
    controller = "controllerDLegerPeers=n0-10.1.2.3:9878\ncontrollerDLegerSelfId=n0\n"
    for line, names in (("", "box"), ("metricsHostNames=a.example.com, b\n", "a.example.com, b")):
        assert load_broker(line, HERE).configuration.ours.metrics_host_names == names
        assert load_namesrv(line, HERE).configuration.namesrv.metrics_host_names == names
        own = load_controller(controller + line, HERE).configuration.controller
        assert own.metrics_host_names == names


@pytest.mark.parametrize("port", [10911, 10909, 10912, 9876])
def test_a_port_that_the_broker_takes_itself_stops_the_start(port: int) -> None:
    with pytest.raises(ConfigurationError, match=f"b:1: metricsPort={port}: this port is for "):
        load_broker(f"metricsPort={port}\n", HERE, name="b")


def test_a_name_servers_own_port_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="metricsPort=9876: this port is for brokers"):
        load_namesrv("metricsPort=9876\n", HERE)


def test_the_log_format_is_one_of_two() -> None:
    assert load_broker("", HERE).configuration.ours.log_format is LogFormat.text
    text = "logFormat=json\n"
    assert load_broker(text, HERE).configuration.ours.log_format is LogFormat.json
    assert load_namesrv(text, HERE).configuration.namesrv.log_format is LogFormat.json
    with pytest.raises(ConfigurationError, match="must be one of text, json"):
        load_broker("logFormat=xml\n", HERE)
