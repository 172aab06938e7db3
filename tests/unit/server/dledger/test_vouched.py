"""Up to where a member vouches for what it has stored. Spec: dledger.md, section 18.1."""

from types import SimpleNamespace

from rmq_ha.server.dledger.actions import Sync
from rmq_ha.server.dledger.durable_index import DurableIndex


def vouched(end_index=9, sync_before_ack=True):
    member = SimpleNamespace(
        settings=SimpleNamespace(sync_before_ack=sync_before_ack),
        ledger=SimpleNamespace(end_index=end_index),
        outbox=[],
    )
    return DurableIndex(member), member


def test_under_sync_flush_only_what_was_synced_counts():
    """One sync at a time, and none for what is there."""
    it, member = vouched()
    assert it.index == -1
    it.want(9)
    it.want(9)
    assert member.outbox == [Sync()]
    it.synced(7)
    assert it.index == 7
    it.want(7)
    assert member.outbox == [Sync()]
    it.want(8)
    assert member.outbox == [Sync(), Sync()]
    it.synced(6)
    assert it.index == 7


def test_else_what_was_written_counts():
    it, member = vouched(sync_before_ack=False)
    assert it.index == 9
    it.want(9)
    assert member.outbox == []


def test_what_was_rewritten_counts_no_more():
    """The entry at the place as well: its new content is not on the disk."""
    it, member = vouched()
    it.want(9)
    it.synced(9)
    it.truncated(5)
    assert it.index == 4
    member.ledger.end_index = 5
    it.truncated(8)
    assert it.index == 4
    it.want(5)
    it.synced(5)
    assert it.index == 5


def test_a_sync_that_ran_meanwhile_says_nothing_of_it():
    """And the next one does."""
    it, member = vouched()
    it.want(9)
    it.truncated(5)
    it.synced(9)
    assert it.index == -1
    it.want(9)
    it.synced(9)
    assert it.index == 9
    assert member.outbox == [Sync(), Sync()]


def test_more_than_the_ledger_has_is_never_vouched_for():
    it, _ = vouched(end_index=3)
    it.want(3)
    it.synced(9)
    assert it.index == 3
