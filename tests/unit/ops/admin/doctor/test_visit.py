"""What a visit says besides its findings: who was looked at, what could not be, exit codes."""

from __future__ import annotations

from typing import Any

import click
import pytest
from twisted.internet.defer import Deferred

from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.doctor.before_start import CODES
from rmq_ha.ops.admin.doctor.brokers import _clock_of, metrics_at
from rmq_ha.ops.admin.doctor.command import doctor, examine
from rmq_ha.ops.admin.doctor.gather import DoctorScope
from rmq_ha.ops.admin.doctor.probe import Page, page_in
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import NO_ANSWER, NOT_FOUND, Session
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.doctor.fleet import STATUS_PORT, Fleet, whole_pair
from tests.unit.ops.admin.doctor_facts import MASTER, NOW, broker


def test_a_healthy_pair_and_what_could_not_be_looked_at() -> None:
    fleet = whole_pair()
    visit = fleet.is_well()
    assert visit.said.code == 0
    assert visit.said.json["healthy"]
    assert visit.said.json["brokers"] == 2
    about = f"/healthz and /metrics of pair {fleet.address('a')}"
    assert visit.not_looked[about] == "metricsPort is not set there"
    assert "files of this machine" in visit.not_looked
    text = say(fleet, lambda s: examine(s, DoctorScope()), as_json=False).out
    assert "one-name-server: run a second name server" in text
    assert "not looked at, because" in text
    assert "nothing to do" in text


def test_nobody_answers() -> None:
    fleet = whole_pair()
    visit = fleet.visit(namesrv="10.9.9.9:1;nosuchname:1")
    assert visit.said.code == NO_ANSWER
    assert visit.codes("error") == {"name-server-silent", "name-unresolved"}


def test_one_broker_by_its_address() -> None:
    """Without name servers, which is said; an address that is none is a finding."""
    fleet = whole_pair()
    visit = fleet.is_well(which=fleet.address("b"), namesrv="")
    assert "name servers" in visit.not_looked
    visit = fleet.visit(fleet.namesrv.address)
    assert (visit.said.code, visit.codes("warning")) == (NO_ANSWER, {"not-allowed"})
    said = say(fleet, lambda s: examine(s, DoctorScope("other")))
    assert said.code == NOT_FOUND
    assert "brokers: pair" in said.err


def test_metrics_are_read_as_numbers() -> None:
    fleet = whole_pair(watched=True)
    session = Session(fleet.world.hosts["admin"].seams, Options(), Output(True))
    found = metrics_at(session, f"{fleet.hosts['a'].ip}:{STATUS_PORT}")
    metrics = fleet.wait(Deferred.fromCoroutine(found))
    assert metrics["rmqha_replication_slaves"][0][1] == 1
    assert "rmqha_forced_deletions_total" in metrics


@pytest.mark.parametrize(
    "text", ["hello\r\n\r\n", "HTTP/1.0 2000 OK\r\n\r\n", "HTTP/1.0 200 OK", "x 20x"]
)
def test_what_is_no_page_is_said(text: str) -> None:
    with pytest.raises(OSError, match="does not speak HTTP"):
        page_in(text.encode())


def test_a_page_is_read_and_an_empty_answer_is_none() -> None:
    page = page_in(b"HTTP/1.0 503 No\r\nX-Y: z\r\n\r\nnot ready: disk")
    assert page == Page(503, {"x-y": "z"}, "not ready: disk")
    with pytest.raises(OSError, match="the connection ended early"):
        page_in(b"")


@pytest.mark.parametrize(
    ("boot_s", "runs_s", "ahead_ms"), [(-100, 100, 500), (-100, 160, 60_500), (-160, 100, -59_500)]
)
def test_the_clock_of_one_of_java_is_its_start_and_how_long_it_runs(
    boot_s: int, runs_s: int, ahead_ms: int
) -> None:
    java = broker(MASTER)
    minutes, seconds = divmod(runs_s, 60)
    java.replication, java.clock_ahead_ms = {}, None
    java.info["runtime"] = f"[ 0 days, 0 hours, {minutes} minutes, {seconds} seconds ]"
    java.info["bootTimestamp"] = str(NOW + boot_s * 1000)
    _clock_of(java, NOW)
    assert java.clock_ahead_ms == ahead_ms


def test_a_broker_that_tells_a_part_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which part of it nobody looked at is said, and why."""
    fleet = whole_pair()

    def refuse(address: str) -> Any:
        raise BrokerRefused(1, "no topics today", address)
        yield

    monkeypatch.setattr("rmq_ha.ops.admin.doctor.brokers.topic_table", refuse)
    visit = fleet.visit()
    why = visit.not_looked[f"parts of pair {fleet.address('a')}"]
    assert "no topics today" in why


def test_what_may_be_left_out() -> None:
    """And what is given is looked for."""
    given = doctor.make_context("doctor", []).params
    assert (given["which"], given["config"], given["store"]) == ("", None, None)
    with pytest.raises(click.UsageError, match="does not exist"):
        doctor.make_context("doctor", ["--config", "/no/such.properties"])


def test_before_a_start_fewer_rules_are_asked() -> None:
    """All of them are rules of `doctor`."""
    fleet = Fleet("a")
    visit = fleet.visit(**fleet.before("a", fleet.file_of("a", "brokerName=new")))
    assert visit.said.json["rules"] == len(CODES)
    assert {rule.code for rule in RULES} >= set(CODES)
