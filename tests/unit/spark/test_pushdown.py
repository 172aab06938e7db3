"""Filters that are pushed down keep exactly the rows that SQL would, null for null."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rmq_ha.spark.source.batch import COLUMNS
from rmq_ha.spark.source.pushdown import Keep, can_decide, column_of, divide, limits_of
from rmq_ha.spark.source.reading import QueueId

TIMES = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
ROWS: list[dict[str, Any]] = [
    {"topic": "A", "queueId": 0, "queueOffset": 0, "commitLogOffset": 0, "tags": None},
    {"topic": "A", "queueId": 1, "queueOffset": 5, "commitLogOffset": 100, "tags": "x"},
    {"topic": "B", "queueId": 0, "queueOffset": 6, "commitLogOffset": 200, "tags": "xy"},
    {"topic": "B", "queueId": 2, "queueOffset": 7, "commitLogOffset": 300, "tags": ""},
    {"topic": "Äb", "queueId": 2, "queueOffset": 1 << 40, "commitLogOffset": 400, "tags": "é"},
]
for at, row in enumerate(ROWS):
    row |= {
        "storeTimestamp": TIMES[at % 3],
        "crcOk": (None, True, False)[at % 3],
        "brokerName": None if at == 3 else "b",
    }
TYPES = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "commitLogOffset": pa.int64(),
    "tags": pa.string(),
    "storeTimestamp": pa.timestamp("us", "UTC"),
    "crcOk": pa.bool_(),
    "brokerName": pa.string(),
}
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=pa.schema(list(TYPES.items())))
NUMBERS = st.sampled_from([-1, 0, 1, 2, 5, 6, 7, 99, 100, 300, 1 << 40])
TEXTS = st.sampled_from(["", "A", "B", "x", "xy", "y", "Ä", "é", "b"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": TEXTS,
    "tags": TEXTS,
    "brokerName": TEXTS,
    "queueId": NUMBERS.filter(lambda value: value < 1 << 31),
    "queueOffset": NUMBERS,
    "commitLogOffset": NUMBERS,
    "storeTimestamp": st.sampled_from(TIMES),
    "crcOk": st.booleans(),
}
COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
SEARCHES = (StringStartsWith, StringEndsWith, StringContains)


@st.composite
def filters(draw: Any) -> Filter:
    name = draw(st.sampled_from(sorted(VALUES)))
    kinds: list[Any] = [*COMPARISONS, In, IsNull, IsNotNull]
    if name in ("topic", "tags", "brokerName"):
        kinds += SEARCHES
    kind = draw(st.sampled_from(kinds))
    found: Filter
    if kind in (IsNull, IsNotNull):
        found = kind((name,))
    elif kind is In:
        found = In((name,), tuple(draw(st.lists(VALUES[name], min_size=1, max_size=3))))
    else:
        found = kind((name,), draw(VALUES[name]))
    return Not(found) if draw(st.booleans()) else found


def sql(each: Filter, row: dict[str, Any]) -> bool | None:
    """What SQL says: True, False, or None for null."""
    if isinstance(each, Not):
        inner = sql(each.child, row)
        return None if inner is None else not inner
    held = row[column_of(each)]
    if isinstance(each, IsNull):
        return held is None
    if isinstance(each, IsNotNull):
        return held is not None
    value = each.value  # type: ignore[attr-defined]
    if isinstance(each, EqualNullSafe):
        return bool(held == value)
    if held is None:
        return None
    if isinstance(held, str) and not isinstance(each, In):
        held, value = held.encode(), value.encode()  # Spark compares bytes
    answers = {
        EqualTo: lambda: held == value,
        GreaterThan: lambda: held > value,
        GreaterThanOrEqual: lambda: held >= value,
        LessThan: lambda: held < value,
        LessThanOrEqual: lambda: held <= value,
        In: lambda: held in value,
        StringStartsWith: lambda: held.startswith(value),
        StringEndsWith: lambda: held.endswith(value),
        StringContains: lambda: value in held,
    }
    return bool(answers[type(each)]())


@given(st.lists(filters(), max_size=3))
def test_what_is_kept_is_what_sql_keeps(chosen: list[Filter]) -> None:
    assert all(can_decide(each, COLUMNS) for each in chosen)
    wanted = [row for row in ROWS if all(sql(each, row) is True for each in chosen)]
    keep = Keep(tuple(chosen))
    assert BATCH.filter(keep.rows(BATCH)).to_pylist() == wanted
    staged = BATCH
    for stage in keep.stages():
        staged = staged.filter(stage.rows(staged.select(stage.columns)))
    assert staged.to_pylist() == wanted


@given(st.lists(filters(), max_size=3))
def test_limits_lose_no_row_that_is_wanted(chosen: list[Filter]) -> None:
    limits = limits_of(chosen)
    for row in ROWS:
        if all(sql(each, row) is True for each in chosen):
            assert limits.has(QueueId(row["topic"], row["brokerName"] or "", row["queueId"]))
            low, high = limits.queue_offsets
            assert low <= row["queueOffset"] < high
            low, high = limits.log_offsets
            assert low <= row["commitLogOffset"] < high


def test_limits_name_queues_and_ranges() -> None:
    limits = limits_of(
        [
            In(("topic",), ("A", "B")),
            EqualTo(("topic",), "A"),
            EqualTo(("queueId",), 3),
            GreaterThan(("queueOffset",), 9),
            LessThanOrEqual(("queueOffset",), 20),
            GreaterThanOrEqual(("commitLogOffset",), 5),
            LessThan(("commitLogOffset",), 50),
        ]
    )
    assert limits.topics == frozenset({"A"})
    assert limits.queue_ids == frozenset({3})
    assert limits.queue_offsets == (10, 21)
    assert limits.log_offsets == (5, 50)


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "KEYS"), "x"),
        IsNull(("properties",)),
        EqualTo(("topic",), None),
        EqualTo(("topic",), 5),
        EqualTo(("queueId",), True),
        EqualTo(("queueId",), 5.0),
        In(("queueId",), (1, None)),
        In(("queueId",), ()),
        Not(In(("queueId",), (1, None))),
        StringContains(("queueId",), "1"),
        EqualTo(("unknown",), 1),
    ],
)
def test_what_cannot_be_decided_exactly_is_handed_back(each: Filter) -> None:
    taken = EqualTo(("topic",), "A")
    assert divide([each, taken], COLUMNS) == ([taken], [each])


def test_tags_are_one_more_condition() -> None:
    keep = Keep((EqualTo(("topic",), "A"),), frozenset({"x", "xy"}))
    assert keep.columns == ["tags", "topic"]
    assert [row["tags"] for row in BATCH.filter(keep.rows(BATCH)).to_pylist()] == ["x"]


def test_only_the_columns_that_were_asked_for_come_back() -> None:
    asked: list[list[str]] = []

    def make(columns: list[str]) -> Any:
        asked.append(columns)
        return BATCH.select(columns)

    found = Keep((EqualTo(("tags",), "x"),)).batch(["queueOffset"], make)
    assert asked == [["queueOffset", "tags"]]
    assert found.to_pylist() == [{"queueOffset": 5}]
    assert Keep().batch(["topic"], make).num_rows == len(ROWS)
    assert not Keep()
