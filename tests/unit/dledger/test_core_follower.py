"""A follower and the leader's pushes: dledger.md, sections 11.3 to 11.7, 18.2, probes of 20.6."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.dledger.actions import Answer, Committed, Sync
from rmq_ha.dledger.codes import PushType, RequestCode, VoteResult
from rmq_ha.dledger.messages import (
    GetEntriesRequest,
    LeadershipTransferRequest,
    MetadataRequest,
    PushEntryRequest,
    PushEntryResponse,
)
from rmq_ha.dledger.values import Entry, Role
from rmq_ha.errors import CorruptRecord, LedgerFull
from rmq_ha.testing.dledger_script import GROUP, Script

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
    assert script.ask(RequestCode.GET, get).code == 404
    assert [transfer(script, *ids) for ids in (("n1", "n2"), ("n0", "n2"))] == [404, 411]


def transfer(script, transfer_id, transferee_id, term=2):
    request = LeadershipTransferRequest(
        group=GROUP,
        remote_id="n1",
        transfer_id=transfer_id,
        transferee_id=transferee_id,
        term=term,
    )
    return script.ask(RequestCode.LEADERSHIP_TRANSFER, request).code


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
    assert [action.index for action in script.of(Committed)] == [0, 1]


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
    answered = [action.message.index for action in script.of(Answer)]
    assert answered == [4, 5, 6]


def test_11_3_compare_discards_what_waits():
    script = follower()
    script.push(APPEND, 2, script.next_entry(2, skip=1))
    token = script.last_token
    script.push(COMPARE, 2, script.ledger.entry(3))
    assert script.answer_to(token, script.done).code == 413
    script.push(APPEND, 2, script.next_entry(2))
    assert script.ledger.end_index == 4


def test_11_4_a_gap_is_reported_after_a_second():
    script = follower()
    script.push(APPEND, 2, script.next_entry(2, skip=7))
    script.push(APPEND, 2, script.next_entry(2, skip=5))
    smallest = script.last_token
    assert not script.of(Answer, script.run(1000))
    done = script.of(Answer, script.run(1))
    assert [(action.token, action.message.code) for action in done] == [(smallest, 406)]


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
    assert not script.of(Answer, script.run(1000))
    assert script.node.next_wake > script.now
    done = script.of(Answer, script.run(1))
    assert [(action.token, action.message.code) for action in done] == [(last, 406)]


def test_11_4_a_duplicate_that_differs():
    script = follower()
    assert script.push(APPEND, 2, script.ledger.entry(3)._replace(body=b"other")).code == 406


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
    assert [action.token for action in script.of(Answer)] == [first]
    assert len(script.of(Sync)) == 1
    script.node.synced(5, script.now)
    assert len(script.of(Answer, script.run(0))) == 1


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
    codes = [action.message.code for action in script.of(Answer, script.run(0))]
    assert codes == [406]  # the COMPARE's, whose entry was cut off
    assert script.of(Sync)


def test_who_waits_for_a_sync_is_not_told_success_in_a_new_term():
    """The entry may be cut off by then; the old leader would count it."""
    script = follower(sync_before_ack=True)
    script.push(APPEND, 2, script.next_entry(2))
    token = script.last_token
    script.beat("n2", 3)
    script.beat("n2", 3)
    script.node.synced(4, script.now)
    script.run(0)
    assert script.answer_to(token, script.done).code == 405


def test_what_waits_for_a_sync_that_never_ends_does_not_pile_up():
    """The leader asks again after its time is over; the disk is broken, memory is not to follow."""
    script = follower(sync_before_ack=True)
    entry = script.next_entry(2)
    for _ in range(20):
        assert script.push(APPEND, 2, entry) is None
        script.run(script.settings.rpc_timeout + 1)
        script.beat("n0", 2)
    assert len(script.node._follower._unstored) == 1
    pushes = [a.message for a in script.of(Answer) if isinstance(a.message, PushEntryResponse)]
    assert [answer.code for answer in pushes] == [414] * 19


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
    answer = script.ask(RequestCode.METADATA, request)
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
    committed = -1
    for push in pushes:
        script.ask(RequestCode.PUSH, push)
        assert script.ledger.committed_index >= committed
        committed = script.ledger.committed_index
    script.run(10_000)  # gaps are reported, then this member is a candidate
    assert script.node.role is Role.CANDIDATE
    tokens = [action.token for action in script.of(Answer)]
    assert sorted(tokens) == list(range(2, len(pushes) + 2))


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
        done = script.of(Answer, script.run(1000))
        if script.node.role is not Role.FOLLOWER:
            break
        assert not done
    assert script.answer_to(token, done).code == 405
