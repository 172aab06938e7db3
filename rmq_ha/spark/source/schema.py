"""The columns of messages, and what of them a user's schema asks for."""

from difflib import get_close_matches

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmq_ha.errors import WrongUsage

MESSAGE_COLUMNS: dict[str, DataType] = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "commitLogOffset": LongType(),
    "msgId": StringType(),
    "keys": StringType(),
    "tags": StringType(),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "flag": IntegerType(),
    "sysFlag": IntegerType(),
    "bornTimestamp": TimestampType(),
    "bornHost": StringType(),
    "storeTimestamp": TimestampType(),
    "storeHost": StringType(),
    "bodyCRC": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "brokerName": StringType(),
}
"""What a read gives, in this order; `properties` only with `includeProperties`."""
ON_REQUEST: dict[str, DataType] = {
    "storeSize": IntegerType(),
    "crcOk": BooleanType(),
    "uniqKey": StringType(),
    "preparedTransactionOffset": LongType(),
}
"""What a schema of the user may name besides."""
COLUMNS = MESSAGE_COLUMNS | ON_REQUEST


def message_schema(include_properties: bool) -> StructType:
    """The columns when the user names none."""
    return struct_of(
        {
            name: kind
            for name, kind in MESSAGE_COLUMNS.items()
            if include_properties or name != "properties"
        }
    )


def struct_of(columns: dict[str, DataType]) -> StructType:
    """A schema whose columns may all be null, as Spark has it for every source."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def check_schema(asked: StructType, known: dict[str, DataType]) -> list[str]:
    """
    The names of the columns that a schema asks for.

    :param known: columns that there are.
    :raises WrongUsage: a column is unknown or has another type; says what it should be.
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


def _is_same_map(asked: DataType, kind: DataType) -> bool:
    """Maps that differ only in whether values may be null."""
    return (
        isinstance(asked, MapType)
        and isinstance(kind, MapType)
        and (asked.keyType, asked.valueType) == (kind.keyType, kind.valueType)
    )
