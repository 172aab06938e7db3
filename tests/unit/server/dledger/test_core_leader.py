"""A leader: dispatch, quorum, transfer: dledger.md, sections 9 to 13 and 18.2; Raft, 5.3, 5.4.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.config.dledger_settings import DLedgerSettings, parse_ids, parse_peers
from rmq_ha.base.errors import ConfigurationError, CorruptRecord, LedgerFull
from rmq_ha.base.store_format.dledger_values import MemberRole, Room
from rmq_ha.server.dledger.actions import (
    AnswerRequest,
    CommitIndexMoved,
    PutsCompleted,
    RoleChanged,
    SendRequest,
    Sync,
)
from rmq_ha.server.dledger.codes import (
    DLedgerRequestCode,
    DLedgerResponseCode,
    PushType,
    VoteResult,
)
from rmq_ha.server.dledger.messages import (
    AppendEntryRequest,
    GetEntriesRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)
from rmq_ha.server.dledger.quorum import quorum_index
from rmq_ha.server.dledger.transfer import order_to_best
from tests.sim_kit.dledger_script import GROUP, Script

APPEND, COMMIT = PushType.APPEND, PushType.COMMIT
COMPARE, TRUNCATE = PushType.COMPARE, PushType.TRUNCATE
ENTRIES = (1, 1, 2, 2)


def leader(entries=ENTRIES, **changes):
    return Script(2, entries=entries, **changes).lead()


def pushes(script, actions=None, peer="n0"):
    """What was pushed to one peer: type and index."""
    calls = [call for call in script.sent(PushEntryRequest, actions) if call.peer == peer]
    return [(call.message.type, indexes(call)) for call in calls]


def indexes(call):
    message = call.message
    if message.batch_entry:
        return [entry.index for entry in message.batch_entry]
    return None if message.entry is None else message.entry.index


def last_push(script, peer="n0"):
    return [call for call in script.sent(PushEntryRequest) if call.peer == peer][-1]


def appending(entries=ENTRIES, **changes):
    """A leader whose peers both have all that it has."""
    script = leader(entries, **changes)
    for peer in ("n0", "n2"):
        script.pushed(last_push(script, peer))
    script.done.clear()
    return script


# 11.1 and 11.2


def test_17_nothing_is_pushed_before_a_heartbeat_has_been_answered():
    script = Script(2, entries=ENTRIES)
    for call in script.sent(VoteRequest, script.run(0)):
        script.respond(call, VoteResponse(term=2, vote_result=VoteResult.ACCEPT))
    script.run(0)
    assert script.node.role is MemberRole.LEADER
    assert not script.sent(PushEntryRequest)
    script.beaten(script.done)
    assert pushes(script) == [(COMPARE, 3)]


def test_11_2_equal_at_the_end():
    script = leader()
    script.pushed(last_push(script))
    assert script.node.watermark("n0") == 3
    script.put(b"x")
    assert pushes(script)[-1] == (APPEND, 4)


@pytest.mark.parametrize(
    ("code", "begin", "end", "following"),
    [
        (200, 0, 9, (TRUNCATE, 3)),  # the follower has extra entries
        (406, -1, -1, (TRUNCATE, 0)),  # it is empty
        (406, 10, 20, (TRUNCATE, 0)),  # another range
        (406, 3, 5, (COMPARE, 2)),  # it begins with this one
        (406, 0, 1, (COMPARE, 1)),  # it is behind
        (406, 0, 0, (COMPARE, 0)),  # it has only the first one
        (406, 0, 5, (COMPARE, 2)),  # inside, but different
    ],
)
def test_11_2(code, begin, end, following):
    """What a COMPARE at the end leads to."""
    script = leader()
    script.pushed(last_push(script), code, begin=begin, end=end)
    assert pushes(script)[-1] == following


def test_11_2_down_to_the_begin_and_then_truncate():
    script = leader()
    for expected in (2, 1, 0):
        script.pushed(last_push(script), 406, end=5)
        assert pushes(script)[-1] == (COMPARE, expected)
    script.pushed(last_push(script), 406, end=5)
    assert pushes(script)[-1] == (TRUNCATE, 0)
    script.pushed(last_push(script))
    assert pushes(script)[-3:] == [(APPEND, 1), (APPEND, 2), (APPEND, 3)]


def test_what_follows_an_equal_entry_is_compared_before_it_is_cut():
    """The follower may have it from this leader (an answer that came late)."""
    script = leader()
    script.pushed(last_push(script), 406, end=1)
    script.pushed(last_push(script), 200, end=3)
    assert pushes(script)[-1] == (COMPARE, 3)
    script.pushed(last_push(script), 406, end=3)
    assert pushes(script)[-1] == (COMPARE, 2)
    script.pushed(last_push(script), 200, end=3)
    assert pushes(script)[-1] == (TRUNCATE, 2)


@pytest.mark.parametrize("code", [405, 407, 302])
def test_11_2_other_answers_pause_500_ms(code):
    script = leader()
    script.pushed(last_push(script), code)
    assert not pushes(script, script.run(499))
    assert pushes(script, script.run(1)) == [(COMPARE, 3)]
    assert script.node.next_wake > script.now
    script.pushed(last_push(script), 406, begin=-1, end=-1)
    assert pushes(script)[-1] == (TRUNCATE, 0)
    assert script.node.next_wake > script.now


def test_who_leads_again_compares_anew():
    """Whatever was asked in the leadership before is answered to nobody."""
    script = leader()
    late = last_push(script)
    script.beat("n0", 9)
    assert script.pushed(late) == []
    assert script.node.watermark("n0") == -1
    script.done.clear()
    script.lead()
    assert pushes(script) == [(COMPARE, 3)]
    assert not script.pushed(late)
    script.pushed(last_push(script), end=9)
    assert pushes(script)[-1] == (TRUNCATE, 3)
    late = last_push(script)
    script.beat("n0", 99)
    script.lead()
    assert script.pushed(late) == []
    assert script.node.watermark("n0") == -1


def test_who_compares_after_a_pause_is_not_hurried_by_puts():
    """A peer in trouble would be asked at every put."""
    script = leader()
    script.pushed(last_push(script), 405)
    assert not [
        call for call in script.sent(PushEntryRequest, script.put(b"x")) if call.peer == "n0"
    ]
    assert pushes(script, script.run(500))[0] == (COMPARE, 4)


def test_what_is_known_to_differ_is_not_compared_twice():
    """Also when the peer's end went back and forth meanwhile: it was restarted."""
    script = leader()
    for code, end, following in ((406, 3, 2), (406, 1, 1), (200, 3, 2)):
        script.pushed(last_push(script), code, end=end)
        assert pushes(script)[-1] == (COMPARE, following)


def test_11_1_nothing_to_compare_in_an_empty_ledger():
    script = leader(entries=())
    assert not pushes(script)
    script.put(b"first")
    assert pushes(script) == [(COMPARE, 0)]


def test_11_1_entries_below_the_own_begin():
    """419: compare again, which ends in TRUNCATE at the begin."""
    script = leader()
    script.pushed(last_push(script), 406, end=0)
    script.ledger.commit(3)
    script.ledger.expire(2)
    script.pushed(last_push(script))
    assert pushes(script)[-1] == (COMPARE, 3)


def test_11_1_the_first_that_is_left_is_pushed():
    script = leader()
    script.pushed(last_push(script), 406, end=0)
    script.ledger.commit(3)
    script.ledger.expire(1)
    script.pushed(last_push(script))
    assert pushes(script)[-3:] == [(APPEND, 1), (APPEND, 2), (APPEND, 3)]


def test_11_1_commit_after_a_second_without_pushes():
    script = appending()
    assert not pushes(script, script.run(1000))
    script.node.tick(script.now)
    assert pushes(script, script.run(1)) == [(COMMIT, None)]
    assert not pushes(script, script.run(1000))


def test_11_1_the_first_without_an_answer_is_pushed_again():
    script = appending()
    script.put(b"a", b"b")
    assert pushes(script, script.run(1001)) == [(APPEND, 4)]


@pytest.mark.parametrize("code", [413, 421, 415, 405])
def test_11_1_other_answers_are_transient(code):
    script = appending()
    script.put(b"a")
    script.pushed(last_push(script), code)
    assert pushes(script, script.run(1001)) == [(APPEND, 4)]


def test_11_1_406_compares_again():
    script = appending()
    script.put(b"a")
    call = last_push(script)
    script.put(b"b")
    script.pushed(last_push(script), 200)
    assert pushes(script, script.pushed(call, 406)) == [(COMPARE, 5)]


def test_11_6_406_after_every_compare_does_not_loop():
    """A Java follower with junk behind its end: not hundreds of rounds a second."""
    script = appending()
    script.put(b"a")
    assert not pushes(script, script.pushed(last_push(script), 406))
    assert pushes(script, script.run(500)) == [(COMPARE, 4)]


def test_a_peer_that_has_lost_entries_is_compared_with():
    """It was restarted; its answer to the idle COMMIT says so."""
    script = appending()
    script.run(1001)
    script.pushed(last_push(script), 200, end=2)
    assert pushes(script)[-1] == (COMPARE, 3)


def test_an_idle_commit_without_an_answer_changes_nothing():
    """Nor does one that answers when there is something newer on the way."""
    script = appending()
    script.run(1001)
    call = last_push(script)
    assert not pushes(script, script.respond(call, None))
    script.run(1001)
    call = last_push(script)
    assert call.message.type == COMMIT
    script.put(b"a")
    assert not pushes(script, script.pushed(call, 200, end=2))


def test_answers_of_an_old_leadership_do_not_count():
    script = appending()
    script.put(b"a")
    call = last_push(script)
    script.beat("n0", 9)
    script.pushed(call)
    assert script.node.watermark("n0") == -1
    assert script.ledger.committed_index == -1


def test_an_answer_counts_for_no_more_than_was_sent_and_only_in_its_term():
    """What a peer says that counts wrongly would make a put safe that is not."""
    for count, term, watermark in ((99, 2, 4), (0, 2, 4), (1, 2, 4), (1, 1, 3)):
        script = appending()
        script.put(b"a")
        call = last_push(script)
        answer = PushEntryResponse(term=term, code=200, index=4, count=count, end_index=4)
        script.respond(call, answer)
        assert script.node.watermark("n0") == watermark


@pytest.mark.parametrize(("count", "following"), [(0, (COMPARE, 5)), (1, (COMPARE, 5))])
def test_of_a_batch_a_peer_may_have_the_first_part_only(count, following):
    script = appending(is_enable_batch_push=True)
    script.put(b"a", b"b")
    answer = PushEntryResponse(term=2, code=200, index=4, count=count, end_index=4)
    assert pushes(script, script.respond(last_push(script), answer)) == [following]
    assert (script.node.watermark("n0"), script.ledger.committed_index) == (3, -1)


def test_a_batch_without_an_answer_is_pushed_again_as_it_was():
    """And nobody is woken before it is time."""
    script = appending(is_enable_batch_push=True, heart_beat_interval=60_000)
    script.put(b"a", b"b")
    began = script.now
    assert script.node.next_wake == began + 1001
    script.run(500)
    script.put(b"c")
    assert script.node.next_wake == began + 1001
    assert pushes(script, script.run(501)) == [(APPEND, [4, 5])]
    assert script.node.next_wake == script.now + 1001  # of the batch, whose turn it is again


def test_12_batches():
    """Entries are collected until they have 4096 bytes; what is there goes out."""
    script = appending(is_enable_batch_push=True)
    actions = script.put(*[b"x" * 1000] * 6)
    assert pushes(script, actions) == [(APPEND, [4, 5, 6, 7]), (APPEND, [8, 9])]
    script.pushed(last_push(script))
    assert script.node.watermark("n0") == 9
    script = appending(is_enable_batch_push=True, max_batch_push_size=200)
    actions = script.put(*[b"x" * size for size in (51, 52, 1, 51, 52, 1)])
    assert pushes(script, actions) == [(APPEND, [4, 5, 6]), (APPEND, [7, 8, 9])]


def test_13_in_flight():
    script = appending(max_in_flight=2)
    assert len(pushes(script, script.put(b"a", b"b", b"c"))) == 2
    first = next(c for c in script.sent(PushEntryRequest) if c.peer == "n0")
    assert pushes(script, script.pushed(first)) == [(APPEND, 6)]


def test_13_batches_in_flight():
    script = appending(is_enable_batch_push=True, max_batches_in_flight=1, max_in_flight=9)
    assert pushes(script, script.put(b"a")) == [(APPEND, [4])]
    assert not pushes(script, script.put(b"b"))
    assert not pushes(script, script.put(b"c"))
    assert pushes(script, script.pushed(last_push(script))) == [(APPEND, [5, 6])]


@pytest.mark.parametrize(("most", "count"), [(250, 3), (201, 3), (200, 2)])
def test_13_bytes_in_flight(most, count):
    """Of this comparison: what was sent before it takes no room."""
    script = appending(max_push_bytes=most)
    assert len(pushes(script, script.put(*[b"x" * 52] * 5))) == count
    first = next(call for call in script.sent(PushEntryRequest) if call.peer == "n0")
    script.pushed(first)
    assert len(pushes(script)) == count + 1
    script.pushed(last_push(script), 406)
    script.pushed(last_push(script), 406, end=4)
    assert len(pushes(script, script.pushed(last_push(script)))) == count


def test_13_throttle():
    """Far behind, a peer gets so many bytes a second."""
    script = leader(
        entries=(2,) * 40, throttle_entries=5, peer_push_throttle_point=100, peer_push_quota=200
    )
    script.pushed(last_push(script), 406, end=0)
    first = len(pushes(script, script.pushed(last_push(script))))
    assert first in (3, 4, 5)
    assert not pushes(script, script.run(999 - script.now % 1000))
    assert len(pushes(script, script.run(1))) in (3, 4, 5)


def test_13_only_who_is_far_behind_in_bytes_is_throttled():
    """Many small entries are no burden."""
    script = leader(entries=(2,) * 40, throttle_entries=5, peer_push_quota=200)
    script.pushed(last_push(script), 406, end=0)
    assert len(pushes(script, script.pushed(last_push(script)))) == 39


def test_13_the_last_place_in_flight_is_throttled_too():
    """Else whoever has but one would pass the quota, an answer at a time."""
    script = leader(
        entries=(2,) * 40,
        throttle_entries=5,
        peer_push_throttle_point=100,
        peer_push_quota=200,
        max_in_flight=1,
    )
    script.pushed(last_push(script), 406, end=0)
    pushed = len(pushes(script, script.pushed(last_push(script))))
    while found := pushes(script, script.pushed(last_push(script))):
        pushed += len(found)
    assert pushed in (3, 4, 5)


# 10


def test_10_3_the_example():
    """5, 4, 3: a quorum has 4."""
    assert quorum_index([5, 4, 3]) == 4
    assert [quorum_index(marks) for marks in ([7], [7, 5], [7, 6, 5, 4], [9, 8, 7, 6, 5])] == [
        7,
        5,
        5,
        7,
    ]


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=7))
def test_10_3_more_than_half_have_it(marks):
    index = quorum_index(marks)
    assert 2 * sum(mark >= index for mark in marks) > len(marks)
    assert 2 * sum(mark > index for mark in marks) <= len(marks)


def test_10_3_a_quorum_completes_puts():
    script = appending()
    script.put(b"a")
    actions = script.pushed(last_push(script))
    assert script.of(CommitIndexMoved, actions) == [CommitIndexMoved(4)]
    assert script.of(PutsCompleted, actions) == [PutsCompleted(4, 200)]
    assert script.ledger.committed_index == 4


def test_what_is_committed_is_told_once():
    """The second follower's word about the same entry, and the first one's again, are no news."""
    script = appending()
    script.put(b"a")
    calls = [last_push(script, peer) for peer in ("n0", "n2")]
    assert script.of(CommitIndexMoved, script.pushed(calls[0])) == [CommitIndexMoved(4)]
    actions = script.pushed(calls[1])
    assert script.of(CommitIndexMoved, actions) == script.of(PutsCompleted, actions) == []
    assert not script.of(PutsCompleted, script.run(3000))


def test_raft_5_4_2_earlier_terms_are_committed_with_an_own_entry_only():
    """Figure 8; upstream commits them by counting (10.4)."""
    script = appending()
    assert script.ledger.committed_index == -1
    script.put(b"own")
    script.pushed(last_push(script))
    assert script.ledger.committed_index == 4
    upstream = appending(commit_own_term_only=False)
    assert upstream.ledger.committed_index == 3


def test_10_5_no_quorum_in_time():
    """After 2.5 s the put ends with 502; its entry stays, and may be committed later."""
    script = appending()
    script.put(b"a")
    assert not script.of(PutsCompleted, script.run(2500))
    assert script.of(PutsCompleted, script.run(1)) == [PutsCompleted(4, 502)]


def test_each_put_waits_for_its_own_time():
    """Those that a quorum has are not late any more; those behind them have not begun to be."""
    script = appending()
    script.put(b"a")
    first = last_push(script)
    script.run(1000)
    script.put(b"b")
    script.run(1000)
    script.put(b"c")
    assert PutsCompleted(4, 200) in script.pushed(first)
    assert not script.of(PutsCompleted, script.run(1500))
    assert script.of(PutsCompleted, script.run(1)) == [PutsCompleted(5, 502)]
    assert not script.of(PutsCompleted, script.run(999))
    assert script.of(PutsCompleted, script.run(1)) == [PutsCompleted(6, 502)]


def test_the_very_first_put_may_be_late_too():
    script = leader(entries=())
    script.put(b"first")
    assert script.of(PutsCompleted, script.run(2501)) == [PutsCompleted(0, 502)]


def test_puts_that_nobody_has_are_late_one_after_the_other():
    script = appending()
    script.put(b"a")
    script.run(1000)
    script.put(b"b")
    assert script.of(PutsCompleted, script.run(1501)) == [PutsCompleted(4, 502)]
    assert not script.of(PutsCompleted, script.run(999))
    assert script.of(PutsCompleted, script.run(1)) == [PutsCompleted(5, 502)]


def test_18_1_7_pending_puts_fail_on_step_down():
    """Before anybody is told of the new role."""
    script = appending()
    script.put(b"a")
    script.put(b"b")
    script.done.clear()
    script.beat("n0", 9)
    told = [a for a in script.done if isinstance(a, PutsCompleted | RoleChanged)]
    assert told == [PutsCompleted(5, 404), RoleChanged(MemberRole.CANDIDATE, 2, None)]


def test_10_1_why_not_append():
    script = Script(2, entries=ENTRIES, max_pending_requests=2)
    assert script.node.why_not_append() == 404
    script.lead()
    assert script.node.why_not_append() == 200
    script.put(b"a", b"b")
    assert script.node.why_not_append() == 503


def test_18_2_the_leader_counts_itself_when_it_has_synced():
    script = appending(sync_before_ack=True)
    script.put(b"a")
    script.node.synced(3, script.now)  # it had begun before the put
    assert script.of(Sync, script.run(0))
    script.pushed(last_push(script))
    assert script.ledger.committed_index == -1
    script.node.synced(4, script.now)
    assert script.ledger.committed_index == 4


def test_6_5_get_and_append():
    script = appending(serve_append=True)
    get = GetEntriesRequest(group=GROUP, remote_id="n1", begin_index=2)
    assert script.ask(DLedgerRequestCode.GET, get).entries == (script.ledger.entry(2),)
    get = GetEntriesRequest(group=GROUP, remote_id="n1", begin_index=99)
    assert script.ask(DLedgerRequestCode.GET, get).code == 410
    append = AppendEntryRequest(group=GROUP, remote_id="n1", body=b"from outside")
    assert script.ask(DLedgerRequestCode.APPEND, append) is None
    token = script.last_token
    answer = script.answer_to(token, script.pushed(last_push(script)))
    assert (answer.code, answer.index, answer.pos) == (200, 4, script.ledger.entry(4).pos)
    refusing = appending()
    assert refusing.ask(DLedgerRequestCode.APPEND, append).code == 303


def appended_from_outside(**changes):
    """A request that waits for a quorum, and its number."""
    script = appending(serve_append=True, **changes)
    append = AppendEntryRequest(group=GROUP, remote_id="n1", body=b"x")
    assert script.ask(DLedgerRequestCode.APPEND, append) is None
    return script, script.last_token


def test_6_5_each_append_gets_its_own_answer():
    script, first = appended_from_outside()
    append = AppendEntryRequest(group=GROUP, remote_id="n1", body=b"y")
    assert script.ask(DLedgerRequestCode.APPEND, append) is None
    second = script.last_token
    done = []
    for entry in (4, 5):
        done += script.pushed(last_push(script)) if script.ledger.committed_index < entry else []
    answers = [script.answer_to(token, script.of(AnswerRequest)) for token in (first, second)]
    assert [(answer.code, answer.index) for answer in answers] == [(200, 4), (200, 5)]


def test_6_5_an_append_without_a_quorum_is_answered_when_its_time_is_over():
    script, token = appended_from_outside(max_wait_ack=100)
    assert script.answer_to(token, script.run(100)) is None
    assert (
        script.answer_to(token, script.run(1)).code == DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    )


def test_6_5_the_time_is_told_by_whatever_comes():
    """A sync that took too long is an answer that came too late."""
    script = appending(serve_append=True, sync_before_ack=True)
    request = AppendEntryRequest(group=GROUP, remote_id="n1", body=b"x")
    assert script.ask(DLedgerRequestCode.APPEND, request) is None
    script.node.synced(script.ledger.end_index, script.now + 2501)
    (answer,) = script.of(AnswerRequest, script.run(0))
    assert answer.message.code == DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT


def test_6_5_an_append_that_others_decide_now_is_answered():
    script, token = appended_from_outside()
    script.beat("n0", 9)
    assert script.answer_to(token, script.of(AnswerRequest)).code == DLedgerResponseCode.NOT_LEADER


@pytest.mark.parametrize("error", [LedgerFull("full"), OSError(5, "EIO"), ValueError("too large")])
def test_6_5_an_append_that_the_disk_refuses_is_answered(error, monkeypatch):
    script = appending(serve_append=True)

    def refuses(*_):
        raise error

    monkeypatch.setattr(script.ledger, "append", refuses)
    append = AppendEntryRequest(group=GROUP, remote_id="n1", body=b"x")
    assert script.ask(DLedgerRequestCode.APPEND, append).code == DLedgerResponseCode.DISK_ERROR


@pytest.mark.parametrize(("status", "known"), [(False, (None, None)), (True, ("LEADER", 2))])
def test_6_5_how_a_member_is_is_told_to_those_who_ask(status, known):
    """Java's question gets Java's answer."""
    request = MetadataRequest(group=GROUP, remote_id="n1", status=status)
    answer = appending().ask(DLedgerRequestCode.METADATA, request)
    assert (answer.role, answer.current_term) == known
    assert answer.leader_id == "n1"
    assert (answer.watermarks is not None) == status


# 9


def order(script, transferee="n0", term=2, transfer_id="n1"):
    request = LeadershipTransferRequest(
        group=GROUP,
        remote_id="n1",
        transfer_id=transfer_id,
        transferee_id=transferee,
        term=term,
    )
    return script.ask(DLedgerRequestCode.LEADERSHIP_TRANSFER, request)


@pytest.mark.parametrize(
    ("transferee", "term", "code"), [("nX", 2, 401), ("n0", 9, 407), ("n1", 2, 411)]
)
def test_9_orders_that_are_refused(transferee, term, code):
    answer = order(appending(), transferee, term)
    assert (answer.code, answer.term) == (code, term)


def test_9_a_follower_too_far_behind():
    """Also one of which nothing is known: its ledger may hold another leader's tail."""
    assert order(leader()).code == 417
    script = appending(max_leadership_transfer_wait_index=2)
    script.put(b"a", b"b")
    assert order(script).code == 417


def test_9_a_follower_that_has_the_only_entry_is_not_behind():
    assert order(appending(entries=(2,))) is None


def test_9_the_leaders_side():
    """Appends are refused until the transferee has answered; the operator gets that answer."""
    script = appending()
    assert order(script) is None
    token = script.last_token
    assert script.node.why_not_append() == 506
    assert order(script, "n2").code == 506
    call = script.sent(LeadershipTransferRequest)[0]
    assert (call.peer, call.message.take_leadership_ledger_index) == ("n0", 3)
    actions = script.respond(call, LeadershipTransferResponse(term=3))
    assert script.answer_to(token, actions) == LeadershipTransferResponse(term=3)
    assert script.node.why_not_append() == 200


def test_9_a_failed_transfer_lets_appends_go_on():
    script = appending()
    order(script)
    token = script.last_token
    actions = script.respond(script.sent(LeadershipTransferRequest)[0], None)
    assert script.answer_to(token, actions).code == 302
    assert script.node.why_not_append() == 200


def test_9_who_leads_again_hands_over_to_nobody():
    """The transfer ended with the leadership; nobody could write until a restart."""
    script = appending()
    order(script)
    assert script.node.why_not_append() == 506
    script.beat("n2", 9)
    assert script.node.transferee is None
    script.done.clear()
    script.lead()
    assert script.node.why_not_append() == 200


def take(script, index):
    request = LeadershipTransferRequest(
        group=GROUP,
        remote_id="n1",
        local_id="n0",
        leader_id="n0",
        term=2,
        transfer_id="n0",
        transferee_id="n1",
        take_leadership_ledger_index=index,
    )
    return script.ask(DLedgerRequestCode.LEADERSHIP_TRANSFER, request)


def transferee(**changes):
    return Script(2, voted_for="n0", entries=ENTRIES, **changes).follow("n0")


def test_9_the_transferees_side():
    """It waits for the last entries, then votes at once, and answers when it leads."""
    script = transferee()
    assert take(script, 4) is None
    token = script.last_token
    assert script.node.role is MemberRole.FOLLOWER
    script.push(APPEND, 2, script.next_entry(2))
    votes = script.sent(VoteRequest)
    assert {(vote.message.term, vote.message.transfer) for vote in votes} == {(3, True)}
    for vote in votes:
        script.respond(vote, VoteResponse(term=3, vote_result=VoteResult.ACCEPT))
    script.run(0)
    assert script.answer_to(token, script.done) == LeadershipTransferResponse(term=3)


def test_9_the_transferee_pauses_as_upstream_if_told_so():
    script = transferee(take_leadership_at_once=False)
    take(script, 3)
    assert not script.sent(VoteRequest, script.run(299))
    assert script.sent(VoteRequest, script.run(701))


def test_9_a_preferred_transferee_pauses_for_a_shorter_time():
    script = transferee(take_leadership_at_once=False, preferred_leader_ids=("n1",))
    take(script, 3)
    assert not script.sent(VoteRequest, script.run(29))
    assert script.sent(VoteRequest, script.run(71))


def test_9_the_transferee_gives_up():
    script = transferee()
    take(script, 9)
    token = script.last_token
    assert script.answer_to(token, script.run(1000)).code == 418
    assert script.node.role is MemberRole.FOLLOWER


def test_9_another_won():
    """418: somebody else leads the term; 403: the term is past."""
    script = transferee()
    take(script, 3)
    token = script.last_token
    script.beat("n2", 3)
    assert script.answer_to(token, script.done).code == 418
    script = transferee()
    take(script, 3)
    token = script.last_token
    script.beat("n2", 9)
    assert script.answer_to(token, script.done).code == 403


def test_9_a_transfer_of_a_term_that_is_past_is_answered_once():
    script = transferee()
    assert take(script, 9) is None
    token = script.last_token
    script.beat("n2", 9)
    script.run(2000)
    answers = [action.message for action in script.of(AnswerRequest) if action.token == token]
    assert [(answer.code, answer.term) for answer in answers] == [(407, 9)]


def test_9_a_leader_that_stops_asks_whoever_has_most_and_nobody_of_whom_nothing_is_known():
    """Who may have nothing cannot take over, and the puts that wait would fail for it."""
    script = Script(2, entries=(1, 1, 2, 2)).lead()
    assert order_to_best(script.node, script.settings) is None
    script.node.quorum.mark("n2", 0)
    script.node.quorum.mark("n0", 1)
    order = order_to_best(script.node, script.settings)
    assert order is not None
    assert (order.transferee_id, order.transfer_id, order.remote_id) == ("n0", "n1", "n1")
    assert (order.group, order.term) == (GROUP, script.node.term)
    script.node.quorum.mark("n0", -1)
    assert order_to_best(script.node, script.settings).transferee_id == "n2"
    alone = Script(2, entries=(1,), nodes=2)
    assert order_to_best(alone.node, alone.settings) is None


def test_9_only_the_own_leader_may_hand_over():
    script = Script(2, entries=ENTRIES).follow("n2")
    assert take(script, 3).code == 409


def test_9_preferred_leader():
    """A leader that is not preferred hands over to one that is, alive and not far behind."""
    script = appending(preferred_leader_ids=("n2",))
    calls = script.sent(LeadershipTransferRequest, script.run(1000))
    assert [call.peer for call in calls] == ["n2"]
    assert not script.of(AnswerRequest, script.respond(calls[0], None))  # nobody has asked
    assert not script.sent(LeadershipTransferRequest, script.run(2000))  # not every second


def answer_beats(script, **rooms):
    """Everybody answers the next heartbeats, and says how much room there is."""
    for call in script.sent(HeartBeatRequest, script.run(2100)):
        script.respond(call, HeartBeatResponse(term=-1, room=rooms.get(call.peer)))


def test_a_preferred_leader_without_room_is_not_asked():
    """It would hand over again at once. Of the others it is known how much room they have."""
    script = appending(preferred_leader_ids=("n2",), preferred_leader_interval=5000)
    answer_beats(script, n2=Room.SHORT.value)
    assert script.node.standing("n2").room is Room.SHORT
    assert not script.sent(LeadershipTransferRequest, script.run(4000))
    answer_beats(script, n2=99)  # no room that we know of: as if it had said nothing
    assert script.node.standing("n2").room is Room.FREE
    assert script.sent(LeadershipTransferRequest, script.run(5000))


def test_an_order_for_a_member_with_less_room_is_refused():
    for is_enabled, code in ((True, DLedgerResponseCode.DISK_FULL), (False, None)):
        script = appending(hand_over_when_full=is_enabled)
        answer_beats(script, n2=Room.NONE.value)
        answer = order(script, "n2")
        assert (None if answer is None else answer.code) == code


def test_what_java_members_refuse_says_that_they_have_no_room():
    """Until they take an entry again."""
    script = appending()
    for code, room in ((415, Room.NONE), (414, Room.NONE), (200, Room.FREE)):
        script.put(b"x")
        calls = script.sent(PushEntryRequest, script.run(1100))
        script.pushed([call for call in calls if call.peer == "n2"][-1], code)
        assert script.node.standing("n2").room is room


def test_9_of_preferred_leaders_the_nearest_takes_over():
    """None that is too far behind: nobody could write until it has caught up."""
    near = {"max_leadership_transfer_wait_index": 2}
    for preferred, chosen in ((("n0", "n2"), ["n2"]), (("n0",), [])):
        script = appending(preferred_leader_ids=preferred, **near)
        for behind, body in ((("n0", "n2"), b"a"), (("n2",), b"b"), ((), b"c")):
            script.put(body)
            for peer in behind:
                script.pushed(last_push(script, peer))
        calls = script.sent(LeadershipTransferRequest, script.run(1001))
        assert [call.peer for call in calls] == chosen
        assert script.node.next_wake > script.now


def test_9_while_one_takes_over_no_other_is_asked():
    script = appending(preferred_leader_ids=("n2",), preferred_leader_retry=100)
    for _ in range(20):
        script.beaten(script.run(100))
    assert len(script.sent(LeadershipTransferRequest)) == 1
    assert script.node.transferee == "n2"


def test_9_a_preferred_leader_that_did_not_take_over_is_left_alone_for_a_while():
    """Also by a leader that was deposed meanwhile, and leads again."""
    script = appending(preferred_leader_ids=("n2",))
    assert not script.sent(LeadershipTransferRequest, script.run(998))
    (call,) = script.sent(LeadershipTransferRequest, script.run(10))
    asked = script.now
    script.respond(call, None)
    script.beat("n0", script.node.term + 1)
    assert script.node.role is not MemberRole.LEADER
    script.done.clear()
    script.lead()
    for peer in ("n0", "n2"):
        script.pushed(last_push(script, peer))
    calls = []
    while not calls:
        assert script.now < asked + 12_000
        actions = script.run(100)
        script.beaten(actions)
        calls = script.sent(LeadershipTransferRequest, actions)
    assert script.now > asked + 9_900


def test_9_a_dead_preferred_leader():
    script = leader(preferred_leader_ids=("n2",))
    for call in script.sent(HeartBeatRequest, script.run(2001)):
        script.respond(call, None)
    assert not script.sent(LeadershipTransferRequest, script.run(1000))
    assert script.node.next_wake > script.now


# 1


def test_1_1_peers():
    peers = parse_peers("n0-host-a:1; n1-10.0.0.2:40911;n2-[::1]:3")
    assert peers == {"n0": "host-a:1", "n1": "10.0.0.2:40911", "n2": "[::1]:3"}
    assert parse_ids("n0; n1") == ("n0", "n1")
    assert parse_ids(None) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("n0-host", "not of the form"),
        ("0-host:1", "not of the form"),
        ("n0-host:99999", "not of the form"),
        ("n0-host:65536", "not of the form"),
        ("n0-host:0", "not of the form"),
        ("n0-a:1;n0-b:2", "comes twice"),
        ("n0-a:1;n1-a:1", "comes twice"),
    ],
)
def test_1_1_peers_that_are_none(text, reason):
    with pytest.raises(ConfigurationError, match=reason):
        parse_peers(text)


def test_1_3_a_missing_own_entry_is_a_start_up_error():
    with pytest.raises(ConfigurationError, match="n7 is not in dLegerPeers"):
        DLedgerSettings(GROUP, "n7", {"n0": "a:1"})


def test_1_3_quorum():
    def quorum(size):
        return DLedgerSettings(GROUP, "n0", {f"n{n}": str(n) for n in range(size)}).quorum

    assert [quorum(size) for size in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


def test_next_wake_is_exact():
    """An idle leader wakes for heartbeats and commits, and not in between."""
    script = appending()
    wakes = 0
    end = script.now + 60_000
    while script.node.next_wake <= end:
        script.now = script.node.next_wake
        script.node.tick(script.now)
        wakes += 1
        actions = list(script.node.outbox)
        script.node.outbox.clear()
        for call in actions:
            if isinstance(call, SendRequest) and isinstance(call.message, PushEntryRequest):
                script.pushed(call, end=3)
        script.beaten(actions)
    assert wakes < 100


def test_11_an_answer_to_what_was_sent_before_a_comparison_counts_no_more():
    """The peer may have been cut since: what only one member has would count as committed."""
    script = appending()
    script.put(b"x")
    late = last_push(script)
    assert pushes(script)[-1] == (APPEND, 4)
    script.put(b"y")
    script.pushed(last_push(script), 406)
    script.run(script.settings.retry_pause)
    assert pushes(script)[-1] == (COMPARE, 5)
    script.pushed(last_push(script), 406, end=3)
    script.pushed(last_push(script), end=3)
    assert script.node.watermark("n0") == 3
    before = pushes(script)
    assert script.pushed(late) == []
    assert (script.node.watermark("n0"), script.ledger.committed_index) == (3, -1)
    assert script.respond(late, None) == []
    assert pushes(script) == before


def test_11_a_disk_that_cannot_say_what_to_cut_to_is_asked_again_after_a_pause():
    script = leader()
    entry = script.ledger.entry

    def refuse(index):
        if script.sent(PushEntryRequest)[-1].message.type is COMPARE:
            raise CorruptRecord("the checksum differs")
        return entry(index)

    script.ledger.entry = refuse
    script.pushed(last_push(script), 200, end=9)
    script.ledger.entry = entry
    assert pushes(script)[-1] == (COMPARE, 3)
    assert not [call for call in script.sent(PushEntryRequest, script.run(1)) if call.peer == "n0"]
    script.run(script.settings.retry_pause)
    assert pushes(script).count((COMPARE, 3)) == 2


def test_13_who_is_not_throttled_waits_for_an_answer_and_for_no_second():
    """More than a second's quota had been pushed in days: every turn was one more look."""
    script = appending(max_in_flight=1, peer_push_quota=200)
    for _ in range(3):
        script.put(b"x" * 52)
        script.pushed(last_push(script))
    script.run(1000)
    script.put(b"a", b"b")
    script.node.tick(script.now)
    assert script.node.next_wake > script.now


@pytest.mark.parametrize(
    ("quota", "point", "entries", "count"),
    [
        (0, 100, 50, 39),  # few entries, however large
        (0, 100, 38, 39),
        (0, 100, 37, 0),
        (0, 3900, 5, 39),  # many, but small
        (0, 3899, 5, 0),
        (200, 100, 5, 2),
        (201, 100, 5, 3),
    ],
)
def test_13_who_is_far_behind_in_entries_and_in_bytes_is_throttled(quota, point, entries, count):
    """To the entry and to the byte; the last push of a second may go over the quota."""
    script = appending(
        entries=(2,),
        throttle_entries=entries,
        peer_push_throttle_point=point,
        peer_push_quota=quota,
    )
    script.ledger.append(2, [b"x" * 52] * 39)
    script.run(1000 - script.now % 1000)
    script.node.appended(script.ledger.end_index, script.now)
    assert len(pushes(script, script.run(0))) == count
    assert bool(pushes(script, script.run(1000))) == (count < 39 and quota > 0)


def test_13_as_many_batches_are_read_as_may_be_sent():
    script = appending(is_enable_batch_push=True, max_batches_in_flight=2, max_batch_push_size=200)
    assert pushes(script, script.put(*[b"x" * 52] * 9)) == [(APPEND, [4, 5]), (APPEND, [6, 7])]


def test_11_2_while_it_is_asked_a_peer_is_asked_nothing_else():
    """Two answers about one question would each begin something."""
    script = Script(2, entries=ENTRIES).win()
    assert not pushes(script, script.put(b"it does not follow yet"))
    script = leader()
    assert pushes(script) == [(COMPARE, 3)]
    assert not pushes(script, script.put(b"while it compares"))
    assert pushes(script, script.pushed(last_push(script), 200, end=9)) == [(TRUNCATE, 3)]
    assert not pushes(script, script.put(b"while it cuts"))


@pytest.mark.parametrize("code", [None, 406, 403, 300])
def test_11_2_a_peer_that_did_not_cut_its_ledger_is_compared_with_again(code):
    """What it has behind that entry is not the leader's, and must not count."""
    script = leader()
    script.pushed(last_push(script), 200, end=9)
    call = last_push(script)
    assert call.message.type is TRUNCATE
    actions = script.respond(call, None) if code is None else script.pushed(call, code)
    assert not pushes(script, actions)
    assert script.node.watermark("n0") == -1
    assert not pushes(script, script.run(script.settings.retry_pause - 1))
    assert pushes(script, script.run(1)) == [(COMPARE, 3)]


def test_11_2_what_expired_while_the_peer_looked_is_not_what_it_is_cut_to():
    script = leader()
    script.pushed(last_push(script), 406, end=1)
    script.ledger.commit(3)
    script.ledger.expire(2)
    assert not pushes(script, script.pushed(last_push(script), 200, end=9))
    assert pushes(script, script.run(script.settings.retry_pause)) == [(COMPARE, 3)]


@pytest.mark.parametrize("found", [CorruptRecord("the checksum differs"), OSError(5, "EIO"), []])
def test_11_1_a_leader_that_cannot_read_what_a_peer_needs_tries_again_after_a_pause(found):
    """And goes on with all the others."""
    script = appending()
    entries, asked = script.ledger.entries, []

    def refuse(*_):
        asked.append(1)
        assert len(asked) < 9, "in a loop"
        if isinstance(found, Exception):
            raise found
        return found

    script.ledger.entries = refuse
    assert not pushes(script, script.put(b"x"))
    script.ledger.entries = entries
    assert not pushes(script, script.run(script.settings.retry_pause - 1))
    assert pushes(script, script.run(1)) == [(COMPARE, 4)]


def test_11_1_a_batch_that_expired_before_it_was_answered_is_not_pushed_in_part():
    script = appending(is_enable_batch_push=True)
    script.put(b"a", b"b")
    script.ledger.commit(5)
    script.ledger.expire(5)
    assert not pushes(script, script.run(1001))
    assert pushes(script, script.run(script.settings.retry_pause)) == [(COMPARE, 5)]


def test_11_1_an_answer_in_its_time_leads_to_one_push_and_no_more():
    script = appending()
    script.put(b"a")
    call = last_push(script)
    script.run(1000)
    assert pushes(script, script.put(b"b")) == [(APPEND, 5)]
    script.run(1000)
    assert not pushes(script, script.pushed(call))
    script = appending(max_in_flight=1, commit_interval=100, heart_beat_interval=60_000)
    script.put(b"a", b"b")
    assert script.node.next_wake == script.now + 1001
    script.run(500)
    assert not pushes(script, script.put(b"c")), "it is told what is committed with what it lacks"


def test_10_3_a_new_leader_counts_what_it_has_itself():
    """Before it is told of a put or of a sync."""
    script = leader(commit_own_term_only=False)
    script.pushed(last_push(script))
    assert script.ledger.committed_index == 3


def test_13_1_pending_are_those_of_this_leadership_that_no_quorum_has():
    script = appending()
    assert script.node.quorum.pending == 0
    script.put(b"a", b"b")
    assert script.node.quorum.pending == 2


def test_18_1_7_who_leads_no_more_fails_no_put_that_is_committed():
    script = appending()
    script.put(b"a")
    script.pushed(last_push(script))
    script.done.clear()
    script.beat("n0", 9)
    assert script.of(PutsCompleted) == []


def test_10_5_puts_of_an_earlier_leadership_are_not_late_in_this_one():
    """They were told of its end; another put may have their number now."""
    script = appending(max_wait_ack=60_000)
    script.put(b"a", b"b")
    script.run(1)
    script.beat("n0", 9)
    script.lead()
    assert script.node.quorum.wake > script.now + 60_000
    script.put(b"c")
    assert script.node.quorum.wake == script.now + 60_001


@pytest.mark.parametrize(
    ("code", "end", "following"),
    [
        (200, 3, []),
        (200, 9, []),
        (200, 2, [(COMPARE, 3)]),
        (406, 3, [(COMPARE, 3)]),
        (406, 2, [(COMPARE, 3)]),
        (300, -1, []),
    ],
)
def test_11_1_what_the_answer_to_an_idle_commit_leads_to(code, end, following):
    script = appending()
    script.run(1001)
    call = last_push(script)
    assert call.message.type is COMMIT
    assert pushes(script, script.pushed(call, code, end=end)) == following


def test_11_1_a_push_that_does_not_arrive_makes_the_leader_compare():
    script = appending()
    script.put(b"a")
    assert not pushes(script, script.respond(last_push(script), None))
    assert pushes(script, script.run(script.settings.retry_pause)) == [(COMPARE, 4)]


def test_9_who_leads_no_more_looks_for_no_preferred_leader():
    script = appending(preferred_leader_ids=("n2",))
    script.run(500)
    script.beat("n0", 9)
    script.beat("n0", 9)
    assert script.node.next_wake > script.now + 5000
