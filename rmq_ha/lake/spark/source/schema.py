"""The columns of messages and tables, and checks of a user's schema."""

from difflib import get_close_matches

from pyspark.sql import types as T

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.scan.log.columns import MESSAGE, ON_REQUEST
from rmq_ha.lake.spark.source.forms import TABLES

_KINDS: dict[str, T.DataType] = {
    "string": T.StringType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "boolean": T.BooleanType(),
    "binary": T.BinaryType(),
    "timestamp": T.TimestampType(),
    "map": T.MapType(T.StringType(), T.StringType()),
}


def columns(text: str) -> dict[str, T.DataType]:
    """Parse `topic:string queueId:int` without a JVM, because executors read schemas, too."""
    return {name: _KINDS[kind] for name, _, kind in (word.partition(":") for word in text.split())}


MESSAGE_COLUMNS = columns(MESSAGE)
COLUMNS = MESSAGE_COLUMNS | columns(ON_REQUEST)
TABLE_COLUMNS = {table: columns(text) for table, text in TABLES.items()}


def message_schema(
    include_properties: bool, among: dict[str, T.DataType] = MESSAGE_COLUMNS
) -> T.StructType:
    """Return the schema of a read without a user's; all properties only if wanted."""
    is_left_out = () if include_properties else ("properties", "headers")
    return struct_of({name: kind for name, kind in among.items() if name not in is_left_out})


def table_schema(table: str) -> T.StructType:
    """Return the schema of a table of `TABLE_COLUMNS`."""
    return struct_of(TABLE_COLUMNS[table])


def struct_of(columns: dict[str, T.DataType]) -> T.StructType:
    """Return a schema whose columns may all be null, as Spark has it for every source."""
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


def check_schema(asked: T.StructType, known: dict[str, T.DataType]) -> list[str]:
    """
    Return the names of the columns that a schema asks for.

    :raises WrongUsage: a column is unknown or has another type; the text says what it should be.
    """
    names: list[str] = []
    for column in asked.fields:
        kind = known.get(column.name)
        if kind is None:
            lower = {name.lower(): name for name in known}
            near = get_close_matches(column.name.lower(), lower, n=1, cutoff=0.6)
            hint = f"did you mean {lower[near[0]]!r}?" if near else f"there are {', '.join(known)}"
            raise WrongUsage(f"there is no column {column.name!r}; {hint}")
        if column.dataType != kind and not _is_same_map(column.dataType, kind):
            raise WrongUsage(
                f"column {column.name} is {kind.simpleString()}, not"
                f" {column.dataType.simpleString()}: read it so, and cast it afterwards"
            )
        if column.name in names:
            raise WrongUsage(f"column {column.name} stands there twice")
        names.append(column.name)
    return names


def _is_same_map(asked: T.DataType, kind: T.DataType) -> bool:
    """Return whether two maps differ at most in whether values may be null."""
    return (
        isinstance(asked, T.MapType)
        and isinstance(kind, T.MapType)
        and (asked.keyType, asked.valueType) == (kind.keyType, kind.valueType)
    )
