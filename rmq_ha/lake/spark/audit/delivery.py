"""Checks what groups were given: every message, once, in order, and only stored messages."""

from collections.abc import Collection, Mapping

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column, Window
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.spark.audit.rules import Code
from rmq_ha.lake.spark.audit.shape import QUEUE, all_faults, earlier, fault, findings, telling

_OF_GROUP = ("group", *QUEUE)


twice_findings = telling(
    Code.DELIVERED_TWICE,
    "given to the group {n} times. Offsets that were not committed before a rebalance, a"
    " crash or a fail-over do this; listeners have to bear it",
    expected="1",
    actual="{n}",
    of_group=True,
)
"""Tells of messages that a group was given again, and had not sent back: rows TWICE."""


def early_findings(early: DataFrame) -> DataFrame:
    """
    Return findings for deliveries before their message existed: one for each group and topic.

    :param early: rows of the kind `ledger_compare.EARLY`.
    """
    names = ("id", "brokerName", "queueId", "queueOffset", "commitLogOffset", "storedMs", "atMs")
    first = early.groupBy("group", "topic").agg(
        F.count(F.lit(1)).alias("n"),
        *(F.min_by(name, "atMs").alias(name) for name in names[:-1]),
        F.min("atMs").alias("atMs"),
    )
    return findings(
        first,
        Code.DELIVERED_EARLY,
        "the group was given {n} messages of this topic, this one the earliest, before they"
        " were sent and stored: the clocks of consumers, producers and brokers differ, or the"
        " ledger is of other messages. Nothing that depends on its times is reliable",
        group=F.col("group"),
        expected=F.concat(F.lit("after "), F.timestamp_millis("storedMs").cast("string")),
        actual=F.timestamp_millis("atMs").cast("string"),
    )


def never_findings(
    taken: DataFrame, grace_ms: int, tags: Mapping[str, Collection[str]], ungiven: DataFrame
) -> DataFrame:
    """
    Return findings for messages that a group was not given, although it was given later ones.

    :param tags: tags that groups subscribe to, for groups that do not want every message.
    """
    fronts = taken.groupBy(*_OF_GROUP).agg(
        F.min("leastOffset").alias("least"), F.max("mostOffset").alias("most")
    )
    until = taken.groupBy("group", "topic").agg(F.max("mostMs").alias("until"))
    passed = (
        ungiven.drop("leastOffset", "mostOffset", "mostMs")
        .join(F.broadcast(fronts), [*_OF_GROUP])
        .where("queueOffset > least and queueOffset < most")
        .join(F.broadcast(until), ["group", "topic"])
        .where(F.col("storedMs") <= F.col("until") - grace_ms)
    )
    if tags:
        passed = passed.where(_is_subscribed(tags))
    return findings(
        passed,
        Code.NEVER_DELIVERED,
        "the group was given later messages of this queue, but not this one: its offset was"
        " moved over it, or it subscribes to other tags (--subscription GROUP=TAGS)",
        group=F.col("group"),
        expected="delivered",
        actual="not delivered",
    )


def silent_findings(
    taken: DataFrame, sums: DataFrame, grace_ms: int, tags: Collection[str]
) -> DataFrame:
    """
    Return findings for queues of which a group was given nothing, while it was given messages of
    other queues of the topic.

    :param sums: result of `reduction.sums_of`; only windows within the group's time are used.
    :param tags: groups that do not want every message, which are left out.
    """
    spans = taken.groupBy("group", "topic").agg(
        F.min("leastMs").alias("since"), F.max("mostMs").alias("until")
    )
    silent = (
        sums.where("inQueue")
        .join(F.broadcast(spans), "topic")
        .where(~F.col("group").isin(*tags))
        .where(
            (F.col("leastMs") >= F.col("since")) & (F.col("mostMs") <= F.col("until") - grace_ms)
        )
        .groupBy(*_OF_GROUP)
        .agg(F.sum("n").alias("n"), F.min("leastOffset").alias("queueOffset"))
        .join(taken.select(*_OF_GROUP), [*_OF_GROUP], "left_anti")
    )
    return findings(
        silent,
        Code.NEVER_DELIVERED,
        "the group was given nothing of this queue, where {n} messages lie from offset"
        " {queueOffset} on, but was given messages of other queues: nobody in it has the queue",
        group=F.col("group"),
        expected="{n} messages",
        actual="none",
    )


def _is_subscribed(tags: Mapping[str, Collection[str]]) -> Column:
    """Return the condition for messages that a row's group wants, by their tags."""
    is_subscribed = F.lit(True)
    for group, names in tags.items():
        fits = F.coalesce(F.col("tags").isin(*names), F.lit(False))
        is_subscribed = is_subscribed & ((F.col("group") != group) | fits)
    return is_subscribed


def late_findings(ordered: Collection[str], firsts: DataFrame) -> DataFrame:
    """
    Return findings for first deliveries that came after the one of a later message.

    :param ordered: groups that promise the order of the whole queue.
    :param firsts: rows of the kind `ledger_compare.ORDERED`. Rows with an `orderKey` are compared
        with rows of the same key.
    """
    by_queue = F.col("group").isin(*ordered) if ordered else F.lit(False)
    key = F.when(~by_queue, F.col("orderKey")).alias("orderKey")
    firsts = (
        firsts.where(by_queue | F.col("orderKey").isNotNull())
        .groupBy(*_OF_GROUP, key, "queueOffset")
        .agg(F.min("order").alias("order"), F.min("atMs").alias("atMs"), F.min("id").alias("id"))
    )
    before = earlier(*_OF_GROUP, "orderKey", order="order")
    late = firsts.withColumn("highest", F.max("queueOffset").over(before)).where(
        "highest > queueOffset"
    )
    return findings(
        late,
        Code.OUT_OF_ORDER,
        "given to the group after queue offset {highest}: its order was not kept. Look for a"
        " listener that is not orderly, or for two members that had the queue at a time",
        group=F.col("group"),
        expected="before offset {highest}",
        actual="after it",
    )


def misplaced_findings(placed: DataFrame) -> DataFrame:
    """
    Return findings for messages of a producer's sequence (`orderKey`) that lie before earlier ones
    of it, and for sequences that are spread over queues.

    :param placed: rows of the kind `ledger_compare.ORDERED`, of producers.
    """
    of_message = ("topic", "id", "orderKey", "brokerName", "queueId", "queueOffset")
    # A producer may have recorded several attempts of a message. The first one has its order.
    sent = placed.groupBy(*of_message).agg(
        F.min("order").alias("order"), F.min("atMs").alias("atMs")
    )
    before = earlier(*QUEUE, "orderKey", order="order")
    sequence = Window.partitionBy("topic", "orderKey")
    queue = F.struct("brokerName", "queueId")
    judged = (
        sent.withColumn("highest", F.max("queueOffset").over(before))
        .withColumn("least", F.min(queue).over(sequence))
        .withColumn("most", F.max(queue).over(sequence))
        .withColumn("number", F.row_number().over(sequence.orderBy("order", "id")))
    )
    late = fault(
        Code.OUT_OF_ORDER,
        F.col("highest") > F.col("queueOffset"),
        "of the sequence {orderKey}, lies in front of offset {highest}, which was sent earlier:"
        " the producer did not wait for one answer before the next send",
        at=F.col("queueOffset"),
        expected="behind offset {highest}",
        actual="in front of it",
    )
    spread = fault(
        Code.OUT_OF_ORDER,
        (F.col("number") == 1) & (F.col("least") != F.col("most")),
        "the sequence {orderKey}, of which this is the first, lies in several queues, so"
        " nobody can consume it in order: the number of queues or brokers changed, or the"
        " producer chose them by something else",
        at=F.col("queueOffset"),
        expected="1 queue",
        actual="several queues",
    )
    return all_faults(judged, (late, spread))


def missing_deliveries(absent: DataFrame, bounds: DataFrame, whole: bool) -> DataFrame:
    """
    Return messages that a group was given and that are no longer stored, although retention has not
    deleted them.

    :param absent: rows of the ledger whose id is nowhere in the log, with their `state`.
    :param bounds: `topic`, `queueId`, and `least`, the first queue offset that is stored.
    """
    lost = absent.where("state is null or state <> 'inFlight'")
    if not whole:
        lost = lost.where("reconsumeTimes = 0").join(F.broadcast(bounds), ["topic", "queueId"])
        lost = lost.where("queueOffset >= least")
    return lost.dropDuplicates(["id"])


gone_findings = telling(
    Code.DELIVERED_LOST,
    "the group was given this message, and no record of the log has its id: the log was"
    " cut or overwritten, as by a fail-over to a replica that lacked it",
    expected="stored",
    actual="not stored",
    of_group=True,
)
"""Tells of messages that a group was given, and that are not in the log."""
