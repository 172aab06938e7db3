"""The limits of consumers' settings: Java's, to the number."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.rules.consumer_settings import (
    Beginning,
    ConsumeFromWhere,
    LitePullConsumerConfig,
    MessageModel,
    PushConsumerConfig,
)

PUSH = {
    "consume_concurrency": (1, 1000),
    "consume_message_batch_max_size": (1, 1024),
    "consume_concurrently_max_span": (1, 65535),
    "pull_threshold_for_queue": (1, 65535),
    "pull_threshold_size_for_queue": (1, 1024),
    "pull_interval_ms": (0, 65535),
    "pull_batch_size": (1, 1024),
    "consume_timeout_ms": (1, 60_000 << 31),
}
LITE = {
    "auto_commit_interval_ms": (1000, 1 << 31),
    "pull_batch_size": (1, 1024),
    "pull_threshold_for_all": (1, 1 << 31),
    "consume_max_span": (1, 65535),
    "pull_threshold_for_queue": (1, 65535),
    "pull_threshold_size_for_queue": (1, 1024),
}


@pytest.mark.parametrize(
    ("kind", "name", "least", "most"),
    [
        (kind, name, *ends)
        for kind, ranges in ((PushConsumerConfig, PUSH), (LitePullConsumerConfig, LITE))
        for name, ends in ranges.items()
    ],
)
def test_every_number_has_its_least_and_its_most(
    kind: Any, name: str, least: int, most: int
) -> None:
    for value in (least, most):
        assert getattr(kind(**{name: value}).checked(), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigurationError, match=f"{name} must be from {least} to {most}"):
            kind(**{name: value}).checked()


@pytest.mark.parametrize(
    ("minutes", "ms"), [(15, 900_000), (1, 60_000), (0.5, 30_000), (1 / 3, 20_000)]
)
def test_the_old_spelling_in_minutes_is_taken_exactly(minutes: float, ms: int) -> None:
    with pytest.warns(DeprecationWarning, match=f"write consume_timeout_ms={ms}$") as said:
        config = PushConsumerConfig(consume_timeout=minutes)
    assert said[0].filename == __file__
    assert config.checked().consume_timeout_ms == ms
    assert replace(config, pull_interval_ms=1).consume_timeout_ms == ms
    assert replace(config, consume_timeout_ms=7).consume_timeout_ms == 7


def test_two_spellings_that_differ_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="say two things"):
        PushConsumerConfig(consume_timeout=1, consume_timeout_ms=70_000)
    no_number: Any = "1"
    with pytest.raises(ConfigurationError, match=r"\(minutes\), not '1'"):
        PushConsumerConfig(consume_timeout=no_number)


def test_a_topic_s_limits_are_shared_out_among_its_queues() -> None:
    plain = PushConsumerConfig().limits(4, orderly=False)
    assert (plain.messages, plain.size, plain.span) == (1000, 100 << 20, 2000)
    shared = PushConsumerConfig(pull_threshold_for_topic=100, pull_threshold_size_for_topic=20)
    limits = shared.limits(4, orderly=True)
    assert (limits.messages, limits.size, limits.span) == (25, 5 << 20, 0)
    assert shared.limits(0, orderly=True).messages == 100
    most = shared.limits(1000, orderly=True)
    assert (most.messages, most.size) == (1, 1 << 20)


def test_a_held_pull_has_time_for_its_answer() -> None:
    same = {"broker_suspend_max_time_ms": 30_000}
    assert LitePullConsumerConfig(**same).checked()
    with pytest.raises(ConfigurationError, match="must not be less"):
        LitePullConsumerConfig(broker_suspend_max_time_ms=30_001).checked()
    found = LitePullConsumerConfig(pull_threshold_size_for_queue=3, consume_max_span=9).limits()
    assert (found.messages, found.size, found.span) == (1000, 3 << 20, 9)


def test_a_time_to_begin_at_is_half_an_hour_ago_or_a_local_time() -> None:
    where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert Beginning(where).time_ms(10_000_000) == 10_000_000 - 1_800_000
    local = datetime(2026, 1, 31, 23, 59, 58)
    assert Beginning(where, "20260131235958").time_ms(0) == local.timestamp() * 1000
    for config in (PushConsumerConfig, LitePullConsumerConfig):
        with pytest.raises(ConfigurationError, match="not a local time"):
            config(consume_timestamp="yesterday").checked()
    assert PushConsumerConfig().is_clustering
    assert not PushConsumerConfig(message_model=MessageModel.BROADCASTING).is_clustering


def test_a_choice_of_another_kind_is_refused_at_once() -> None:
    """Its heartbeats failed, and the consumer got no queue and no error."""
    for kind in (PushConsumerConfig, LitePullConsumerConfig):
        config = kind(consume_from_where="CONSUME_FROM_FIRST_OFFSET")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="must be one of ConsumeFromWhere"):
            config.checked()
