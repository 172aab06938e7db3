"""Messages in the columns of Spark's Kafka source, and back: recipes need not be rewritten."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.source.batch import make_reader, schema_of
from rmq_ha.lake.spark.source.schema import COLUMNS
from rmq_ha.lake.spark.source.sink_options import SinkOptions, check_columns
from rmq_ha.lake.spark.source.sink_rows import ROW_ID, SinkTask, messages_of
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log

# As Spark 4.3's Kafka source has them.
KAFKA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int>"
)
HEADERS = "headers:array<struct<key:string,value:binary>>"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    store = java_store("clean", tmp_path_factory.mktemp("kafka"))
    return {"path": str(store), "columns": "kafka", "includeHeaders": "true"}


def read(given: dict[str, str], schema: StructType) -> list[Any]:
    reader: Any = make_reader(given, schema)
    return [batch for part in reader.partitions() for batch in reader.read(part)]


def test_the_schema_is_that_of_spark(given: dict[str, str]) -> None:
    assert schema_of({**given, "includeHeaders": "false"}).simpleString() == KAFKA
    assert schema_of(given).simpleString() == f"{KAFKA[:-1]},{HEADERS}>"


def test_each_message_is_what_it_is_in_our_own_columns(given: dict[str, str]) -> None:
    rows = [row for batch in read(given, schema_of(given)) for row in batch.to_pylist()]
    own = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in wanted(given)}
    assert len(rows) == len(own) > 100
    for row in rows:
        one = own[row["topic"], row["partition"], row["offset"]]
        assert row["key"] == (None if one["keys"] is None else one["keys"].encode())
        assert (row["value"], row["timestamp"]) == (one["body"], one["storeTimestamp"])
        assert row["timestampType"] == 1  # LogAppendTime
        headers = {each["key"]: each["value"].decode() for each in row["headers"]}
        assert headers == one["properties"]


def wanted(given: dict[str, str]) -> list[dict[str, Any]]:
    """Without what is in no queue."""
    return [row for row in rows_of_log(Path(given["path"]), None) if not row["sysFlag"] & 4]


def test_a_schema_may_name_columns_of_both_kinds(given: dict[str, str]) -> None:
    both = StructType([StructField("value", COLUMNS["body"]), StructField("tags", StringType())])
    batch = read(given, both)[0]
    assert batch.schema.names == ["value", "tags"]
    with pytest.raises(WrongUsage, match="column value is binary, not string"):
        make_reader(given, StructType([StructField("value", StringType())]))
    with pytest.raises(WrongUsage, match="there is no column 'value'"):
        make_reader({"path": given["path"]}, both)


def test_what_was_read_so_can_be_sent(given: dict[str, str]) -> None:
    schema = schema_of(given)
    check_columns(schema, SinkOptions())
    for batch in read(given, schema):
        rows = batch.to_pylist()
        for row, (message, target) in zip(
            rows, messages_of(batch, "", SinkTask("q", "0", 0), 0), strict=True
        ):
            assert (message.topic, message.body) == (row["topic"], row["value"])
            assert message.keys.encode() == (row["key"] or b"")
            assert target is not None
            assert target.queue_id == row["partition"]
            assert message.properties[ROW_ID]
            own = {h["key"]: h["value"].decode() for h in row["headers"] if h["key"] == "UNIQ_KEY"}
            assert own.items() <= message.properties.items()
