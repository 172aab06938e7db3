"""
Hides the differences between the versions of Spark from 4.0 to 4.3.

No other module asks for the version. The names also exist where Spark is not installed, because the
readers of messages work without Spark.
"""

from collections.abc import Iterator
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmq_ha.base.errors import WrongUsage

__all__ = [
    "HAS_LIMITS", "LIMITS_SINCE", "DataSourceStreamArrowWriter", "InputPartition",
    "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows", "ReadMinRows",
    "SupportsTriggerAvailableNow", "batches_of_rows", "refuse_limits", "to_arrow_schema",
]  # fmt: skip
_ROWS = 8192
LIMITS_SINCE = "4.2"
"""
The first version of Spark that passes limits of a batch to the stream reader of a Python source.
"""

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        InputPartition,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.datasource import InputPartition
    except ImportError:  # no Spark

        class InputPartition:
            """A part of a read."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:  # before 4.2

        class ReadLimit:
            """The base of limits. Spark before 4.2 passes none, so only the names are needed."""

        ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows = (
            type(f"Read{what}", (ReadLimit,), {})
            for what in ("AllAvailable", "MaxBytes", "MaxRows", "MinRows")
        )

        class SupportsTriggerAvailableNow:
            """An empty base class: only Spark since 4.2 calls the methods that it stands for."""

    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # before 4.1, or no Spark
        try:
            from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter
        except ImportError:

            class DataSourceStreamArrowWriter:
                """An empty base class, so that the sink can be imported without Spark."""


HAS_LIMITS = ReadAllAvailable.__module__ != __name__
"""Whether Spark passes limits of a batch to a stream reader (since 4.2)."""


def refuse_limits(asked: list[str]) -> None:
    """
    Refuse options of a stream that this version of Spark cannot keep.

    :raises WrongUsage: limits were set, and Spark is too old for them.
    """
    if asked and not HAS_LIMITS:
        import pyspark

        raise WrongUsage(
            f"{asked[0]}: Spark {pyspark.__version__} does not ask a Python source for limits:"
            f" leave the option out, or take Spark {LIMITS_SINCE} or newer"
        )


def to_arrow_schema(schema: Any) -> Any:
    """Return the Arrow schema of a schema of Spark; times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema as made

    spoken: Any = made  # until 4.1 UTC is the only zone
    if "timezone" in signature(spoken).parameters:
        return spoken(schema, timezone="UTC")
    return spoken(schema)


def batches_of_rows(rows: Iterator[Any], schema: Any) -> Iterator[Any]:
    """
    Yield the rows of a stream's batch as `pyarrow.RecordBatch`: Spark 4.0 gives a writer single
    rows.

    :param schema: the schema of Spark.
    """
    target = to_arrow_schema(schema)
    names = [field.name for field in target if pa.types.is_map(field.type)]
    for first in rows:
        if isinstance(first, pa.RecordBatch):
            yield first
            continue
        some = [row.asDict(recursive=True) for row in (first, *islice(rows, _ROWS - 1))]
        for row in some:
            row |= {name: list(row[name].items()) for name in names if row[name] is not None}
        yield pa.RecordBatch.from_pylist(some, target)
