"""Reads the tables of a broker as rows, from the files of its store or over the wire."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.compat import to_arrow_schema
from rmq_ha.lake.spark.host.telling import InSentences
from rmq_ha.lake.spark.source.options import SourceOptions
from rmq_ha.lake.spark.source.schema import TABLE_COLUMNS, check_schema, struct_of

_WITH_TOPICS = ("consumerOffsets", "topics", "queues", "consumeQueue")


class TablePartition(InputPartition):
    """A part of a table, as `tables_offline` or `tables_live` describes it."""

    def __init__(self, part: Any) -> None:
        self.part = part


class TableReader(InSentences, DataSourceReader):
    """
    A batch of rows of a table.

    :raises WrongUsage: options or schema do not fit.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.table not in _WITH_TOPICS and not options.subscription.is_everything:
            raise WrongUsage(f"table={options.table} has no topics: leave out what chooses them")
        if options.table == "index" and not options.is_offline:
            raise WrongUsage("the index is read from a store: give path; no broker tells its items")
        self._options = options
        self._schema = schema
        self._known = TABLE_COLUMNS[options.table]
        self._columns = check_schema(schema, self._known)

    def partitions(self) -> list[InputPartition]:
        """Plan the partitions; called once, in the driver's planner."""
        return [TablePartition(part) for part in self._source().parts()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition; called in an executor, perhaps more than once."""
        if not isinstance(partition, TablePartition):
            return
        target = to_arrow_schema(self._schema)
        full = to_arrow_schema(struct_of(self._known))
        for batch in self._source().batches(partition.part, full):
            asked = batch.select(self._columns)
            if asked.num_rows:
                yield asked if asked.schema.equals(target) else asked.cast(target)

    def _source(self) -> Any:
        """Return the tables of the store, or of the brokers, that the options name."""
        if self._options.is_offline:
            from rmq_ha.lake.spark.source.tables_offline import StoreTables

            return StoreTables(self._options)
        from rmq_ha.lake.spark.source.tables_live import LiveBrokerTables

        return LiveBrokerTables(self._options)
