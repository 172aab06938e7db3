"""Heartbeats, row by row: dledger.md, sections 8.5 and 8.6."""

import pytest

from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.server.dledger.actions import RoleChanged
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    PushEntryRequest,
    VoteRequest,
)
from tests.sim_kit.dledger_script import Script

ENTRIES = (1, 1, 2, 2)


@pytest.mark.parametrize(
    ("row", "leader", "term", "code", "its_term"),
    [
        (1, "nX", 2, 401, 2),
        (2, "n1", 2, 402, 2),
        (3, "n0", 1, 403, 2),
        (4, "n0", 2, 200, -1),
        (6, "n2", 2, 409, -1),
        (7, "n2", 3, 416, -1),
    ],
)
def test_8_6(row, leader, term, code, its_term):
    """A heartbeat is answered by the first row that matches."""
    answer = Script(2, entries=ENTRIES).follow("n0").beat(leader, term)
    assert (answer.code, answer.term) == (code, its_term), row


def test_8_6_row_5_a_restarted_member_joins_by_a_heartbeat():
    script = Script(2, voted_for="n2", entries=ENTRIES)
    assert script.beat("n0", 2).code == 200
    assert script.of(RoleChanged) == [RoleChanged(MemberRole.FOLLOWER, 2, "n0")]


def test_8_6_row_7_then_row_5():
    """The term is raised at once, so the next heartbeat is welcome."""
    script = Script(2, entries=ENTRIES).follow("n0")
    script.beat("n2", 7)
    assert script.beat("n2", 7).code == 200
    assert (script.node.leader_id, script.node.term) == ("n2", 7)


def test_6_2_a_success_says_nothing_else():
    assert Script(2).beat("n0", 2) == HeartBeatResponse()


def test_8_5_every_2_seconds():
    script = Script(2).lead()
    assert not script.sent(HeartBeatRequest, script.run(2000))
    assert len(script.sent(HeartBeatRequest, script.run(1))) == 2


def test_8_5_row_1_a_quorum_of_successes_is_all():
    """Other answers of the round are ignored, even a larger term."""
    script = Script(2, heed_larger_term=False).lead()
    for _ in range(9):
        calls = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(calls[0], HeartBeatResponse())
        script.respond(calls[1], HeartBeatResponse(code=403, term=9))
    assert script.node.role is MemberRole.LEADER


def test_8_5_only_403_brings_a_larger_term():
    """Whoever is in another group by mistake deposes no leader."""
    script = Script(2).lead()
    for _ in range(9):
        calls = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(calls[0], HeartBeatResponse())
        script.respond(calls[1], HeartBeatResponse(code=401, term=9))
    assert (script.node.role, script.node.term) == (MemberRole.LEADER, 2)


def test_8_5_row_4_silence_counts_from_the_last_quorum():
    """However long ago this leader began."""
    script = Script(2).lead()
    for _ in range(9):
        script.beaten(script.run(2001))
    script.beaten(script.run(2001), DLedgerResponseCode.NETWORK_ERROR)
    assert script.node.role is MemberRole.LEADER


def test_8_5_a_quorum_counts_from_its_answer():
    """And not from the end of the round, for which a silent member makes all wait."""
    script = Script(2).lead()
    call = script.sent(HeartBeatRequest, script.run(2001))[0]
    script.run(500)
    script.respond(call, HeartBeatResponse())
    assert script.node.member.last_quorum == script.now


def test_8_5_row_2_not_ready_is_asked_again_at_once():
    script = Script(2).lead()
    script.beaten(script.run(2001), 416)
    assert script.sent(HeartBeatRequest, script.run(10))


def test_8_5_row_2_goes_before_row_3():
    """Half of the others are about to follow: that makes a quorum, and is no time to step down."""
    script = Script(2, heed_larger_term=False).lead()
    ready, other = script.sent(HeartBeatRequest, script.run(2001))
    script.respond(ready, HeartBeatResponse(code=416))
    script.respond(other, HeartBeatResponse(code=403, term=9))
    assert (script.node.role, script.node.term) == (MemberRole.LEADER, 2)
    assert script.sent(HeartBeatRequest, script.run(10))


def test_8_5_row_3_a_larger_term():
    script = Script(2).lead()
    script.beaten(script.run(2001), 403, 9)
    assert (script.node.role, script.node.term) == (MemberRole.CANDIDATE, 9)


def test_8_5_row_4_another_leader():
    script = Script(2).lead()
    term = script.node.term
    script.beaten(script.run(2001), 409)
    assert (script.node.role, script.node.term) == (MemberRole.CANDIDATE, term)


def test_8_5_row_5_six_seconds_without_a_quorum():
    script = Script(2).lead()
    script.run(6000)
    assert script.node.role is MemberRole.LEADER
    script.run(2100)
    assert script.node.role is not MemberRole.LEADER


def test_heed_larger_term():
    """A member that can never return makes a new term, after three rounds; not a passing one."""
    script = Script(2).lead()
    for left in (2, 1, 0):
        calls = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(calls[0], HeartBeatResponse())
        script.respond(calls[1], HeartBeatResponse(code=403, term=9))
        assert (script.node.role is MemberRole.LEADER) == (left > 0)
    assert script.node.term == 9
    assert script.sent(VoteRequest, script.run(1000))[0].message.term == 9


def test_a_member_that_follows_again_has_refused_nothing():
    """Refusals count in a row, and in one leadership: who was late now and then deposes nobody."""
    script = Script(2).lead()

    def beaten(code):
        first, second = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(first, HeartBeatResponse())
        script.respond(second, HeartBeatResponse(code=code, term=script.node.term + 1))

    for code in (403, 403, 200, 403, 403):
        beaten(code)
    script.beat("n0", 9)
    script.done.clear()
    script.lead()
    for _ in range(2):
        beaten(403)
    assert script.node.role is MemberRole.LEADER


def test_wrong_group():
    script = Script(2)
    request = HeartBeatRequest(group="zz", remote_id="n1", leader_id="n0", term=2)
    assert script.ask(DLedgerRequestCode.HEART_BEAT, request).code == 400


def test_8_5_refusals_of_the_own_term_depose_nobody():
    script = Script(2).lead()
    for _ in range(9):
        calls = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(calls[0], HeartBeatResponse())
        script.respond(calls[1], HeartBeatResponse(code=403, term=2))
    assert (script.node.role, script.node.term) == (MemberRole.LEADER, 2)


def test_8_5_row_2_peers_that_are_not_ready_are_asked_again_after_a_pause():
    """At once, two members would ask each other as fast as they can."""
    script = Script(2).lead()
    for call in script.sent(HeartBeatRequest, script.run(2001)):
        script.respond(call, HeartBeatResponse(code=DLedgerResponseCode.TERM_NOT_READY))
    pause = script.settings.state_interval
    assert not script.sent(HeartBeatRequest, script.run(pause - 1))
    assert len(script.sent(HeartBeatRequest, script.run(1))) == 2


# What a round leaves behind


def test_8_5_a_round_ends_with_its_leadership():
    """Its answers, late or not, would depose whoever leads again."""
    script = Script(2, nodes=5).lead()
    call = script.sent(HeartBeatRequest, script.run(2001))[0]
    script.respond(call, HeartBeatResponse(code=DLedgerResponseCode.INCONSISTENT_LEADER))
    script.beat("n0", 9)
    script.beat("n0", 9)
    script.run(20_000)
    script.done.clear()
    script.lead()
    assert (script.node.role, script.node.term) == (MemberRole.LEADER, 9)


def late_answers(count=1):
    """A leader that was deposed, and heartbeats that one member has not answered yet."""
    script = Script(2, entries=ENTRIES).lead()
    late = []
    for _ in range(count):
        first, second = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(second, HeartBeatResponse())
        late.append(first)
    script.beat("n0", 9)
    return script, late


@pytest.mark.parametrize("leads_again", [False, True])
def test_8_5_who_followed_an_earlier_leadership_is_pushed_nothing(leads_again):
    """It has not heard of the new term, or of its leader; a follower pushes nothing at all."""
    script, (call,) = late_answers()
    if leads_again:
        script.run(20_000)
        script.done.clear()
        script.win()
    script.done.clear()
    assert script.respond(call, HeartBeatResponse()) == []
    assert script.sent(PushEntryRequest) == []


def test_8_5_refusals_of_an_earlier_leadership_raise_no_term():
    script, calls = late_answers(3)
    script.beat("n0", 9)
    assert script.node.role is MemberRole.FOLLOWER
    for call in calls:
        script.respond(call, HeartBeatResponse(code=DLedgerResponseCode.EXPIRED_TERM, term=12))
    assert (script.node.role, script.node.term) == (MemberRole.FOLLOWER, 9)


def test_8_5_refusals_are_counted_in_one_leadership():
    """Though nobody has answered in the new one."""
    script = Script(2).lead()

    def refused():
        first, second = script.sent(HeartBeatRequest, script.run(2001))[:2]
        script.respond(first, HeartBeatResponse())
        answer = HeartBeatResponse(code=DLedgerResponseCode.EXPIRED_TERM, term=script.node.term + 1)
        script.respond(second, answer)

    refused()
    refused()
    script.beat("n0", 9)
    script.run(20_000)
    script.done.clear()
    script.win()
    refused()
    refused()
    assert script.node.role is MemberRole.LEADER
    refused()
    assert script.node.role is MemberRole.CANDIDATE


def test_8_5_row_4_a_new_leader_has_six_seconds_to_be_answered():
    """However long nobody led."""
    script = Script(2)
    script.run(60_000)
    script.done.clear()
    script.win().run(6000)
    assert script.node.role is MemberRole.LEADER


def test_8_5_row_3_is_about_larger_terms_only():
    script = Script(2).lead()
    script.beaten(script.run(2001), DLedgerResponseCode.EXPIRED_TERM, 2)
    assert (script.node.role, script.node.term) == (MemberRole.LEADER, 2)


def test_8_5_row_4_silence_is_more_than_six_seconds():
    """Six, unless configured: three rounds."""
    script = Script(2, heart_beat_interval=1).lead()
    script.run(script.settings.leader_silence)
    assert script.node.role is MemberRole.LEADER
    script.run(2)
    assert script.node.role is MemberRole.CANDIDATE
