"""Frames of Spark, and the engine that makes them."""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame as Rows
from pyspark.sql import SparkSession, functions
from pyspark.sql import Window as SparkWindow
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.utils import is_remote

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.frames.columns import Column, WindowSpec
from rmq_ha.lake.frames.frame import CannotRead, DataFrame, Engine, Work
from rmq_ha.lake.spark.host.parquet_files import save_rows
from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of

FEW = 8
"""Up to this many tasks are not distributed again after Spark has made rows of them."""
MOST_PARTS = 1000


def translated(value: Any) -> Any:
    """Return the value of Spark for an expression, a window or a frame; others stay as they are."""
    if isinstance(value, Column):
        owner = functions if value.owner is None else translated(value.owner)
        return getattr(owner, value.name)(*map(translated, value.given), **value.named)
    if isinstance(value, WindowSpec):
        made: Any = SparkWindow
        for name, given in value.calls:
            made = getattr(made, name)(*map(translated, given))
        return made
    if isinstance(value, SparkFrame):
        return value.rows
    if isinstance(value, dict):
        return {name: translated(item) for name, item in value.items()}
    return value


class SparkFrame(DataFrame):
    """A frame of Spark; `rows` is Spark's own frame."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def _call_method(self, name: str, *given: Any, **named: Any) -> DataFrame:
        """Call `_NAME` of this class if there is one, else Spark's method of that name."""
        own: Callable[..., Rows] | None = getattr(self, f"_{name}", None)
        if own is not None:
            return SparkFrame(own(*given, **named))
        return SparkFrame(getattr(self.rows, name)(*map(translated, given), **named))

    def _aggregate(self, by: Sequence[Any], columns: Sequence[Column]) -> Rows:
        return self.rows.groupBy(*map(translated, by)).agg(*map(translated, columns))

    def _mapInArrow(self, work: Work, schema: Any) -> Rows:
        return self.rows.mapInArrow(work, from_arrow_schema(schema))

    def _freeze(self) -> Rows:
        # Rows are also cheaper to write than columns.
        return self.rows.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)

    def _keep(self) -> Rows:
        return self.rows.unpersist().persist(StorageLevel.DISK_ONLY)

    def _release(self) -> Rows:
        return self.rows.unpersist()

    @property
    def is_kept(self) -> bool:
        return self.rows.storageLevel != StorageLevel.NONE

    @property
    def columns(self) -> list[str]:
        return list(self.rows.columns)

    def collect(self) -> list[Any]:
        return self.rows.collect()

    def toArrow(self) -> Any:
        return self.rows.toArrow()

    def save(self, directory: str) -> None:
        """Write the rows; with Spark Connect in this process, as Spark may run elsewhere."""
        if is_remote():
            save_rows(self.toArrow(), directory)
        else:
            place = directory if "://" in directory else f"file://{directory}"
            self.rows.write.mode("overwrite").parquet(place)

    def isEmpty(self) -> bool:
        return self.rows.isEmpty()

    def count(self) -> int:
        return self.rows.count()


@contextmanager
def _reasons() -> Iterator[None]:
    """Raise `CannotRead` with the first line of the reason if Spark cannot read a file."""
    try:
        yield
    except AnalysisException as error:
        raise CannotRead(str(error).splitlines()[0]) from error


class SparkEngine(Engine):
    """Makes frames of the session `spark`."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def table(self, rows: Any) -> DataFrame:
        return SparkFrame(self.spark.createDataFrame(rows))

    def spread(self, tasks: Sequence[Any], work: Work, schema: Any, at_once: int = 1) -> DataFrame:
        """Run tasks on executors. Each is pickled into a row, so none gets those of others."""

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            tasks = (row for batch in batches for row in batch.column(0).to_pylist())
            yield from work(map(pickle.loads, tasks))

        rows = self.spark.createDataFrame([(pickle.dumps(task),) for task in tasks], "task binary")
        if len(tasks) > FEW:
            rows = rows.repartition(min(-(-len(tasks) // at_once), MOST_PARTS))
        return SparkFrame(rows.mapInArrow(run, from_arrow_schema(schema)))

    def messages(self, options: Mapping[str, str], columns: Sequence[str]) -> DataFrame:
        # Only a schema keeps other columns from being parsed.
        schema = struct_of({name: COLUMNS[name] for name in columns})
        return SparkFrame(
            self.spark.read.format("rocketmq").schema(schema).options(**options).load()
        )

    def parquet(self, paths: Sequence[str], file_as: str = "") -> DataFrame:
        with _reasons():
            rows = self.spark.read.parquet(*paths)
        if file_as:
            rows = rows.withColumn(file_as, functions.input_file_name())
        return SparkFrame(rows)

    def place(self, out: str) -> Any:
        from rmq_ha.lake.spark.host.hadoop import HadoopPlace

        if is_remote():
            raise WrongUsage(f"--out {out}: over Spark Connect, name a directory of this machine")
        return HadoopPlace(out, self.spark)

    def lines(self, path: str) -> DataFrame:
        with _reasons():
            rows = self.spark.read.text(path).where("trim(value) <> ''")
        return SparkFrame(rows.select(functions.col("value").cast("binary").alias("value")))
