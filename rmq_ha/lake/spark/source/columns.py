"""Returns the columns of a read in the wanted form: rmq-ha's, or that of Spark's Kafka source."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from rmq_ha.lake.spark.compat import to_arrow_schema
from rmq_ha.lake.spark.source.forms import KAFKA, ROCKETMQ
from rmq_ha.lake.spark.source.schema import COLUMNS, MESSAGE_COLUMNS, check_schema, message_schema

HEADERS = "headers"
_KAFKA: dict[str, tuple[str, T.DataType]] = {
    "key": ("keys", T.BinaryType()),
    "value": ("body", T.BinaryType()),
    "topic": ("topic", T.StringType()),
    "partition": ("queueId", T.IntegerType()),
    "offset": ("queueOffset", T.LongType()),
    "timestamp": ("storeTimestamp", T.TimestampType()),
    "timestampType": ("storeTimestamp", T.IntegerType()),
    HEADERS: (
        "properties",
        T.ArrayType(
            T.StructType(
                [T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]
            )
        ),
    ),
}
"""For each column of the Kafka form: the column that it is made of, and its type."""
KAFKA_COLUMNS = {name: kind for name, (_, kind) in _KAFKA.items()}
_LOG_APPEND_TIME = 1


def columns_of(form: str) -> dict[str, T.DataType]:
    """Return all columns that a schema may name."""
    return COLUMNS if form == ROCKETMQ else COLUMNS | KAFKA_COLUMNS


def default_schema(form: str, include_properties: bool) -> T.StructType:
    """Return the schema of a read if the user names none."""
    return message_schema(include_properties, KAFKA_COLUMNS if form == KAFKA else MESSAGE_COLUMNS)


class WantedColumns:
    """
    The columns that a schema wants.

    :ivar columns: the columns of messages to be read.
    :raises rmq_ha.base.errors.WrongUsage: a column does not exist, or has another type.
    """

    def __init__(self, schema: T.StructType, form: str) -> None:
        self._schema = schema
        self._names = check_schema(schema, columns_of(form))
        kafka = _KAFKA if form == KAFKA else {}
        self._sources = [kafka[name][0] if name in kafka else name for name in self._names]
        self.columns = list(dict.fromkeys(self._sources))

    def cast_batch(self, batch: Any) -> Any:
        """Convert a `pyarrow.RecordBatch` of `columns` to the schema's columns."""
        target = to_arrow_schema(self._schema)
        if self._names != self.columns:
            arrays = [
                _make_column(name, batch.column(source), field.type)
                for name, source, field in zip(self._names, self._sources, target, strict=True)
            ]
            return pa.RecordBatch.from_arrays(arrays, schema=target)
        return batch if batch.schema.equals(target) else batch.cast(target)


def _make_column(name: str, column: Any, kind: Any) -> Any:
    """Return a column of messages in the form that the schema wants, of the Arrow type `kind`."""
    if name == "timestampType":
        return pa.array([_LOG_APPEND_TIME] * len(column), kind)
    if name == HEADERS:
        # Arrow holds a map as a list of entries; the value of each entry becomes bytes.
        entries = column.cast(pa.map_(pa.string(), pa.binary()))
        made = pa.StructArray.from_arrays(
            [entries.keys, entries.items], fields=list(kind.value_type)
        )
        return pa.ListArray.from_arrays(entries.offsets, made, type=kind, mask=pc.is_null(entries))
    return column if column.type == kind else column.cast(kind)
