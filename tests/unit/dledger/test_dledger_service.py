"""DLedgerService in whole brokers on simulated machines: what must not stop it."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.dledger.codes import RequestCode
from rmq_ha.dledger.messages import MetadataRequest
from rmq_ha.dledger.protocol import Answered
from rmq_ha.dledger.values import Role
from rmq_ha.errors import RequestRejected
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.group import BrokerGroup


def service_of(member: BrokerNode) -> Any:
    return member.controller.replication  # type: ignore[union-attr]


def followers(group: BrokerGroup) -> list[BrokerNode]:
    master = group.master()
    return [member for member in group.members if member is not master]


def test_puts_of_a_new_leadership_are_told_though_an_earlier_one_had_more_entries() -> None:
    """A leader that was deposed, cut and elected again; without first entries of a term, too."""

    def change(configuration: Any) -> None:
        configuration.ours.dledger_commit_own_term_only = False

    group = BrokerGroup(1, change=change).start()
    assert group.send(b"a") == 0
    group.run(2)
    for member in followers(group):
        service_of(member)._told_index = 1000
    old = group.master()
    assert old is not None
    group.kill(old)
    group.run(1)
    group.wait_for_master()
    assert group.send(b"b") == 0


def test_a_role_that_cannot_be_taken_stops_neither_timer_nor_votes() -> None:
    """What follows in the outbox, and in time, is done all the same."""
    group = BrokerGroup(2).start()
    broken, other = followers(group)
    service_of(broken).roles = None.__class__  # has none of its methods
    old = group.master()
    assert old is not None
    group.kill(old)
    for _ in range(40):
        group.run(1)
        if Role.LEADER in (service_of(broken).node.role, service_of(other).node.role):
            break
    assert {service_of(member).node.role for member in (broken, other)} == {
        Role.LEADER,
        Role.FOLLOWER,
    }
    assert service_of(broken)._timer.active()
    assert group.world.clock.failures == []


def test_a_request_that_fails_is_answered_and_puts_off_no_heartbeat() -> None:
    """Or whoever finds such a frame could depose a leader with it, and fill its memory."""
    group = BrokerGroup(3).start()
    master = group.master()
    assert master is not None
    service = service_of(master)

    def fails(*_: object) -> None:
        raise IndexError("a mistake")

    term, request = service.node.term, service.node.request
    service.node.request = fails
    for _ in range(100):
        answered: Answered = Deferred()
        service._serve(RequestCode.METADATA, MetadataRequest(), answered)
        heard: list[Any] = []
        answered.addErrback(heard.append)
        assert heard[0].check(RequestRejected)
        group.run(0.1)
    service.node.request = request
    assert (service.node.role, service.node.term) == (Role.LEADER, term)


def test_a_leader_whose_disk_has_failed_hands_over() -> None:
    """It takes no puts until its next start; while it led, nobody would."""
    group = BrokerGroup(4).start()
    sent = [b"%d" % number for number in range(10)]
    assert [group.send(body) for body in sent] == [0] * 10
    old = group.master()
    assert old is not None
    others = followers(group)
    service_of(old)._log.flusher._ledger.sync_failed(None, OSError(5, "Input/output error"))
    service_of(old)._log.fault = "sync failed"
    group.run(6)
    assert group.master() in others
    assert group.send(b"after") == 0
    group.run(3)
    for member in others:
        assert group.bodies(member) == [*sent, b"after"]


def test_a_member_that_cannot_keep_its_vote_leaves_and_says_so_without_a_traceback() -> None:
    """The others ask it many times a second, until somebody mends its disk."""
    group = BrokerGroup(5).start()
    old = group.master()
    assert old is not None
    old.host.seams.disk.sync_fails = True  # type: ignore[attr-defined]
    group.send(b"a")
    group.run(10)
    assert group.master() not in (None, old)
    assert group.send(b"b") == 0
    with pytest.raises(RequestRejected):
        service_of(old)._serve(RequestCode.METADATA, MetadataRequest(), Deferred())


def test_a_put_without_quorum_says_who_does_not_answer_and_what_to_do() -> None:
    """It said that the disk is slow, and then nothing at all (SERVICE_NOT_AVAILABLE, empty)."""
    group = BrokerGroup(6).start()
    assert group.send(b"a") == 0
    leader = group.wait_for_master()
    gone = followers(group)
    for member in gone:
        group.kill(member)
    in_time = group.call(leader, group.message(b"b"))
    assert in_time.code == 1
    remark = in_time.remark or ""
    assert "disk" not in remark
    assert "has no quorum (2 of 3 members)" in remark
    for member in gone:
        assert f"{member.host.name} at {member.host.ip}:" in remark
    assert "1 more must answer: start it, or mend the network to it" in remark
    group.run(15)
    late = group.call(leader, group.message(b"c"))
    assert late.code != 0
    assert "has no quorum (2 of 3 members)" in (late.remark or ""), late.remark
    group.boot(gone[0])
    assert group.send(b"d") == 0


def test_what_a_member_says_of_its_group() -> None:
    """Each role in its words."""
    group = BrokerGroup(7, size=5).start()
    assert group.send(b"a") == 0
    leader, follower = group.wait_for_master(), followers(group)[0]
    text = service_of(follower).why_no_puts()
    assert text == f"member {leader.host.name} leads group raft, and takes the messages"
    group.run(3)
    assert (
        "a quorum of group raft is too slow (0 puts wait for it)"
        in service_of(leader).why_no_puts()
    )
    for member in followers(group)[:3]:
        group.kill(member)
    group.run(30)
    assert "1 more must answer" in service_of(leader).why_no_puts()
    assert " answers, " in service_of(leader).why_no_puts()
    service_of(leader).node = None
    assert "does not take part yet" in service_of(leader).why_no_puts()
