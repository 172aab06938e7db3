"""Elections, row by row: dledger.md, sections 8.1 to 8.4; Raft paper, 5.2 and 5.4.1."""

import pytest

from rmq_ha.base.store_format.dledger_values import MemberRole, TermVote
from rmq_ha.server.dledger.actions import Persist, PutsCompleted, RoleChanged, SendRequest
from rmq_ha.server.dledger.codes import VoteResult
from rmq_ha.server.dledger.election import VoteTally
from rmq_ha.server.dledger.messages import HeartBeatRequest, VoteRequest, VoteResponse
from tests.sim_kit.dledger_script import Script

R = VoteResult
ENTRIES = (1, 1, 2, 2)  # terms; the last is index 3


def follower(**changes):
    """As in the probes of 20.6: term 2, leader n0, entries 0 to 3."""
    script = Script(2, voted_for="n0", entries=ENTRIES, **changes)
    return script.follow("n0")


@pytest.mark.parametrize(
    ("row", "term", "index", "ledger_term", "more", "result"),
    [
        (1, 2, 3, 2, {"leader_id": "nX"}, R.REJECT_UNKNOWN_LEADER),
        (2, 2, 3, 2, {"leader_id": "n1"}, R.REJECT_UNEXPECTED_LEADER),
        (3, 2, 3, -1, {}, R.REJECT_EXPIRED_LEDGER_TERM),
        (3, 9, 9, 1, {}, R.REJECT_EXPIRED_LEDGER_TERM),
        (4, 2, 2, 2, {}, R.REJECT_SMALL_LEDGER_END_INDEX),
        (5, 1, 3, 2, {}, R.REJECT_EXPIRED_VOTE_TERM),
        (6, 3, 3, 2, {}, R.REJECT_TERM_NOT_READY),
        (7, 2, 3, 2, {}, R.REJECT_ALREADY_HAS_LEADER),
        (11, 2, 3, 2, {"leader_id": "n0"}, R.ACCEPT),
    ],
)
def test_8_3(row, term, index, ledger_term, more, result):
    """A vote is answered by the first row that matches."""
    answer = follower().vote("n2", term, index, ledger_term, **more)
    assert answer.vote_result is result, row
    assert answer.term == 2
    assert answer.leader_id == more.get("leader_id", "n2")


def test_8_3_row_6_raises_the_term_after_the_answer():
    """The answer has the old term; then the term is raised, and asked again it is granted."""
    script = follower()
    script.vote("n2", 5, 3, 2)
    assert script.node.role is MemberRole.CANDIDATE
    assert script.node.term == 5
    assert script.vote("n2", 5, 3, 2).vote_result is R.ACCEPT
    persisted = [action.state for action in script.of(Persist)]
    assert persisted == [TermVote(5, None), TermVote(5, "n2")]


def test_8_3_row_8():
    """Voted for another, and no leader is known."""
    script = Script(2, voted_for="n0", entries=ENTRIES)
    assert script.vote("n2", 2, 3, 2).vote_result is R.REJECT_ALREADY_VOTED


def test_8_3_row_10():
    """A preferred member that takes over does not vote for those that are not ahead of it."""
    script = follower(preferred_leader_ids=("n1",))
    script.node.member.become_candidate(2)
    script.node.member.voted_for = None
    script.node.member.term_to_take_leadership = 2
    assert script.vote("n2", 2, 3, 2).vote_result is R.REJECT_TAKING_LEADERSHIP
    assert script.vote("n2", 2, 4, 2).vote_result is R.ACCEPT


def test_8_3_term_comes_up_to_the_ledger():
    """Row 9 cannot happen here: a term that did not reach the disk is that of the last entry."""
    assert Script(0, entries=(1, 4)).node.term == 4


@pytest.mark.parametrize(
    ("more", "code"), [({"remote_id": "n7"}, 401), ({"group": "zz"}, 400)], ids=["member", "group"]
)
def test_wrong_group_or_member(more, code):
    """20.6: code 400 or 401, result UNKNOWN, leaderId of the one who answers."""
    answer = follower().vote("n2", 2, 3, 2, **more)
    assert (answer.code, answer.vote_result, answer.leader_id) == (code, R.UNKNOWN, "n0")


def test_vote_is_persisted_before_it_is_answered():
    """Raft, figure 2: updated on stable storage before responding."""
    script = Script(2)
    script.vote("n2", 2, -1, -1)
    persist, answer = script.done
    assert persist.state == TermVote(2, "n2")
    assert answer.message.vote_result is R.ACCEPT


def test_a_forged_term_does_not_use_up_all_terms():
    """One frame with the largest number would end elections for good."""
    script = follower()
    assert script.vote("n0", (1 << 63) - 1, 9, 9).vote_result is VoteResult.REJECT_TERM_NOT_READY
    assert script.beat("n2", (1 << 63) - 1).code == 416
    assert script.node.term == 2
    script.vote("n0", 1000, 9, 9)
    assert script.node.term == 1000
    most = 1000 + (1 << 32)
    script.vote("n0", most + 1, 9, 9)
    assert script.node.term == 1000
    script.vote("n0", most, 9, 9)
    assert script.node.term == most


def test_raft_5_2_one_vote_in_a_term():
    """The first comes, the others go; also after a restart with what was persisted."""
    script = Script(2)
    assert script.vote("n2", 2, -1, -1).vote_result is R.ACCEPT
    assert script.vote("n0", 2, -1, -1).vote_result is R.REJECT_ALREADY_VOTED
    restarted = Script(2, voted_for="n2")
    assert restarted.vote("n0", 2, -1, -1).vote_result is R.REJECT_ALREADY_VOTED
    assert restarted.vote("n2", 2, -1, -1).vote_result is R.ACCEPT


# The candidate


def candidate(*answers, term=2, **changes):
    """:returns: script and actions after a first round with these answers of n0 and n2."""
    script = Script(term, entries=ENTRIES, **changes)
    calls = script.sent(VoteRequest, script.run(0))
    actions = []
    for call, (result, its_term) in zip(calls, answers, strict=False):
        actions += script.respond(call, VoteResponse(term=its_term, vote_result=result))
    return script, actions


def test_8_1_first_vote_at_once_with_the_persisted_term():
    script = Script(7)
    calls = script.sent(VoteRequest, script.run(0))
    assert [(call.peer, call.message.term) for call in calls] == [("n0", 7), ("n2", 7)]
    assert script.of(Persist)[0].state == TermVote(7, "n1")
    assert isinstance(script.done[0], Persist)


def test_8_2_fresh_group_votes_in_term_0():
    script = Script()
    assert script.sent(VoteRequest, script.run(0))[0].message.term == 0


def test_who_voted_for_itself_raises_the_term_after_a_restart():
    """A leader that lost its tail must not lead again in the term of that tail."""
    script = Script(7, voted_for="n1")
    assert script.sent(VoteRequest, script.run(0))[0].message.term == 8
    upstream = Script(7, voted_for="n1", new_term_after_restart=False)
    assert upstream.sent(VoteRequest, upstream.run(0))[0].message.term == 7


def test_a_term_that_another_raised_is_not_raised_again():
    """Each would be ahead of the other: they would never vote in one term."""
    script = Script(7, voted_for="n1")
    script.vote("n2", 9, -1, -1)
    assert script.node.term == 9
    assert script.sent(VoteRequest, script.run(1000))[0].message.term == 9


@pytest.mark.parametrize(
    ("row", "answers", "term_after", "pause"),
    [
        (1, [(R.REJECT_EXPIRED_VOTE_TERM, 6), (R.ACCEPT, 2)], 6, 300),
        (2, [(R.REJECT_ALREADY_HAS_LEADER, 2)], 2, 6300),
        (4, [(R.REJECT_SMALL_LEDGER_END_INDEX, 2)] * 2, 2, 1300),
        (6, [(R.REJECT_TERM_NOT_READY, 1)], 2, 10),
        (7, [(R.REJECT_ALREADY_VOTED, 2)] * 2, 3, 300),
    ],
)
def test_8_4(row, answers, term_after, pause):
    """What the answers mean for the next vote: its term, and when it comes."""
    script, actions = candidate(*answers, max_vote_interval=300)
    if row == 1:  # with one of two the round is not over: accepted is not a quorum yet
        assert script.node.role is MemberRole.CANDIDATE
    assert not script.sent(VoteRequest, actions)
    assert not script.sent(VoteRequest, script.run(pause - 1))
    calls = script.sent(VoteRequest, script.run(1))
    assert calls[0].message.term == term_after


def test_8_4_pauses_differ():
    """Two candidates that always vote at the same time would never elect one."""
    member = Script(2).node.member
    pauses = [member.random_between(300, 1000) for _ in range(200)]
    assert 300 <= min(pauses) < 350
    assert 950 < max(pauses) < 1000
    assert {member.random_between(300, 300) for _ in range(20)} == {300}


def test_8_4_row_3_nobody_answers():
    """After 2 to 3 s without a quorum of answers the term stays."""
    script, _ = candidate()
    assert not script.sent(VoteRequest, script.run(2000 + 299))
    calls = script.sent(VoteRequest, script.run(3000 + 1000 - 2299))
    assert {call.message.term for call in calls} == {2}
    assert calls
    script.run(script.node.next_wake - script.now)  # nobody answers this round either
    assert script.node.next_wake > script.now


def test_8_4_row_5_a_quorum_makes_a_leader():
    script, actions = candidate((R.ACCEPT, 2))
    assert script.of(RoleChanged, actions) == [RoleChanged(MemberRole.LEADER, 2, "n1")]
    beats = script.sent(HeartBeatRequest, script.run(0))
    assert [call.peer for call in beats] == ["n0", "n2"]


def test_8_4_row_1_comes_before_row_5():
    """With larger terms about, a quorum is no victory."""
    answers = {
        "n0": VoteResponse(term=5, vote_result=R.REJECT_EXPIRED_VOTE_TERM),
        "n1": VoteResponse(term=2, vote_result=R.ACCEPT),
        "n2": None,
    }
    assert VoteTally.count(answers) == VoteTally(valid=2, accepted=1, max_term=5)
    assert VoteTally.count({"n0": None}) == VoteTally()


def test_answers_of_an_old_round_do_not_count():
    script = Script(2, entries=ENTRIES)
    calls = script.sent(VoteRequest, script.run(0))
    script.vote("n2", 9, 3, 2)  # row 6: the round is over
    script.respond(calls[0], VoteResponse(term=2, vote_result=R.ACCEPT))
    assert script.node.role is MemberRole.CANDIDATE
    assert script.node.term == 9


def test_raft_5_2_a_late_vote_makes_no_second_leader():
    """Another leads in this term already; whoever gets two votes late must not."""
    script, _ = candidate()
    late = script.sent(VoteRequest)[1]
    script.beat("n0", 2)
    script.respond(late, VoteResponse(term=2, vote_result=R.ACCEPT))
    assert script.node.role is MemberRole.FOLLOWER
    assert script.node.leader_id == "n0"


def test_who_followed_does_not_raise_the_term_because_of_an_older_round():
    """Section 8.1: after the leader's silence the first vote is in its term."""
    script, _ = candidate((R.REJECT_ALREADY_VOTED, 2), (R.REJECT_ALREADY_VOTED, 2))
    script.beat("n0", 2)
    script.done.clear()
    script.run(6001)
    assert script.sent(VoteRequest)[0].message.term == 2


def test_8_1_candidate_after_6_seconds_of_silence():
    script = follower()
    script.node.tick(script.now)
    assert not script.sent(VoteRequest, script.run(6000))
    script.run(1)
    assert script.node.role is MemberRole.CANDIDATE
    assert script.sent(VoteRequest)[0].message.term == 2


def test_one_member_alone_leads():
    script = Script(nodes=1, self_id="n0")
    script.run(0)
    assert script.node.role is MemberRole.LEADER
    assert PutsCompleted(0, 200) in script.put(b"x")


def test_18_2_sticky_leader():
    """Off by default; a vote that says that the leader asked for it is always taken."""
    assert follower().vote("n2", 3, 3, 2).vote_result is R.REJECT_TERM_NOT_READY
    script = follower(sticky_leader=4000)
    assert script.vote("n2", 3, 3, 2).vote_result is R.REJECT_ALREADY_HAS_LEADER
    script.run(4000)
    assert script.vote("n2", 3, 3, 2).vote_result is R.REJECT_TERM_NOT_READY
    script = follower(sticky_leader=4000)
    assert script.vote("n2", 3, 3, 2, transfer=True).vote_result is R.REJECT_TERM_NOT_READY
    script = follower(sticky_leader=4000)
    script.run(3999)
    assert script.vote("n2", 3, 3, 2).vote_result is R.REJECT_ALREADY_HAS_LEADER


def test_18_2_a_leader_sticks_to_itself_as_long_as_its_quorum_answers():
    """Unless the candidate is whom it hands over to."""
    for pause, transferee, result in (
        (3999, None, R.REJECT_ALREADY_HAS_LEADER),
        (4000, None, R.REJECT_TERM_NOT_READY),
        (3999, "n2", R.REJECT_TERM_NOT_READY),
        (3999, "n0", R.REJECT_ALREADY_HAS_LEADER),
    ):
        script = Script(2, entries=ENTRIES, sticky_leader=4000, heart_beat_interval=9000).lead()
        script.run(pause)
        script.node.member.transferee = transferee
        assert script.vote("n2", 3, 3, 2).vote_result is result


def test_8_7_two_candidates_at_once():
    """The recorded fail-over: ALREADY_VOTED, then a larger term, NOT_READY, ACCEPT, leader."""
    script = follower()
    script.run(6001)
    vote = script.sent(VoteRequest)[0]
    # both vote in term 2, in which they had voted for n0
    assert script.vote("n2", 2, 3, 2).vote_result is R.REJECT_ALREADY_VOTED
    script.respond(vote, None)
    answer = VoteResponse(term=2, vote_result=R.REJECT_ALREADY_VOTED)
    script.respond(script.sent(VoteRequest)[1], answer)
    script.done.clear()
    script.run(1000)
    votes = script.sent(VoteRequest)
    assert votes[0].message.term == 3
    to_n2 = next(call for call in votes if call.peer == "n2")
    script.done.clear()
    script.respond(to_n2, VoteResponse(term=2, vote_result=R.REJECT_TERM_NOT_READY))
    again = [call for call in script.sent(VoteRequest, script.run(10)) if call.peer == "n2"]
    script.respond(again[0], VoteResponse(term=3, vote_result=R.ACCEPT))
    assert script.node.role is MemberRole.LEADER


def test_calls_are_answered_once():
    """An answer that comes twice, or that nobody waits for, is nothing."""
    script, _ = candidate((R.ACCEPT, 2))
    assert script.respond(SendRequest("n0", 99, 0, VoteRequest(), 0), None) == []


def test_8_2_a_round_waits_two_to_three_seconds_for_answers():
    """Each for another time, and never for less: two that are slow would elect nobody."""
    waits = []
    script = Script(2)
    for _ in range(200):
        actions = script.run(script.node.next_wake - script.now)
        if script.sent(VoteRequest, actions):
            waits.append(script.node.next_wake - script.now)
    assert len(waits) > 90
    assert 2000 <= min(waits) < 2050
    assert 2950 < max(waits) < 3000


def test_8_4_a_round_without_answers_is_followed_by_a_pause():
    script = Script(2, max_vote_interval=300)
    script.run(0)
    script.run(script.node.next_wake - script.now)
    assert script.node.next_wake == script.now + 300


def test_8_4_what_is_counted():
    """Who says nothing of use is not heard; of larger terms the largest."""
    unknown = VoteResponse(term=9, vote_result=R.UNKNOWN)
    assert VoteTally.count({"n0": unknown}) == VoteTally()
    refused = [VoteResponse(term=term, vote_result=R.REJECT_EXPIRED_VOTE_TERM) for term in (5, 9)]
    tally = VoteTally.count({"n0": refused[0], "n2": refused[1]})
    assert (tally.valid, tally.max_term) == (2, 9)


def test_8_4_row_1_is_about_larger_terms_only():
    script, _ = candidate((R.REJECT_EXPIRED_VOTE_TERM, 2), (R.ACCEPT, 2))
    assert (script.node.role, script.node.term) == (MemberRole.LEADER, 2)
