"""Messages that are popped and not acknowledged, and brokers that do not know of pops."""

from __future__ import annotations

from typing import Any

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.pop_bodies import RequestMode
from tests.unit.ops.admin.doctor.fleet import Fleet
from tests.unit.ops.admin.pop_asks import HOUR_MS, Popper

POPS = {"pop_enable": True}


def popped(count: int, **ours: Any) -> tuple[Fleet, Popper]:
    """A broker whose topic Work has one queue with messages, and a client that pops."""
    fleet = Fleet(watched=True)
    broker = fleet.add("a", ours={**POPS, **ours})
    fleet.make_topic(queues=1)
    fleet.clock.run_while(lambda: not broker.pops.is_leading, 30)
    fleet.send("Work", count)
    return fleet, Popper(fleet, "a", "Work", "workers")


def test_a_client_that_never_acknowledges() -> None:
    fleet, popper = popped(2)
    answer = popper.pop(2, 2 * HOUR_MS)
    fleet.run(3700)
    told = fleet.finds("pop-out-long")
    assert "workers: a message of queue 0 of Work at pair is out for 61 min, with 10.0.0." in told
    assert "2 of its messages are out in all" in told
    popper.ack(answer, 0, 1)
    fleet.run(12)
    fleet.is_well()


def test_a_message_that_others_overtake() -> None:
    fleet, popper = popped(5)
    answer = popper.pop(5, HOUR_MS)
    popper.ack(answer, 1, 2, 3)
    fleet.run(700)
    told = fleet.finds("pop-pinned")
    assert "3 messages are acknowledged behind message 0 of queue 0 of Work at pair" in told
    popper.ack(answer, 0, 4)
    fleet.run(12)
    fleet.is_well()


def test_a_group_that_nearly_has_all_that_it_may_have() -> None:
    fleet, popper = popped(5, pop_inflight_message_threshold=5)
    answer = popper.pop(4)
    told = fleet.finds("pop-near-limit")
    assert "4 messages of queue 0 of Work at pair are out, of at most 5" in told
    popper.ack(answer, 0, 1, 2, 3)
    popper.ack(popper.pop(1), 4)
    fleet.run(12)
    fleet.is_well()


def test_pops_that_are_switched_off_at_the_broker_of_a_group_that_pops() -> None:
    fleet, popper = popped(1)
    popper.ack(popper.pop(1), 0)
    mode = RequestMode("Work", "workers", "POP")
    popper.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, mode.encode())
    fleet.run(12)
    fleet.is_well()
    fleet.stop("a")
    fleet.add("a")
    fleet.run(1)
    assert "it pops Work, and popEnable is false at pair" in fleet.finds("pops-off")
    assert "`popEnable=true`" in fleet.fix("pops-off")
    fleet.stop("a")
    fleet.add("a", ours=POPS)
    fleet.run(12)
    fleet.is_well()


def test_a_slave_that_does_not_know_what_is_out() -> None:
    fleet = Fleet()
    fleet.add("a", BrokerRole.SYNC_MASTER, ours=POPS)
    fleet.add("b", BrokerRole.SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    assert "popEnable is false at 10.0.0." in fleet.finds("pop-set-mixed")
    fleet.stop("b")
    fleet.add("b", BrokerRole.SLAVE, broker={"broker_id": 1}, ours=POPS)
    fleet.run(12)
    fleet.is_well()
