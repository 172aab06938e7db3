"""Kinds of topics, classes of latencies, severities, times and spans."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.scan.reducing import is_ordinary, latency_floors
from rmq_ha.lake.spark.audit.command import names_of, tags_of
from rmq_ha.lake.spark.audit.ledgers import is_text
from rmq_ha.lake.spark.audit.rules import SEVERITIES, Code
from rmq_ha.lake.spark.moments import moment_ms, needed_span


@pytest.mark.parametrize(
    ("topic", "ordinary"),
    [
        ("orders", True),
        ("DefaultCluster_REPLY_TOPIC", True),
        ("%RETRY%billing", False),
        ("%DLQ%billing", False),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", False),
        ("TRANS_CHECK_MAX_TIME_TOPIC", False),
    ],
)
def test_a_message_belongs_once_into_ordinary_topics_only(topic: str, ordinary: bool) -> None:
    assert is_ordinary(topic) is ordinary


@given(st.integers(0, 1 << 40))
def test_a_latency_is_shown_at_most_a_sixteenth_too_small(ms: int) -> None:
    shown = int(latency_floors(np.array([ms]))[0])
    assert shown <= ms
    assert ms - shown <= max(ms / 16, 0 if ms < 64 else 4) or ms >= 1 << 21
    assert latency_floors(np.array([shown]))[0] == shown


def test_a_negative_latency_is_its_own_class() -> None:
    assert latency_floors(np.array([-1, -5_000])).tolist() == [-1, -1]


def test_every_code_has_a_severity() -> None:
    assert set(SEVERITIES) == set(Code)


def test_moments_are_iso_ms_or_an_age() -> None:
    now = 1_700_000_000_000
    noon = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
    assert moment_ms("2026-01-31T12:00", now) == noon
    assert moment_ms("2026-01-31T13:00+01:00", now) == noon
    assert moment_ms("1700000000001", now) == now + 1
    assert moment_ms("2h", now) == now - 7_200_000


@pytest.mark.parametrize("text", ["", "yesterday", "5 parsecs", "-1s", "2026-13-01"])
def test_other_times_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(WrongUsage, match="write"):
        moment_ms(text, 0)


def test_a_window_is_longer_than_nothing() -> None:
    assert needed_span("0s", "--grace", 0) == 0
    for text in ("0s", "5", "soon"):
        with pytest.raises(WrongUsage, match=f"--window {text}: no span of time"):
            needed_span(text, "--window")


def test_subscriptions_and_names() -> None:
    assert tags_of(["g=A||B", "h= C "]) == {"g": {"A", "B"}, "h": {"C"}}
    assert names_of(" a, b,,") == ("a", "b")
    for wrong in ("g", "g=", "=A", "g=||"):
        with pytest.raises(WrongUsage, match="GROUP=TagA"):
            tags_of([wrong])


def test_the_name_of_a_ledger_says_what_it_is() -> None:
    assert is_text("/x/sent.jsonl")
    assert is_text("s3://b/sent.JSON.gz")
    assert is_text("/x/sent.ndjson/")
    assert not is_text("/x/sent.parquet")
    assert not is_text("/x/sent")
