"""Ledgers: what producers and consumers say they did, as JSON lines or Parquet."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from rmq_ha.errors import CannotDecide
from rmq_ha.scan.sieve import Span
from rmq_ha.spark.audit.shape import frozen
from rmq_ha.spark.source.tables_rows import snake_case
from rmq_ha.store.format.commitlog import CRC_MASK

STORED_STATUSES = ("SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
"""Answers that mean: it is stored. A row without a status counts as acknowledged too."""
COMMITTED = ("COMMIT_MESSAGE", "COMMIT")
"""What a producer says of a transaction that it ended so (`transactionState`)."""
UNNAMED = "(unnamed)"

# Our columns, and what else they may be called; each name may be spelt like_this, too.
_COLUMNS = (
    "topic", "msgId", "keys", "status", "transactionState", "brokerName", "queueId", "queueOffset",
    "orderKey", "sequence", "bodyCrc", "group", "reconsumeTimes", "sentAt", "deliveredAt",
)  # fmt: skip
_ALSO = {
    "msgId": ("uniqKey", "messageId"), "keys": ("key",), "status": ("sendStatus",),
    "transactionState": ("localTransactionState",), "group": ("consumerGroup",),
    "deliveredAt": ("consumedAt",),
}  # fmt: skip
_NAMES = {
    name: [spelt for alias in (name, *_ALSO.get(name, ())) for spelt in (alias, snake_case(alias))]
    for name in _COLUMNS
}
_ROWS = (
    "topic", "id", "atMs", "status", "transactionState", "brokerName", "queueId", "queueOffset",
    "orderKey", "sequence", "bodyCrc", "group", "reconsumeTimes",
)  # fmt: skip
"""What is made of it; `bodyCrc` is as records have it."""
_NUMBERS = ("queueId", "queueOffset", "sequence", "reconsumeTimes", "bodyCrc")
_TIMES = ("sentAt", "deliveredAt")
_TEXT_FILES = (".json", ".jsonl", ".ndjson")
_PACKED = (".gz", ".zst", ".bz2")
_CORRUPT = "_corrupt_record"


@dataclass(frozen=True)
class Ledger:
    """
    A ledger that was read.

    :ivar rows: columns `_ROWS`; what the ledger does not have is null.
    :ivar unusable: rows that are no JSON, or have no id.
    :ivar spans: what `rows` are about.
    """

    rows: DataFrame
    unusable: int
    spans: Sequence[Span]

    @property
    def count(self) -> int:
        """Its rows."""
        return sum(span.rows for span in self.spans)


def is_text(uri: str) -> bool:
    """JSON lines by its name; everything else is Parquet."""
    name = uri.rstrip("/").lower()
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return name.endswith(_TEXT_FILES)


def read_ledger(
    spark: SparkSession, uri: str, time: str, key: str, inside: Column | None = None
) -> Ledger:
    """
    Read a ledger of either kind.

    :param uri: a file or directory on any Hadoop file system.
    :param time: `sentAt` or `deliveredAt`.
    :param key: what identifies a message: `uniqKey` or `keys`.
    :param inside: which rows (`_ROWS`) are asked about; all.
    :raises CannotDecide: it cannot be read, or no row of it has an id.
    """
    id_column = "keys" if key == "keys" else "msgId"
    asked = F.lit(True) if inside is None else F.coalesce(inside, F.lit(False))
    try:
        raw = _text(spark, uri) if is_text(uri) else spark.read.parquet(uri)
        ids = F.explode_outer(F.split("id", ","))
        rows = frozen(_plain(raw, time, id_column).withColumns({"id": ids, "inside": asked}))
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise CannotDecide(
            f"the ledger {uri} cannot be read: {reason}. Give JSON lines (.json, .jsonl, .ndjson)"
            " or Parquet"
        ) from error
    has_id = F.col("id").isNotNull()
    told = (
        rows.groupBy(has_id.alias("usable"), "inside", "topic", "group")
        .agg(F.count(F.lit(1)).alias("n"), F.min("atMs"), F.max("atMs"))
        .collect()
    )
    if told and not any(row["usable"] for row in told):
        raise CannotDecide(
            f"no row of the ledger {uri} has {id_column}: docs/spark.md, audit_messages, says which"
            " columns a ledger has"
        )
    unusable = sum(row["n"] for row in told if not row["usable"])
    spans = [Span(*row[2:]) for row in told if row["usable"] and row["inside"]]
    return Ledger(rows.where(has_id & F.col("inside")), unusable, spans)


def _text(spark: SparkSession, uri: str) -> DataFrame:
    """All as text first: writers differ in how they write numbers and times."""
    names = sorted({name for spellings in _NAMES.values() for name in spellings})
    fields = [StructField(name, StringType()) for name in (*names, _CORRUPT)]
    return (
        spark.read.schema(StructType(fields))
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", _CORRUPT)
        .json(uri)
    )


def _plain(raw: DataFrame, time: str, id_column: str) -> DataFrame:
    kinds = {field.name: field.dataType for field in raw.schema.fields}
    columns: dict[str, Column] = {}
    for ours, spellings in _NAMES.items():
        names = [name for name in spellings if name in kinds]
        value = F.coalesce(*(raw[name].cast("string") for name in names), F.lit(None))
        if ours in _NUMBERS:
            columns[ours] = value.try_cast("bigint")
        elif ours in _TIMES:
            times = [_ms(raw, name, kinds[name]) for name in names]
            columns[ours] = F.coalesce(*times, F.lit(None).cast("long"))
        else:
            columns[ours] = value.cast("string")
    columns |= {
        "id": F.nullif(columns[id_column], F.lit("")),
        "atMs": columns[time],
        "queueId": columns["queueId"].cast("int"),
        "bodyCrc": columns["bodyCrc"].bitwiseAND(F.lit(CRC_MASK)),
        "group": F.coalesce(columns["group"], F.lit(UNNAMED)),
        "reconsumeTimes": F.coalesce(columns["reconsumeTimes"], F.lit(0)),
    }
    return raw.select(*(columns[name].alias(name) for name in _ROWS))


def _ms(raw: DataFrame, name: str, kind: object) -> Column:
    """Ms since the epoch, from a number of ms, a time stamp, or ISO 8601 text."""
    if isinstance(kind, TimestampType):
        return F.unix_millis(raw[name])
    text = raw[name].cast("string")
    return F.coalesce(text.try_cast("bigint"), F.unix_millis(F.try_to_timestamp(text)))


def acknowledged(status: Column) -> Column:
    """The producer was told that the message is stored."""
    return status.isNull() | status.isin(*STORED_STATUSES)
