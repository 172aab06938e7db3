"""Which refusals are logged."""

from rmq_ha.acl.refusals import RefusalLog


def test_one_line_per_host_and_period_with_a_count() -> None:
    log = RefusalLog(10.0)
    assert log.refused("a", 0.0) == (0,)
    assert [log.refused("a", 1.0 + number) for number in range(5)] == [None] * 5
    assert log.refused("b", 2.0) == (0,)
    assert log.refused("a", 10.0) == (5,)
    assert log.refused("a", 10.1) is None


def test_many_hosts_fill_no_memory_and_are_counted() -> None:
    log = RefusalLog(10.0)
    told = [log.refused(str(number), 0.0) for number in range(3000)]
    assert sum(line is not None for line in told) == 1024
    assert len(log._hosts) == 1024
    line = log.refused("late", 10.0)
    assert line is not None
    assert line.silent == 3000 - 1024
