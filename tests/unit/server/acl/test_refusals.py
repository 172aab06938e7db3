"""Which refusals are logged."""

from rmq_ha.base.acl.refusals import RefusalLog


def test_one_line_per_host_and_period_with_a_count() -> None:
    log = RefusalLog(10.0)
    assert log.count("a", 0.0) == (0,)
    assert [log.count("a", 1.0 + number) for number in range(5)] == [None] * 5
    assert log.count("b", 2.0) == (0,)
    assert log.count("a", 10.0) == (5,)
    assert log.count("a", 10.1) is None


def test_many_hosts_fill_no_memory_and_are_counted() -> None:
    log = RefusalLog(10.0)
    told = [log.count(str(number), 0.0) for number in range(3000)]
    assert sum(line is not None for line in told) == 1024
    assert len(log._hosts) == 1024
    line = log.count("late", 10.0)
    assert line is not None
    assert line.silent == 3000 - 1024


def test_a_host_that_is_known_is_told_again_when_its_time_has_come_however_many_there_are() -> None:
    log = RefusalLog(10.0)
    assert log.count("first", 5.0) == (0,)
    for number in range(1023):
        log.count(str(number), 16.0)
    assert log.count("first", 16.0) == (0,)


def test_room_is_made_by_forgetting_those_whose_time_is_over_and_no_others() -> None:
    """Or who is forgotten too soon fills the log again."""
    log = RefusalLog(10.0)
    log.count("old", 0.0)
    for number in range(1023):
        log.count(str(number), 8.0)
    assert log.count("new", 11.0) == (0,)
    assert "old" not in log._hosts
    assert log.count("0", 11.0) is None
