"""Batch reads: the partitions of a read of messages, and the rows of each."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from warnings import warn

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmq_ha.lake.spark.host.telling import InSentences
from rmq_ha.lake.spark.source.columns import WantedColumns, default_schema
from rmq_ha.lake.spark.source.messages import batches_of, planned
from rmq_ha.lake.spark.source.option_names import by_name, is_of_catalog
from rmq_ha.lake.spark.source.options import (
    MESSAGES,
    SOURCE_NAMES,
    SourceOptions,
    columns_asked,
    parse_options,
    without_effect,
)
from rmq_ha.lake.spark.source.schema import table_schema
from rmq_ha.lake.spark.source.tables import TableReader

_OPTIONS = "rmqha.options"
"""
Name under which the schema of a catalog's table keeps the table's options, because the catalog
keeps the schema with the table. Spark 4.3 passes the options to `schema` alone, not to `reader`.
"""


def schema_of(given: Mapping[str, str]) -> StructType:
    """
    Return the columns of a read if the user names none.

    :raises WrongUsage: the options do not fit.
    """
    table, form, include_properties = columns_asked(given)
    is_table = table != MESSAGES
    schema = table_schema(table) if is_table else default_schema(form, include_properties)
    if is_of_catalog(given):
        schema.fields[0].metadata = {_OPTIONS: json.dumps(by_name(given, SOURCE_NAMES))}
    return schema


def make_reader(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """
    Return the reader of a batch.

    :raises WrongUsage: options or schema do not fit.
    """
    if not given and schema.fields and _OPTIONS in schema.fields[0].metadata:
        given = json.loads(schema.fields[0].metadata[_OPTIONS])
    options = parse_options(given)
    for name in without_effect(given):
        warn(f"{name} is for streams (spark.readStream): a batch reads all at once", stacklevel=2)
    if options.table != MESSAGES:
        return TableReader(options, schema)
    return MessagesReader(options, schema)


class MessagesReader(InSentences, DataSourceReader):
    """
    A batch of messages, from a store or from running brokers.

    It takes no filters (`pushFilters`): Spark 4.3.0 applies those of one use of a DataFrame to all
    others, so that a self join or a second count is wrong.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._shape = WantedColumns(schema, options.columns)

    def partitions(self) -> list[InputPartition]:
        """Plan the partitions; called once, in the driver's planner."""
        return planned(self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition; called in an executor, perhaps more than once."""
        for batch in batches_of(partition, self._options, self._shape.columns):
            if batch.num_rows:
                yield self._shape.cast_batch(batch)
