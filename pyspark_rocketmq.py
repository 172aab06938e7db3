"""
Where Spark looks for `format("rocketmq")` by itself: a module `pyspark_*` with a `DefaultSource`.

It is imported in every session that asks for a data source that Spark does not know, so it has to
import little.
"""

from rmq_ha.lake.spark.source.datasource import RocketmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
