"""The interfaces of a frame, and of an engine that makes frames."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rmq_ha.base.errors import RmqHaError
from rmq_ha.lake.frames.columns import Column

Work = Callable[[Iterator[Any]], Iterator[Any]]
"""A function that takes Arrow batches, or tasks, and yields Arrow batches."""


class CannotRead(RmqHaError):
    """Files cannot be read; the text says why."""


class DataFrame(ABC):
    """Rows with named columns; each method is that of `pyspark.sql.DataFrame`."""

    @abstractmethod
    def _call_method(self, name: str, *given: Any, **named: Any) -> "DataFrame":
        """Return the frame that this method of `pyspark.sql.DataFrame` makes of this one."""

    def select(self, *columns: str | Column) -> "DataFrame":
        return self._call_method("select", *columns)

    def filter(self, condition: str | Column) -> "DataFrame":
        return self._call_method("filter", condition)

    where = filter

    def withColumn(self, name: str, column: Column) -> "DataFrame":
        return self._call_method("withColumns", {name: column})

    def withColumns(self, columns: Mapping[str, Column]) -> "DataFrame":
        return self._call_method("withColumns", dict(columns)) if columns else self

    def withColumnRenamed(self, name: str, to: str) -> "DataFrame":
        return self._call_method("withColumnsRenamed", {name: to})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> "DataFrame":
        return self._call_method("withColumnsRenamed", dict(names))

    def drop(self, *names: str) -> "DataFrame":
        return self._call_method("drop", *names)

    def join(self, other: "DataFrame", on: str | Sequence[str], how: str = "inner") -> "DataFrame":
        """Join by columns that both frames have."""
        return self._call_method("join", other, [on] if isinstance(on, str) else list(on), how)

    def unionAll(self, other: "DataFrame") -> "DataFrame":
        return self._call_method("unionAll", other)

    def unionByName(self, other: "DataFrame") -> "DataFrame":
        return self._call_method("unionByName", other)

    def distinct(self) -> "DataFrame":
        return self._call_method("distinct")

    def dropDuplicates(self, by: Sequence[str]) -> "DataFrame":
        return self._call_method("dropDuplicates", list(by))

    def orderBy(self, *by: str | Column) -> "DataFrame":
        return self._call_method("orderBy", *by)

    def limit(self, most: int) -> "DataFrame":
        return self._call_method("limit", most)

    def groupBy(self, *by: str | Column) -> "RowGroups":
        return RowGroups(self, by)

    def aggregate(self, by: Sequence[str | Column], columns: Sequence[Column]) -> "DataFrame":
        """Group the rows by some columns, and compute these columns for each group."""
        return self._call_method("aggregate", by, columns)

    def mapInArrow(self, work: Work, schema: Any) -> "DataFrame":
        """Have a function make other rows of this frame's, with this Arrow schema."""
        return self._call_method("mapInArrow", work, schema)

    def repartition(self, parts: int, *by: str) -> "DataFrame":
        return self._call_method("repartition", parts, *by)

    def coalesce(self, parts: int) -> "DataFrame":
        return self._call_method("coalesce", parts)

    def hint(self, name: str) -> "DataFrame":
        return self._call_method("hint", name)

    def freeze(self) -> "DataFrame":
        """
        Write the present rows to disk, so that every later query sees the same ones.

        In contrast to the rows of `keep`, these rows are not read from the source again when an
        executor is lost. The job fails then, because the source may have changed.
        """
        return self._call_method("freeze")

    def keep(self) -> "DataFrame":
        """
        Compute the frame once, and keep it on disk.

        A frame with an equal plan that an earlier job of this session kept is dropped, because its
        store may have changed.
        """
        return self._call_method("keep")

    def release(self) -> None:
        """Free the disk that the rows of `keep` take."""
        self._call_method("release")

    @property
    @abstractmethod
    def is_kept(self) -> bool:
        """Whether the rows are computed already."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The names of the columns, in their order."""

    @abstractmethod
    def collect(self) -> list[Any]:
        """Return all rows; a value of a row is found by its number or by its name."""

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
    """The rows of a frame in groups, as `groupBy` returns them."""

    def __init__(self, frame: DataFrame, by: Sequence[str | Column]) -> None:
        self._frame = frame
        self._by = by

    def agg(self, *columns: Column) -> DataFrame:
        return self._frame.aggregate(self._by, columns)

    def count(self) -> DataFrame:
        return self.agg(Column("count", (Column("lit", (1,)),)).alias("count"))


class Engine(ABC):
    """Makes frames, and runs plain Python for many tasks."""

    @abstractmethod
    def table(self, rows: Any) -> DataFrame:
        """Return the rows of a `pyarrow.Table` as a frame."""

    @abstractmethod
    def spread(self, tasks: Sequence[Any], work: Work, schema: Any, at_once: int = 1) -> DataFrame:
        """
        Run `work` for all tasks, on executors if there are any, and return the rows that it yields.

        :param work: called with some of the tasks; it yields `pyarrow.RecordBatch` of the schema.
        :param schema: an Arrow schema.
        :param at_once: how many tasks one part runs at the same time.
        """

    @abstractmethod
    def messages(self, options: Mapping[str, str], columns: Sequence[str]) -> DataFrame:
        """Read messages with the data source, and return exactly these columns."""

    @abstractmethod
    def parquet(self, paths: Sequence[str], file_as: str = "") -> DataFrame:
        """
        Return the rows of Parquet files, or of directories of them.

        :param file_as: a further column for the path of each row's file; empty: none.
        :raises CannotRead: the files are missing, or are not Parquet.
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
        Return an output directory that is not on this machine.

        :raises WrongUsage: the engine cannot write there.
        """
