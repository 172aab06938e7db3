"""Runs plain Python on executors: a row is a task, and carries all values that it needs."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

FEW = 8
"""Up to so many tasks stay in the parts into which Spark puts the rows of a list."""
MOST_PARTS = 1000


def spread(
    spark: SparkSession,
    tasks: Sequence[Any],
    work: Callable[[Iterator[Any]], Iterator[Any]],
    schema: Any,
    at_once: int = 1,
) -> DataFrame:
    """
    Return the rows that `work` makes of tasks.

    Each task is pickled into a row of its own, so no executor has the tasks of others.

    :param work: called with some of the tasks; yields `pyarrow.RecordBatch` of the schema.
    :param schema: an Arrow schema.
    :param at_once: how many tasks one part runs at the same time.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        tasks = (row for batch in batches for row in batch.column(0).to_pylist())
        yield from work(map(pickle.loads, tasks))

    rows = spark.createDataFrame([(pickle.dumps(task),) for task in tasks], "task binary")
    if len(tasks) > FEW:
        rows = rows.repartition(min(-(-len(tasks) // at_once), MOST_PARTS))
    return rows.mapInArrow(run, from_arrow_schema(schema))
