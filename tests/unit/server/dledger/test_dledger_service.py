"""DLedgerService in whole brokers on simulated machines: what must not stop it."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import LedgerFull, RequestRejected
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.status import FlushDiskType, PutMessageStatus
from rmq_ha.base.store_format.dledger_values import MemberRole, TermVote
from rmq_ha.server.dledger.actions import AnswerRequest, Persist, RoleChanged
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode, VoteResult
from rmq_ha.server.dledger.messages import (
    GroupMessage,
    HeartBeatRequest,
    MetadataRequest,
    VoteRequest,
    VoteResponse,
)
from rmq_ha.server.dledger.protocol import Answered, read_response, request_frame
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.group import PEER_PORT, BrokerGroup


def service_of(member: BrokerNode) -> Any:
    return member.broker.journal.service  # type: ignore[union-attr]


def followers(group: BrokerGroup) -> list[BrokerNode]:
    master = group.master()
    return [member for member in group.members if member is not master]


def test_puts_of_a_new_leadership_are_told_though_an_earlier_one_had_more_entries() -> None:
    """A leader that was deposed, cut and elected again; without first entries of a term, too."""

    def change(configuration: Any) -> None:
        configuration.ours.dledger_commit_own_term_only = False

    group = BrokerGroup(1, change=change).start()
    assert service_of(group.master())._log.max_offset == 0, "no first entry of its term"
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
    service_of(broken).role.observe(None.__class__)  # has none of its methods
    old = group.master()
    assert old is not None
    group.kill(old)
    for _ in range(40):
        group.run(1)
        if MemberRole.LEADER in (service_of(broken).node.role, service_of(other).node.role):
            break
    assert {service_of(member).node.role for member in (broken, other)} == {
        MemberRole.LEADER,
        MemberRole.FOLLOWER,
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
        service._serve(DLedgerRequestCode.METADATA, MetadataRequest(), answered)
        heard: list[Any] = []
        answered.addErrback(heard.append)
        assert heard[0].check(RequestRejected)
        group.run(0.1)
    service.node.request = request
    assert (service.node.role, service.node.term) == (MemberRole.LEADER, term)


def test_a_leader_whose_disk_has_failed_hands_over() -> None:
    """It takes no puts until its next start; while it led, nobody would."""
    group = BrokerGroup(4).start()
    sent = [b"%d" % number for number in range(10)]
    assert [group.send(body) for body in sent] == [0] * 10
    old = group.master()
    assert old is not None
    others = followers(group)
    service_of(old)._flusher._ledger.sync_failed(None, OSError(5, "Input/output error"))
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
        service_of(old)._serve(DLedgerRequestCode.METADATA, MetadataRequest(), Deferred())
    assert service_of(old)._log.fault is not None
    assert service_of(old).term_to_append() is None


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


def test_a_leader_that_stops_hands_over_before_it_goes() -> None:
    """Nobody waits six seconds for an election, though the log has a single entry."""
    group = BrokerGroup(8).start()
    old = group.wait_for_master()
    group.wait_until(lambda: service_of(old).node.watermark(followers(group)[0].host.name) == 0)
    service, others = service_of(old), followers(group)
    began = group.now
    group.wait(old.stop())
    assert service.term_to_append() is None
    assert group.wait_for_master() in others
    assert group.now - began < 1
    assert group.send(b"after") == 0
    group.run(5)  # no timer of the stop is left
    assert group.world.clock.failures == []


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_a_leader_that_stops_hands_over_to_who_has_most(gone: int) -> None:
    """And not to one that went long ago."""
    group = BrokerGroup(14, size=5).start()
    old = group.wait_for_master()
    group.kill(followers(group)[gone])
    assert [group.send(b"%d" % number) for number in range(3)] == [0, 0, 0]
    group.run(1)
    began = group.now
    group.wait(old.stop())
    group.wait_for_master()
    assert group.now - began < 1


def test_a_group_of_one_leads_and_stops_alone() -> None:
    """Nobody is there to hand over to, or to wait for."""
    group = BrokerGroup(9, size=1).start()
    (member,) = group.members
    assert group.send(b"a") == 0
    began = group.now
    group.wait(member.stop())
    assert group.now - began < 1
    assert member.state == "down"
    assert group.world.clock.failures == []


def test_nothing_is_appended_while_a_vote_is_on_its_way_to_the_disk() -> None:
    """A member that led then and forgot it could vote for another leader of the same term."""
    group = BrokerGroup(10, size=1).start()
    service = service_of(group.members[0])
    term = service.node.term
    assert service.term_to_append() == term
    assert (service.leads(term), service.leads(term + 1)) == (True, False)
    service._persist(Persist(TermVote(term, "n0")))
    assert service.term_to_append() is None
    group.run(0.1)
    assert service.term_to_append() == term
    service.node = None
    assert service.term_to_append() is None


class Told:
    """What a member says of its roles."""

    def __init__(self) -> None:
        self.roles: list[str] = []

    def follow(self) -> None:
        self.roles.append("follow")

    def stand(self) -> None:
        self.roles.append("stand")

    def lead(self, term: int) -> None:
        self.roles.append(f"lead {term}")


def test_each_change_of_a_role_is_told_and_elections_are_counted() -> None:
    """The broker is a slave while another leads, and has no role while nobody does."""
    group = BrokerGroup(11).start()
    leader = group.wait_for_master()
    service = service_of(leader)
    assert service.statistics().elections == 0
    service.role.observe(told := Told())
    term = service.node.term
    others = followers(group)
    for other in others:
        group.kill(other)
    group.wait_until(lambda: bool(told.roles))
    assert told.roles == ["stand"]
    assert service.statistics().elections == 1
    for other in others:
        group.boot(other)
    group.wait_until(lambda: len(told.roles) > 1)
    assert told.roles[1] in ("follow", f"lead {service.node.term}")
    service._role_changed(RoleChanged(MemberRole.FOLLOWER, term + 9, "n9"))
    assert told.roles[-1] == "follow"
    assert service._log.admits is False


def test_what_the_core_wants_is_done_one_after_the_other() -> None:
    """Also where doing it brings something new for the core: the next one waits for its end."""
    group = BrokerGroup(16, size=1).start()
    service, done = service_of(group.members[0]), []

    class Busy(Told):
        def lead(self, term: int) -> None:
            done.append("begins to lead")
            service._enter(lambda now: None)
            done.append("leads")

    service.role.observe(Busy())
    answered: Answered = Deferred()
    answered.addCallback(lambda _: done.append("answered"))
    service.node.outbox.extend(
        [
            RoleChanged(MemberRole.LEADER, service.node.term, None),
            AnswerRequest(answered, None),
        ]
    )
    service._run()
    assert done == ["begins to lead", "leads", "answered"]


def test_a_put_is_pushed_to_the_group_in_its_own_turn() -> None:
    """And not in the next one, when the store says what has grown."""
    group = BrokerGroup(17).start()
    service = service_of(group.wait_for_master())
    group.run(1)
    host = Address.parse("127.0.0.1", 1)
    put = BrokerMessage("TBW102", 0, b"a", host, host, 1)
    group.wait_for_master().store.put_many([put], lambda results: None)
    assert service._told_index == service._ledger.end_index


def test_a_leader_that_stops_answers_what_nobody_will_decide() -> None:
    """Whatever the group says by then."""
    group = BrokerGroup(18).start()
    leader = group.wait_for_master()
    heard: list[PutMessageStatus] = []
    service_of(leader)._puts.add(1 << 40, lambda status, now: heard.append(status))
    group.wait(leader.stop())
    assert heard == [PutMessageStatus.SERVICE_NOT_AVAILABLE]


def test_a_leader_that_cannot_write_its_first_entry_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk had no room for a moment; until there is that entry, nothing is committed."""
    group = BrokerGroup(12, size=1).start()
    (member,) = group.members
    assert group.send(b"a") == 0
    group.kill(member)
    member.load()
    ledger = member.store.log.ledger

    def refuses(*_: object) -> None:
        raise LedgerFull("the disk is full")

    monkeypatch.setattr(ledger, "append", refuses)
    member.start()
    group.wait_until(lambda: service_of(member).node is not None)
    service = service_of(member)
    group.wait_until(lambda: service.node.role is MemberRole.LEADER)
    end = ledger.end_index
    group.run(3)
    service._begin_term(service.node.term)  # leads anew: one attempt is planned, not two
    monkeypatch.undo()
    group.run(1.1)
    assert ledger.end_index == end + 1
    group.run(3)
    assert ledger.end_index == end + 1
    assert group.master() is member
    assert group.bodies(member) == [b"a"]


def test_under_sync_flush_a_put_waits_for_the_disks_of_a_quorum() -> None:
    def change(configuration: Any) -> None:
        configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    group = BrokerGroup(13, change=change).start()
    assert [group.send(b"%d" % number) for number in range(3)] == [0, 0, 0]
    synced = [service_of(member)._ledger.synced_index for member in group.members]
    assert sorted(synced)[1] >= service_of(group.wait_for_master())._ledger.committed_index
    service = service_of(group.members[0])
    service._is_stopped = True
    service._synced(99)  # a late one changes nothing
    service.node = None
    service._is_stopped = False
    service._synced(99)
    assert service._ledger.synced_index < 99


def test_a_leader_that_stops_while_it_cannot_write_leaves_no_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second stop finds nothing to do."""
    group = BrokerGroup(15, size=1).start()
    service = service_of(group.members[0])

    def refuses(*_: object) -> None:
        raise LedgerFull("the disk is full")

    monkeypatch.setattr(service._ledger, "append", refuses)
    service._begin_term(service.node.term)
    planned = service._again
    assert planned.active()
    for _ in range(2):
        group.wait(service.stop())
        assert not planned.active()


def test_a_vote_that_cannot_be_kept_is_the_fault_of_the_log_too() -> None:
    """/healthz and the operator's commands look there."""
    group = BrokerGroup(7, size=1).start()
    (member,) = group.members
    service = service_of(member)
    assert service._log.fault is None

    def refuse(state: TermVote) -> None:
        raise OSError(5, "Input/output error")

    heard: list[PutMessageStatus] = []
    service._puts.add(1 << 40, lambda status, now: heard.append(status))
    service._term_file.save = refuse
    service._act(Persist(TermVote(99, None)))
    group.run(0.1)
    assert heard == [PutMessageStatus.SERVICE_NOT_AVAILABLE]
    assert service._log.fault.startswith("term and vote cannot be kept")
    assert service.term_to_append() is None


def test_only_a_leader_has_puts_wait() -> None:
    """Else somebody would wait for what nobody decides."""
    group = BrokerGroup(16).start()
    service = service_of(group.wait_for_master())
    refused = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert service_of(followers(group)[0]).when_replicated(0, 0, print) is refused
    assert service.when_replicated(0, 0, lambda status, now: None) is None
    service._is_stopped = True
    assert service.when_replicated(0, 0, print) is refused
    service._is_stopped, service.node = False, None
    assert service.when_replicated(0, 0, print) is refused


def test_a_stranger_on_the_groups_port_is_refused_counted_and_said_once() -> None:
    """Its frame names a member, but that lives elsewhere."""
    group = BrokerGroup(17).start()
    member = group.wait_for_master()
    term = service_of(member).node.term
    members = service_of(member)._members
    members.names["n9"] = "elsewhere"
    beat = HeartBeatRequest(
        group="raft", remote_id=member.host.name, local_id="n9", leader_id="n9", term=term + 5
    )
    with capturedLogs() as events:
        for _ in range(3):
            frame = request_frame(DLedgerRequestCode.HEART_BEAT, beat)
            called = group.client.invoke(f"{member.host.ip}:{PEER_PORT}", frame, 1000)
            answer = read_response(DLedgerRequestCode.HEART_BEAT, group.wait(called))
            assert answer.code == DLedgerResponseCode.UNKNOWN_MEMBER
    said = [formatEvent(item) or "" for item in events if "refused on the DLedger" in str(item)]
    assert len(said) == 1
    assert "dLegerPeerHosts" in said[0]
    assert service_of(member).statistics().refused == 3
    assert members.doubtful == set()  # its name was looked up: it may have moved
    assert service_of(member).node.term == term


def test_a_port_that_is_taken_stops_the_start() -> None:
    group = BrokerGroup(18, size=1)
    (member,) = group.members
    taken = member.host.seams.network.server(PEER_PORT, member.host.ip).listen(Factory())
    group.wait(taken)
    member.load()
    failed: list[Any] = []
    assert member._start_result is not None
    member._start_result.addErrback(failed.append)
    group.run(1)
    assert failed[0].check(CannotListenError)


def test_only_a_leader_hands_over() -> None:
    group = BrokerGroup(8).start()
    master = group.master()
    assert master is not None
    (follower, _) = followers(group)
    group.wait_until(lambda: service_of(master).node.watermark(follower.host.name) == 0)
    for member in (follower, master):
        service_of(member)._log.fault = "sync failed"
        order = service_of(member)._resignation.order()
        assert (order is not None) is (member is master)


def test_a_vote_is_on_the_disk_when_it_is_answered() -> None:
    """Else a member that stops in between votes twice in a term. Raft, figure 2."""
    group = BrokerGroup(19).start()
    (voter, candidate) = followers(group)
    service, name = service_of(voter), candidate.host.name
    request = VoteRequest(
        group="raft",
        remote_id=voter.host.name,
        local_id=name,
        leader_id=name,
        term=service.node.term + 5,
        ledger_end_index=service._ledger.end_index,
        ledger_end_term=service._ledger.end_term,
    )
    heard: list[tuple[VoteResult, TermVote]] = []

    def kept(message: GroupMessage) -> None:
        assert isinstance(message, VoteResponse)
        heard.append((message.vote_result, service._term_file.load()))

    for _ in range(2):
        answered: Answered = Deferred()
        service._serve(DLedgerRequestCode.VOTE, request, answered)
        group.wait(answered.addCallback(kept))
    (_, (result, state)) = heard
    assert result is VoteResult.ACCEPT
    assert state == TermVote(request.term, name)


def test_a_stop_ends_when_nobody_is_connected_any_more() -> None:
    """Its port is free then, and nobody is answered by a member that has stopped."""
    group = BrokerGroup(20).start()
    (follower, _) = followers(group)
    service = service_of(follower)
    assert service._server._protocols
    left: list[int] = []
    service.stop().addCallback(lambda _: left.append(len(service._server._protocols)))
    group.run(5)
    assert left == [0]


def test_a_leader_that_stops_has_handed_over_by_then() -> None:
    """Whoever waits for its stop before the next one stops leaves no group without a leader."""
    group = BrokerGroup(21).start()
    master = group.master()
    assert master is not None
    others = [service_of(member) for member in followers(group)]
    terms: list[list[int]] = []
    before = service_of(master).node.term
    service_of(master).stop().addCallback(
        lambda _: terms.append([service.node.term - before for service in others])
    )
    group.run(5)
    assert max(*terms) >= 1, "it was elected meanwhile"
