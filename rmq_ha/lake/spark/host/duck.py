"""Frames in this process: Arrow tables that DuckDB queries."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.host.files import files_of
from rmq_ha.lake.frames import duck_sql as sql
from rmq_ha.lake.frames.columns import Column
from rmq_ha.lake.frames.frame import CannotRead, DataFrame, Engine, Work
from rmq_ha.lake.frames.text_files import lines_of
from rmq_ha.lake.spark.host.parquet_files import save_rows

_BATCH = 1 << 16
_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}
_HALVES = {"left_semi": "SEMI", "left_anti": "ANTI"}


class Row(tuple[Any, ...]):
    """A row of a result: `row[0]`, `row["topic"]` and `row.topic` are the same value."""

    names: Sequence[str]

    @classmethod
    def make(cls, names: Sequence[str], values: Sequence[Any]) -> "Row":
        """Return a row of these values, whose columns have these names."""
        row = cls(values)
        row.names = names
        return row

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(self.names.index(at) if isinstance(at, str) else at)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.names:
            raise AttributeError(name)
        return self[name]

    def asDict(self) -> dict[str, Any]:
        return dict(zip(self.names, self, strict=True))


class Duck:
    """One database in memory, which the first query opens."""

    def __init__(self) -> None:
        self._numbers = count(1)

    @cached_property
    def _connection(self) -> Any:
        import duckdb

        spill = tempfile.mkdtemp(prefix="rmqha-")
        weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)
        connection: Any = duckdb.connect(config={"temp_directory": spill})
        connection.create_function("rmqha_crc32", lambda body: crc32(body), ["BLOB"], "BIGINT")
        connection.create_function(
            "rmqha_percentile", percentile, ["BIGINT[]", "BIGINT[]", "DOUBLE"], "DOUBLE",
            null_handling="special",
        )  # fmt: skip
        return connection

    def view(self, query: str) -> "DuckFrame":
        """Return the rows of a query, which is run when they are needed."""
        return self._new("VIEW", query)

    def stored(self, query: str) -> "DuckFrame":
        """Run a query and keep its rows."""
        return self._new("TABLE", query)

    def registered(self, rows: Any) -> str:
        """Make an Arrow table known to SQL, its UTC times without a zone; return its name."""
        made = f"a{next(self._numbers)}"
        self._connection.register(made, rows.cast(_in_zone(rows.schema, None)))
        return made

    def table(self, query: str) -> Any:
        """Return the result of a query as a `pyarrow.Table`."""
        return self._connection.sql(query).to_arrow_table()

    def ask(self, query: str) -> Any:
        """Run a query now, and return DuckDB's result."""
        return self._connection.execute(query)

    def _new(self, kind: str, query: str) -> "DuckFrame":
        made = f"{kind[0].lower()}{next(self._numbers)}"
        self.ask(f"CREATE TEMP {kind} {made} AS {query}")
        return DuckFrame(self, made, is_kept=kind == "TABLE")


class DuckFrame(DataFrame):
    """
    A frame whose rows DuckDB computes in this process, without Spark.

    :param source: the name of a table or view, or an Arrow table that SQL does not know yet.
    """

    def __init__(self, duck: Duck, source: Any, *, is_kept: bool = True) -> None:
        self._duck = duck
        self._source = source
        self._is_kept = is_kept

    @property
    def _name(self) -> str:
        if not isinstance(self._source, str):
            self._source = self._duck.registered(self._source)
        return str(self._source)

    def _call_method(self, name: str, *given: Any, **named: Any) -> DataFrame:
        """Call `_NAME` of this class, which returns a frame, or the SQL of a lazy query."""
        own: Callable[..., Any] | None = getattr(self, f"_{name}", None)
        if own is None:
            raise NotImplementedError(f"the method {name} of a frame")
        made = own(*given, **named)
        return self._duck.view(made) if isinstance(made, str) else made

    def _select(self, *columns: str | Column) -> str:
        return f"SELECT {', '.join(map(sql.named, columns))} FROM {self._name}"

    def _filter(self, condition: str | Column) -> str:
        test = condition if isinstance(condition, str) else sql.expression(condition)
        return f"SELECT * FROM {self._name} WHERE {test}"

    def _withColumns(self, columns: Mapping[str, Column]) -> str:
        kept = [sql.name(name) for name in self.columns if name not in columns]
        made = [f"{sql.expression(value)} AS {sql.name(name)}" for name, value in columns.items()]
        return f"SELECT {', '.join([*kept, *made])} FROM {self._name}"

    def _withColumnsRenamed(self, names: Mapping[str, str]) -> str:
        parts = [f"{sql.name(name)} AS {sql.name(names.get(name, name))}" for name in self.columns]
        return f"SELECT {', '.join(parts)} FROM {self._name}"

    def _drop(self, *names: str) -> str:
        return self._select(*(name for name in self.columns if name not in names))

    def _join(self, other: "DuckFrame", on: Sequence[str], how: str) -> str:
        using = f"USING ({', '.join(map(sql.name, on))})"
        if how in _HALVES:
            return f"SELECT * FROM {self._name} {_HALVES[how]} JOIN {other._name} {using}"
        # A key of a full join comes from the side that has the row.
        parts = [f"coalesce(l.{sql.name(key)}, r.{sql.name(key)}) AS {sql.name(key)}" for key in on]
        for side, frame in (("l", self), ("r", other)):
            parts += [f"{side}.{sql.name(name)}" for name in frame.columns if name not in on]
        tables = f"{self._name} AS l {_JOINS[how]} {other._name} AS r {using}"
        return f"SELECT {', '.join(parts)} FROM {tables}"

    def _unionAll(self, other: "DuckFrame") -> str:
        return f"SELECT * FROM {self._name} UNION ALL SELECT * FROM {other._name}"

    def _unionByName(self, other: "DuckFrame") -> str:
        columns = ", ".join(map(sql.name, self.columns))
        return f"SELECT * FROM {self._name} UNION ALL SELECT {columns} FROM {other._name}"

    def _distinct(self) -> str:
        return f"SELECT DISTINCT * FROM {self._name}"

    def _dropDuplicates(self, by: Sequence[str]) -> str:
        return f"SELECT DISTINCT ON ({', '.join(map(sql.name, by))}) * FROM {self._name}"

    def _orderBy(self, *by: str | Column) -> str:
        return f"SELECT * FROM {self._name} ORDER BY {', '.join(map(sql.order, by))}"

    def _limit(self, most: int) -> Any:
        if not isinstance(self._source, str):
            return DuckFrame(self._duck, self._source.slice(0, most))
        return f"SELECT * FROM {self._name} LIMIT {most}"

    def _aggregate(self, by: Sequence[str | Column], columns: Sequence[Column]) -> str:
        query = f"SELECT {', '.join(map(sql.named, [*by, *columns]))} FROM {self._name}"
        return f"{query} GROUP BY {', '.join(map(sql.column, by))}" if by else query

    def _mapInArrow(self, work: Work, schema: Any) -> "DuckFrame":
        made = pa.Table.from_batches(list(work(self._batches())), schema)
        return DuckFrame(self._duck, made)

    def _batches(self) -> Iterator[Any]:
        if not isinstance(self._source, str):
            yield from self._source.to_batches()
            return
        # Python may ask the next question while it reads the answer to this one.
        yield from self._duck.table(f"FROM {self._name}").to_batches(_BATCH)

    def _repartition(self, *given: Any) -> "DuckFrame":
        return self

    _coalesce = _hint = _repartition

    def _freeze(self) -> "DuckFrame":
        return self if self._is_kept else self._duck.stored(f"FROM {self._name}")

    _keep = _freeze

    def _release(self) -> "DuckFrame":
        return self

    @property
    def is_kept(self) -> bool:
        return self._is_kept

    @property
    def columns(self) -> list[str]:
        if not isinstance(self._source, str):
            return list(self._source.schema.names)
        return [column[0] for column in self._duck.ask(f"FROM {self._source} LIMIT 0").description]

    def collect(self) -> list[Any]:
        names = self.columns
        if not isinstance(self._source, str):
            return [Row.make(names, list(row.values())) for row in self._source.to_pylist()]
        return [
            Row.make(names, values) for values in self._duck.ask(f"FROM {self._name}").fetchall()
        ]

    def toArrow(self) -> Any:
        if not isinstance(self._source, str):
            return self._source
        rows = self._duck.table(f"FROM {self._source}")
        return rows.cast(_in_zone(rows.schema, "UTC"))

    def save(self, directory: str) -> None:
        save_rows(self.toArrow(), directory)


class DuckEngine(Engine):
    """Makes frames of this process; `read` makes an Arrow table of messages, by options."""

    def __init__(self, read: Callable[[Mapping[str, str], Sequence[str]], Any]) -> None:
        self._duck = Duck()
        self._read = read

    def table(self, rows: Any) -> DataFrame:
        return DuckFrame(self._duck, rows)

    def spread(self, tasks: Sequence[Any], work: Work, schema: Any, at_once: int = 1) -> DataFrame:
        return self.table(pa.Table.from_batches(list(work(iter(tasks))), schema))

    def messages(self, options: Mapping[str, str], columns: Sequence[str]) -> DataFrame:
        return self.table(self._read(options, columns))

    def parquet(self, paths: Sequence[str], file_as: str = "") -> DataFrame:
        try:
            tables = [_parquet(path) for path in paths]
        except (OSError, pa.ArrowException) as error:
            raise CannotRead(str(error)) from error
        if file_as:
            tables = [
                rows.append_column(file_as, pa.repeat(path, len(rows)))
                for path, rows in zip(paths, tables, strict=True)
            ]
        return self.table(pa.concat_tables(tables, promote_options="default"))

    def place(self, out: str) -> Any:
        raise WrongUsage(f"--out {out}: give a directory of this machine, or use rmqha-spark")

    def lines(self, path: str) -> DataFrame:
        try:
            lines = list(lines_of(path))
        except (OSError, EOFError, pa.ArrowException) as error:
            raise CannotRead(str(error)) from error
        return self.table(pa.table({"value": pa.array(lines, pa.binary())}))


def _in_zone(schema: Any, zone: str | None) -> Any:
    """Return a schema whose times are in a zone; None: in none."""
    return pa.schema([(field.name, _kind_in(field.type, zone)) for field in schema])


def _kind_in(kind: Any, zone: str | None) -> Any:
    """Return a type whose times are in a zone; None: in none."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _kind_in(part.type, zone)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(_kind_in(kind.value_type, zone))
    return kind


def _parquet(path: str) -> Any:
    files, at = files_of(path)
    return pq.read_table(at, filesystem=getattr(files, "filesystem", None))


def percentile(values: Sequence[int] | None, counts: Sequence[int], share: float) -> float | None:
    """Return a percentile of values with counts, interpolated between two values as in Spark."""
    known = sorted(
        (value, number) for value, number in zip(values or (), counts, strict=True)
        if value is not None and number
    )  # fmt: skip
    total = sum(number for _, number in known)
    if not total:
        return None
    place = (total - 1) * share
    low, high = _value_at(known, int(place)), _value_at(known, min(int(place) + 1, total - 1))
    return low + (high - low) * (place - int(place))


def _value_at(known: Sequence[tuple[int, int]], place: int) -> int:
    """Return the value at a place of a sorted list in which each value stands `number` times."""
    for value, number in known:
        place -= number
        if place < 0:
            return value
    raise IndexError(place)
