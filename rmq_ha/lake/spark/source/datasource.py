"""`spark.read.format("rocketmq")`: the class that Spark uses; see `options` for its options."""

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from rmq_ha.lake.spark.host.telling import InSentences

NAME = "rocketmq"


class RocketmqDataSource(InSentences, DataSource):
    """
    Messages and tables of brokers and stores.

    Everything is imported where it is used: Spark loads this class in several processes, and only
    some of them read.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a read if the user names none."""
        from rmq_ha.lake.spark.source.batch import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from rmq_ha.lake.spark.source.batch import make_reader

        return make_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from rmq_ha.lake.spark.source.sink import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> Any:
        from rmq_ha.lake.spark.source.streaming import make_stream_reader

        return make_stream_reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from rmq_ha.lake.spark.source.sink import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
