"""Reads the stored messages for an audit, from one or several places."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.model.properties import REAL_QID, REAL_TOPIC
from rmq_ha.base.model.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import DataFrame, Engine
from rmq_ha.lake.scan.reducing import id_column_of
from rmq_ha.lake.scan.store.directory import open_store
from rmq_ha.lake.scan.store.parts import Queue
from rmq_ha.ops.offsets.places import NamesrvPlace, Place, StorePlace

_ON_THEIR_WAY = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
_COLUMNS = (
    "topic", "queueId", "queueOffset", "commitLogOffset", "sysFlag", "bornTimestamp",
    "storeTimestamp", "storeSize", "crcOk", "bodyCRC",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """
    The messages to be audited.

    :ivar places: brokers whose messages make up the whole.
    :ivar brokers: only rows of the ledgers about these brokers; empty: all.
    :ivar key: the property that identifies a message: `uniqKey` or `keys`.
    :ivar grace_ms: how far clocks may differ, and how long a message may be on its way.
    :ivar ordered: groups that promise the order of each queue.
    :ivar tags: tags that groups subscribe to, for groups that do not want every message.
    """

    places: Sequence[Place]
    topics: Sequence[str] = ()
    produced: str | None = None
    delivered: str | None = None
    brokers: Collection[str] = ()
    key: str = "uniqKey"
    window_ms: int = 60_000
    from_ms: int | None = None
    to_ms: int | None = None
    grace_ms: int = 10_000
    ordered: Collection[str] = ()
    tags: Mapping[str, Collection[str]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_ledgers(self) -> bool:
        return bool(self.produced or self.delivered)

    @property
    def stored_ms(self) -> tuple[int | None, int | None]:
        """The time whose messages are read: the audited time, and the grace at both ends."""
        low, high, grace = self.from_ms, self.to_ms, self.grace_ms
        return (None if low is None else low - grace, None if high is None else high + grace)


def label_of(place: Place, places: Sequence[Place]) -> str:
    """Return `brokerName` for a place: the URI of one of several stores, otherwise empty."""
    return place.uri if len(places) > 1 and isinstance(place, StorePlace) else ""


def queues_of_stores(places: Sequence[Place]) -> Iterator[tuple[str, str, int, Queue]]:
    """
    Yield label, topic, number and consume queue for each queue of the stores among these places.

    :raises CannotDecide: a store cannot be read.
    """
    for place in places:
        if isinstance(place, StorePlace):
            store = open_store(place.uri, damaged=True)
            for topic, queue_id in store.topics_on_disk():
                yield label_of(place, places), topic, queue_id, store.queue(topic, queue_id)


def source_options(place: Place, topics: Sequence[str]) -> dict[str, str]:
    """
    Return the options of the data source for a place.

    :raises WrongUsage: messages cannot be read from this place.
    """
    options = {"subscribe": ",".join(topics)} if topics else {}
    if isinstance(place, StorePlace):
        # Read the log itself, not through its consume queues, because both may be wrong. The rest
        # of a damaged log is audited as well: missing messages become gaps.
        return {"path": place.uri, "scan": "files", "failOnDataLoss": "false", **options}
    if isinstance(place, NamesrvPlace):
        if not topics:
            options["subscribePattern"] = ".*"
        return {"namesrv": place.addresses, "brokerName": place.broker_name, **options}
    raise WrongUsage(
        f"{place}: messages are read from a store directory or through a name server"
        " (namesrv://host:port/brokerName)"
    )


def stored_rows(engine: Engine, asked: AuditRequest, *, body: bool = False) -> DataFrame:
    """
    Return one row for each stored message.

    Columns: `brokerName` (never null), `topic`, `queueId`, `queueOffset`, `commitLogOffset`, `id`
    (null: the message has none), `sysFlag`, `bornMs`, `storedMs`, `storeSize`, `crcOk`, `bodyCrc`,
    `tags` if groups subscribe to some, `keys` if there is a ledger of producers, and `body` if
    wanted.

    :raises WrongUsage: messages cannot be read from a place.
    """
    has_keys = asked.produced and asked.key != "keys"
    optional = (("tags", asked.tags), ("keys", has_keys), ("body", body))
    further = [name for name, is_wanted in optional if is_wanted]
    frames = [_of_place(engine, place, asked, further) for place in asked.places]
    return reduce(DataFrame.unionByName, frames)


def options_of(place: Place, asked: AuditRequest) -> dict[str, str]:
    """
    Return options of the data source for the audited topics, and for those in which their messages
    may be on their way.

    :raises WrongUsage: messages cannot be read from this place.
    """
    options = source_options(place, asked.topics) | dict(asked.options)
    if asked.topics and asked.produced:  # includes their delayed and half messages
        del options["subscribe"]
        options["subscribePattern"] = _pattern([*asked.topics, *_ON_THEIR_WAY])
    label = label_of(place, asked.places)
    return options | {"brokerName": label} if label else options


def _of_place(
    engine: Engine, place: Place, asked: AuditRequest, further: Sequence[str]
) -> DataFrame:
    """Return the rows of `stored_rows` for one place, with further columns."""
    options = options_of(place, asked)
    id_column = id_column_of(asked.key)
    names = [*_COLUMNS, id_column, "brokerName", *further]
    return inside_time(engine.messages(options, names), asked).select(
        F.coalesce("brokerName", F.lit("")).alias("brokerName"),
        *("topic", "queueId", "queueOffset", "commitLogOffset", "sysFlag"),
        F.col(id_column).alias("id"),
        F.unix_millis("bornTimestamp").alias("bornMs"),
        F.unix_millis("storeTimestamp").alias("storedMs"),
        *("storeSize", "crcOk"),
        F.col("bodyCRC").cast("long").alias("bodyCrc"),
        *further,
    )


def inside_time(frame: DataFrame, asked: AuditRequest) -> DataFrame:
    """Return the rows of the wanted time."""
    low, high = asked.stored_ms
    stored = F.unix_millis("storeTimestamp")
    if low is not None:
        frame = frame.where(stored >= low)
    return frame if high is None else frame.where(stored < high)


def op_marks(engine: Engine, asked: AuditRequest) -> DataFrame:
    """
    Return `brokerName`, `queueId` and `queueOffset` of half messages whose end was noted, and when
    (`endedMs`).

    Spec: store.md, section 11.2.
    """
    names = ["brokerName", "queueId", "storeTimestamp", "body"]
    given = options_of_topics(asked, [OP_HALF_TOPIC])
    frames = [engine.messages(options, names) for options in given]
    return (
        reduce(DataFrame.unionByName, frames)
        .select(
            F.coalesce("brokerName", F.lit("")).alias("brokerName"),
            "queueId",
            F.unix_millis("storeTimestamp").alias("endedMs"),
            F.col("body").cast("string").try_cast("bigint").alias("queueOffset"),
        )
        .where("queueOffset is not null")
    )


def options_of_topics(asked: AuditRequest, topics: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield options for topics (none: all) of each place, as a pattern, which may match none."""
    for place in asked.places:
        given = source_options(place, ()) | dict(asked.options)
        given["subscribePattern"] = _pattern(topics) or ".*"
        label = label_of(place, asked.places)
        yield given | {"brokerName": label} if label else given


def delayed_rows(engine: Engine, asked: AuditRequest) -> DataFrame:
    """
    Return the messages of the schedule topic: the record's place, `id`, `storedMs`, and its target,
    `realTopic` and `realQueueId`. A message without an id is left out, because its copy cannot be
    recognised.
    """
    id_column = "keys" if asked.key == "keys" else "uniqKey"
    names = ["brokerName", "queueId", "queueOffset", "commitLogOffset", "storeTimestamp"]
    columns = [*names, id_column, "properties"]
    frames = [
        inside_time(engine.messages(given, columns), asked)
        for given in options_of_topics(asked, [SCHEDULE_TOPIC])
    ]
    rows = (
        reduce(DataFrame.unionByName, frames)
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
    return rows.where(F.col("realTopic").isin(*asked.topics)) if asked.topics else rows


def _pattern(topics: Sequence[str]) -> str:
    """Return a regular expression that matches these names; empty for no names."""
    return "|".join(map(re.escape, topics))


def client_options(places: Sequence[Place], client: ClientConfig) -> dict[str, str]:
    """Return account and TLS as options of the data source; none if only stores are read."""
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
