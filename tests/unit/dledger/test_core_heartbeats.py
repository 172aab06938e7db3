"""Heartbeats, row by row: dledger.md, sections 8.5 and 8.6."""

import pytest

from rmq_ha.dledger.actions import RoleChanged
from rmq_ha.dledger.codes import RequestCode, ResponseCode
from rmq_ha.dledger.messages import HeartBeatRequest, HeartBeatResponse, VoteRequest
from rmq_ha.dledger.values import Role
from rmq_ha.testing.dledger_script import Script

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
    assert script.of(RoleChanged) == [RoleChanged(Role.FOLLOWER, 2, "n0")]


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
    assert script.node.role is Role.LEADER


def test_8_5_only_403_brings_a_larger_term():
    """Whoever is in another group by mistake deposes no leader."""
    script = Script(2).lead()
    for _ in range(9):
        calls = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(calls[0], HeartBeatResponse())
        script.respond(calls[1], HeartBeatResponse(code=401, term=9))
    assert (script.node.role, script.node.term) == (Role.LEADER, 2)


def test_8_5_row_4_silence_counts_from_the_last_quorum():
    """However long ago this leader began."""
    script = Script(2).lead()
    for _ in range(9):
        script.beaten(script.run(2001))
    script.beaten(script.run(2001), ResponseCode.NETWORK_ERROR)
    assert script.node.role is Role.LEADER


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
    assert (script.node.role, script.node.term) == (Role.LEADER, 2)
    assert script.sent(HeartBeatRequest, script.run(10))


def test_8_5_row_3_a_larger_term():
    script = Script(2).lead()
    script.beaten(script.run(2001), 403, 9)
    assert (script.node.role, script.node.term) == (Role.CANDIDATE, 9)


def test_8_5_row_4_another_leader():
    script = Script(2).lead()
    term = script.node.term
    script.beaten(script.run(2001), 409)
    assert (script.node.role, script.node.term) == (Role.CANDIDATE, term)


def test_8_5_row_5_six_seconds_without_a_quorum():
    script = Script(2).lead()
    script.run(6000)
    assert script.node.role is Role.LEADER
    script.run(2100)
    assert script.node.role is not Role.LEADER


def test_heed_larger_term():
    """A member that can never return makes a new term, after three rounds; not a passing one."""
    script = Script(2).lead()
    for left in (2, 1, 0):
        calls = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(calls[0], HeartBeatResponse())
        script.respond(calls[1], HeartBeatResponse(code=403, term=9))
        assert (script.node.role is Role.LEADER) == (left > 0)
    assert script.node.term == 9
    assert script.sent(VoteRequest, script.run(1000))[0].message.term == 9


def test_wrong_group():
    script = Script(2)
    request = HeartBeatRequest(group="zz", remote_id="n1", leader_id="n0", term=2)
    assert script.ask(RequestCode.HEART_BEAT, request).code == 400


def test_8_5_refusals_of_the_own_term_depose_nobody():
    script = Script(2).lead()
    for _ in range(9):
        calls = script.sent(HeartBeatRequest, script.run(2001))
        script.respond(calls[0], HeartBeatResponse())
        script.respond(calls[1], HeartBeatResponse(code=403, term=2))
    assert (script.node.role, script.node.term) == (Role.LEADER, 2)


def test_8_5_row_2_peers_that_are_not_ready_are_asked_again_after_a_pause():
    """At once, two members would ask each other as fast as they can."""
    script = Script(2).lead()
    for call in script.sent(HeartBeatRequest, script.run(2001)):
        script.respond(call, HeartBeatResponse(code=ResponseCode.TERM_NOT_READY))
    pause = script.settings.state_interval
    assert not script.sent(HeartBeatRequest, script.run(pause - 1))
    assert len(script.sent(HeartBeatRequest, script.run(1))) == 2
