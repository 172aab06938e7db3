"""Half messages that nobody ends."""

from __future__ import annotations

from tests.unit.ops.admin.doctor.fleet import Fleet
from tests.unit.ops.admin.test_waiting import half_sent


def test_a_half_message_that_no_producer_ends() -> None:
    fleet = Fleet()
    settings = {"transaction_check_interval": 60_000, "transaction_check_max": 8}
    fleet.add("a", broker=settings)
    fleet.make_topic("T")
    half_sent(fleet, b"?", b"?", b"c")
    fleet.run(70)
    fleet.is_well()
    fleet.run(250)
    told = fleet.finds("half-messages-old")
    assert "2 half messages open, the oldest for 3" in told
    assert "no producer of makers ends its transaction for T" in told
    assert "`rmqha-admin transaction list`" in fleet.fix("half-messages-old")
    fleet.run(300)
    fleet.is_well()
