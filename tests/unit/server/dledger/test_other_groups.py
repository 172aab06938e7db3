"""A member is given the disk of another group, in the same term: index and term say nothing."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import StoreError
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.server.dledger.codes import PushType
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.dledger_script import Script
from tests.sim_kit.group import BrokerGroup

COMPARE, TRUNCATE, APPEND = PushType.COMPARE, PushType.TRUNCATE, PushType.APPEND


def follower(committed: int) -> Script:
    """Just started: what it has ends in this term, and so should be its leader's."""
    script = Script(2, voted_for="n0", entries=(1, 2, 2))
    script.ledger.commit(committed)
    script.beat("n0", 2)
    return script


def test_what_is_committed_here_and_another_there_is_kept_and_said() -> None:
    script = follower(2)
    other = script.ledger.entry(2)._replace(body=b"other")
    assert script.push(COMPARE, 2, other).code == 406
    assert script.node.is_diverged
    assert script.push(TRUNCATE, 2, other).code == 406
    assert script.ledger.end_index == 2


def test_what_is_not_committed_here_is_given_up_for_what_the_leader_has() -> None:
    """Of its own term, too: it cannot be from this leader."""
    script = follower(0)
    other = script.ledger.entry(1)._replace(body=b"o")
    assert script.push(COMPARE, 2, other).code == 406
    assert not script.node.is_diverged
    assert script.push(TRUNCATE, 2, script.ledger.entry(0)).code == 200
    assert script.push(APPEND, 2, other, commit=1).code == 200
    assert (script.ledger.entry(1), script.ledger.committed_index) == (other, 1)


def test_what_a_leader_has_shown_to_be_its_own_stays_whatever_comes_late() -> None:
    script = follower(0)
    assert script.push(COMPARE, 2, script.ledger.entry(2)).code == 200
    assert script.push(COMPARE, 2, script.next_entry(2)).code == 406, "not there: not another one"
    assert script.push(TRUNCATE, 2, script.ledger.entry(1)).code == 200
    assert script.ledger.end_index == 2


def named(name: str) -> Any:
    def change(configuration: Any) -> None:
        configuration.store.dleger_group = name

    return change


def two_groups(first: str, second: str) -> tuple[BrokerGroup, BrokerNode]:
    """The first group, in which a follower is down, and that one with a disk of the second."""
    groups = [BrokerGroup(1, change=named(name)).start() for name in (first, second)]
    for name, group in zip(("ours", "theirs"), groups, strict=True):
        for number in range(3):
            assert group.send(b"%b %d" % (name.encode(), number)) == 0
        group.run(40)
    ours, theirs = groups
    assert len({group.members[0].replication.node.term for group in groups}) == 1
    moved = next(member for member in ours.members if member is not ours.master())
    source = theirs.members[ours.members.index(moved)].host.disk
    ours.kill(moved)
    moved.host.disk.remove_tree("/store")
    for path in source.paths("/store"):
        moved.host.disk.replace(path, source.content(path))
    return ours, moved


def test_a_disk_of_a_group_of_another_name_is_refused_at_the_start() -> None:
    """It says which group's it is; that of its own group is taken again."""
    group, moved = two_groups("orders", "payments")
    before = {path: moved.host.disk.content(path) for path in moved.host.disk.paths("/store")}
    with pytest.raises(StoreError, match=r"of DLedger group 'payments', .* dLegerGroup=orders"):
        group.boot(moved)
    assert {path: moved.host.disk.content(path) for path in moved.host.disk.paths("/store")} == (
        before
    )


def test_a_group_keeps_its_name_beside_the_ledger() -> None:
    """Also of a ledger that Java wrote, or an older one of ours: from its next start on."""
    group = BrokerGroup(1, size=1).start()
    (member,) = group.members
    path = f"{member.configuration.store.store_path_root_dir}/dledger-n0/group"
    assert member.host.disk.read_bytes(path) == b"raft\n"
    group.kill(member)
    member.host.disk.remove(path)
    group.boot(member)
    assert member.host.disk.read_bytes(path) == b"raft\n"
    group.kill(member, power=True)
    assert member.host.disk.read_bytes(path) == b"raft\n"
    group.boot(member)
    group.wait_for_master()


def test_a_disk_that_takes_no_name_takes_part_all_the_same() -> None:
    """It is full, say: the name is written at another start."""
    group = BrokerGroup(1, size=1).start()
    (member,) = group.members
    path = f"{member.configuration.store.store_path_root_dir}/dledger-n0/group"
    group.kill(member)
    disk = member.host.disk
    disk.remove(path)
    disk.is_full = True
    with capturedLogs() as events:
        group.boot(member)
        group.run(5.0)
    assert any(path in str(formatEvent(event)) for event in events)
    assert member.state == "running"


def test_a_disk_of_a_group_of_the_same_name_and_term_is_not_taken_for_ours() -> None:
    """Nobody sees it by index and term; the leader's first comparison does."""
    group, moved = two_groups("raft", "raft")
    group.boot(moved)
    group.run(30)
    assert moved.replication.statistics().is_diverged
    health = BrokerStatus(moved.broker).health()
    assert not health.is_ready
    assert "diverged" in health.reason
