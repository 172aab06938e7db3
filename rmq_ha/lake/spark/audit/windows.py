"""
Compares the same hour at producers, the store and consumers: counts and times by tumbling window.

Windows are of event time: when the message was born, on its producer's clock. So the three counts
of a window are of the same messages, and differ by messages that were lost or came twice.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.spark.audit.rules import Code
from rmq_ha.lake.spark.audit.shape import earlier, findings
from rmq_ha.lake.spark.result import Plot, Table

_SHOWN = 600
_QUANTILES = (0.5, 0.99)
_SUMS = ("produced", "stored", "delivered", "bytes")
_TIMES = ("bornToStoredP50", "bornToStoredP99", "storedToDeliveredP50", "storedToDeliveredP99")


def _window(ms: Column, window_ms: int) -> Column:
    """Return the start of the window that a time belongs to, as the column `window`."""
    return (ms - ms % window_ms).alias("window")


def clock_findings(sums: DataFrame, grace_ms: int) -> DataFrame:
    """
    Return findings for brokers whose clock was set back while it stamped the log: one for each
    broker, at the place where it happened.

    :param sums: result of `reduction.sums_of`. A sum that lies wholly after another one in the log,
        and is older by more than the grace, shows it.
    """
    none = F.lit(None).cast("long")

    def end_of_run(place: str, high: Column, low: Column) -> Column:
        return F.struct(F.col(place).alias("place"), high.alias("high"), low.alias("low"))

    # A sum has a highest and a least time, each at its own place. Both go into one row of places,
    # as the clock may have been set back within the records of one sum.
    ends = (
        end_of_run("mostPlace", F.col("mostMs"), none),
        end_of_run("leastPlace", none, F.col("leastMs")),
    )
    set_back = (
        sums.select("brokerName", F.inline(F.array(*ends)))
        .withColumn("before", F.max("high").over(earlier("brokerName", order="place")))
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
        set_back,
        Code.CLOCK_BACK,
        "about here the clock that stamps messages went back by {back} ms, and perhaps again"
        " later: searches by time miss messages, and delayed ones come late. After a fail-over"
        " it is the difference of two brokers' clocks",
        expected=F.concat(F.lit("not before "), F.timestamp_millis("before").cast("string")),
        actual=F.timestamp_millis("low").cast("string"),
        observedAt=F.timestamp_millis(F.col("low")),
    )


def tiers(sums: DataFrame, produced: DataFrame | None, taken: DataFrame | None) -> DataFrame:
    """
    Return by topic and window: `produced`, `stored`, `delivered`, `bytes`, and the median and the
    99th percentile of the times from born to stored, and from stored to delivered.

    :param sums: result of `reduction.sums_of`.
    :param produced: the counts of the producers' ledger.
    :param taken: rows of the kind `ledger_compare.TAKEN`.
    """
    own = sums.where("ordinary and inQueue")
    stored = own.groupBy("topic", "window").agg(
        F.sum("n").alias("stored"),
        F.sum("bytes").alias("bytes"),
        *_percentiles("bornToStored", "latency"),
    )
    keys = ["topic", "window"]
    if produced is not None:
        sent = produced.where("topic is not null and acknowledged > 0").where(
            F.col("window").isNotNull()
        )
        sums_of_sent = sent.groupBy(*keys).agg(F.sum("acknowledged").alias("produced"))
        stored = stored.join(sums_of_sent, keys, "full")
    if taken is not None:
        stored = stored.join(
            taken.groupBy("topic", "window").agg(
                F.sum("n").alias("delivered"), *_percentiles("storedToDelivered", "latency")
            ),
            keys,
            "full",
        )
    kinds = dict.fromkeys(("produced", "delivered"), "long") | dict.fromkeys(_TIMES, "double")
    absent = {name: kind for name, kind in kinds.items() if name not in stored.columns}
    return stored.withColumns({name: F.lit(None).cast(kind) for name, kind in absent.items()})


def _percentiles(name: str, column: str) -> list[Column]:
    """Return percentiles of classes with `n` members each; negative times are left out."""
    known = F.when(F.col(column) >= 0, F.col(column))
    return [
        F.percentile(known, F.lit(share), F.col("n")).alias(f"{name}P{round(share * 100)}")
        for share in _QUANTILES
    ]


def sections(windows: DataFrame, window_ms: int, *, ledgers: Collection[str]) -> list[Table | Plot]:
    """Return sections of the report: the topics, and counts, throughput and times over time."""
    edges = F.min("window").alias("first"), F.max("window").alias("last")
    topics: list[Any] = (
        windows.groupBy("topic").agg(*(F.sum(name).alias(name) for name in _SUMS), *edges).collect()
    )
    known = [row[name] for row in topics for name in ("first", "last") if row[name] is not None]
    if not known:
        return [_topics_table(topics)]
    # A plot has room for so many points. More windows are joined to wider ones.
    width = window_ms * max(1, -(-(max(known) - min(known) + window_ms) // (window_ms * _SHOWN)))
    coarse = (
        windows.groupBy(_window(F.col("window"), width))
        .agg(
            *(F.sum(name).alias(name) for name in _SUMS),
            *(F.max(name).alias(name) for name in _TIMES),
        )
        .orderBy("window")
        .limit(_SHOWN + 1)
        .collect()
    )
    moments = [datetime.fromtimestamp(row["window"] / 1000, UTC) for row in coarse]
    seconds = width / 1000

    def plot(
        title: str, lines: Mapping[str, str], unit: str, note: str = "", per: float = 1.0,
        kind: str = "line",
    ) -> Plot:  # fmt: skip
        series = {
            label: [None if row[name] is None else row[name] / per for row in coarse]
            for label, name in lines.items()
        }
        return Plot(title, moments, series, "UTC", unit, kind, note)

    def times(title: str, name: str, note: str) -> Plot:
        lines = {"middle": f"{name}P50", "99 %": f"{name}P99"}
        return plot(title, lines, "ms", f"The worst topic of each moment{note}.")

    counted = [name for name in _SUMS[:3] if name == "stored" or name in ledgers]
    parted = "Where the lines part, messages were lost, came twice, or are still on their way."
    unit = f"messages in {seconds:g} s"
    clocks = "; on two clocks, the producer's and the broker's"
    born = "Messages by when they were born"
    shown: list[Table | Plot] = [
        _topics_table(topics),
        plot(born, dict(zip(counted, counted, strict=True)), unit, parted, kind="step"),
        plot("Throughput", {"MB/s": "bytes"}, "MB/s", per=seconds * 1e6),
        times("Born to stored", "bornToStored", clocks),
    ]
    if "delivered" in ledgers:
        shown.append(times("Stored to delivered", "storedToDelivered", ""))
    return shown


def _topics_table(topics: list[Any]) -> Table:
    """Return the table of the fifty topics with most messages."""
    largest = sorted(topics, key=lambda row: (-(row["stored"] or 0), row["topic"] or ""))[:50]
    names = ("topic", *_SUMS)
    return Table(
        "Topics",
        names,
        [tuple("-" if row[n] is None else row[n] for n in names) for row in largest],
        note="The largest fifty.",
    )
