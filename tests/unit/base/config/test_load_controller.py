"""A controller's properties file."""

from __future__ import annotations

import pytest

from rmq_ha.base.config.load import load_broker, load_namesrv, render
from rmq_ha.base.config.load_controller import LoadedController, load_controller
from rmq_ha.base.config.plans import (
    controller_port_plan,
    embeds_namesrv,
    namesrv_port_plan,
    port_plan,
)
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.app.check import check_report
from rmq_ha.server.controller.settings import group_settings

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


WITHIN = {
    "enableControllerInNamesrv": "true",
    "controllerDLegerPeers": THREE,
    "controllerDLegerSelfId": "n1",
}
BROKER = {"enableControllerMode": "true", "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876"}


def text(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def test_a_name_server_has_a_controller_by_the_same_keys() -> None:
    configuration, notices = load_namesrv(text(WITHIN | {"metricsPort": "5557"}), HERE, name="n")
    assert notices == []
    assert [item.port for item in namesrv_port_plan(configuration)] == [9876, 9879, 5557]
    assert configuration.controller.controller_store_path == "/home/u/DLedgerController"
    assert f"controllerDLegerPeers={THREE}" in render(configuration)
    assert "# port 9879: brokers, tools" in "\n".join(check_report(configuration, notices))


def test_so_has_the_one_that_a_broker_embeds_beside_others() -> None:
    configuration, notices = load_broker(text(WITHIN | BROKER), HERE, name="b")
    assert notices == []
    assert embeds_namesrv(configuration)
    assert [item.port for item in port_plan(configuration)] == [10911, 10909, 10912, 9876, 9879]
    assert configuration.controlled.controllers == (
        "10.0.0.1:9878",
        "10.0.0.2:9879",
        "10.0.0.3:9880",
    )
    assert configuration.broker.namesrv_addr == BROKER["namesrvAddr"]
    alone = load_broker(text(WITHIN | {"enableControllerMode": "true"}), HERE)
    assert alone.notices == []


def test_without_the_switch_nobody_reads_a_controllers_keys() -> None:
    settings = {"controllerDLegerPeers": THREE, "bindAddress": "127.0.0.1"}
    for load_it in (load_namesrv, load_broker):
        configuration, (notice,) = load_it(text(settings), HERE, name="n")
        assert notice.is_unknown
        assert notice.text == (
            "n:1: controllerDLegerPeers has no effect without enableControllerInNamesrv=true"
        )
        assert "controllerDLegerPeers" not in "".join(render(configuration))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"controllerDLegerSelfId": "n7"}, "controllerDLegerSelfId=n7 is not in"),
        ({"controllerDLegerPeers": ""}, "controllerDLegerPeers is empty"),
        (
            {"controllerDLegerPeers": "n1-h:8000", "listenPort": "8000"},
            "own entry's port 8000",
        ),
        ({"metricsPort": "9879"}, "this port is for brokers, tools"),
    ],
)
def test_what_does_not_fit_is_named_there_too(settings: dict[str, str], reason: str) -> None:
    for load_it in (load_namesrv, load_broker):
        with pytest.raises(ConfigurationError, match=reason):
            load_it(text(WITHIN | settings), HERE, name="n")
