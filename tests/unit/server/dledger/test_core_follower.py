"""A follower and the leader's pushes: dledger.md, sections 11.3 to 11.7, 18.2, probes of 20.6."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import LogLevel, capturedLogs

from rmq_ha.base.errors import CorruptRecord, LedgerFull
from rmq_ha.base.store_format.dledger_values import Entry, MemberRole
from rmq_ha.server.dledger.actions import AnswerRequest, CommitIndexMoved, Sync
from rmq_ha.server.dledger.codes import DLedgerRequestCode, PushType, VoteResult
from rmq_ha.server.dledger.messages import (
    GetEntriesRequest,
    LeadershipTransferRequest,
    MetadataRequest,
    PushEntryRequest,
    PushEntryResponse,
)
from tests.sim_kit.dledger_script import GROUP, Script

APPEND, COMMIT = PushType.APPEND, PushType.COMMIT
COMPARE, TRUNCATE = PushType.COMPARE, PushType.TRUNCATE
ENTRIES = (1, 1, 2, 2)


def follower(entries=ENTRIES, **changes):
    return Script(2, voted_for="n0", entries=entries, **changes).follow("n0")


def test_20_6_the_probes():
    """The probes of a Java follower, in its order; where ours answers otherwise it is said."""
    script = follower()
    ledger = script.ledger
    assert script.vote("n2", 2, 3, 2).vote_result is VoteResult.REJECT_ALREADY_HAS_LEADER
    assert script.vote("n0", 2, 3, 2).vote_result is VoteResult.ACCEPT
    beats = [script.beat(*beat) for beat in (("n0", 1), ("n2", 2), ("n1", 2), ("nX", 2))]
    assert [answer.code for answer in beats] == [403, 409, 402, 401]
    two = ledger.entry(2)
    compares = [
        script.push(COMPARE, 2, two).code,
        script.push(COMPARE, 2, two._replace(term=1)).code,
        script.push(COMPARE, 2, two._replace(index=9)).code,
        script.push(COMPARE, 1, two).code,  # Java: 200 (18.1, 4)
    ]
    assert compares == [200, 406, 406, 407]
    assert script.push(COMMIT, 1, commit=1).code == 200
    assert ledger.committed_index == -1  # Java: -1 as well, a smaller term is ignored
    assert script.push(COMMIT, 2, commit=1, leader="n2").code == 200
    assert ledger.committed_index == -1  # Java: 1
    assert script.push(COMMIT, 2, commit=99).code == 200
    assert ledger.committed_index == 3  # capped
    assert script.push(APPEND, 2, two).code == 200  # Java: after 0.3 s
    following = script.next_entry(2)
    assert script.push(APPEND, 1, following).code == 406
    assert script.push(APPEND, 2, following, leader="n2").code == 406
    assert script.push(APPEND, 2, following._replace(pos=following.pos + 1)).code == 406
    assert script.push(APPEND, 2, following).code == 200  # no junk: the loop of 11.6 is not here
    assert script.push(APPEND, 2).code == 411
    assert script.push(COMPARE, 2).code == 411
    get = GetEntriesRequest(group=GROUP, remote_id="n1", begin_index=2)
    assert script.ask(DLedgerRequestCode.GET, get).code == 404
    assert [transfer(script, *ids) for ids in (("n1", "n2"), ("n0", "n2"))] == [404, 411]


def transfer(script, transfer_id, transferee_id, term=2):
    request = LeadershipTransferRequest(
        group=GROUP,
        remote_id="n1",
        transfer_id=transfer_id,
        transferee_id=transferee_id,
        term=term,
    )
    return script.ask(DLedgerRequestCode.LEADERSHIP_TRANSFER, request).code


def test_20_5_first_entries_of_an_empty_follower():
    script = follower(entries=())
    first = Entry(0, 2, 0, b"first")
    answers = [script.push(COMPARE, 2, first), script.push(TRUNCATE, 2, first)]
    answers.append(script.push(APPEND, 2, script.next_entry(2), commit=0))
    answers.append(script.push(COMMIT, 2, commit=1))
    seen = [(a.code, a.index, a.count, a.begin_index, a.end_index, a.term) for a in answers]
    assert seen == [
        (406, 0, 1, -1, -1, 2),
        (200, 0, 1, 0, 0, 2),
        (200, 1, 1, 0, 1, 2),
        (200, None, 0, 0, 1, 2),
    ]
    assert [action.index for action in script.of(CommitIndexMoved)] == [0, 1]


def test_10_4_what_is_committed_is_told_once():
    """Each word of it wakes the dispatcher and all that waits for messages."""
    script = follower()
    for commit in (2, 2, 1, 3):
        script.push(COMMIT, 2, commit=commit)
    assert [action.index for action in script.of(CommitIndexMoved)] == [2, 3]


def test_12_a_batch_is_answered_as_one():
    script = follower()
    one, two = script.next_entry(2), script.next_entry(2, skip=1)
    answer = script.push(APPEND, 2, one, two, batch=True)
    assert (answer.code, answer.index, answer.count, answer.end_index) == (200, 4, 2, 5)


def test_12_a_batch_that_is_there_in_part():
    script = follower()
    one, two = script.next_entry(2), script.next_entry(2, skip=1)
    script.push(APPEND, 2, one)
    assert script.push(APPEND, 2, one, two, batch=True).code == 200
    assert script.ledger.end_index == 5


def test_11_3_appends_are_sorted_by_index():
    """What comes early waits, and is answered when it is its turn."""
    script = follower()
    entries = [script.next_entry(2, skip=n) for n in range(3)]
    assert script.push(APPEND, 2, entries[2]) is None
    assert script.push(APPEND, 2, entries[2]).code == 413
    assert script.push(APPEND, 2, entries[1]) is None
    script.done.clear()
    assert script.push(APPEND, 2, entries[0]).code == 200
    answered = [action.message.index for action in script.of(AnswerRequest)]
    assert answered == [4, 5, 6]


def test_11_3_compare_discards_what_waits():
    script = follower(max_waiting_bytes=2 * 52)
    tokens = []
    for skip in (1, 2):
        assert script.push(APPEND, 2, script.next_entry(2, skip=skip)) is None
        tokens.append(script.last_token)
    script.push(COMPARE, 2, script.ledger.entry(3))
    assert [script.answer_to(token, script.done).code for token in tokens] == [413, 413]
    for skip in (1, 2):
        assert script.push(APPEND, 2, script.next_entry(2, skip=skip)) is None
    assert script.push(APPEND, 2, script.next_entry(2, skip=3)).code == 421
    script.push(APPEND, 2, script.next_entry(2))
    assert script.ledger.end_index == 6


def test_11_4_a_gap_is_reported_after_a_second():
    script = follower()
    script.push(APPEND, 2, script.next_entry(2, skip=7))
    script.push(APPEND, 2, script.next_entry(2, skip=5))
    smallest = script.last_token
    assert not script.of(AnswerRequest, script.run(1000))
    done = script.of(AnswerRequest, script.run(1))
    assert [(action.token, action.message.code) for action in done] == [(smallest, 406)]
    assert script.node.next_wake == script.now + 1000


def test_11_4_each_gap_is_waited_for_as_long():
    """The one before it was filled in time; nobody is woken for nothing until then."""
    script = follower()
    script.push(APPEND, 2, script.next_entry(2, skip=1))
    script.run(600)
    script.push(APPEND, 2, script.next_entry(2, skip=3))
    last = script.last_token
    script.push(APPEND, 2, script.next_entry(2))
    assert script.ledger.end_index == 5
    script.done.clear()
    assert not script.of(AnswerRequest, script.run(1000))
    assert script.node.next_wake > script.now
    done = script.of(AnswerRequest, script.run(1))
    assert [(action.token, action.message.code) for action in done] == [(last, 406)]


def test_what_comes_twice_changes_nothing():
    """A leader pushes again what was answered late."""
    script = follower()
    entries = [script.next_entry(2, skip=n) for n in range(3)]
    codes = [script.push(APPEND, 2, entries[n]).code for n in (0, 1, 0, 2)]
    assert codes == [200] * 4
    assert script.ledger.end_index == 6


def test_only_an_append_has_several_entries_and_they_follow_each_other():
    """Of others only the first would be looked at, and all of them be confirmed."""
    script = follower()
    two, three = script.ledger.entry(2), script.ledger.entry(3)
    four, five = script.next_entry(2), script.next_entry(2, skip=1)
    assert script.push(COMPARE, 2, two, three, batch=True).code == 411
    for batch in ((four, four), (four, five._replace(index=6)), (four, five, four)):
        assert script.push(APPEND, 2, *batch, batch=True).code == 411
    assert script.push(APPEND, 2, four, five._replace(term=1), batch=True).code == 406
    assert script.ledger.end_index == 3


def test_11_4_a_duplicate_that_differs():
    script = follower()
    two, three = script.ledger.entry(2), script.ledger.entry(3)
    assert script.push(APPEND, 2, three._replace(body=b"other")).code == 406
    assert script.push(APPEND, 2, two, three._replace(body=b"other"), batch=True).code == 406


def test_11_4_not_a_follower():
    script = Script(2, entries=ENTRIES)
    entry = script.ledger.entry(3)
    codes = [script.push(kind, 2, entry).code for kind in PushType]
    assert codes == [405, 405, 405, 405]


def test_what_waits_is_bounded():
    """Hostile or hasty leaders: so many pushes, so many bytes, then 421."""
    script = follower(max_waiting_pushes=2, max_waiting_bytes=300)
    assert script.push(APPEND, 2, script.next_entry(2, skip=1)) is None
    assert script.push(APPEND, 2, script.next_entry(2, skip=2, body=b"x" * 300)).code == 421
    assert script.push(APPEND, 2, script.next_entry(2, skip=3)) is None
    assert script.push(APPEND, 2, script.next_entry(2, skip=4)).code == 421


def test_11_5_truncate():
    script = follower(entries=(1, 1, 1, 1))
    answers = [
        script.push(TRUNCATE, 1, script.ledger.entry(2)).code,
        script.push(TRUNCATE, 2, script.ledger.entry(2), leader="n2").code,
    ]
    assert answers == [406, 406]
    answer = script.push(TRUNCATE, 2, script.ledger.entry(2))
    assert (answer.code, answer.end_index) == (200, 2)
    assert script.push(APPEND, 2, script.next_entry(2)).code == 200


def test_11_5_truncate_to_the_last_committed_entry():
    """What is behind it goes, and what the leader has committed meanwhile counts."""
    script = follower(entries=(1, 1, 1, 1))
    script.ledger.commit(1)
    two = script.ledger.entry(2)
    assert script.push(TRUNCATE, 2, two, commit=2).code == 200
    assert (script.ledger.end_index, script.ledger.committed_index) == (2, 2)
    script.push(APPEND, 2, script.next_entry(2))
    committed = script.ledger.entry(2)
    again = follower(entries=(1, 1, 1, 1))
    again.ledger.commit(2)
    assert again.push(TRUNCATE, 2, committed).code == 200
    assert again.ledger.end_index == 2


def test_11_5_truncate_to_the_last_entry_that_was_compared():
    """Nobody has compared what is behind it."""
    script = follower(entries=(1, 1, 1, 1))
    two = script.ledger.entry(2)
    assert script.push(COMPARE, 2, two).code == 200
    assert script.push(TRUNCATE, 2, two).code == 200
    assert script.ledger.end_index == 2


def test_11_5_a_disk_that_cannot_cut_is_answered():
    script = follower(entries=(1, 1, 1, 1))

    def refuse(entry):
        raise OSError("input/output error")

    script.ledger.truncate_to = refuse
    assert script.push(TRUNCATE, 2, script.ledger.entry(2)).code == 414


def test_18_2_truncate_below_the_committed_index_is_refused():
    script = follower(entries=(1, 1, 1, 1))
    script.ledger.commit(2)
    assert script.push(TRUNCATE, 2, script.ledger.entry(1)).code == 406
    assert script.push(TRUNCATE, 2, script.ledger.entry(2)._replace(term=2)).code == 406
    assert script.ledger.end_index == 3
    upstream = follower(entries=(1, 1, 1, 1), keep_committed=False)
    upstream.ledger.commit(2)
    assert upstream.push(TRUNCATE, 2, upstream.ledger.entry(1)).code == 200


def test_a_late_truncate_does_not_cut_what_was_acknowledged():
    """A TRUNCATE that was overtaken by the APPENDs after it; the leader counts on those."""
    script = follower(entries=(1, 1, 1, 1))
    two = script.ledger.entry(2)
    script.push(TRUNCATE, 2, two)
    script.push(APPEND, 2, script.next_entry(2))
    answer = script.push(TRUNCATE, 2, two)
    assert (answer.code, answer.end_index) == (200, 3)
    assert script.push(TRUNCATE, 2, two._replace(body=b"other")).code == 406


def test_18_1_5_an_append_needs_a_compare_before_it():
    """A tail that nobody has compared with this leader's is not continued, nor committed."""
    script = follower(entries=(1, 1, 1, 1))
    assert script.push(APPEND, 2, script.next_entry(2)).code == 406
    assert script.push(COMMIT, 2, commit=2).code == 406
    assert script.ledger.committed_index == -1
    assert script.push(COMPARE, 2, script.ledger.entry(3)).code == 200
    assert script.push(APPEND, 2, script.next_entry(2), commit=2).code == 200
    assert script.ledger.committed_index == 2


def test_raft_5_3_an_entry_of_this_term_is_the_leaders():
    """After a restart in the same term nothing needs to be compared."""
    script = follower()
    assert script.push(APPEND, 2, script.next_entry(2)).code == 200


def test_11_6_terms_do_not_fall_and_are_not_of_the_future():
    script = follower()
    assert script.push(APPEND, 2, script.next_entry(1)).code == 406
    assert script.push(APPEND, 2, script.next_entry(3)).code == 406


def test_13_disk_full_is_415():
    """A leader logs it and pushes again; 406 would make it compare in a loop."""
    script = follower()
    script.ledger.is_full = True
    assert script.push(APPEND, 2, script.next_entry(2)).code == 415

    def broken(entries):
        raise OSError(5, "Input/output error")

    script.ledger.append_entry = broken
    assert script.push(APPEND, 2, script.next_entry(2)).code == 414
    assert issubclass(LedgerFull, Exception)


def test_18_2_sync_before_ack():
    """An APPEND is answered when a sync that began after the write has ended."""
    script = follower(sync_before_ack=True)
    assert script.push(APPEND, 2, script.next_entry(2)) is None
    first = script.last_token
    assert len(script.of(Sync)) == 1
    assert script.push(APPEND, 2, script.next_entry(2)) is None
    script.done.clear()
    script.node.synced(4, script.now)
    script.run(0)
    assert [action.token for action in script.of(AnswerRequest)] == [first]
    assert len(script.of(Sync)) == 1
    script.node.synced(5, script.now)
    assert len(script.of(AnswerRequest, script.run(0))) == 1


def test_a_sync_from_before_a_truncation_says_nothing():
    script = follower(entries=(1, 1, 1, 1), sync_before_ack=True)
    script.push(COMPARE, 2, script.ledger.entry(3))
    two = script.ledger.entry(2)._replace(body=b"new", term=2)
    script.node.member.ledger.committed_index = 1
    script.push(COMPARE, 2, two)
    script.node._follower.matched = 1
    assert script.push(TRUNCATE, 2, two) is None
    script.done.clear()
    script.node.synced(3, script.now)
    codes = [action.message.code for action in script.of(AnswerRequest, script.run(0))]
    assert codes == [406]  # the COMPARE's, whose entry was cut off
    assert script.of(Sync)


def test_who_waits_for_a_sync_is_not_told_success_in_a_new_term():
    """The entry may be cut off by then; the old leader would count it."""
    script = follower(sync_before_ack=True)
    tokens = []
    for _ in range(2):
        script.push(APPEND, 2, script.next_entry(2))
        tokens.append(script.last_token)
    script.beat("n2", 3)
    script.beat("n2", 3)
    script.node.synced(5, script.now)
    script.run(0)
    assert [script.answer_to(token, script.done).code for token in tokens] == [405, 405]


def test_what_waits_for_a_sync_that_never_ends_does_not_pile_up():
    """The leader asks again after its time is over; the disk is broken, memory is not to follow."""
    script = follower(sync_before_ack=True)
    entry = script.next_entry(2)
    for _ in range(20):
        assert script.push(APPEND, 2, entry) is None
        script.run(script.settings.rpc_timeout + 1)
        script.beat("n0", 2)
    assert len(script.node._follower._unstored) == 1
    pushes = [
        a.message for a in script.of(AnswerRequest) if isinstance(a.message, PushEntryResponse)
    ]
    assert [answer.code for answer in pushes] == [414] * 19


def test_of_those_that_wait_for_a_sync_the_old_ones_alone_are_given_up():
    script = follower(sync_before_ack=True)
    tokens = []
    for _ in range(3):
        assert script.push(APPEND, 2, script.next_entry(2)) is None
        tokens.append(script.last_token)
        script.run(script.settings.rpc_timeout // 2 + 1)
        script.beat("n0", 2)
    answers = [script.answer_to(token, script.done) for token in tokens]
    assert [answer and answer.code for answer in answers] == [414, None, None]


def test_an_entry_that_the_disk_cannot_read_is_answered():
    """An exception would leave the leader without an answer; 406 would have more cut off."""
    script = follower()
    two = script.ledger.entry(2)

    def unreadable(index):
        raise CorruptRecord("the checksum differs")

    script.ledger.entry = unreadable
    assert script.push(COMPARE, 2, two).code == 414
    assert script.push(APPEND, 2, two).code == 414
    assert script.push(TRUNCATE, 2, two).code == 414
    assert script.ledger.end_index == 3


def test_metadata():
    """20: leaderId and the addresses as known here."""
    script = follower()
    request = MetadataRequest(group=GROUP, remote_id="n1")
    answer = script.ask(DLedgerRequestCode.METADATA, request)
    assert (answer.leader_id, answer.peers["n2"]) == ("n0", "127.0.0.1:40002")


ANY_ENTRY = st.builds(
    Entry, st.integers(-2, 8), st.integers(-1, 4), st.integers(-1, 400), st.binary(max_size=4)
)
ANY_PUSH = st.builds(
    PushEntryRequest,
    group=st.just(GROUP),
    remote_id=st.just("n1"),
    leader_id=st.sampled_from(["n0", "n1", "n2", "nX", None]),
    term=st.integers(-1, 4),
    type=st.sampled_from(list(PushType)),
    commit_index=st.integers(-2, 9),
    entry=st.none() | ANY_ENTRY,
    batch_entry=st.lists(ANY_ENTRY, max_size=3).map(tuple),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_PUSH, max_size=12))
def test_any_push(pushes):
    """Whatever a peer says: each push is answered once, and the committed index never falls."""
    script = follower()
    first = script.last_token + 1
    committed = -1
    for push in pushes:
        script.ask(DLedgerRequestCode.PUSH, push)
        assert script.ledger.committed_index >= committed
        committed = script.ledger.committed_index
    script.run(10_000)  # gaps are reported, then this member is a candidate
    assert script.node.role is MemberRole.CANDIDATE
    tokens = [action.token for action in script.of(AnswerRequest)]
    assert sorted(tokens) == list(range(first, first + len(pushes)))


def test_18_2_a_member_that_keeps_what_its_leader_has_not_says_so_until_they_are_equal_again():
    """Or nobody looks for the one that lost data."""
    script = follower(entries=(1, 1, 1, 1))
    script.ledger.commit(2)
    other = script.ledger.entry(1)._replace(term=2)
    unsure = script.ledger.entry(3)._replace(term=2)
    assert script.push(COMPARE, 2, unsure).code == 406
    assert script.push(COMPARE, 2, script.next_entry(2)).code == 406
    assert script.push(COMPARE, 2, other, leader="n2").code == 409
    assert not script.node.is_diverged  # none of these is about something committed
    assert script.push(COMPARE, 2, other).code == 406
    assert script.node.is_diverged
    script.push(COMPARE, 2, script.ledger.entry(1))
    assert script.node.is_diverged
    script.push(COMPARE, 2, script.ledger.entry(2))
    assert not script.node.is_diverged
    refusing = follower(entries=(1, 1, 1, 1))
    refusing.ledger.commit(2)
    assert refusing.push(TRUNCATE, 2, refusing.ledger.entry(1)).code == 406
    assert refusing.node.is_diverged


def test_18_2_whoever_lost_data_is_named_once_a_minute():
    """An operator must see it, and the log must not be full of it."""
    script = follower(entries=(1, 1, 1, 1))
    script.ledger.commit(2)
    other = script.ledger.entry(1)._replace(term=2)
    said = []
    for pause in (0, 1, 59_998, 1, 60_000):
        script.now += pause
        with capturedLogs() as events:
            assert script.push(COMPARE, 2, other).code == 406
        said.append(sum(event["log_level"] is LogLevel.critical for event in events))
    assert said == [1, 0, 0, 1, 1]


def test_what_waits_no_longer_makes_room():
    """Otherwise a follower would refuse early pushes for ever after some of them."""
    script = follower(max_waiting_bytes=300)
    for _ in range(20):
        assert script.push(APPEND, 2, script.next_entry(2, skip=1)) is None
        assert script.push(APPEND, 2, script.next_entry(2)).code == 200


def test_11_4_who_follows_no_more_answers_what_waits():
    script = follower(max_push_timeout=60_000)
    assert script.push(APPEND, 2, script.next_entry(2, skip=1)) is None
    token = script.last_token
    for _ in range(100):
        done = script.of(AnswerRequest, script.run(1000))
        if script.node.role is not MemberRole.FOLLOWER:
            break
        assert not done
    assert script.answer_to(token, done).code == 405


def test_11_4_what_waits_is_looked_at_when_it_is_overdue_and_not_before():
    script = follower()
    script.push(APPEND, 2, script.next_entry(2, skip=3))
    first = script.last_token
    assert script.node.next_wake == script.now + 1001
    script.run(1)
    script.push(APPEND, 2, script.next_entry(2, skip=2))
    assert [action.token for action in script.of(AnswerRequest, script.run(1000))] == [first]


def test_11_4_of_those_that_are_left_the_oldest_is_overdue_first():
    script = follower()
    script.push(APPEND, 2, script.next_entry(2, skip=1))
    tokens = []
    for skip in (3, 5):
        script.run(100)
        script.push(APPEND, 2, script.next_entry(2, skip=skip))
        tokens.append(script.last_token)
    script.push(APPEND, 2, script.next_entry(2))
    assert script.ledger.end_index == 5
    assert [action.token for action in script.of(AnswerRequest, script.run(901))] == tokens[:1]


def test_11_4_when_nothing_waits_any_more_there_is_nothing_to_look_at():
    script = follower()
    script.push(APPEND, 2, script.next_entry(2, skip=1))
    script.push(APPEND, 2, script.next_entry(2))
    assert script.node.next_wake > script.now + 5000
    assert script.run(1500) == []


def test_11_4_batches_are_sorted_too():
    script = follower()
    entries = [script.next_entry(2, skip=n) for n in range(4)]
    assert script.push(APPEND, 2, *entries[2:], batch=True) is None
    early = script.last_token
    assert script.push(APPEND, 2, *entries[:2], batch=True).code == 200
    assert script.answer_to(early, script.done).code == 200
    assert script.ledger.end_index == 7


def test_11_4_what_comes_behind_a_gap_says_nothing_about_what_is_here():
    """The leader has compared nothing with it: it is neither continued nor committed."""
    script = follower(entries=(1, 1, 1, 1))
    assert script.push(APPEND, 2, script.next_entry(2, skip=2), commit=3) is None
    late = script.last_token
    assert script.answer_to(late, script.run(1001)).code == 406
    assert script.push(APPEND, 2, script.next_entry(2), commit=3).code == 406
    assert (script.ledger.end_index, script.ledger.committed_index) == (3, -1)


def test_18_1_5_what_the_leader_pushes_anew_and_is_the_same_need_not_be_compared():
    script = follower(entries=(1, 1, 1, 1))
    assert script.push(APPEND, 2, script.ledger.entry(3)).code == 200
    assert script.push(APPEND, 2, script.next_entry(2)).code == 200


def test_18_1_5_what_was_compared_stays_so_for_the_whole_term():
    """Also when the leader was not heard of for a while."""
    script = follower(entries=(1, 1, 1, 1))
    assert script.push(COMPARE, 2, script.ledger.entry(3)).code == 200
    script.run(6001)
    assert script.node.role is MemberRole.CANDIDATE
    script.beat("n0", 2)
    assert script.push(APPEND, 2, script.next_entry(2)).code == 200


def test_no_entry_is_before_the_first():
    script = follower(entries=())
    before, first = Entry(-1, 2, 0, b""), Entry(0, 2, 48, b"")
    assert script.push(APPEND, 2, before, first, batch=True).code == 411
    assert script.push(APPEND, 2, before).code == 411


def test_18_2_a_sync_has_as_long_as_the_leader_waits():
    script = follower(sync_before_ack=True)
    assert script.push(APPEND, 2, script.next_entry(2)) is None
    script.done.clear()
    script.run(script.settings.rpc_timeout)
    assert script.push(APPEND, 2, script.next_entry(2)) is None
    assert script.of(AnswerRequest) == []


def test_18_1_4_without_the_check_any_leader_of_this_term_commits():
    """As upstream, on request; one of an earlier term never does."""
    for term, committed in ((1, -1), (2, 1), (3, 1)):
        script = follower(check_leader=False)
        assert script.push(COMMIT, term, commit=1, leader="n2").code == 200
        assert script.ledger.committed_index == committed
