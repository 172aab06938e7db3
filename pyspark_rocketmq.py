"""
Where Spark looks for `format("rocketmq")` by itself: a module `pyspark_*` with a `DefaultSource`.

It is imported in every session that asks for a data source that Spark does not know, so it has to
import little.
"""

import sys

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from rmq_ha.spark.source.datasource import PushDownDataSource, RocketmqDataSource


class DefaultSource(RocketmqDataSource):
    """The data source: filters are pushed down in sessions that do so."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """
        A batch.

        A session without push-down refuses a reader that takes filters. Nobody tells us which it
        is, but only the worker that pushes them down has this module.
        """
        if "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules:
            return PushDownDataSource(self.options).reader(schema)
        return super().reader(schema)
