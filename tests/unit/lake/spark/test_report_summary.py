"""`summary.json`: plain JSON whatever a job counted."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq-ha[spark]'")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.ops.offsets.digest import digest
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.summary import Timings, iso, outcome_of, plain, summary_of, to_json


def test_the_members_of_the_summary() -> None:
    counted = digest([("ERROR", "LOST", 2), ("WARN", "STALE", 1)], [], 10)
    made = summary_of(
        "job",
        "1",
        {"master": "/a"},
        Outcome.VIOLATED,
        "No.",
        counted,
        {"lag": float("nan")},
        Timings(1_700_000_000_123, 1, 2.0004, 3),
    )
    assert json.loads(to_json(made)) == {
        "job": "job",
        "version": "1",
        "inputs": {"master": "/a"},
        "outcome": "VIOLATED",
        "exitCode": 1,
        "verdict": "No.",
        "counts": {"LOST": 2, "STALE": 1},
        "severities": {"ERROR": 2, "WARN": 1, "INFO": 0},
        "numbers": {"lag": None},
        "startedAt": "2023-11-14T22:13:20.123Z",
        "seconds": {"start": 1, "run": 2.0, "write": 3},
    }


def test_numbers_of_any_kind_become_plain() -> None:
    value = {
        1: np.int64(2**62),
        "a": np.array([1.5, float("inf")]),
        "b": Decimal("1.5"),
        "c": datetime(2026, 1, 1, tzinfo=UTC),
        "d": {3},
        "e": b"x",
        "f": np.float32(0.5),
    }
    assert plain(value) == {
        "1": 2**62,
        "a": [1.5, None],
        "b": 1.5,
        "c": "2026-01-01T00:00:00+00:00",
        "d": [3],
        "e": "b'x'",
        "f": 0.5,
    }


@pytest.mark.lake
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    )
)
def test_anything_can_be_written(value: object) -> None:
    json.loads(to_json({"numbers": plain(value)}))


@pytest.mark.parametrize(
    ("outcome", "warnings", "strict", "expected"),
    [
        (Outcome.HOLDS, 1, True, Outcome.VIOLATED),
        (Outcome.HOLDS, 0, True, Outcome.HOLDS),
        (Outcome.HOLDS, 1, False, Outcome.HOLDS),
        (Outcome.UNDECIDED, 1, True, Outcome.UNDECIDED),
    ],
)
def test_strict_makes_a_warning_a_violation(
    outcome: Outcome, warnings: int, strict: bool, expected: Outcome
) -> None:
    counted = digest([("WARN", "X", warnings)] if warnings else [], [], 10)
    assert outcome_of(outcome, counted, strict) is expected


def test_times_before_the_epoch() -> None:
    assert iso(-1) == "1969-12-31T23:59:59.999Z"
