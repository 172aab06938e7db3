"""The rules as Spark expressions: the same as `rules.judge`, over any number of facts.

One shuffle does: facts are spread by slave, topic and queue; within that they are grouped by key,
and a window lends every offset the bounds of its queue.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rmq_ha.model.topics import RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from rmq_ha.spark.findings import COLUMNS
from rmq_ha.spark.host.session import COMPILING
from rmq_ha.spark.offsets.codes import MEANINGS, SENTENCE_FIELDS
from rmq_ha.spark.offsets.model import DELAY, GROUP, LOG, OFFSET, QUEUE, TOPIC, VERSION
from rmq_ha.spark.offsets.pairing import Pairing

FACTS = pa.schema(
    [
        ("slave", pa.string()),
        ("observed", pa.int64()),
        ("proven", pa.bool_()),
        ("isFirst", pa.bool_()),
        ("crashed", pa.bool_()),
        ("size", pa.int32()),
        ("isSlave", pa.bool_()),
        ("isLast", pa.bool_()),
        ("isBefore", pa.bool_()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("group", pa.string()),
        ("queueId", pa.int32()),
        ("value", pa.int64()),
        ("low", pa.int64()),
        ("text", pa.string()),
    ]
)
"""One row for each fact of each sample, beside what its sample is to the pairing."""

_FACT = FACTS.names.index("kind")
KEYS = ("slave", "kind", "topic", "group", "queueId")
_FEW = 200_000
_TASK_ROWS = 100_000


def facts_of(pairings: Sequence[Pairing]) -> pa.Table:
    """All facts of both sides that both sides know, as rows of `FACTS`."""
    columns: list[list[Any]] = [[] for _ in FACTS.names]
    for pairing in pairings:
        size = len(pairing.masters)
        is_crashed = pairing.masters[-1].is_crashed
        proof = (pairing.is_proven, pairing.is_first, is_crashed, size)
        common = (pairing.slave.place, pairing.slave.ended, *proof)
        for index, sample in enumerate((*pairing.masters, pairing.slave)):
            is_slave = index == size
            facts = pairing.facts_of(sample)
            place = (is_slave, index == size - 1, not is_slave and index == pairing.before)
            for column, value in zip(columns, (*common, *place), strict=False):
                column += [value] * len(facts)
            for column, values in zip(columns[_FACT:], zip(*facts, strict=True), strict=False):
                column += values
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, FACTS, strict=True)],
        schema=FACTS,
    )


def frame_of(spark: SparkSession, facts: pa.Table) -> DataFrame:
    """Few facts are one task, without a shuffle; many are spread."""
    frame: DataFrame = spark.createDataFrame(facts)
    if facts.num_rows <= _FEW:
        return frame.coalesce(1)
    compile_queries(spark)
    return frame.repartition(1 + facts.num_rows // _TASK_ROWS, "slave", "topic", "queueId")


def compile_queries(spark: SparkSession) -> None:
    """With many rows it pays, which a quick job does not expect."""
    spark.conf.set(COMPILING, "FALLBACK")


def judged(facts: DataFrame, max_lag: int = 0) -> DataFrame:
    """
    One row for each key of each slave: both sides' values, `codes`, `repeats`, `skipped`, `lost`.

    :param facts: rows of `FACTS`, spread by slave, topic and queue.
    """
    return _ruled(_with_bounds(_cases(facts)), max_lag)


def _cases(facts: DataFrame) -> DataFrame:
    master, slave = ~F.col("isSlave"), F.col("isSlave")
    last = master & F.col("isLast")

    def of(where: Column, what: str) -> Column:
        return F.max(F.when(where, F.col(what)))

    is_any = F.lit(True)
    return facts.groupBy(*KEYS).agg(
        of(is_any, "observed").alias("observed"),
        of(is_any, "proven").alias("proven"),
        of(is_any, "isFirst").alias("isFirst"),
        of(is_any, "crashed").alias("crashed"),
        F.coalesce(of(last, "isLast"), F.lit(False)).alias("onMaster"),
        (
            (F.count(F.when(master, 1)) == F.max("size"))
            & F.max(F.when(master, F.col("text"))).eqNullSafe(F.min(F.when(master, F.col("text"))))
        ).alias("steady"),
        of(last, "value").alias("master"),
        F.min(F.when(master, F.col("value"))).alias("lowest"),
        of(master, "value").alias("highest"),
        of(F.col("isBefore"), "value").alias("before"),
        of(last, "text").alias("masterText"),
        of(last, "low").alias("masterLow"),
        F.coalesce(of(slave, "isSlave"), F.lit(False)).alias("onSlave"),
        of(slave, "value").alias("slaveValue"),
        of(slave, "text").alias("slaveText"),
        of(slave, "low").alias("slaveLow"),
    )


def _with_bounds(cases: DataFrame) -> DataFrame:
    here = Window.partitionBy("slave", "topic", "queueId")
    is_queue = F.col("kind") == QUEUE
    needs = F.col("kind").isin(OFFSET, DELAY)

    def bound(source: str) -> Column:
        return F.when(needs, F.max(F.when(is_queue, F.col(source))).over(here))

    return cases.withColumns(
        {
            "masterFirst": bound("masterLow"),
            "masterEnd": bound("master"),
            "slaveFirst": bound("slaveLow"),
            "slaveEnd": bound("slaveValue"),
        }
    )


def _zero(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0))


def _positive(value: Column) -> Column:
    return F.greatest(F.lit(0).cast("bigint"), value)


def _ruled(cases: DataFrame, max_lag: int) -> DataFrame:
    """In the order in which `rules` has it."""
    kind = F.col("kind")
    start = F.greatest(_zero("master"), _zero("masterFirst"))
    below = F.coalesce(
        _positive(F.least(F.col("slaveFirst"), F.col("masterEnd")) - start), F.lit(0)
    )
    # least() passes over nulls, which the rule does not.
    known = F.col("slaveFirst").isNotNull() & F.col("masterEnd").isNotNull()
    cases = cases.withColumn("below", F.when(known & (kind == OFFSET), below).otherwise(0))
    is_progress = kind.isin(OFFSET, DELAY) & F.col("onMaster")
    first, end, master = _zero("slaveFirst"), _zero("slaveEnd"), _positive(_zero("master"))
    slave = F.col("slaveValue")
    is_own = F.coalesce(F.startswith("group", F.lit(SYSTEM_GROUP_PREFIX)), F.lit(False))
    has = F.coalesce(slave >= 0, F.lit(False))
    begins_anew = (first == 0) | F.coalesce(
        F.startswith("topic", F.lit(RETRY_PREFIX)), F.lit(False)
    )
    repeats = (
        F.when(~is_progress | is_own, 0)
        .when(has, _positive(F.least(master, end) - F.greatest(slave, first)))
        .when(begins_anew, _positive(F.least(master, end) - first))
        .otherwise(0)
    )
    skipped = (
        F.when(~is_progress, 0)
        .when(
            has,
            F.when(F.col("crashed"), 0).otherwise(
                _positive(F.least(slave, end) - F.greatest(master, first))
            )
            + F.col("below"),
        )
        .when(begins_anew, F.col("below"))
        .otherwise(_positive(end - F.greatest(master, first)) + F.col("below"))
    )
    missing = _positive(_zero("before") - _zero("slaveValue"))
    is_ahead = _zero("slaveValue") > _zero("highest")
    is_orphan = (kind == QUEUE) & F.col("highest").isNull()
    lost = F.when((kind == QUEUE) & ~is_ahead, missing).otherwise(0)
    codes = (
        F.when(kind.isin(OFFSET, DELAY), _progress_codes())
        .when(is_orphan, F.array(F.when(is_ahead, _if_proven("ORPHAN_ON_SLAVE"))))
        .when(kind.isin(QUEUE, LOG), _extent_codes(is_ahead, missing, max_lag))
        .otherwise(F.array(_configuration_code()))
    )
    return cases.select(
        "*",
        repeats.cast("bigint").alias("repeats"),
        skipped.cast("bigint").alias("skipped"),
        lost.cast("bigint").alias("lost"),
        F.array_compact(codes).alias("codes"),
    )


def _sure() -> Column:
    return F.col("proven") & F.col("steady")


def _on_its_way() -> Column:
    return F.when(F.col("proven"), F.lit("LAGGING")).otherwise(F.lit("UNSETTLED"))


def _if_proven(code: str) -> Column:
    return F.when(F.col("proven"), F.lit(code)).otherwise(F.lit("UNSETTLED"))


def _progress_codes() -> Column:
    slave, is_delay = F.col("slaveValue"), F.col("kind") == DELAY

    def either(delay: str, offset: str) -> Column:
        return F.when(is_delay, F.lit(delay)).otherwise(F.lit(offset))

    def when_sure(sure: Column, code: Column) -> Column:
        return F.when(sure, code).otherwise(_on_its_way())

    position = (
        F.when(slave.isNull(), when_sure(_sure(), either("DELAY_LAG", "MISSING_ON_SLAVE")))
        .when((slave < _zero("lowest")) & _sure(), either("DELAY_LAG", "STALE"))
        .when(slave < _zero("master"), F.lit("LAGGING"))
        .when(
            slave > _zero("highest"),
            when_sure(
                F.col("proven"),
                F.when(F.col("crashed"), F.lit("MASTER_OLDER")).otherwise(
                    either("DELAY_AHEAD", "SLAVE_AHEAD")
                ),
            ),
        )
    )
    beyond = F.when(slave > F.col("slaveEnd"), F.lit("BEYOND_MAX"))
    below = F.when(F.col("below") > 0, F.lit("BELOW_MIN"))
    on_master = F.when(
        F.col("isFirst") & (_zero("master") > F.col("masterEnd")), F.lit("MASTER_BEYOND_MAX")
    )
    orphan = when_sure(F.col("proven"), F.lit("ORPHAN_ON_SLAVE"))
    return F.when(F.col("onMaster"), F.array(position, beyond, below, on_master)).otherwise(
        F.array(orphan)
    )


def _extent_codes(is_ahead: Column, missing: Column, max_lag: int) -> Column:
    is_queue = F.col("kind") == QUEUE
    ahead = F.when(is_queue, F.lit("QUEUE_AHEAD")).otherwise(F.lit("LOG_AHEAD"))
    behind = (
        F.when(is_queue & (missing > max_lag), F.lit("NOT_REPLICATED"))
        .when(~is_queue & F.lit(max_lag == 0), F.lit("LOG_BEHIND"))
        .otherwise(F.lit("LAGGING"))
    )
    too_much = is_queue & (missing > max_lag) & F.lit(max_lag > 0)
    position = F.when((_zero("slaveValue") < _zero("lowest")) & _sure(), behind).when(
        missing > 0, F.when(too_much, F.lit("UNSETTLED")).otherwise(_on_its_way())
    )
    shorter = is_queue & F.col("onSlave") & (_zero("slaveLow") > _zero("masterLow"))
    drift = F.when(shorter, F.lit("MIN_DRIFT"))
    return F.when(is_ahead, F.array(ahead)).otherwise(F.array(position, drift))


def _configuration_code() -> Column:
    kind = F.col("kind")
    both = [F.col("onMaster"), F.col("onSlave"), F.col("masterText") == F.col("slaveText")]
    same_queues = F.col("master").eqNullSafe(F.col("slaveValue")) & F.col("masterLow").eqNullSafe(
        F.col("slaveLow")
    )
    missing = (
        F.when(kind == TOPIC, F.lit("MISSING_TOPIC_CONFIG"))
        .when(kind == GROUP, F.lit("MISSING_GROUP"))
        .otherwise(F.lit("STALE_TABLE"))
    )
    return (
        F.when(reduce(and_, both), F.lit(None).cast("string"))
        .when(
            ~F.col("onMaster"),
            F.when(F.col("proven"), F.lit("ORPHAN_ON_SLAVE")).otherwise(F.lit("UNSETTLED")),
        )
        .when(~_sure(), _on_its_way())
        .when(~F.col("onSlave"), missing)
        .when(
            kind == VERSION,
            F.when(
                F.col("master").eqNullSafe(F.col("slaveValue")), F.lit("VERSION_DRIFT")
            ).otherwise(F.lit("STALE_TABLE")),
        )
        .when((kind == TOPIC) & ~same_queues, F.lit("QUEUE_NUM_DRIFT"))
        .otherwise(F.lit("CONTENT_DRIFT"))
    )


# Findings


def findings(rows: DataFrame, master_place: str) -> DataFrame:
    """
    Rows of `FINDINGS`, one for each code of each key.

    :param rows: as `judged` makes them.
    """
    rows = rows.withColumn("code", F.explode("codes"))
    text = F.col("kind").isin(TOPIC, GROUP, VERSION)
    code = F.col("code")
    expected = (
        F.when(code == "BEYOND_MAX", F.col("slaveEnd").cast("string"))
        .when(code == "MASTER_BEYOND_MAX", F.col("masterEnd").cast("string"))
        .when(code == "BELOW_MIN", F.col("slaveFirst").cast("string"))
        .when(code == "MIN_DRIFT", F.col("masterLow").cast("string"))
        .when(text, F.col("masterText"))
        .otherwise(F.col("master").cast("string"))
    )
    actual = (
        F.when(code.isin("MASTER_BEYOND_MAX", "BELOW_MIN"), F.col("master").cast("string"))
        .when(code == "MIN_DRIFT", F.col("slaveLow").cast("string"))
        .when(text, F.col("slaveText"))
        .otherwise(F.col("slaveValue").cast("string"))
    )
    known = F.coalesce(F.col("slaveValue"), F.col("master"))
    is_masters = code == "MASTER_BEYOND_MAX"
    named = {
        "severity": by_code(code, {name: str(item.severity) for name, item in MEANINGS.items()}),
        "code": code,
        "detail": sentence(code),
        "broker": F.when(is_masters, F.lit(master_place)).otherwise(F.col("slave")),
        "topic": F.col("topic"),
        "queueId": F.col("queueId"),
        "group": F.col("group"),
        "physicalOffset": F.when(F.col("kind") == LOG, known),
        "queueOffset": F.when(F.col("kind").isin(OFFSET, DELAY, QUEUE), known),
        "msgId": F.lit(None).cast("string"),
        "expected": expected,
        "actual": actual,
        "observedAt": F.timestamp_millis(F.col("observed")),
    }
    return rows.select(*(named[name].alias(name) for name in COLUMNS))


def by_code(code: Column, values: dict[str, str]) -> Column:
    """The value of each code."""
    pairs = [F.lit(item) for pair in values.items() for item in pair]
    return F.element_at(F.create_map(*pairs), code)


def sentence(code: Column) -> Column:
    """`MEANINGS`' sentence with its numbers filled in."""
    text = by_code(code, {name: item.sentence for name, item in MEANINGS.items()})
    for name in SENTENCE_FIELDS:
        text = F.replace(text, F.lit(f"{{{name}}}"), F.col(name).cast("string"))
    return text
