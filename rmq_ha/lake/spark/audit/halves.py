"""
Checks transactions that were not ended.

Spec: store.md, section 11.
"""

from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_MASK
from rmq_ha.base.model.topics import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.scan.ledger_compare import COMMITTED
from rmq_ha.lake.spark.audit.rules import Code
from rmq_ha.lake.spark.audit.shape import findings, telling

_PLACE = ("queueId", "queueOffset", "commitLogOffset", "storedMs")
CHECKED_BY_MS = 180_000
"""Ms after which a broker with default settings has asked the producer at least twice."""


def is_needed() -> Column:
    """Return the condition for rows that `open_findings` needs."""
    return F.col("topic").isin(HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC) | _is_commit()


def _is_commit() -> Column:
    """Return the condition for messages of committed transactions, in the topics of consumers."""
    return F.col("sysFlag").bitwiseAND(F.lit(TRANSACTION_MASK)) == TRANSACTION_COMMIT


def unplaced_commits(sent: DataFrame, rows: DataFrame, marks: DataFrame) -> DataFrame:
    """
    Return messages that are in no topic, although their producer committed them and the broker
    noted the end of the transaction.

    The broker's mark says that a transaction has ended, but not how; the producer's ledger says
    how.

    :param marks: see `stored_rows.op_marks`; only marks that are old enough.
    """
    said = sent.where(F.col("transactionState").isin(*COMMITTED)).dropDuplicates(["id"])
    ended = rows.where(F.col("topic") == HALF_TOPIC).join(
        marks, ["brokerName", "queueId", "queueOffset"], "left_semi"
    )
    elsewhere = rows.where(~F.col("topic").isin(HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC))
    return said.join(ended.select("id"), "id", "left_semi").join(
        elsewhere.select("id"), "id", "left_anti"
    )


commit_findings = telling(
    Code.COMMIT_LOST,
    "its producer committed this transaction and the broker noted its end, but only the"
    " half message is there: consumers never get it. Look for it on other replicas, or"
    " send it again",
    expected="in {topic}",
    actual="only a half message",
)
"""Tells of committed transactions of which only the half message is there."""


def open_findings(rows: DataFrame, marks: DataFrame, newest_ms: int) -> DataFrame:
    """
    Return findings for half messages with neither a mark of their end nor a committed message.

    Each check of the broker appends a copy of the half message; only the first one is reported.

    :param marks: see `stored_rows.op_marks`.
    """
    halves = rows.where((F.col("topic") == HALF_TOPIC) & F.col("id").isNotNull())
    ended = (
        halves.join(marks, ["brokerName", "queueId", "queueOffset"], "left_semi")
        .select("brokerName", "id")
        .unionByName(rows.where(F.col("topic") != HALF_TOPIC).select("brokerName", "id"))
    )
    still_open = (
        halves.groupBy("brokerName", "topic", "id")
        .agg(
            *(F.min(name).alias(name) for name in _PLACE),
            F.count(F.lit(1)).alias("copies"),
        )
        .where(F.col("storedMs") < F.lit(newest_ms - CHECKED_BY_MS))
        .join(ended, ["brokerName", "id"], "left_anti")
    )
    return findings(
        still_open,
        Code.OPEN_HALF,
        "a half message, {copies} times in the half topic, that was neither committed nor"
        " rolled back: no producer of its group answers the broker's checks",
        expected="an end",
        actual="none",
    )
