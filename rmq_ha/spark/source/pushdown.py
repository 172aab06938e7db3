"""Filters that Spark pushes down: which rows are kept, and which queues and ranges they are in.

A filter that is taken over is evaluated exactly as Spark would, null for null; what cannot be is
handed back.

It is done only where the user asks for it (`pushDown=true`): what Spark 4.3.0 planned with the
filters of one use of a DataFrame it reads in every other use of the same DataFrame, too. Of
`t.where(a).union(t.where(b))`, and of `t` after `t.where(a)`, it would give wrong rows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from rmq_ha.spark.source.reading import QueueId

FIXED_FIELDS = frozenset(
    {
        "topic",
        "queueId",
        "queueOffset",
        "commitLogOffset",
        "storeTimestamp",
        "bornTimestamp",
        "flag",
        "sysFlag",
        "bodyCRC",
        "reconsumeTimes",
        "storeSize",
        "preparedTransactionOffset",
        "brokerName",
    }
)
"""Columns that cost little: filters on them come first."""
_PYTHON: dict[type[DataType], type] = {
    StringType: str,
    IntegerType: int,
    LongType: int,
    BooleanType: bool,
    TimestampType: datetime,
}
_COMPARE: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_SEARCH: dict[type[Filter], Callable[..., Any]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}
_END = 1 << 63


def column_of(each: Filter) -> str:
    """The column that a filter is about; empty for a part of one."""
    if isinstance(each, Not):
        return column_of(each.child)
    path: tuple[str, ...] = getattr(each, "attribute", ())
    return path[0] if len(path) == 1 else ""


def can_decide(each: Filter, columns: dict[str, DataType]) -> bool:
    """
    A filter can be taken over.

    :param columns: that it may be about, with their types.
    """
    if isinstance(each, Not):
        return can_decide(each.child, columns)
    kind = columns.get(column_of(each))
    python = None if kind is None else _PYTHON.get(type(kind))
    if python is None:
        return False
    if isinstance(each, IsNull | IsNotNull):
        return True
    value = getattr(each, "value", None)
    if isinstance(each, In):
        return bool(each.value) and all(type(item) is python for item in each.value)
    if isinstance(each, EqualNullSafe) and value is None:
        return True
    if type(each) in _SEARCH:
        return python is str and type(value) is str
    return (type(each) in _COMPARE or isinstance(each, EqualNullSafe)) and type(value) is python


def divide(
    filters: Iterable[Filter], columns: dict[str, DataType]
) -> tuple[list[Filter], list[Filter]]:
    """Filters that are taken over, and those that Spark has to apply itself."""
    taken: list[Filter] = []
    left: list[Filter] = []
    for each in filters:
        (taken if can_decide(each, columns) else left).append(each)
    return taken, left


@dataclass(frozen=True)
class Keep:
    """
    Which rows are wanted.

    :ivar filters: all of them must hold; each one that `can_decide` accepts.
    :ivar tags: the tag must be one of these; None: any, or none.
    """

    filters: tuple[Filter, ...] = ()
    tags: frozenset[str] | None = None

    def __bool__(self) -> bool:
        """There is a condition at all."""
        return bool(self.filters) or self.tags is not None

    @property
    def columns(self) -> list[str]:
        """What has to be known of a row to decide."""
        names = {column_of(each) for each in self.filters}
        return sorted(names if self.tags is None else names | {"tags"})

    def stages(self) -> "list[Keep]":
        """The same, the cheap part first."""
        cheap = tuple(each for each in self.filters if column_of(each) in FIXED_FIELDS)
        rest = tuple(each for each in self.filters if column_of(each) not in FIXED_FIELDS)
        return [stage for stage in (Keep(cheap), Keep(rest, self.tags)) if stage]

    def rows(self, batch: Any) -> Any:
        """
        Decide for the rows of a batch that has `columns`.

        :returns: a `pyarrow.BooleanArray` without nulls.
        """
        parts = [_decide(each, batch.column(column_of(each))) for each in self.filters]
        if self.tags is not None:
            parts.append(pc.is_in(batch.column("tags"), pa.array(sorted(self.tags), pa.string())))
        if not parts:
            return pa.array([True] * batch.num_rows, pa.bool_())
        return reduce(pc.and_kleene, parts).fill_null(False)

    def batch(self, columns: Sequence[str], make: Callable[[list[str]], Any]) -> Any:
        """
        Only the wanted rows, and exactly these columns.

        :param make: gives a `pyarrow.RecordBatch` with the columns that it is asked for.
        """
        if not self:
            return make(list(columns))
        more = [name for name in self.columns if name not in columns]
        wide = make([*columns, *more])
        return wide.filter(self.rows(wide)).select(list(columns))


def _decide(each: Filter, column: Any) -> Any:
    if isinstance(each, Not):
        return pc.invert(_decide(each.child, column))
    if isinstance(each, IsNull):
        return column.is_null()
    if isinstance(each, IsNotNull):
        return column.is_valid()
    if isinstance(each, In):
        found = pc.is_in(column, pa.array(list(each.value), column.type))
        return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))
    if isinstance(each, EqualNullSafe):
        if each.value is None:
            return column.is_null()
        return pc.equal(column, pa.scalar(each.value, column.type)).fill_null(False)
    value: Any = getattr(each, "value", None)
    if type(each) in _SEARCH:
        return _SEARCH[type(each)](column, value)
    return _COMPARE[type(each)](column, pa.scalar(value, column.type))


@dataclass(frozen=True)
class Limits:
    """
    Where the rows that filters want can be, at most. Ranges are [from, to).

    :ivar topics: None: any; so for `queue_ids` and `brokers`.
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    brokers: frozenset[str] | None = None
    queue_offsets: tuple[int, int] = (0, _END)
    log_offsets: tuple[int, int] = (0, _END)

    def has(self, queue: QueueId) -> bool:
        """A queue may have such rows."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
            and (self.brokers is None or queue.broker in self.brokers)
        )


def limits_of(filters: Iterable[Filter]) -> Limits:
    """What filters say about places; those that say nothing are passed over."""
    sets: dict[str, frozenset[Any]] = {}
    ranges = {"queueOffset": (0, _END), "commitLogOffset": (0, _END)}
    for each in filters:
        name = column_of(each)
        values = _values(each)
        if values == frozenset() and name == "brokerName":
            values = frozenset({""})  # null: the store's broker was not named
        if values is not None and name in ("topic", "queueId", "brokerName"):
            sets[name] = sets[name] & values if name in sets else values
        if name in ranges:
            low, high = _range(each, values)
            ranges[name] = max(low, ranges[name][0]), min(high, ranges[name][1])
    return Limits(
        sets.get("topic"),
        sets.get("queueId"),
        sets.get("brokerName"),
        ranges["queueOffset"],
        ranges["commitLogOffset"],
    )


def _values(each: Filter) -> frozenset[Any] | None:
    if isinstance(each, In):
        return frozenset(each.value)
    if isinstance(each, EqualTo | EqualNullSafe):
        return frozenset(() if each.value is None else (each.value,))
    return frozenset() if isinstance(each, IsNull) else None


def _range(each: Filter, values: frozenset[Any] | None) -> tuple[int, int]:
    if values is not None:
        return (min(values), max(values) + 1) if values else (0, 0)
    if isinstance(each, GreaterThan):
        return each.value + 1, _END
    if isinstance(each, GreaterThanOrEqual):
        return each.value, _END
    if isinstance(each, LessThan):
        return 0, each.value
    if isinstance(each, LessThanOrEqual):
        return 0, each.value + 1
    return 0, _END
