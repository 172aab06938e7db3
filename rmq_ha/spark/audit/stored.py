"""What is stored: the rows that an audit looks at, of one or several places."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.errors import WrongUsage
from rmq_ha.model.properties import REAL_QID, REAL_TOPIC
from rmq_ha.model.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from rmq_ha.offsets.places import NamesrvPlace, Place, StorePlace
from rmq_ha.scan.store.directory import open_store
from rmq_ha.scan.store.queues import Queue
from rmq_ha.spark.audit.rules import in_queue, ordinary
from rmq_ha.spark.source.schema import COLUMNS, struct_of

_ON_THEIR_WAY = (SCHEDULE_TOPIC, HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
_COLUMNS = (
    "topic", "queueId", "queueOffset", "commitLogOffset", "sysFlag", "bornTimestamp",
    "storeTimestamp", "storeSize", "crcOk", "bodyCRC",
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """
    Which messages.

    :ivar topics: empty: all.
    :ivar key: what identifies a message: `uniqKey` or `keys`.
    :ivar on_their_way: delayed and half messages of the topics, too.
    :ivar tags: the column is needed; so is `body`.
    :ivar from_ms: stored then or later; None: from the oldest on. So is `to_ms`, exclusive.
    :ivar options: further ones of the data source (accounts, TLS, `splitSize`, ...).
    """

    topics: Sequence[str] = ()
    key: str = "uniqKey"
    on_their_way: bool = False
    tags: bool = False
    from_ms: int | None = None
    to_ms: int | None = None
    options: Mapping[str, str] | None = None
    body: bool = False

    @property
    def further(self) -> list[str]:
        """Columns that few ask for."""
        return [name for name in ("tags", "body") if getattr(self, name)]


def label_of(place: Place, places: Sequence[Place]) -> str:
    """Of several stores, the column `brokerName` says which one a row is of."""
    return place.uri if len(places) > 1 and isinstance(place, StorePlace) else ""


def queues_of_stores(places: Sequence[Place]) -> Iterator[tuple[str, str, int, Queue]]:
    """
    Label, topic, number and consume queue: of each one of the stores among these places.

    :raises CannotDecide: a store cannot be read.
    """
    for place in places:
        if isinstance(place, StorePlace):
            store = open_store(place.uri, damaged=True)
            for topic, queue_id in store.topics_on_disk():
                yield label_of(place, places), topic, queue_id, store.queue(topic, queue_id)


def source_options(place: Place, topics: Sequence[str]) -> dict[str, str]:
    """
    Options of the data source for a place.

    :raises WrongUsage: messages cannot be read there.
    """
    options = {"subscribe": ",".join(topics)} if topics else {}
    if isinstance(place, StorePlace):
        # The log itself, not what its consume queues point to: both may be wrong.
        # Of a damaged one what is left is audited: what is missing are gaps.
        return {"path": place.uri, "scan": "files", "failOnDataLoss": "false", **options}
    if isinstance(place, NamesrvPlace):
        if not topics:
            options["subscribePattern"] = ".*"
        return {"namesrv": place.addresses, "brokerName": place.broker_name, **options}
    raise WrongUsage(
        f"{place}: messages are read from a store directory or through a name server"
        " (namesrv://host:port/brokerName)"
    )


def stored_rows(spark: SparkSession, places: Sequence[Place], wanted: Wanted) -> DataFrame:
    """
    One row for each stored message.

    Columns: `brokerName` (never null), `topic`, `queueId`, `queueOffset`, `commitLogOffset`, `id`
    (null: it has none), `sysFlag`, `inQueue`, `ordinary`, `bornMs`, `storedMs`, `storeSize`,
    `crcOk`, `bodyCRC`, and `tags` and `body` if wanted.

    :raises WrongUsage: messages cannot be read from a place.
    """
    return reduce(
        DataFrame.unionByName, [_of_place(spark, each, wanted, len(places) > 1) for each in places]
    )


def _of_place(spark: SparkSession, place: Place, wanted: Wanted, labelled: bool) -> DataFrame:
    options = source_options(place, wanted.topics) | dict(wanted.options or {})
    if wanted.topics and wanted.on_their_way:
        del options["subscribe"]
        options["subscribePattern"] = _pattern([*wanted.topics, *_ON_THEIR_WAY])
    if labelled and isinstance(place, StorePlace):
        options["brokerName"] = place.uri
    # An id of a message without UNIQ_KEY is its address: unique, and what its producer was told.
    id_column = "keys" if wanted.key == "keys" else "msgId"
    names = [*_COLUMNS, id_column, "brokerName", *wanted.further]
    return _inside(read(spark, options, names), wanted).select(
        F.coalesce("brokerName", F.lit("")).alias("brokerName"),
        "topic",
        "queueId",
        "queueOffset",
        "commitLogOffset",
        F.col(id_column).alias("id"),
        "sysFlag",
        in_queue(F.col("sysFlag")).alias("inQueue"),
        ordinary(F.col("topic")).alias("ordinary"),
        F.unix_millis("bornTimestamp").alias("bornMs"),
        F.unix_millis("storeTimestamp").alias("storedMs"),
        "storeSize",
        "crcOk",
        "bodyCRC",
        *wanted.further,
    )


def _inside(frame: DataFrame, wanted: Wanted) -> DataFrame:
    """The time that is wanted."""
    if wanted.from_ms is not None:
        frame = frame.where(F.col("storeTimestamp") >= timestamp(wanted.from_ms))
    if wanted.to_ms is not None:
        frame = frame.where(F.col("storeTimestamp") < timestamp(wanted.to_ms))
    return frame


def read(spark: SparkSession, options: Mapping[str, str], columns: Sequence[str]) -> DataFrame:
    """Exactly these columns: a schema is the only thing that keeps others from being parsed."""
    schema: StructType = struct_of({name: COLUMNS[name] for name in columns})
    return spark.read.format("rocketmq").schema(schema).options(**options).load()


def op_marks(spark: SparkSession, places: Sequence[Place], options: Mapping[str, str]) -> DataFrame:
    """
    `brokerName`, `queueId` and `queueOffset` of half messages whose end is noted, and when
    (`endedMs`).

    Spec: store.md, section 11.2.
    """
    names = ["brokerName", "queueId", "storeTimestamp", "body"]
    each = [read(spark, given, names) for given in _of_topic(places, OP_HALF_TOPIC, options)]
    return (
        reduce(DataFrame.unionByName, each)
        .select(
            F.coalesce("brokerName", F.lit("")).alias("brokerName"),
            "queueId",
            F.unix_millis("storeTimestamp").alias("endedMs"),
            F.col("body").cast("string").try_cast("bigint").alias("queueOffset"),
        )
        .where("queueOffset is not null")
    )


def _of_topic(
    places: Sequence[Place], topic: str, options: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Options to read a topic of each place; unlike a name, a pattern may fit nothing."""
    for place in places:
        given = source_options(place, ()) | dict(options) | {"subscribePattern": _pattern([topic])}
        if len(places) > 1 and isinstance(place, StorePlace):
            given["brokerName"] = place.uri
        yield given


def delayed_rows(spark: SparkSession, places: Sequence[Place], wanted: Wanted) -> DataFrame:
    """
    What lies in the schedule topic: the record's place, `id`, `storedMs`, and where it is to go,
    `realTopic` and `realQueueId`. Without an id nobody can tell its copy, so it is left out.
    """
    id_column = "keys" if wanted.key == "keys" else "uniqKey"
    names = ["brokerName", "queueId", "queueOffset", "commitLogOffset", "storeTimestamp"]
    columns = [*names, id_column, "properties"]
    each = [
        _inside(read(spark, given, columns), wanted)
        for given in _of_topic(places, SCHEDULE_TOPIC, wanted.options or {})
    ]
    rows = (
        reduce(DataFrame.unionByName, each)
        .select(
            F.coalesce("brokerName", F.lit("")).alias("brokerName"),
            *names[1:4],
            F.unix_millis("storeTimestamp").alias("storedMs"),
            F.col(id_column).alias("id"),
            F.col("properties")[REAL_TOPIC].alias("realTopic"),
            F.col("properties")[REAL_QID].try_cast("int").alias("realQueueId"),
        )
        .where("id is not null and realTopic is not null")
    )
    return rows.where(F.col("realTopic").isin(*wanted.topics)) if wanted.topics else rows


def timestamp(ms: int) -> Column:
    """A literal."""
    return F.timestamp_millis(F.lit(ms))


def _pattern(topics: Sequence[str]) -> str:
    return "|".join(map(re.escape, topics))


def client_options(places: Sequence[Place], client: ClientConfig) -> dict[str, str]:
    """Account and TLS as options of the data source; none when only stores are read."""
    if all(isinstance(place, StorePlace) for place in places):
        return {}
    options = {"useTLS": "true"} if client.use_tls else {}
    options |= client.tls
    if client.credentials is not None:
        options["accessKey"] = client.credentials.access_key
        options["secretKey"] = client.credentials.secret_key
        if client.credentials.security_token:
            options["securityToken"] = client.credentials.security_token
    return options
