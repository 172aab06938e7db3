"""`spark.read.format("rocketmq")` over stores that Java's broker wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return java_store("clean", tmp_path_factory.mktemp("clean"))


def source(spark: Any, store: Path, **options: str) -> Any:
    made = spark.read.format("rocketmq").option("brokerName", "b")
    return made.options(**options)


def test_a_store_as_a_table_has_what_the_brokers_codec_reads(spark: Any, store: Path) -> None:
    """All columns, by files and by queues; the types are Spark's own."""
    log = rows_of_log(store, "b")
    whole = source(spark, store, scan="files").schema(struct_of(COLUMNS)).load(str(store))
    found = whole.orderBy("commitLogOffset").collect()
    rows = [
        row | {name: row[name].replace(tzinfo=None) for name in ("bornTimestamp", "storeTimestamp")}
        for row in log
    ]
    assert [row.asDict() for row in found] == rows
    queued = source(spark, store, scan="queues", includeProperties="true").load(str(store))
    wanted = [row for row in rows if not row["sysFlag"] & TRANSACTION_PREPARED]
    assert [row.asDict() for row in queued.orderBy("commitLogOffset").collect()] == [
        {name: row[name] for name in queued.columns} for row in wanted
    ]


def test_a_schema_of_the_user_chooses_columns_and_their_order(spark: Any, store: Path) -> None:
    text = "queueOffset long, topic string, crcOk boolean"
    table = source(spark, store).schema(text).load(str(store))
    assert table.columns == ["queueOffset", "topic", "crcOk"]
    assert table.where("crcOk").count() == 187
    strict = "topic string not null, properties map<string,string>"
    rows = source(spark, store).schema(strict).load(str(store)).limit(1).collect()
    assert rows[0].properties["CLUSTER"] == "DefaultCluster"
    for schema, why in (
        ("queueId long", "column queueId is int, not bigint"),
        ("topic string, tag string", "no column 'tag'; did you mean 'tags'"),
    ):
        with pytest.raises(AnalysisException, match=why):
            source(spark, store).schema(schema).load(str(store)).count()


def test_an_error_is_its_sentence_without_traces_or_json(
    spark: Any, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where it is planned, where it is read, and in a stream; other errors keep their traces."""
    damaged = java_store("clean", store.parent / "damaged")
    (log,) = sorted((damaged / "commitlog").iterdir())[:1]
    with log.open("r+b") as file:
        file.seek(400)
        file.write(bytes(300))
    beyond = {"subscribe": "TopicB", "startingOffsets": '{"TopicB":{"0":0,"1":66}}'}

    def started(**options: str) -> None:
        rows = spark.readStream.format("rocketmq").options(**options).schema("topic string")
        rows.load(str(store)).writeStream.format("noop").start().awaitTermination()

    capfd.readouterr()
    for said, ask in (
        ("did you mean 'subscribe'?", lambda: source(spark, store, subscrib="T").load(str(store))),
        ("ends at 65, before 66", lambda: source(spark, store, **beyond).load(str(store)).count()),
        ("messages may be lost", lambda: source(spark, store).load(str(damaged)).count()),
        ("a stream does not end", lambda: started(endingOffsets="latest")),
    ):
        with pytest.raises(PySparkException, match=re.escape(said)) as raised:
            ask()
        text = str(raised.value)
        assert "Traceback" not in text, text
        assert said in text[:1000], text
    spoken = capfd.readouterr()
    assert "QueryContext" not in spoken.err
    with pytest.raises(PySparkException, match="Traceback"):
        spark.range(1).mapInArrow(lambda batches: 1 / 0, "id long").collect()


def test_tables_can_be_joined_with_messages(spark: Any, store: Path) -> None:
    """What a group has not consumed yet, of each queue, from offsets and messages."""
    offsets = source(spark, store, table="consumerOffsets").load(str(store))
    messages = source(spark, store).load(str(store)).select("topic", "queueId", "queueOffset")
    behind = (
        messages.join(offsets, ["topic", "queueId"])
        .where("queueOffset >= offset and group = 'CG_fixture'")
        .groupBy("topic", "queueId")
        .count()
    )
    queues = source(spark, store, table="queues").load(str(store))
    lag = queues.join(offsets, ["topic", "queueId"]).where(
        "group = 'CG_fixture' and maxOffset > offset"
    )
    counted = {(row.topic, row.queueId): row["count"] for row in behind.collect()}
    assert counted == {
        (row.topic, row.queueId): row.maxOffset - row.offset for row in lag.collect()
    }
