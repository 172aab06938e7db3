"""Expressions, and numbers that operators see."""

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.rules.consume_stats import ConsumeRates
from rmq_ha.client.rules.subscriptions import MessageSelector, Subscriptions, subscription


def test_versions_only_grow_and_change_together_with_the_queues() -> None:
    table = Subscriptions()
    assert table.version == 0  # as a broker has it that knows nothing
    table.add("a", "x || y", 1000)
    table.add("b", MessageSelector.by_sql("n > 1"), 1000)
    one, other = table.all()
    assert (one.tags_set, one.sub_version) == ({"x", "y"}, 1000)
    assert (other.expression_type, other.sub_string, other.sub_version) == ("SQL92", "n > 1", 1001)
    table.touch(["a", "zzz"], 5)
    assert [item.sub_version for item in table.all()] == [1002, 1001]
    table.remove("a")
    table.remove("a")
    assert list(table) == ["b"]
    assert "a" not in table
    assert len(table) == 1


def test_an_empty_sql_expression_is_refused_and_empty_tags_are_all() -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        subscription("a", MessageSelector.by_sql(" "), 1)
    assert subscription("a", None, 1).sub_string == "*"
    assert subscription("a", MessageSelector.by_tag(""), 1).sub_string == "*"


def test_rates_are_those_of_the_last_minute() -> None:
    stats = ConsumeRates()
    for second in range(120):
        stats.consumed("T", 10, 4, second * 1000)
        stats.failed("T", 1, second * 1000)
        stats.pulled("T", 32, 8, second * 1000)
    status = stats.status("T", 119_000)
    assert 9 < status["consumeOKTPS"] <= 10
    assert status["consumeRT"] == 4.0
    assert status["pullRT"] == 8.0
    assert 50 < status["consumeFailedMsgs"] <= 60
    assert stats.status("T", 500_000)["consumeOKTPS"] == 0.0
    stats.forget("T")
    assert stats.status("T", 119_000)["pullTPS"] == 0.0
