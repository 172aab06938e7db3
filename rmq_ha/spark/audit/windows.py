"""The same hour seen by producers, the store and consumers: counts and times by tumbling window.

Windows are of event time: when the message was born, on its producer's clock. So the three counts
of a window are of the same messages, and differ by what was lost or came twice.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from rmq_ha.spark.audit.rules import Code, latency_column
from rmq_ha.spark.audit.shape import findings, observed, sentence
from rmq_ha.spark.result import Plot, Table

_SHOWN = 600
_QUANTILES = (0.5, 0.99)


def _window(ms: Column, window_ms: int) -> Column:
    return (ms - ms % window_ms).alias("window")


def clock_findings(sums: DataFrame, grace_ms: int) -> DataFrame:
    """
    Brokers whose log was stamped by a clock that was set back: one finding each, where it was.

    :param sums: of `reduced.sums_of`: what lies wholly behind another sum and is older by more
        than the grace.
    """
    ends = sums.select(
        "brokerName", F.col("mostPlace").alias("place"), F.col("mostMs").alias("high"),
        F.lit(None).cast("long").alias("low"),
    )  # fmt: skip
    begins = sums.select(
        "brokerName", F.col("leastPlace").alias("place"), F.lit(None).cast("long").alias("high"),
        F.col("leastMs").alias("low"),
    )  # fmt: skip
    before = (
        Window.partitionBy("brokerName")
        .orderBy("place")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    back = F.max("high").over(before)
    found = (
        ends.unionByName(begins)
        .withColumn("before", back)
        .where(F.col("low") < F.col("before") - F.lit(grace_ms))
        .groupBy("brokerName")
        .agg(
            F.min("place").alias("commitLogOffset"),
            F.min_by("before", "place").alias("before"),
            F.min_by("low", "place").alias("low"),
        )
        .withColumn("back", F.col("before") - F.col("low"))
    )
    return findings(
        found,
        Code.CLOCK_BACK,
        sentence(
            "about here the clock that stamps messages went back by {back} ms, and perhaps again"
            " later: searches by time miss messages, and delayed ones come late. After a fail-over"
            " it is the difference of two brokers' clocks"
        ),
        expected=F.concat(F.lit("not before "), F.timestamp_millis("before").cast("string")),
        actual=F.timestamp_millis("low").cast("string"),
        observedAt=observed(F.col("low")),
    )


def tiers(
    sums: DataFrame, produced: DataFrame | None, pairs: DataFrame | None, window_ms: int
) -> DataFrame:
    """
    By topic and window: `produced`, `stored`, `delivered`, `bytes`, and the middle and the 99th
    percentile of the times born to stored, and stored to delivered.

    :param sums: of `reduced.sums_of`.
    :param produced: the producers' ledger, what was acknowledged of it.
    :param pairs: `delivery.matched`.
    """
    own = sums.where("ordinary and inQueue")
    stored = own.groupBy("topic", "window").agg(
        F.sum("n").alias("stored"),
        F.sum("bytes").alias("bytes"),
        *_percentiles("bornToStored", "latency"),
    )
    keys = ["topic", "window"]
    if produced is not None:
        sent = produced.where("topic is not null and atMs is not null").groupBy(
            "topic", _window(F.col("atMs"), window_ms)
        )
        stored = stored.join(sent.agg(F.count(F.lit(1)).alias("produced")), keys, "full")
    if pairs is not None:
        taken = pairs.groupBy(
            "topic",
            _window(F.col("bornMs"), window_ms),
            latency_column(F.col("atMs") - F.col("storedMs")).alias("latency"),
        ).agg(F.count(F.lit(1)).alias("n"))
        stored = stored.join(
            taken.groupBy("topic", "window").agg(
                F.sum("n").alias("delivered"), *_percentiles("storedToDelivered", "latency")
            ),
            keys,
            "full",
        )
    for name in ("produced", "delivered"):
        if name not in stored.columns:
            stored = stored.withColumn(name, F.lit(None).cast("long"))
    if "storedToDeliveredP50" not in stored.columns:
        for name in ("storedToDeliveredP50", "storedToDeliveredP99"):
            stored = stored.withColumn(name, F.lit(None).cast("double"))
    return stored


def _percentiles(name: str, column: str) -> list[Column]:
    """Of classes with `n` members each; times that are negative are left out."""
    known = F.when(F.col(column) >= 0, F.col(column))
    return [
        F.percentile(known, F.lit(share), F.col("n")).alias(f"{name}P{round(share * 100)}")
        for share in _QUANTILES
    ]


def sections(windows: DataFrame, window_ms: int, *, ledgers: Sequence[str]) -> list[Table | Plot]:
    """
    Of the report: counts by tier, throughput and times over time; the topics.

    :param windows: of `tiers`; it is walked through twice.
    :param ledgers: `produced`, `delivered`: which there are.
    """
    span = windows.agg(F.min("window"), F.max("window")).first()
    if span is None or span[0] is None:
        return []
    width = window_ms * max(1, -(-(span[1] - span[0] + window_ms) // (window_ms * _SHOWN)))
    coarse = (
        windows.groupBy(_window(F.col("window"), width))
        .agg(
            *(F.sum(name).alias(name) for name in ("produced", "stored", "delivered", "bytes")),
            *(F.max(name).alias(name) for name in _TIMES),
        )
        .orderBy("window")
        .limit(_SHOWN + 1)
        .collect()
    )
    moments = [datetime.fromtimestamp(row["window"] / 1000, UTC) for row in coarse]
    seconds = width / 1000

    def values(name: str, factor: float = 1.0) -> list[float | None]:
        return [None if row[name] is None else row[name] * factor for row in coarse]

    tier_names = [
        name for name in ("produced", "stored", "delivered") if name == "stored" or name in ledgers
    ]
    found: list[Table | Plot] = [
        Plot(
            "Messages by when they were born",
            moments,
            {name: values(name) for name in tier_names},
            x_label="UTC",
            y_label=f"messages in {seconds:g} s",
            kind="step",
            note="Where the lines part, messages were lost, came twice, or are still on their way.",
        ),
        Plot(
            "Throughput",
            moments,
            {"MB/s": values("bytes", 1 / seconds / 1e6)},
            x_label="UTC",
            y_label="MB/s",
        ),
        Plot(
            "Born to stored",
            moments,
            {"middle": values("bornToStoredP50"), "99 %": values("bornToStoredP99")},
            x_label="UTC",
            y_label="ms",
            note="The worst topic of each moment; on two clocks, the producer's and the broker's.",
        ),
    ]
    if "delivered" in ledgers:
        found.append(
            Plot(
                "Stored to delivered",
                moments,
                {"middle": values("storedToDeliveredP50"), "99 %": values("storedToDeliveredP99")},
                x_label="UTC",
                y_label="ms",
                note="The worst topic of each moment.",
            )
        )
    return found


_TIMES = ("bornToStoredP50", "bornToStoredP99", "storedToDeliveredP50", "storedToDeliveredP99")


def topics_table(windows: DataFrame) -> Table:
    """The largest topics."""
    rows: list[Any] = (
        windows.groupBy("topic")
        .agg(
            F.sum("produced").alias("produced"),
            F.sum("stored").alias("stored"),
            F.sum("delivered").alias("delivered"),
            F.sum("bytes").alias("bytes"),
        )
        .orderBy(F.desc_nulls_last("stored"))
        .limit(50)
        .collect()
    )
    return Table(
        "Topics",
        ("topic", "produced", "stored", "delivered", "bytes"),
        [tuple("-" if value is None else value for value in row) for row in rows],
        note="The largest fifty.",
    )
