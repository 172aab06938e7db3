"""What is told of a set in controller mode, of a name server, and of ports that are open."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfig, ControllerConfiguration
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.ops.app.exposure import controller_exposure, group_exposure, replication_exposure
from rmq_ha.ops.app.journals.controller_mode import collect_set, set_health
from rmq_ha.ops.app.make import _own_settings
from rmq_ha.ops.app.page.board import certificates
from rmq_ha.ops.app.status.certificates import CertificatesStatus
from rmq_ha.ops.app.status.namesrv import MOST_BROKERS, NamesrvStatus
from rmq_ha.server.replication.statistics import MasterStatistics, SetStatistics
from tests.kits.scrapes import scraped

LINK = MasterStatistics(address="m:1", state="following", alone_seconds=9.0)
SET = SetStatistics(broker_id=2, epoch=5, in_sync=[3, 1], master=LINK)


@pytest.mark.parametrize(
    ("found", "why", "is_ready", "line"),
    [
        ({"leads": True}, "", True, "b: id 2, epoch 5: leads; in sync: 1, 3"),
        ({"leads": True}, "full", False, "b: id 2, epoch 5: leads, but no puts: full"),
        ({"broker_id": None, "epoch": -1, "master": None}, "x", False, "b: no id yet, epoch 0: x"),
        ({"is_in_sync": True}, "", True, "b: id 2, epoch 5: following m:1"),
        ({}, "", True, "b: id 2, epoch 5: following m:1"),
        ({"master": replace(LINK, fault="f")}, "", False, "epoch 5: does not follow m:1: f"),
        ({"master": replace(LINK, state="lost")}, "", True, "serves reads, but does not follow"),
    ],
)
def test_health_of_a_set(found: dict[str, Any], why: str, is_ready: bool, line: str) -> None:
    health = set_health("b", replace(SET, **found), why)
    assert health.is_ready is is_ready
    assert line in health.reason
    is_behind = found.get("leads") is None and "is_in_sync" not in found
    assert health.placed().is_ready is (is_ready and not is_behind)


@pytest.mark.parametrize(("epoch", "shown"), [(5, 5.0), (-1, 0.0)])
def test_numbers_of_a_set(epoch: int, shown: float) -> None:
    told = replace(SET, epoch=epoch, has_lease=True, unconfirmed=7, elections=4)
    found = scraped(lambda samples: collect_set(samples, told))
    assert {name.removeprefix("rmqha_controller_"): row[0][1] for name, row in found.items()} == {
        "epoch": shown, "is_master": 0, "has_lease": 1, "in_sync": 2, "unconfirmed_bytes": 7,
        "role_changes": 4,
    }  # fmt: skip


def test_numbers_and_health_of_a_name_server() -> None:
    live = {f"b{number}:1": 90.0 + number for number in range(MOST_BROKERS + 5)}
    namesrv: Any = SimpleNamespace(
        routes=SimpleNamespace(
            registrations=lambda: live, topics=lambda: ["a", "b"], rivals=lambda now: [now],
            claims=SimpleNamespace(takeovers=8),
        ),
        addresses=SimpleNamespace(refused=3), access=None, connections=6,
        refused_registrations=7, dropped_frames={"x": 1, "y": 2}, port=0,
    )  # fmt: skip
    status = NamesrvStatus(SimpleNamespace(clock=SimpleNamespace(seconds=lambda: 95.0)), namesrv)  # type: ignore[arg-type]
    found = scraped(status.collect)
    ages = found.pop("rmqha_namesrv_registration_age_seconds")
    assert [age for _, age in ages[:7]] == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0, 0.0]
    assert len(ages) == MOST_BROKERS
    frames = found.pop("rmqha_namesrv_dropped_frames")
    assert sorted(count for _, count in frames) == [1, 2]
    assert {name.removeprefix("rmqha_namesrv_"): row[0][1] for name, row in found.items()} == {
        "brokers": MOST_BROKERS + 5, "topics": 2, "refused": 3, "connections": 6,
        "refused_registrations": 7, "takeovers": 8, "rivals": 1,
    }  # fmt: skip
    assert (status.health().is_ready, status.health().reason) == (
        False,
        "the name server does not listen",
    )
    namesrv.port = 9876
    assert (status.health().is_ready, status.health().reason) == (
        True,
        f"{len(live)} brokers are registered",
    )


def test_certificates_that_end_first_are_scraped() -> None:
    ends = {("setting", f"who{number}"): 1000 - number for number in range(60)}
    tls: Any = SimpleNamespace(certificates=lambda: ends)
    (rows,) = scraped(CertificatesStatus("rmqha", tls).collect).values()
    assert [end for _, end in rows] == sorted(ends.values())[:50]
    shown = certificates(ends)
    assert [item.ends_ms for item in shown] == [end * 1000 for end in sorted(ends.values())][
        : len(shown)
    ]


ENFORCING = {"tls.ha.mode": "enforcing", "tls.server.mode": "enforcing"}


@pytest.mark.parametrize(
    ("address", "options", "is_open"),
    [("", {}, True), ("10.0.0.1", {}, True), ("127.0.0.1", {}, False), ("", ENFORCING, False)],
)
def test_an_open_port_of_a_group_of_a_controller_and_for_slaves_is_warned_of(
    address: str, options: dict[str, str], is_open: bool
) -> None:
    where = "on 10.0.0.1 " if address == "10.0.0.1" else "on all addresses "
    for warning in (
        group_exposure(address, options, 4),
        replication_exposure(address, options, 4, ""),
    ):
        assert (warning is not None) is is_open
        assert warning is None or f"port 4 {where}" in warning
    assert replication_exposure(address, options, 4, "10.0.0.7") is None
    controller = ControllerConfig()
    told = controller_exposure(address, options, controller)
    assert (told is not None) is is_open
    assert told is None or "set controllerAllowedBrokers" in told
    controller.controller_allowed_brokers = "10.0.0.7"
    assert controller_exposure(address, options, controller) is None
    controller.controller_open_to_all = True
    assert "Remove it" in (controller_exposure(address, options, controller) or "")


def test_each_server_has_settings_of_its_own() -> None:
    broker, namesrv, controller = (
        BrokerConfiguration(),
        NamesrvConfiguration(),
        ControllerConfiguration(),
    )
    assert _own_settings(broker) is broker.ours
    assert _own_settings(namesrv) is namesrv.namesrv
    assert _own_settings(controller) is controller.controller
