"""What `rmqha-admin` is told of the slaves of a master."""

from dataclasses import replace

from rmq_ha.server.replication.statistics import ReplicationStatistics, SlaveStatistics

SLAVE = SlaveStatistics(address="a", stage="s", requested=5, acked=1, lag=2, lag_seconds=3.0)
WORDS = {"address": "a", "stage": "s", "acked": 1, "lag": 2, "lag_seconds": 3.0}


def test_a_hundred_slaves_are_told_of_and_those_that_have_reported() -> None:
    slaves = [replace(SLAVE, requested=number, acked=number) for number in range(101)]
    told = ReplicationStatistics(slaves=slaves).slaves_info()
    assert [slave["acked"] for slave in told] == list(range(100))
    assert told[7] == WORDS | {"acked": 7}
    slaves[7] = replace(SLAVE, requested=None)
    told = ReplicationStatistics(slaves=slaves[:9]).slaves_info()
    assert [slave["acked"] for slave in told] == [0, 1, 2, 3, 4, 5, 6, 8]


def test_a_hundred_that_have_not_reported_hide_nobody() -> None:
    silent = [replace(SLAVE, requested=None)] * 100
    assert ReplicationStatistics(slaves=[*silent, SLAVE]).slaves_info() == [WORDS]
