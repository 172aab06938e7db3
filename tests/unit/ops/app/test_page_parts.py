"""What the page says of other machines and of certificates, and how seldom it asks."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.app.page.board import CERTIFICATE_S, certificate_notices
from rmq_ha.ops.app.page.fleet import EVERY_S, MOST_MACHINES, Fleet, page_address, with_distance
from rmq_ha.ops.app.page.values import Certificate, MachineRow, Tone
from rmq_ha.testing.host import World

DAY_S = 86_400


@pytest.mark.parametrize(
    ("left_s", "text", "tone"),
    [
        (-1, "has ended", Tone.ERROR),
        (0, "ends in 0 days", Tone.WARN),
        (DAY_S - 1, "ends in 0 days", Tone.WARN),
        (DAY_S, "ends in 1 days", Tone.WARN),
        (CERTIFICATE_S - 1, "ends in 13 days", Tone.WARN),
        (CERTIFICATE_S, "", None),
    ],
)
def test_a_certificate_that_ends_is_said_in_time(left_s: int, text: str, tone: Any) -> None:
    sound = Certificate("tls.other", "b", 10**12)
    found = certificate_notices(
        [Certificate("tls.server.certPath", "a", 5_000 + left_s * 1000), sound], 5_000
    )
    assert [(item.text, item.tone) for item in found] == (
        [(f"tls.server.certPath (a) {text}", tone)] if text else []
    )


class Asked:
    """Answers of a name server and of brokers; None: nobody is there."""

    def __init__(self, brokers: int | None = 2) -> None:
        self.world = World(1)
        self.host = self.world.add("here")
        self.brokers = brokers
        self.servers = ["ns:9876"]
        self.calls: list[str] = []
        self.pending: list[Deferred[Any]] = []
        self.holds = False
        own = MachineRow(set_name="b0", broker_id=0, address="b0:1", log_end=7, role="here")
        self.fleet = Fleet(self.host.seams, self, lambda: self.servers, lambda: own)  # type: ignore[arg-type]

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> Deferred[Any]:
        self.calls.append(address)
        if self.holds:
            self.pending.append(Deferred())
            return self.pending[-1]
        if self.brokers is None or address == "b2:1":
            raise RemotingTimeout(f"{address} is silent")
        if address.startswith("ns"):
            names = [f"b{number}" for number in range(self.brokers)]
            table = {name: {"brokerName": name, "brokerAddrs": {0: f"{name}:1"}} for name in names}
            body = {"brokerAddrTable": table, "clusterAddrTable": {"c": names}}
        else:
            numbers = {"putTps": "1.5 2 3", "commitLogMaxOffset": "40", "getTransferedTps": "no"}
            body = {"table": numbers}
        return succeed(RemotingCommand(0, None, fastjson.encode(body)))


def advance(asked: Asked, seconds: float) -> None:
    asked.world.clock.run_for(seconds)


def test_machines_are_asked_while_somebody_looks_and_not_more_often_than_that() -> None:
    asked = Asked(3)
    asked.fleet.look()
    first = ["ns:9876", "b1:1", "b1:1", "b2:1", "b2:1"]
    assert asked.calls == first, "nobody asks himself; others are asked for their pages, too"
    mine, other, silent = asked.fleet.machines
    assert mine.role == "here"
    assert (other.set_name, other.cluster, other.role) == ("b1", "c", "master")
    assert other.tone is Tone.GOOD
    assert (other.put_rate, other.get_rate, other.log_end) == (1.5, None, 40)
    assert (silent.tone, silent.note) == (Tone.ERROR, "b2:1 is silent")
    assert (silent.role, silent.cluster, silent.broker_id) == ("master", "c", 0)
    assert asked.fleet.note == ""
    asked.fleet.look()
    advance(asked, EVERY_S - 0.1)
    asked.fleet.look()
    assert len(asked.calls) == 5
    advance(asked, 0.2)
    asked.fleet.look()
    assert len(asked.calls) == 8, "where a page is, is asked once in ten minutes"


@pytest.mark.parametrize(
    ("port", "listens_on", "own", "page"),
    [
        ("5557", "", "10.0.0.1:10911", "http://10.0.0.2:5557/"),
        ("5557", "0.0.0.0", "10.0.0.1:10911", "http://10.0.0.2:5557/"),
        ("5557", "10.7.0.2", "10.0.0.1:10911", "http://10.7.0.2:5557/"),
        ("5557", "127.0.0.1", "10.0.0.1:10911", ""),
        ("5557", "127.0.0.1", "10.0.0.2:10921", "http://127.0.0.1:5557/"),
        ("0", "", "10.0.0.1:10911", ""),
    ],
)
def test_a_broker_links_to_pages_that_others_reach(
    port: str, listens_on: str, own: str, page: str
) -> None:
    config = {"pageEnable": "true", "metricsPort": port, "metricsAddress": listens_on}
    assert page_address(config, "10.0.0.2:10911", own) == page
    assert page_address(config | {"pageEnable": "false"}, "10.0.0.2:10911", own) == ""
    assert page_address({}, "10.0.0.2:10911", own) == "", "a broker of Java has no page"


def test_nobody_is_asked_again_before_he_has_answered() -> None:
    asked = Asked()
    asked.holds = True
    asked.fleet.look()
    advance(asked, 5 * EVERY_S)
    asked.fleet.look()
    assert asked.calls == ["ns:9876"]


def test_why_machines_are_missing_is_said() -> None:
    silent = Asked(None)
    silent.fleet.look()
    assert silent.fleet.note == "the name server ns:9876 gives no answer: ns:9876 is silent"
    alone = Asked()
    alone.servers = []
    alone.fleet.look()
    assert alone.fleet.note == "this broker has no name server"
    many = Asked(MOST_MACHINES + 3)
    many.fleet.look()
    assert many.fleet.note == "3 more brokers are registered"
    assert len(many.fleet.machines) == MOST_MACHINES


def test_a_log_is_behind_that_of_its_own_master() -> None:
    def machine(name: str, number: int, end: int | None) -> MachineRow:
        return MachineRow(set_name=name, broker_id=number, address=f"{name}{number}", log_end=end)

    rows = with_distance(
        [machine("a", 0, 50), machine("a", 1, 20), machine("a", 2, 60), machine("a", 3, None),
         machine("b", 1, 5)]
    )  # fmt: skip
    assert [row.behind_bytes for row in rows] == [0, 30, 0, None, None]
