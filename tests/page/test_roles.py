"""Roles change hands: no page shows a broker that lives as gone, and each page has all of them."""

from __future__ import annotations

from typing import Any

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.ops.app.page.broker import BrokerBoard
from rmq_ha.ops.app.page.fleet import EVERY_S, REMEMBERED_S
from rmq_ha.ops.app.page.values import Tone
from rmq_ha.ops.app.page.watch import GONE, UNSEEN
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers
from tests.unit.ops.admin.test_handover_set import YES, order


class Pages:
    """Three brokers in controller mode, each with its page, which somebody looks at."""

    def __init__(self) -> None:
        self.set = ControlledBrokers(3)
        self.set.in_sync(3)
        self.boards = {id(node): self.board(node) for node in self.set.nodes}
        self.run(12)

    def board(self, node: BrokerNode) -> BrokerBoard:
        board = BrokerBoard(node.broker, BrokerStatus(node.broker), Histogram())
        board.start()
        return board

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            for sheet in self.sheets():
                self.is_true(sheet)
            self.set.run(1.0)

    def sheets(self) -> list[Any]:
        return [self.boards[id(n)].overview() for n in self.set.nodes if n.state == "running"]

    def sheet(self, node: BrokerNode) -> Any:
        return self.boards[id(node)].overview()

    def is_true(self, sheet: Any) -> None:
        """All brokers live."""
        assert [m for m in sheet.members if m.state == GONE or m.tone is Tone.ERROR] == []
        keys = [member.key for member in sheet.members]
        assert len(keys) == len(set(keys))
        assert [lane for lane in sheet.lanes if lane.spans[-1].state == GONE] == []


def test_nobody_is_gone_after_hand_overs() -> None:
    """Each of the three leads once, and the first one again."""
    pages = Pages()
    nodes = pages.set.nodes
    for number in ("2", "3", "1"):
        assert order(pages.set, number, **YES).last["changed"]
        pages.set.in_sync(3)
        pages.run(2 * EVERY_S + 2)
        for sheet in pages.sheets():
            assert len(sheet.machines) == 3
            assert sorted(machine.broker_id for machine in sheet.machines) == [
                0,
                *sorted(int(other) for other in "123" if other != number),
            ]
            assert sum(member.role == "master" for member in sheet.members) == 1
    led, followed = pages.sheet(nodes[0]), pages.sheet(nodes[2])
    address = nodes[0].broker.identity.address
    assert {member.key for member in led.members} == {address, "broker 2", "broker 3"}
    assert [(m.name, m.role) for m in followed.members][1] == (f"broker 1 at {address}", "master")
    others = {"broker 2", "broker 3"} - {f"broker {nodes[2].replication.slave_id}"}
    assert {lane.name for lane in followed.lanes if lane.spans[-1].state == UNSEEN} == others


def test_a_slave_that_ends_is_gone_at_its_master_alone() -> None:
    pages = Pages()
    first, second, third = pages.set.nodes
    third.crash(power=False)
    pages.set.run(EVERY_S + 12)
    gone = [member.key for member in pages.sheet(first).members if member.state == GONE]
    assert gone == [f"broker {third.replication.slave_id}"]
    pages.is_true(pages.sheet(second))


def test_a_broker_that_no_name_server_lists_is_asked_all_the_same() -> None:
    """For ten minutes: while it lives the page says so, and then forgets it."""
    pages = Pages()
    first, second, _ = pages.set.nodes
    own = second.broker.registration
    own.stop()
    pages.set.run(150)
    pages.sheets()
    pages.set.run(EVERY_S + 1)
    (row,) = [m for m in pages.sheet(first).machines if m.address == second.broker.identity.address]
    assert (row.broker_id, row.tone) == (None, Tone.WARN)
    assert "the name server does not list it" in row.note
    for _ in range(int(REMEMBERED_S / EVERY_S) + 2):
        pages.sheets()
        pages.set.run(EVERY_S)
    assert len(pages.sheet(first).machines) == 2
