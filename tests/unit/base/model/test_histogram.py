"""Buckets."""

from math import inf

from rmq_ha.base.model.histogram import Histogram


def test_a_value_belongs_to_the_first_bucket_whose_limit_it_does_not_exceed() -> None:
    found = Histogram((1.0, 5.0))
    for value in (0.0, 1.0, 1.5, 5.0, 6.0):
        found.add(value)
    assert found.counts == [2, 2, 1]
    assert found.cumulative() == [(1.0, 2), (5.0, 4), (inf, 5)]
    assert found.total == 13.5


def test_several_alike_values_count_at_once() -> None:
    found = Histogram((1.0,))
    found.add(0.5, 4)
    assert found.cumulative() == [(1.0, 4), (inf, 4)]
    assert found.total == 2.0
