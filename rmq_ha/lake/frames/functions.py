"""Functions of `pyspark.sql.functions` by their names: `F.max("queueOffset")`."""

from collections.abc import Callable
from typing import Any

from rmq_ha.lake.frames.columns import Column
from rmq_ha.lake.frames.frame import DataFrame


def lit(value: Any) -> Column:
    """Return a constant; a column is returned as it is."""
    return value if isinstance(value, Column) else Column("lit", (value,))


def broadcast(frame: DataFrame) -> DataFrame:
    """Mark a small frame, which Spark then sends to every executor whole."""
    return frame.hint("broadcast")


def __getattr__(name: str) -> Callable[..., Column]:
    if name.startswith("_"):
        raise AttributeError(name)

    def call(*given: Any, **named: Any) -> Column:
        return Column(name, given, **named)

    return call
