"""`spark.read.format("rocketmq")` over stores that Java's broker wrote."""

from __future__ import annotations

import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions import expr, lit

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "spark"))

from golden_stores import java_store, rows_of_log

from rmq_ha.model.flags import TRANSACTION_PREPARED
from rmq_ha.spark.source.batch import COLUMNS
from rmq_ha.spark.source.schema import struct_of


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


PREDICATES = (
    "topic in ('TopicA', 'TopicC', null) and queueId < 2",
    "topic <> 'TopicB' and not (tags in ('TagA', 'TagB'))",
    "tags is null and brokerName = 'b'",
    "tags <=> 'TagA' or queueId = 3",
    "not (tags <=> null) and tags like 'Tag%' and keys like '%-1%'",
    "queueOffset between 40 and 41 and crcOk",
    "commitLogOffset > 65536 and commitLogOffset <= 131072",
    "storeTimestamp >= timestamp_millis(1795245780818) and length(body) > 100",
    "topic = upper(topic) or uniqKey is null",
)


def test_pushed_down_filters_change_no_result(spark: Any, store: Path) -> None:
    """Each gives what Spark itself makes of rows that no filter was near; nulls and NOT too."""
    columns = {name: kind for name, kind in COLUMNS.items() if name != "properties"}

    def table() -> Any:
        made = source(spark, store, pushDown="true").schema(struct_of(columns))
        return made.load(str(store))

    held = spark.createDataFrame(table().collect(), struct_of(columns))
    truth = held.select(
        "commitLogOffset", *(expr(each).alias(f"p{at}") for at, each in enumerate(PREDICATES))
    ).collect()
    parts = [
        table().where(each).select(lit(at).alias("at"), "commitLogOffset")
        for at, each in enumerate(PREDICATES)
    ]
    union = reduce(lambda first, second: first.union(second), parts)
    found = {(row.at, row.commitLogOffset) for row in union.collect()}
    for at, each in enumerate(PREDICATES):
        wanted = {row.commitLogOffset for row in truth if row[f"p{at}"]}
        assert {offset for which, offset in found if which == at} == wanted, each


def test_what_is_taken_over_spark_does_not_do_again(spark: Any, store: Path) -> None:
    def plan(condition: str) -> str:
        table = source(spark, store, pushDown="true").load(str(store)).where(condition)
        return str(table._jdf.queryExecution().executedPlan().toString())

    taken = "topic = 'TopicA' and queueOffset > 3 and storeTimestamp > timestamp'2020-01-01'"
    assert "Filter (" not in plan(taken)
    assert "Filter (" in plan("topic = 'TopicA' or queueId = 1")


def test_one_table_may_be_filtered_in_two_ways(spark: Any, store: Path) -> None:
    """Spark 4.3.0 mixes up the filters that it pushed down: why that has to be asked for."""

    def counts(**options: str) -> list[int]:
        table = source(spark, store, **options).load(str(store)).select("topic")
        a, c = table.where("topic = 'TopicA'"), table.where("topic = 'TopicC'")
        return [a.union(c).count(), table.count()]

    assert counts() == [64 + 41, 187]
    if spark.version == "4.3.0":
        assert counts(pushDown="true") != counts(), "pushDown can be the default now"


def test_a_session_that_pushes_nothing_down_reads_too(spark: Any, store: Path) -> None:
    from rmq_ha.spark.host.session import register

    other = spark.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    register(other)
    asked = source(other, store, pushDown="true").load(str(store))
    assert asked.where("topic = 'TopicC'").count() == 41
    queues = source(other, store, table="queues").load(str(store))
    assert queues.where("topic = 'TopicB'").select("maxOffset").collect()[1][0] == 65


def test_a_wrong_option_is_said_where_the_user_sees_it(spark: Any, store: Path) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'subscribe'"):
        source(spark, store, subscrib="TopicA").load(str(store))
    with pytest.raises(AnalysisException, match=r"ends at 65, before 66"):
        source(spark, store, subscribe="TopicB", startingOffsets='{"TopicB":{"0":0,"1":66}}').load(
            str(store)
        ).count()


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
