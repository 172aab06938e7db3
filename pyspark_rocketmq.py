"""
Where Spark looks for `format("rocketmq")` by itself: a module `pyspark_*` with a `DefaultSource`.

It is imported in every session that asks for a data source that Spark does not know, so it has to
import nothing more than that.
"""

from rmq_ha.spark.source.datasource import RocketmqDataSource


class DefaultSource(RocketmqDataSource):
    """The data source; `rmq_ha.spark.host.session.register` has filters pushed down as well."""
