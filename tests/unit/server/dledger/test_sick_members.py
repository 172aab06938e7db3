"""Members of a DLedger group whose disks are full, fill up or fail: who says so, and who leads."""

from __future__ import annotations

import errno
from typing import Any

from twisted.logger import capturedLogs, formatEvent

from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.health import Health
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.group import BrokerGroup

SMALL_FILE = 4096


def health(member: BrokerNode) -> Health:
    return BrokerStatus(member.broker).health()


def service_of(member: BrokerNode) -> Any:
    return member.broker.journal.service  # type: ignore[union-attr]


def followers(group: BrokerGroup) -> list[BrokerNode]:
    leader = group.wait_for_master()
    return [member for member in group.members if member is not leader]


def fill(member: BrokerNode, share: float) -> None:
    """Others use so much of this machine's disk."""
    disk = member.host.disk
    used = disk.usage("/store").used  # type: ignore[union-attr]
    disk.capacity = int(used / share)


def fail_syncs(member: BrokerNode) -> None:
    """From now on each sync of this machine's ledger fails."""
    member.host.disk.fault = lambda operation, path: (
        errno.EIO if operation == "sync" and "/data/" in path else None
    )


def filled(seed: int, size: int = 3, **settings: Any) -> BrokerGroup:
    """A group whose leader has many small files of messages; all members have all messages."""

    def change(configuration: Any) -> None:
        configuration.store.mapped_file_size_commit_log = SMALL_FILE
        for name, value in settings.items():
            setattr(configuration.ours, name, value)

    group = BrokerGroup(seed, size, change).start()
    for number in range(60):
        assert group.send(b"%03d " % number + b"x" * 500) == 0
    group.run(3)
    return group


def test_a_follower_whose_ledger_takes_nothing_is_not_ready() -> None:
    """Before, it said "ready: follows n2", and the next failure stopped the group."""
    group = BrokerGroup(1).start()
    assert group.send(b"a") == 0
    sick, other = followers(group)
    fail_syncs(sick)
    assert group.send(b"b") == 0
    group.run(5)
    told = health(sick)
    assert not told.is_ready
    assert "its ledger takes no entries: " in told.reason
    assert "Input/output error" in told.reason
    assert health(other).is_ready
    assert health(group.wait_for_master()).is_ready


def test_a_leader_that_commits_nothing_while_puts_wait_is_not_ready() -> None:
    """Its followers answer heartbeats, but one of them is dead and the other stores nothing."""
    group = BrokerGroup(2).start()
    assert group.send(b"a") == 0
    leader = group.wait_for_master()
    sick, dead = followers(group)
    fail_syncs(sick)
    assert group.send(b"b") == 0
    group.run(5)
    group.kill(dead)
    for _ in range(8):
        group.ask(leader, group.message(b"c")).addErrback(lambda _: None)
        group.run(2)
    told = health(leader)
    assert not told.is_ready
    assert "has committed nothing for 1" in told.reason
    assert f"{sick.host.name} lacks " in told.reason
    assert "its disk takes none" in told.reason
    group.boot(dead)
    group.wait_until(lambda: health(leader).is_ready)


def test_a_leader_without_puts_is_ready() -> None:
    """Nothing waits, so nothing has to be committed."""
    group = BrokerGroup(3).start()
    assert group.send(b"a") == 0
    group.run(60)
    assert health(group.wait_for_master()).is_ready


def test_a_leader_whose_disk_is_full_hands_over_to_a_member_with_room() -> None:
    """Before, nobody could send, although most members had room."""
    group = filled(4, size=5)
    leader = group.wait_for_master()
    full, *roomy = followers(group)
    before = group.bodies(leader)
    fill(full, 0.95)
    group.run(15)
    fill(leader, 0.95)
    began = group.now
    group.wait_until(lambda: group.master() in roomy, 20)
    assert group.now - began < 15
    assert group.send(b"after") == 0
    group.run(3)
    assert group.bodies(group.wait_for_master()) == [*before, b"after"]
    assert not health(leader).is_ready
    assert health(group.wait_for_master()).is_ready


def test_a_leader_whose_disk_refuses_entries_hands_over() -> None:
    """The file system has no room, although it seemed to be less than 90 % full."""
    group = BrokerGroup(5).start()
    assert group.send(b"a") == 0
    leader = group.wait_for_master()
    leader.host.disk.fault = lambda operation, path: (
        errno.ENOSPC if operation == "pwrite" and "/data/" in path else None
    )
    group.ask(leader, group.message(b"b")).addErrback(lambda _: None)
    group.wait_until(lambda: group.master() not in (None, leader), 15)
    assert group.send(b"c") == 0


def test_a_leader_stays_while_no_other_member_has_room() -> None:
    """And it says so once, instead of sending the leadership round."""
    group = filled(6)
    leader = group.wait_for_master()
    for member in followers(group):
        fill(member, 0.95)
    group.run(15)
    with capturedLogs() as events:
        fill(leader, 0.95)
        group.run(60)
    assert group.master() is leader
    said = [formatEvent(event) or "" for event in events]
    assert len([text for text in said if "no other member has" in text]) == 1
    for member in group.members:
        fill(member, 0.5)
    group.run(15)
    assert group.send(b"after") == 0


def test_nothing_is_deleted_before_its_time_while_another_member_can_lead() -> None:
    """Consumers read at the leader: they missed what both other members still had."""
    group = filled(7)
    leader = group.wait_for_master()
    before = group.bodies(leader)
    fill(leader, 0.88)
    for _ in range(30):
        group.run(5)
        master = group.master()
        if master is not None:
            assert group.bodies(master) == before
    assert group.master() not in (None, leader)
    assert leader.store.cleaner.forced_deletions > 0  # type: ignore[attr-defined]
    assert group.send(b"after") == 0


def test_what_is_old_is_deleted_where_no_other_member_has_room() -> None:
    """As RocketMQ: else nobody could send any more."""
    group = filled(8)
    leader = group.wait_for_master()
    for member in followers(group):
        fill(member, 0.88)
    group.run(15)
    fill(leader, 0.88)
    group.run(150)
    assert group.master() is leader
    assert leader.store.cleaner.forced_deletions > 0  # type: ignore[attr-defined]
    assert group.send(b"after") == 0


def test_as_rocketmq_a_full_leader_keeps_its_place() -> None:
    group = filled(9, dledger_hand_over_when_full=False)
    leader = group.wait_for_master()
    fill(leader, 0.95)
    group.run(30)
    assert group.master() is leader
