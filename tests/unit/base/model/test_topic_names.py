"""Which names topics and groups may have, and which are RocketMQ's own."""

import pytest

from rmq_ha.base.model.topics import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    HALF_TOPIC,
    MAX_GROUP_LENGTH,
    MAX_TOPIC_LENGTH,
    SELF_TEST_TOPIC,
    group_fault,
    group_name_fault,
    is_system,
    topic_fault,
)


@pytest.mark.parametrize("topic", [DEFAULT_TOPIC, HALF_TOPIC, "rmq_sys_x", "RMQ_SYS_TRACE_TOPIC"])
def test_what_rocketmq_uses_itself_is_its_own(topic: str) -> None:
    assert is_system(topic)


@pytest.mark.parametrize("topic", ["orders", BENCHMARK_TOPIC, SELF_TEST_TOPIC, "x_rmq_sys_", ""])
def test_what_programs_of_users_write_to_is_not(topic: str) -> None:
    assert not is_system(topic)


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("orders", None),
        ("%RETRY%a|b-c_9", None),
        ("t" * MAX_TOPIC_LENGTH, None),
        ("t" * (MAX_TOPIC_LENGTH + 1), "longer than 127 characters"),
        ("", "blank"),
        (" \t", "blank"),
        ("a b", "'a b' contains characters outside"),
        ("grün", "contains characters outside"),
    ],
)
def test_names_of_topics(topic: str, fault: str | None) -> None:
    found = topic_fault(topic)
    assert found == fault or fault in (found or "")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("group", "of_java", "of_all"),
    [
        ("readers", None, None),
        ("g" * MAX_GROUP_LENGTH, None, None),
        ("g" * (MAX_GROUP_LENGTH + 1), "longer than 255", "longer than 255"),
        ("", "blank", "blank"),
        ("  ", "blank", "blank"),
        ("group:with.dots", "characters outside", None),
        ("a@b", "characters outside", "'a@b' contains an @ or a control"),
        ("a\nb", "characters outside", "contains an @ or a control"),
    ],
)
def test_names_of_groups(group: str, of_java: str | None, of_all: str | None) -> None:
    """Java's clients allow less than brokers of 4.9 do."""
    for found, fault in ((group_fault(group), of_java), (group_name_fault(group), of_all)):
        assert found == fault or fault in (found or "")  # type: ignore[operator]


def test_a_group_that_is_no_good_is_not_said_at_length() -> None:
    found = group_name_fault("@" * 10_000) or ""
    assert found.count("@") == MAX_GROUP_LENGTH + 1  # the reason has one
