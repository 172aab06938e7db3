"""Reports a lost message once, although two rules find it: by its id, and as a gap in its queue."""

from functools import reduce

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import DataFrame

_PLACE = ("queueId", "queueOffset")


def with_places(lost: DataFrame, given: DataFrame | None, gaps: DataFrame) -> DataFrame:
    """
    Add `queueId` and `queueOffset` to lost messages, where they are known.

    :param given: the ledger of consumers, which has the places of delivered messages.
    :param gaps: result of `queues.gaps`. If a topic lacks exactly one message, and exactly one of
        its lost messages has no place, they are the same message.
    """
    if given is not None:
        told = given.where("reconsumeTimes = 0 and queueOffset is not null and topic is not null")
        told = told.join(lost.select("id"), "id", "left_semi")
        lost = _fill_places(
            lost, told.dropDuplicates(["topic", "id"]).select("topic", "id", *_PLACE)
        )
    count = F.count(F.lit(1)).alias("n")
    alone = lost.where("queueOffset is null").groupBy("topic").agg(count).where("n = 1")
    hole = (
        gaps.groupBy("topic")
        .agg(
            F.sum("missing").alias("n"),
            F.first("queueId").alias("queueId"),
            F.first("start").alias("queueOffset"),
        )
        .where("n = 1")
    )
    return _fill_places(lost, hole.drop("n").join(alone, "topic", "left_semi"))


def _fill_places(rows: DataFrame, places: DataFrame) -> DataFrame:
    """Fill in places where `rows` has none, from rows with equal values in the other columns."""
    by = [name for name in places.columns if name not in _PLACE]
    named = places.withColumnsRenamed({name: f"other_{name}" for name in _PLACE})
    return (
        rows.join(named, by, "left")
        .withColumns({name: F.coalesce(name, F.col(f"other_{name}")) for name in _PLACE})
        .drop(*(f"other_{name}" for name in _PLACE))
    )


def known_in(gaps: DataFrame, losses: list[DataFrame]) -> DataFrame:
    """
    Return the gaps, with the number `known` of missing messages that other findings name.

    :param gaps: result of `queues.gaps`.
    :param losses: rows with `topic`, `queueId`, `queueOffset`. A message without an offset is
        somewhere in its queue. If there are enough such messages for all other missing messages of
        the queue, all of the missing messages count as named.
    """
    every = reduce(DataFrame.unionByName, [rows.select("topic", *_PLACE) for rows in losses])
    inside = (
        gaps.join(
            F.broadcast(every.distinct().where("queueOffset is not null")), ["topic", "queueId"]
        )
        .where(F.col("queueOffset").between(F.col("start"), F.col("end")))
        .groupBy(*gaps.columns)
        .agg(F.count(F.lit(1)).alias("known"))
    )
    somewhere = (
        every.where("queueOffset is null")
        .groupBy("topic", "queueId")
        .agg(F.count(F.lit(1)).alias("n"))
    )
    rest = (
        gaps.join(inside, gaps.columns, "left")
        .withColumn("known", F.coalesce("known", F.lit(0)))
        .join(F.broadcast(somewhere), ["topic", "queueId"], "left")
    )
    open_ = rest.groupBy("topic", "queueId").agg(
        F.sum(F.col("missing") - F.col("known")).alias("open")
    )
    whole = F.col("open") <= F.coalesce("n", F.lit(0))
    return (
        rest.join(open_, ["topic", "queueId"])
        .withColumn("known", F.when(whole, F.col("missing")).otherwise(F.col("known")))
        .drop("n", "open")
    )
