"""When leases end."""

from rmq_ha.server.pop.due import DueIndex, DueLeases


def test_leases_come_out_at_their_time_the_oldest_first() -> None:
    index = DueIndex()
    assert index.next_ms() is None
    for number, deadline in enumerate((5000, 999, 1001, 1000)):
        index.add(deadline, DueLeases((number, 0), 3, 4, 77))
    assert index.next_ms() == 1000
    assert index.take(999, 10) == []
    assert [item.queue for item in index.take(1000, 10)] == [(1, 0), (3, 0)]
    assert index.next_ms() == 1100
    assert [item.queue for item in index.take(9000, 10)] == [(2, 0), (0, 0)]
    assert index.next_ms() is None


def test_no_more_messages_come_out_than_one_call_may_take() -> None:
    index = DueIndex()
    for number in range(10):
        index.add(100, DueLeases((number, 0), 0, 31, 77))
    assert len(index.take(100, 64)) == 2
    assert len(index.take(100, 64)) == 2
    assert index.next_ms() == 100
    assert len(index.take(100, 1000)) == 6
    assert index.take(100, 1000) == []
