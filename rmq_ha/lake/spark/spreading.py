"""Work of plain Python on executors: a row is a task, and carries all that it needs."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

FEW = 8
"""So many tasks go where Spark puts the rows of a list."""
MOST_PARTS = 1000


def spread(
    spark: SparkSession,
    tasks: Sequence[Any],
    work: Callable[[Iterator[Any]], Iterator[Any]],
    schema: Any,
    at_once: int = 1,
) -> DataFrame:
    """
    What work makes of tasks.

    Each is pickled into a row of its own: no executor holds those of others.

    :param work: of some of the tasks; gives `pyarrow.RecordBatch` of the schema.
    :param schema: of Arrow.
    :param at_once: tasks that one part does at the same time.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        tasks = (row for batch in batches for row in batch.column(0).to_pylist())
        yield from work(map(pickle.loads, tasks))

    rows = spark.createDataFrame([(pickle.dumps(task),) for task in tasks], "task binary")
    if len(tasks) > FEW:
        rows = rows.repartition(min(-(-len(tasks) // at_once), MOST_PARTS))
    return rows.mapInArrow(run, from_arrow_schema(schema))
