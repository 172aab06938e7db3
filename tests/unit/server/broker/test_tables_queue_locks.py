"""RebalanceLockManager. Spec: remoting.md, section 7.3."""

from rmq_ha.server.broker.tables.queue_locks import RebalanceLockManager

A, B = ("T", "b", 0), ("T", "b", 1)


def test_free_queues_are_taken() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    assert locks.lock_batch("G", [A, B], "c1", 0) == [A, B]
    assert locks.owner("G", A, 0) == "c1"


def test_another_client_gets_only_what_is_free() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    locks.lock_batch("G", [A], "c1", 0)
    assert locks.lock_batch("G", [A, B], "c2", 1) == [B]
    assert locks.lock_batch("H", [A], "c2", 1) == [A]  # another group is another table


def test_a_lock_expires_after_60_s_without_renewal() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    locks.lock_batch("G", [A], "c1", 0)
    locks.lock_batch("G", [A], "c1", 30_000)
    assert locks.lock_batch("G", [A], "c2", 90_000) == []
    assert locks.lock_batch("G", [A], "c2", 90_001) == [A]


def test_unlock_touches_only_ones_own() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    locks.lock_batch("G", [A], "c1", 0)
    locks.unlock_batch("G", [A, B], "c2")
    assert locks.owner("G", A, 1) == "c1"
    locks.unlock_batch("G", [A], "c1")
    assert locks.owner("G", A, 1) is None
    locks.unlock_batch("unknown", [A], "c1")


def test_expire_forgets_departed_groups() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    locks.lock_batch("G", [A, B], "c1", 0)
    assert locks.expire(60_000) == 0
    assert locks.expire(60_001) == 2
    assert locks.expire(60_002) == 0


def test_no_queues_leave_no_group() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    assert locks.lock_batch("G", [], "c1", 0) == []
    assert not locks._groups


def test_locks_without_a_connection_expire_earlier() -> None:
    """After 30 s, as their client sees it itself; a renewal over another connection mends it."""
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    locks.lock_batch("G", [A], "c1", 0)
    locks.lock_batch("G", [B], "c3", 0)
    locks.orphan("G", "c1")
    locks.orphan("unknown", "c1")
    assert locks.lock_batch("G", [A, B], "c2", 30_000) == []
    assert locks.lock_batch("G", [A], "c1", 30_000) == [A]
    assert locks.lock_batch("G", [A], "c2", 61_000) == []
    locks.orphan("G", "c1")
    assert locks.lock_batch("G", [A], "c2", 61_000) == [A]


def test_never_longer_than_with_a_connection() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager(10_000)
    locks.lock_batch("G", [A], "c1", 0)
    locks.orphan("G", "c1")
    assert locks.lock_batch("G", [A], "c2", 10_001) == [A]


def test_all_locks_of_who_leaves_are_free_at_once() -> None:
    """Its last queue as well as its first: nobody may wait a minute for one that was given up."""
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    locks.lock_batch("G", [A, B], "c1", 0)
    locks.unlock_batch("G", [A, B], "c1")
    assert locks.lock_batch("G", [A, B], "c2", 1) == [A, B]
    locks.unlock_batch("G", [A, B], "c2")
    assert not locks._groups


def test_all_locks_of_a_connection_that_is_gone_expire_earlier() -> None:
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    locks.lock_batch("G", [A, B], "c1", 0)
    locks.orphan("G", "c1")
    assert locks.lock_batch("G", [A, B], "c2", 30_001) == [A, B]


def test_departed_groups_cost_no_memory() -> None:
    """However many there were; one that still holds a lock stays."""
    locks: RebalanceLockManager[tuple[str, str, int]] = RebalanceLockManager()
    for number in range(3):
        locks.lock_batch(f"G{number}", [A], "c1", 0)
    locks.lock_batch("H", [A], "c1", 0)
    locks.lock_batch("H", [B], "c1", 50_000)
    assert locks.expire(60_001) == 4
    assert locks.lock_batch("H", [A, B], "c2", 60_001) == [A]
    assert list(locks._groups) == ["H"]
