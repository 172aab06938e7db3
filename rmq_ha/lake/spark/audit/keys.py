"""Checks messages by id: stored twice, acknowledged but not stored, never produced."""

from dataclasses import dataclass

from rmq_ha.base.store_format.commitlog import CRC_MASK
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.scan.ledger_files import STORED_STATUSES
from rmq_ha.lake.spark.audit.rules import Code
from rmq_ha.lake.spark.audit.shape import findings, sentence, telling

_PLACE = ("id", "queueId", "queueOffset", "commitLogOffset")


@dataclass(frozen=True)
class Edges:
    """
    The limits of the messages that were read. A message outside of them is not missed.

    :ivar grace_ms: how long a message may take from its producer into the log, and how far clocks
        of producers and brokers may differ.
    :ivar whole: whether nothing was ever deleted, so that no message is older than the oldest one.
    """

    oldest_ms: int
    newest_ms: int
    grace_ms: int
    whole: bool

    def is_in_flight(self, ms: Column) -> Column:
        """Return whether messages may be stored after the end of what was read."""
        return ms > F.lit(self.newest_ms - self.grace_ms)

    def is_expired(self, ms: Column) -> Column:
        """Return whether messages were sent so early that retention may have deleted them."""
        if self.whole:
            return F.lit(False)
        return ms < F.lit(self.oldest_ms + self.grace_ms)


def duplicate_findings(copies: DataFrame) -> DataFrame:
    """
    Return findings for ids that an ordinary topic has more than once; one finding for each copy
    after the first.

    :param copies: rows of the kind `ledger_compare.COPY`.
    """
    same = F.col("firstCrc").eqNullSafe(F.col("bodyCrc"))
    again = sentence(
        "copy {n} of a message of {first}. Consumers get it again: a producer repeats a"
        " send whose answer was lost, and a new master delivers delayed messages again"
    )
    reused = sentence(
        "the id of another message, of {first}, with another body. Ids have to be unique: look"
        " at how the producer makes them"
    )
    return findings(
        copies,
        F.when(same, F.lit(str(Code.DUPLICATE))).otherwise(F.lit(str(Code.KEY_REUSED))),
        F.when(same, again).otherwise(reused),
        expected=F.when(same, sentence("once, at {first}")).otherwise(
            sentence("a body with CRC {firstCrc}")
        ),
        actual=F.when(same, F.col("place")).otherwise(sentence("{bodyCrc}")),
    )


def ledger_in_view(ledger: DataFrame, edges: Edges, bounds: DataFrame | None = None) -> DataFrame:
    """
    Add `state` to rows: `inFlight`, `expired`, `unknown`, or null if the message must be stored.

    A row without a time tells by its queue offset whether retention has deleted the message. A row
    without both does not tell, unless nothing was ever deleted.

    :param bounds: `topic`, `queueId`, and `least`, the first queue offset that is stored.
    """
    at = F.col("atMs")
    state = F.when(edges.is_in_flight(at), F.lit("inFlight")).when(
        edges.is_expired(at), F.lit("expired")
    )
    if edges.whole or bounds is None:
        return ledger.withColumn("state", state)
    placed = ledger.join(F.broadcast(bounds), ["topic", "queueId"], "left")
    is_known = F.col("queueOffset").isNotNull() & F.col("least").isNotNull()
    state = state.when(F.col("queueOffset") < F.col("least"), F.lit("expired")).when(
        at.isNull() & ~is_known, F.lit("unknown")
    )
    return placed.withColumn("state", state).select(*ledger.columns, "state")


def lost_messages(absent: DataFrame) -> DataFrame:
    """Return acknowledged rows of `ledger_in_view` whose messages are not stored."""
    return absent.where(_is_acknowledged() & F.col("state").isNull()).dropDuplicates(["id"])


def _is_acknowledged() -> Column:
    """Return the condition for rows whose producer was told that the message is stored."""
    status = F.col("status")
    return status.isNull() | status.isin(*STORED_STATUSES)


def unknown_findings(absent: DataFrame) -> DataFrame:
    """
    Return findings for rows that do not tell whether their messages were lost or deleted by
    retention, one for each topic.

    :param absent: rows of the ledger whose id is nowhere in the log, from `ledger_in_view`.
    """
    rows = absent.where(_is_acknowledged() & (F.col("state") == "unknown"))
    counted = rows.groupBy("topic").agg(F.countDistinct("id").alias("n"), F.min("id").alias("id"))
    return findings(
        counted,
        Code.LOST_OR_EXPIRED,
        "{n} acknowledged messages of this topic, this one among them, are not stored. Their"
        " rows have neither a time nor a queue offset, so retention cannot be told from loss:"
        " write sentAt or queueOffset into the ledger",
        expected="stored, or deleted by retention",
        actual="not stored",
    )


def crc_of_body() -> Column:
    """Return the CRC of the column `body`, as consumers see it."""
    return F.crc32("body").bitwiseAND(F.lit(CRC_MASK))


changed_findings = telling(
    Code.BODY_CHANGED,
    "the body fits its CRC, and is not the one that the ledger has under this id: it was"
    " changed on its way, or in the log by somebody who also wrote the CRC. Compare with"
    " another replica (verify-replica)",
    expected="a body of the ledger's bodyCrc",
    actual="{bodyCrc}",
)
"""Tells of bodies that are not the ones a producer recorded: compared rows UNLIKE."""
delivered_changed_findings = telling(
    Code.DELIVERED_CHANGED,
    "the group got another body than the one that is stored: it was changed on its way to"
    " the consumer, or the consumer's record is of another message. Look at hooks, proxies"
    " and memory between broker and consumer",
    expected="a body with CRC {bodyCrc}",
    actual="{firstCrc}",
    of_group=True,
)
"""Tells of bodies that a group got and that are not the stored ones: compared rows UNLIKE."""
rekeyed_findings = telling(
    Code.KEYS_CHANGED,
    "the record has other keys than the ledger has under this id: queries by key do not"
    " find it. Compare with another replica (verify-replica)",
    expected="the keys of the ledger",
    actual="other keys",
)
"""Tells of records whose keys are not the ones that a producer recorded: rows REKEYED."""
visible_findings = telling(
    Code.ROLLBACK_VISIBLE,
    "its producer rolled this transaction back, and the message is in its topic:"
    " consumers get what must not have happened",
    expected="only a half message",
    actual="in {topic}",
)
"""Tells of messages in a topic whose transaction was rolled back: rows VISIBLE."""


def unreadable_findings(rows: DataFrame) -> DataFrame:
    """
    Return findings for bodies that are marked as compressed, and are not.

    :param rows: rows of the kind `reducing.UNREADABLE`.
    """
    placed = rows.select(
        "brokerName", "topic", "queueId", F.col("leastOffset").alias("queueOffset"),
        F.col("leastPlace").alias("commitLogOffset"), F.col("leastMs").alias("storedMs"),
    )  # fmt: skip
    return findings(
        placed,
        Code.NOT_COMPRESSED,
        "the flag says that the body is compressed, and it is not: no consumer can read it."
        " Compare with another replica (verify-replica)",
        expected="a body compressed by zlib",
        actual="another body",
    )


def lost_findings(rows: DataFrame) -> DataFrame:
    """Return findings for the acknowledged messages of `lost_messages`."""
    return findings(
        rows,
        Code.LOST,
        sentence(
            "the producer was told {answer}, and no record of the log has this id. Look for it on"
            " other replicas, or send it again",
            answer=F.coalesce("status", F.lit("that it is stored")),
        ),
        expected="stored",
        actual="not stored",
    )


def unproduced_findings(rows: DataFrame) -> DataFrame:
    """
    Return findings for messages that no producer of the ledger sent, in its topics and in its time:
    one finding for each topic, with their number.

    :param rows: rows of the kind `ledger_compare.UNPRODUCED`.
    """
    strangers = rows.groupBy("topic").agg(
        F.count(F.lit(1)).alias("n"),
        *(F.min_by(name, "commitLogOffset").alias(name) for name in _PLACE),
    )
    return findings(
        strangers,
        Code.UNPRODUCED,
        "{n} messages of this topic, this one the first, are in no ledger: another producer"
        " sends to it, or a ledger is not complete",
        actual="{n} messages",
    )
