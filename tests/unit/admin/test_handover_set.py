"""`rmqha-admin handover` of a pair with a controller, on simulated machines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.admin import handover
from rmq_ha.testing.controlled import ControlledBrokers, wait
from tests.unit.admin.admin_kit import say

YES = {"yes": True, "dry_run": False}
DRY = {"yes": False, "dry_run": True}


def order(brokers: ControlledBrokers, to: str | None = None, **sure: bool) -> Any:
    """Say it, from a machine of its own."""
    cluster = SimpleNamespace(
        world=brokers.world,
        namesrv=brokers.name_server,
        wait=lambda later, limit: wait(brokers.world, Deferred.fromCoroutine(later), 60.0),
    )
    return say(
        cluster,
        lambda session: handover.give_over_of(session, "b", to, **sure),
        brokers.world.hosts["client"].seams,
    )


def test_the_master_hands_over_and_no_message_is_lost() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"before") == 0
    dry = order(brokers, **DRY)
    assert (dry.code, dry.last) == (0, {"leader": 1, "to": 2}), dry.err
    assert brokers.leader() is first
    said = order(brokers, **YES)
    assert (said.code, said.last) == (0, {"leader": 2, "epoch": 2, "changed": True}), said.err
    took = brokers.until(lambda: brokers.master() is second)
    assert took < 2.0
    assert not first.replication.may_append
    assert brokers.in_sync() is second
    assert brokers.send(second, b"after") == 0
    brokers.holds(second, [b"before", b"after"])
    brokers.run(1.0)
    brokers.holds(first, [b"before", b"after"])
    back = order(brokers, "1", **YES)
    assert back.last == {"leader": 1, "epoch": 3, "changed": True}
    assert order(brokers, "1", **YES).last == {"leader": 1, "changed": False}
    assert not brokers.findings.violations


def test_who_is_not_in_sync_is_not_elected() -> None:
    brokers = ControlledBrokers(1)
    brokers.leader()
    for to, why in ((None, "no other broker is in sync"), ("7", "broker 7 is not in sync")):
        said = order(brokers, to, **YES)
        assert said.code == 1
        assert why in said.err
