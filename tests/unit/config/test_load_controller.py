"""A controller's properties file."""

from __future__ import annotations

import pytest

from rmq_ha.app.check import check_report
from rmq_ha.config.load_controller import LoadedController, controller_port_plan, load_controller
from rmq_ha.config.surroundings import Surroundings
from rmq_ha.controller.settings import group_settings
from rmq_ha.errors import ConfigurationError

HERE = Surroundings({}, "/home/u", "h", "10.0.0.1", "/run")
THREE = "n0-10.0.0.1:9878;n1-10.0.0.2:9879;n2-10.0.0.3:9880"


def load(**settings: str) -> LoadedController:
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    return load_controller(text, HERE, name="controller.conf")


def test_paths_and_port() -> None:
    configuration, notices = load(controllerDLegerPeers=THREE, controllerDLegerSelfId="n1")
    own = configuration.controller
    assert own.controller_store_path == "/home/u/DLedgerController"
    assert own.config_store_path == "/run/controller.conf"
    assert configuration.server.listen_port == 9879
    assert notices == []
    settings = group_settings(own)
    assert (settings.self_id, settings.others, settings.quorum) == ("n1", ("n0", "n2"), 2)
    assert settings.sync_before_ack


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "controllerDLegerPeers is empty"),
        ({"controllerDLegerPeers": "10.0.0.1:9878"}, "controllerDLegerPeers: '10.0.0.1:9878'"),
        (
            {"controllerDLegerPeers": THREE, "controllerDLegerSelfId": "n7"},
            "controllerDLegerSelfId=n7 is not in controllerDLegerPeers",
        ),
        (
            {"controllerDLegerPeers": THREE, "controllerType": "jRaft"},
            "only DLedger is implemented",
        ),
        (
            {"controllerDLegerPeers": THREE, "scanNotActiveBrokerInterval": "0"},
            "scanNotActiveBrokerInterval",
        ),
    ],
)
def test_what_does_not_fit_is_named(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        load(**settings)


def test_check_says_what_a_start_would_do() -> None:
    configuration, notices = load(
        controllerDLegerPeers=THREE, metricsPort="5558", isProcessReadEvent="true"
    )
    (unknown,) = notices
    assert unknown.is_unknown
    assert "isProcessReadEvent" in unknown.text
    assert [item.port for item in controller_port_plan(configuration)] == [9878, 5558]
    lines = check_report(configuration, notices)
    assert f"controllerDLegerPeers={THREE}" in lines
    assert "# port 5558: metrics and health (metricsPort)" in lines


def test_the_port_of_metrics_is_none_of_the_others() -> None:
    with pytest.raises(ConfigurationError, match="conf:2: metricsPort=9878: this port is for bro"):
        load(controllerDLegerPeers="n0-127.0.0.1:9878", metricsPort="9878")
