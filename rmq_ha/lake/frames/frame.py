"""The interfaces of a frame, and of an engine that makes frames."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rmq_ha.base.errors import RmqHaError
from rmq_ha.lake.frames.columns import Column

Work = Callable[[Iterator[Any]], Iterator[Any]]
"""A function from Arrow batches, or from tasks, to Arrow batches."""


class CannotRead(RmqHaError):
    """Files cannot be read; the text says why."""


class DataFrame(ABC):
    """Rows with named columns; each method is that of `pyspark.sql.DataFrame`."""

    @abstractmethod
    def _made(self, name: str, *given: Any, **named: Any) -> "DataFrame":
        """Return what a method makes of this frame."""

    def select(self, *columns: str | Column) -> "DataFrame":
        return self._made("select", *columns)

    def filter(self, condition: str | Column) -> "DataFrame":
        return self._made("filter", condition)

    where = filter

    def withColumn(self, name: str, column: Column) -> "DataFrame":
        return self._made("withColumns", {name: column})

    def withColumns(self, columns: Mapping[str, Column]) -> "DataFrame":
        return self._made("withColumns", dict(columns)) if columns else self

    def withColumnRenamed(self, name: str, to: str) -> "DataFrame":
        return self._made("withColumnsRenamed", {name: to})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> "DataFrame":
        return self._made("withColumnsRenamed", dict(names))

    def drop(self, *names: str) -> "DataFrame":
        return self._made("drop", *names)

    def join(self, other: "DataFrame", on: str | Sequence[str], how: str = "inner") -> "DataFrame":
        """Join by columns that both frames have."""
        return self._made("join", other, [on] if isinstance(on, str) else list(on), how)

    def unionAll(self, other: "DataFrame") -> "DataFrame":
        return self._made("unionAll", other)

    def unionByName(self, other: "DataFrame") -> "DataFrame":
        return self._made("unionByName", other)

    def distinct(self) -> "DataFrame":
        return self._made("distinct")

    def dropDuplicates(self, by: Sequence[str]) -> "DataFrame":
        return self._made("dropDuplicates", list(by))

    def orderBy(self, *by: str | Column) -> "DataFrame":
        return self._made("orderBy", *by)

    def limit(self, most: int) -> "DataFrame":
        return self._made("limit", most)

    def groupBy(self, *by: str | Column) -> "RowGroups":
        return RowGroups(self, by)

    def aggregated(self, by: Sequence[str | Column], columns: Sequence[Column]) -> "DataFrame":
        """Return `groupBy(*by).agg(*columns)`."""
        return self._made("aggregated", by, columns)

    def mapInArrow(self, work: Work, schema: Any) -> "DataFrame":
        """
        Return the rows that Python makes of the rows of this frame.

        :param schema: an Arrow schema.
        """
        return self._made("mapInArrow", work, schema)

    def repartition(self, parts: int, *by: str) -> "DataFrame":
        return self._made("repartition", parts, *by)

    def coalesce(self, parts: int) -> "DataFrame":
        return self._made("coalesce", parts)

    def hint(self, name: str) -> "DataFrame":
        return self._made("hint", name)

    def freeze(self) -> "DataFrame":
        """
        Write the present rows to disk, so that every later question sees the same ones.

        In contrast to `keep` they are not read from the source again when an executor is lost. The
        job fails then, because the source may have changed.
        """
        return self._made("freeze")

    def keep(self) -> "DataFrame":
        """
        Compute the frame once, and keep it on disk.

        A frame with an equal plan that an earlier job of this session kept is dropped, because its
        store may have changed.
        """
        return self._made("keep")

    def release(self) -> None:
        """Free what `keep` keeps."""
        self._made("release")

    @property
    @abstractmethod
    def is_kept(self) -> bool:
        """Whether the rows are computed already."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Names of the columns."""

    @abstractmethod
    def collect(self) -> list[Any]:
        """Return all rows, whose values have numbers and names."""

    @abstractmethod
    def toArrow(self) -> Any:
        """Return all rows as a `pyarrow.Table`."""

    @abstractmethod
    def save(self, directory: str) -> None:
        """Write the rows as a directory of Parquet files, in place of the one that is there."""

    def isEmpty(self) -> bool:
        return not self.limit(1).collect()

    def count(self) -> int:
        return int(self.groupBy().count().collect()[0][0])


class RowGroups:
    """Groups of a frame's rows."""

    def __init__(self, frame: DataFrame, by: Sequence[str | Column]) -> None:
        self._frame = frame
        self._by = by

    def agg(self, *columns: Column) -> DataFrame:
        return self._frame.aggregated(self._by, columns)

    def count(self) -> DataFrame:
        return self.agg(Column("count", (Column("lit", (1,)),)).alias("count"))


class Engine(ABC):
    """Makes frames, and runs plain Python for many tasks."""

    @abstractmethod
    def table(self, rows: Any) -> DataFrame:
        """:param rows: a `pyarrow.Table`."""

    @abstractmethod
    def spread(self, tasks: Sequence[Any], work: Work, schema: Any, at_once: int = 1) -> DataFrame:
        """
        Return the rows that `work` makes of tasks.

        :param work: called with some of the tasks; yields `pyarrow.RecordBatch` of the schema.
        :param schema: an Arrow schema.
        :param at_once: how many tasks one part runs at the same time.
        """

    @abstractmethod
    def messages(self, options: Mapping[str, str], columns: Sequence[str]) -> DataFrame:
        """Return exactly these columns of messages, by the options of the data source."""

    @abstractmethod
    def parquet(self, paths: Sequence[str], file_as: str = "") -> DataFrame:
        """
        Return the rows of Parquet files, or of directories of them.

        :param file_as: a further column for the path of each row's file; empty: none.
        :raises CannotRead: they are missing, or no Parquet.
        """

    @abstractmethod
    def lines(self, path: str) -> DataFrame:
        """
        Return the lines that are not blank as bytes, in the column `value`.

        :raises CannotRead: the file is missing.
        """

    @abstractmethod
    def place(self, out: str) -> Any:
        """
        Return an output directory that is not of this machine.

        :raises WrongUsage: the engine cannot write there.
        """
