"""Small frames for tests, for any engine."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_KINDS = {
    "string": pa.string(), "int": pa.int32(), "long": pa.int64(), "boolean": pa.bool_(),
    "double": pa.float64(), "binary": pa.binary(),
}  # fmt: skip


def made(engine: Any, rows: Sequence[Sequence[Any]], columns: str) -> Any:
    """
    Return a frame of rows.

    :param columns: `topic:string queueId:int`.
    """
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in
                        (word.split(":") for word in columns.split())])  # fmt: skip
    values = list(zip(*rows, strict=True)) or [[] for _ in schema]
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(values, schema, strict=True)
    ]
    return engine.table(pa.Table.from_arrays(arrays, schema=schema))
