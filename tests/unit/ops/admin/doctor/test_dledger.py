"""A DLedger group: its members die one by one."""

from __future__ import annotations

import errno
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.server import StatusServer
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.group import BrokerGroup
from tests.unit.ops.admin.doctor.fleet import STATUS_PORT, Fleet

ILL = ("member-refuses", "not-ready")
"""A member whose ledger takes nothing says so itself, too."""


class Group(Fleet):
    """Three members with status ports, one of which leads; visited as any fleet."""

    def __init__(self, seed: int = 1) -> None:
        self.group = BrokerGroup(seed, change=_watched).start()
        self.world, self.namesrv = self.group.world, self.group.name_server
        for member in self.group.members:
            self.watch(member)

    def watch(self, member: BrokerNode) -> None:
        """Its status port, since its start."""
        host = member.host
        server = StatusServer(host.seams, "rmqha", STATUS_PORT, host.ip)
        self.wait(server.start())
        status = BrokerStatus(member.broker)
        server.add(status)
        server.health = status.health

    def wait(self, later: Any, limit: float = 0.0) -> Any:
        started = later if isinstance(later, Deferred) else Deferred.fromCoroutine(later)
        return self.group.wait(started)

    def run(self, seconds: float) -> None:
        self.group.run(seconds)


def _watched(configuration: Any) -> None:
    own = configuration.ours
    own.metrics_port, own.metrics_address = STATUS_PORT, configuration.broker.broker_ip1


def test_members_die_one_by_one() -> None:
    """First a follower; then the leader, and nobody is elected."""
    fleet = Group()
    fleet.run(40)
    fleet.is_well()
    leader = fleet.group.master()
    assert leader is not None
    first, last = (member for member in fleet.group.members if member is not leader)
    fleet.group.kill(first)
    fleet.run(2)
    told = fleet.finds("members-missing")
    own = first.configuration.store
    port = dict(item.split("-") for item in own.dleger_peers.split(";"))[own.dleger_self_id]
    assert f"2 of its 3 members answer; no answer comes from {own.dleger_self_id} at {port}" in told
    fleet.group.boot(first)
    fleet.run(40)
    assert "members-missing" not in fleet.visit().codes()
    fleet.group.kill(first)
    fleet.group.kill(leader)
    fleet.run(60)
    told = fleet.finds("members-missing", "no-leader", "no-leader-known")
    assert "which is no quorum: no puts" in told
    fleet.finds("no-leader", "members-missing", "no-leader-known")
    fleet.finds("no-leader-known", "members-missing", "no-leader")
    assert last.host.ip in "".join(fleet.visit().texts("no-leader-known"))


def test_a_member_whose_disk_failed_and_then_another_dies() -> None:
    """The first one answers, and stores nothing: the group seemed to be well."""
    fleet = Group()
    fleet.run(40)
    fleet.is_well()
    group = fleet.group
    leader = group.wait_for_master()
    sick, other = (member for member in group.members if member is not leader)
    sick.host.disk.fault = lambda operation, path: (
        errno.EIO if operation == "sync" and "/data/" in path else None
    )
    assert group.send(b"a") == 0
    fleet.run(5)
    assert group.send(b"b") == 0
    fleet.run(15)
    told = fleet.finds("member-refuses", "not-ready")
    assert f"{sick.host.ip}:10911: its ledger takes no entries: " in told
    assert f"member {sick.host.name} lacks 1 entries" in fleet.finds("member-behind", *ILL)
    group.kill(other)
    group.ask(leader, group.message(b"c")).addErrback(lambda _: None)
    fleet.run(15)
    told = fleet.finds("nothing-committed", "members-missing", *ILL)
    assert f"{leader.host.ip}:10911: it leads, and has committed nothing for " in told
    group.boot(other)
    sick.host.disk.fault = lambda operation, path: None
    group.kill(sick)
    group.boot(sick)
    for member in (other, sick):
        fleet.watch(member)
    fleet.run(60)
    fleet.is_well()


def test_a_member_with_the_disk_of_another_group() -> None:
    """Both groups committed messages; then somebody put a disk into the wrong machine."""
    fleet, other = Group(), Group(2)
    first = other.group.master()  # its terms are others
    assert first is not None
    other.group.kill(first)
    other.run(30)
    other.group.boot(first)
    other.group.wait_for_master()
    for number in range(3):
        fleet.group.send(b"ours %d" % number)
        other.group.send(b"other %d" % number)
    for each in (fleet, other):
        each.run(40)
    fleet.is_well()
    moved = next(m for m in fleet.group.members if m is not fleet.group.master())
    source = other.group.members[fleet.group.members.index(moved)].host.disk
    fleet.group.kill(moved)
    moved.host.disk.remove_tree("/store")
    for path in source.paths("/store"):
        moved.host.disk.replace(path, source.content(path))
    fleet.group.boot(moved)
    fleet.watch(moved)
    fleet.run(30)
    told = fleet.finds("member-diverged", "no-leader", "not-ready", "nothing-committed")
    assert moved.host.ip not in told  # it leads: its term is higher, and the others say so
    assert "empty the member that is wrong" in fleet.fix("member-diverged")
    fleet.group.kill(moved)
    moved.host.disk.remove_tree("/store")
    fleet.group.boot(moved)
    fleet.watch(moved)
    fleet.run(60)
    fleet.is_well()
