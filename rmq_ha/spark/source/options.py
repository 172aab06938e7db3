"""The options of a read; names, defaults and meaning are those of Spark's Kafka source."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.client.rules.signing import Credentials
from rmq_ha.errors import WrongUsage
from rmq_ha.model.subscription import SubscriptionData
from rmq_ha.offsets.places import addresses_of
from rmq_ha.spark.source.boundaries import (
    EARLIEST,
    LATEST,
    Boundary,
    Kind,
    assigned_queues,
    parse_offsets,
    parse_timestamps,
)
from rmq_ha.spark.source.columns import FORMS, ROCKETMQ
from rmq_ha.spark.source.option_names import OF_CLUSTERS, OF_STREAMS, by_name
from rmq_ha.spark.source.option_values import (
    byte_size,
    flag,
    natural,
    numbers,
    one_of,
    positive,
    small,
    small_positive,
    time_span,
)
from rmq_ha.spark.source.reading import Subscription

T = TypeVar("T")
MESSAGES = "messages"
TABLES = (
    MESSAGES,
    "consumerOffsets",
    "topics",
    "groups",
    "delayOffsets",
    "queues",
    "consumeQueue",
    "index",
)
SCANS = ("auto", "files", "queues")
STRATEGIES = ("error", "latest")
_OF_MESSAGES = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "columns",
    "includeProperties",
    "minPartitions",
    "maxRecordsPerPartition",
    "splitSize",
    "batchRows",
    "tags",
    "scan",
)
_OF_STORES = ("scan", "splitSize", "storePathCommitLog", "maxHashSlotNum", "maxIndexNum")
_ENDS = ("endingOffsets", "endingOffsetsByTimestamp")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """
    What is to be read, and how.

    :ivar path: of a store; None when brokers are asked.
    :ivar namesrv: `host:port` of name servers, `;` between them; empty for a store.
    :ivar broker_addr: of the one broker that is asked; empty: those that the name servers know.
    :ivar broker_name: for a store: what the column `brokerName` says; for brokers: only this one.
    :ivar table: one of `TABLES`.
    :ivar columns: one of `FORMS`.
    :ivar strategy: what a queue without a message at or behind the starting time means.
    :ivar max_offsets: of one batch of a stream; so are `min_offsets`, `max_bytes`.
    :ivar max_trigger_delay_ms: a batch below `min_offsets` starts after so long all the same.
    :ivar max_records: of one partition.
    :ivar split_size: bytes of a file that one partition reads.
    :ivar tags: only messages with one of these; None: all.
    :ivar tag_expression: the same, as brokers want it.
    :ivar index_sizes: slots and entries of an index file, where they are not RocketMQ's.
    :ivar group: in whose name brokers are asked; empty: in nobody's.
    :ivar commit_offsets: the group that brokers keep a stream's progress for; empty: none.
    :ivar num_retries: of a call that fails.
    """

    path: str | None = None
    namesrv: str = ""
    broker_addr: str = ""
    broker_name: str | None = None
    table: str = MESSAGES
    columns: str = ROCKETMQ
    subscription: Subscription = Subscription()
    start: Boundary = EARLIEST
    end: Boundary = LATEST
    strategy: str = "error"
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = 900_000
    max_bytes: int | None = None
    min_partitions: int | None = None
    max_records: int | None = None
    split_size: int = 64 << 20
    batch_rows: int = 8192
    include_properties: bool = False
    tags: frozenset[str] | None = None
    tag_expression: str = "*"
    scan: str = "auto"
    commit_log: str | None = None
    index_sizes: tuple[int, int] | None = None
    group: str = ""
    commit_offsets: str = ""
    pull_timeout_ms: int = 3_000
    pull_batch_size: int = 32
    num_retries: int = 3
    retry_interval_ms: int = 10
    client: ClientConfig = field(default_factory=ClientConfig)

    @property
    def is_offline(self) -> bool:
        """A store is read, no broker asked."""
        return self.path is not None


def parse_options(given: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """
    Read the options of `spark.read` or `spark.readStream`.

    :raises WrongUsage: an option is unknown, does not fit, or contradicts another one.
    """
    known = by_name(given)
    _check_place(known)
    _check_scan(known, streaming)
    if "commitOffsets" in known and not streaming:
        raise WrongUsage("commitOffsets is for streams (spark.readStream): a batch has no progress")
    table = one_of(known, "table", TABLES)
    if table != MESSAGES:
        _check_table(known, table, streaming)
    offline = "path" in known
    start, end = _boundaries(known, streaming)
    subscription = _subscription(known, required=not offline and table == MESSAGES)
    if offline and not known.get("brokerName"):
        _check_no_brokers(start, end, subscription)
    tags = SubscriptionData.for_tags("", known.get("tags"))
    number = numbers(known)
    return SourceOptions(
        path=_path(known.get("path")),
        namesrv=known.get("namesrv", ""),
        broker_addr=known.get("brokerAddr", ""),
        broker_name=known.get("brokerName") or None,
        table=table,
        columns=one_of(known, "columns", FORMS),
        subscription=subscription,
        start=start,
        end=end,
        strategy=one_of(known, "startingOffsetsByTimestampStrategy", STRATEGIES),
        fail_on_data_loss=flag(known, "failOnDataLoss", True),
        max_offsets=number("maxOffsetsPerTrigger", positive, None),
        min_offsets=number("minOffsetsPerTrigger", positive, None),
        max_trigger_delay_ms=number("maxTriggerDelay", time_span, 900_000),
        max_bytes=number("maxBytesPerTrigger", byte_size, None),
        min_partitions=number("minPartitions", small_positive, None),
        max_records=number("maxRecordsPerPartition", positive, None),
        split_size=number("splitSize", byte_size, 64 << 20),
        batch_rows=number("batchRows", small_positive, 8192),
        include_properties=flag(known, "includeProperties", False),
        tags=frozenset(tags.tags_set) if tags.tags_set else None,
        tag_expression=tags.sub_string,
        scan=one_of(known, "scan", SCANS),
        commit_log=known.get("storePathCommitLog"),
        index_sizes=_index_sizes(known, number),
        group=known.get("group", ""),
        commit_offsets=known.get("commitOffsets", ""),
        pull_timeout_ms=number("pullTimeoutMs", small_positive, 3_000),
        pull_batch_size=number("pullBatchSize", small_positive, 32),
        num_retries=number("fetchOffset.numRetries", small, 3),
        retry_interval_ms=number("fetchOffset.retryIntervalMs", small, 10),
        client=client_config(known),
    )


def columns_asked(given: Mapping[str, str]) -> tuple[str, str, bool]:
    """
    The table, the form of its columns, and whether `properties` is one: of a batch or of a stream.

    :raises WrongUsage: an option is unknown, or no such table.
    """
    known = by_name(given)
    form = one_of(known, "columns", FORMS)
    return one_of(known, "table", TABLES), form, flag(known, "includeProperties", False)


def without_effect(given: Mapping[str, str]) -> list[str]:
    """Options that a batch passes over, as the Kafka source does, with a warning."""
    return [name for name in by_name(given) if name in OF_STREAMS]


def client_config(known: Mapping[str, str]) -> ClientConfig:
    """
    How brokers are asked.

    :param known: options by their own names (`option_names.by_name`).
    :raises WrongUsage: half of an account is given.
    """
    access, secret = known.get("accessKey", ""), known.get("secretKey", "")
    if bool(access) != bool(secret):
        raise WrongUsage("accessKey and secretKey are given together or not at all")
    if known.get("securityToken") and not access:
        raise WrongUsage("securityToken is of an account: give accessKey and secretKey, too")
    tls = {key: value for key, value in known.items() if key.startswith("tls.")}
    enabled = flag(known, "tls.enable", bool(tls))
    use_tls = flag(known, "useTLS", enabled)
    if "tls.enable" in known and use_tls != enabled:
        raise WrongUsage("useTLS and tls.enable say the same, and contradict each other here")
    timeout = small_positive(known.get("pullTimeoutMs", "3000"), "pullTimeoutMs")
    return ClientConfig(
        namesrv_addr=known.get("namesrv", ""),
        credentials=Credentials(access, secret, known.get("securityToken") or None)
        if access
        else None,
        use_tls=use_tls,
        tls=tls,
        mq_client_api_timeout=timeout,
    )


def _check_place(known: dict[str, str]) -> None:
    places = [name for name in ("path", "namesrv", "brokerAddr") if known.get(name)]
    if not places:
        raise WrongUsage(
            "nothing to read from: give `path` (the directory of a store) or `namesrv` (host:port)"
        )
    if "path" in places and len(places) > 1:
        raise WrongUsage(
            f"path={known['path']!r} is a store, {places[1]}={known[places[1]]!r} a running"
            " broker: give one of them"
        )
    if len(places) > 1:
        raise WrongUsage("namesrv and brokerAddr both say whom to ask: give one of them")
    for name in places[0:1] if places[0] != "path" else ():
        addresses_of(known[name], f"{name}={known[name]}", one=name == "brokerAddr")
    useless = OF_CLUSTERS if "path" in places else _OF_STORES
    where = "running brokers" if "path" in places else "stores (path)"
    for name in useless:
        if name in known:
            raise WrongUsage(f"{name} is an option for {where}, not with {places[0]}")


def _check_scan(known: dict[str, str], streaming: bool) -> None:
    if known.get("scan", "").lower() != "files":
        return
    if streaming:
        raise WrongUsage("scan=files reads a store as it is; a stream follows queues: leave it out")
    if "maxRecordsPerPartition" in known:
        raise WrongUsage(
            "maxRecordsPerPartition cuts queues, scan=files reads files: give splitSize, or"
            " scan=queues"
        )


def _check_table(known: dict[str, str], table: str, streaming: bool) -> None:
    if streaming:
        raise WrongUsage(f"table={table} is read as a batch (spark.read); streams read messages")
    for name in (*_OF_MESSAGES, *OF_STREAMS):
        if name in known:
            raise WrongUsage(f"{name} is an option for messages, not with table={table}")


def _boundaries(known: dict[str, str], streaming: bool) -> tuple[Boundary, Boundary]:
    if streaming:
        for name in _ENDS:
            if name in known:
                raise WrongUsage(
                    f"{name}: a stream does not end; leave it out, use spark.read, or say with"
                    " endingTimestamp that it reads only what was stored before"
                )
    default = LATEST if streaming else EARLIEST
    return (
        _boundary(known, "starting", default, batch=not streaming),
        _boundary(known, "ending", LATEST, batch=not streaming),
    )


def _boundary(known: dict[str, str], which: str, default: Boundary, *, batch: bool) -> Boundary:
    """The Kafka source's precedence: one time, times by queue, offsets."""
    name = f"{which}Timestamp"
    if name in known:
        return Boundary(Kind.TIME, ms=natural(known[name], name), option=name)
    name = f"{which}OffsetsByTimestamp"
    if name in known:
        return parse_timestamps(known[name], name)
    name = f"{which}Offsets"
    if name in known:
        return parse_offsets(known[name], name, batch=batch, is_start=which == "starting")
    return default


def _path(text: str | None) -> str | None:
    """Hadoop, and so a table of Spark's catalog, writes `file:/store`, which nobody else does."""
    is_hadoops = text is not None and re.match("file:/[^/]", text)
    return text.removeprefix("file:") if text is not None and is_hadoops else text


def _subscription(known: dict[str, str], *, required: bool) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in known]
    if len(given) > 1:
        raise WrongUsage(f"{' and '.join(given)} both choose topics: give one of them")
    if not given:
        if required:
            raise WrongUsage("which topics? Give subscribe, subscribePattern or assign")
        return Subscription()
    text = known[given[0]]
    if given[0] == "assign":
        return Subscription(assigned=assigned_queues(text, "assign"))
    if given[0] == "subscribe":
        topics = tuple(part.strip() for part in text.split(",") if part.strip())
        if not topics:
            raise WrongUsage(f"subscribe={text!r}: write topics, `,` between them")
        return Subscription(topics=tuple(dict.fromkeys(topics)))
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongUsage(f"subscribePattern={text!r} is no regular expression: {error}") from None
    if not text.strip():
        raise WrongUsage("subscribePattern is empty: write .* for all topics")
    return Subscription(pattern=text)


def _check_no_brokers(start: Boundary, end: Boundary, subscription: Subscription) -> None:
    named = {queue.broker for queue in (*start.by_queue, *end.by_queue)}
    named |= {queue.broker for queue in subscription.assigned or ()}
    if named - {""}:
        raise WrongUsage(
            f"the broker {max(named)} is named, but nobody said which one this store is of: give"
            " brokerName, or leave brokers out of the JSON"
        )


def _index_sizes(
    known: dict[str, str], number: Callable[..., int | None]
) -> tuple[int, int] | None:
    given = [name for name in ("maxHashSlotNum", "maxIndexNum") if name in known]
    if len(given) == 1:
        raise WrongUsage("maxHashSlotNum and maxIndexNum are given together or not at all")
    slots, entries = number("maxHashSlotNum", positive, 0), number("maxIndexNum", positive, 0)
    return (slots, entries) if slots and entries else None
