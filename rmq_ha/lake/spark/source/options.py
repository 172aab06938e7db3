"""The options of a read; names, defaults and meaning are those of Spark's Kafka source."""

import re
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import asdict

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.host.files import absolute
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.spark.source.boundaries import (
    EARLIEST,
    LATEST,
    Boundary,
    BoundaryKind,
    assigned_queues,
    parse_offsets,
    parse_timestamps,
)
from rmq_ha.lake.spark.source.forms import FORMS, ROCKETMQ
from rmq_ha.lake.spark.source.forms import TABLES as COLUMNS_OF_TABLES
from rmq_ha.lake.spark.source.option_names import by_name
from rmq_ha.lake.spark.source.option_values import (
    Bytes,
    Count,
    DurationMs,
    Moment,
    Small,
    SmallCount,
    names_of,
    one_of,
    own_names,
    read,
)
from rmq_ha.lake.spark.source.reading import Subscription
from rmq_ha.ops.offsets.places import addresses_of

MESSAGES = "messages"
TABLES = (MESSAGES, *COLUMNS_OF_TABLES)
SCANS = ("auto", "files", "queues")
STRATEGIES = ("error", "latest")
_CHOOSING = ("subscribe", "subscribePattern", "assign")
_ENDS = ("endingOffsets", "endingOffsetsByTimestamp")
_BOUNDARIES = (
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "endingTimestamp", *_ENDS,
)  # fmt: skip
_STRATEGY = "startingOffsetsByTimestampStrategy"
_WORDS = {"table": TABLES, "columns": FORMS, "scan": SCANS, _STRATEGY: STRATEGIES}
ACCOUNT = ("accessKey", "secretKey", "securityToken", "useTLS")
"""Options of the account, for reads and writes."""


class OfStores(Struct, frozen=True, kw_only=True, rename="camel"):
    """
    The options for reading the files of a store.

    :ivar split_size: bytes of a file that one partition reads.
    :ivar slots: slots of an index file, if not RocketMQ's default; `entries` likewise.
    """

    scan: str = SCANS[0]
    split_size: Bytes = Bytes(64 << 20)
    commit_log: str | None = field(name="storePathCommitLog", default=None)
    slots: Count | None = field(name="maxHashSlotNum", default=None)
    entries: Count | None = field(name="maxIndexNum", default=None)


class OfMessages(OfStores, frozen=True, kw_only=True, rename="camel"):
    """
    The options for reading messages.

    :ivar columns: one of `FORMS`.
    :ivar strategy: what a read does with a queue that has no message at or after the starting time.
    :ivar max_records: most messages of one partition.
    """

    columns: str = ROCKETMQ
    strategy: str = field(name=_STRATEGY, default=STRATEGIES[0])
    fail_on_data_loss: bool = True
    include_properties: bool = False
    min_partitions: SmallCount | None = None
    max_records: Count | None = field(name="maxRecordsPerPartition", default=None)
    batch_rows: SmallCount = 8192


class OfStreams(OfMessages, frozen=True, kw_only=True, rename="camel"):
    """
    The options of streams, which have no effect on a batch.

    :ivar max_offsets: most messages of one batch of a stream; see also `min_offsets` and
        `max_bytes`.
    :ivar max_trigger_delay_ms: after so many ms a batch below `min_offsets` starts all the same.
    """

    max_offsets: Count | None = field(name="maxOffsetsPerTrigger", default=None)
    min_offsets: Count | None = field(name="minOffsetsPerTrigger", default=None)
    max_bytes: Bytes | None = field(name="maxBytesPerTrigger", default=None)
    max_trigger_delay_ms: DurationMs = field(name="maxTriggerDelay", default=DurationMs(900_000))


class OfClusters(OfStreams, frozen=True, kw_only=True, rename="camel"):
    """
    The options for reading from running brokers.

    :ivar group: group in whose name messages are pulled; empty: none.
    :ivar commit_offsets: group for which brokers keep a stream's progress; empty: none.
    :ivar num_retries: how often a call that fails is repeated.
    """

    group: str = ""
    commit_offsets: str = ""
    pull_timeout_ms: SmallCount = 3_000
    pull_batch_size: SmallCount = 32
    num_retries: Small = field(name="fetchOffset.numRetries", default=3)
    retry_interval_ms: Small = field(name="fetchOffset.retryIntervalMs", default=10)


class SourceOptions(OfClusters, frozen=True, kw_only=True):
    """
    All options of a read.

    :ivar namesrv: `host:port` of name servers, separated by `;`; empty for a store.
    :ivar broker_addr: address of the one broker to ask; empty: the brokers that the name servers
        know.
    :ivar broker_name: for a store: value of the column `brokerName`; for brokers: only this one is
        read.
    :ivar tag_expression: the tags as brokers expect them.
    """

    path: str | None = None
    namesrv: str = ""
    broker_addr: str = ""
    broker_name: str | None = None
    table: str = MESSAGES
    subscription: Subscription = Subscription()
    start: Boundary = EARLIEST
    end: Boundary = LATEST
    tags: frozenset[str] | None = None
    tag_expression: str = "*"
    client: ClientConfig = field(default_factory=ClientConfig)

    @property
    def is_offline(self) -> bool:
        """Whether a store is read, and no broker is asked."""
        return self.path is not None

    @property
    def index_sizes(self) -> tuple[int, int] | None:
        """Slots and entries of index files; None: RocketMQ's default."""
        return (self.slots, self.entries) if self.slots and self.entries else None


_OF_STREAMS = own_names(OfStreams)
_OF_CLUSTERS = (*own_names(OfClusters), *ACCOUNT)
_OF_MESSAGES = (
    *_BOUNDARIES, "tags", "scan", "splitSize", *own_names(OfMessages), *_OF_STREAMS,
)  # fmt: skip
SOURCE_NAMES = (
    "path", "namesrv", "brokerAddr", "brokerName", "table", "tags", *_CHOOSING, *_BOUNDARIES,
    *names_of(OfClusters), *ACCOUNT,
)  # fmt: skip
"""The options of a read, besides `TLS_NAMES`."""


def parse_options(given: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """
    Read the options of `spark.read` or `spark.readStream`.

    :raises WrongUsage: an option is unknown, does not fit, or contradicts another one.
    """
    known = by_name(given, SOURCE_NAMES)
    _check_place(known)
    _check_scan(known, streaming)
    if "commitOffsets" in known and not streaming:
        raise WrongUsage("commitOffsets is for streams (spark.readStream): a batch has no progress")
    words = {name: one_of(known, name, choices) for name, choices in _WORDS.items()}
    table = words["table"]
    if table != MESSAGES:
        _check_table(known, table, streaming)
    offline = "path" in known
    start, end = _boundaries(known, streaming)
    subscription = _subscription(known, required=not offline and table == MESSAGES)
    if offline and not known.get("brokerName"):
        _check_no_brokers(start, end, subscription)
    plain = read(OfClusters, known | words)
    if (plain.slots is None) != (plain.entries is None):
        raise WrongUsage("maxHashSlotNum and maxIndexNum are given together or not at all")
    tags = SubscriptionData.for_tags("", known.get("tags"))
    return SourceOptions(
        **asdict(plain) | {"commit_log": _path(plain.commit_log)},
        path=_path(known.get("path")),
        namesrv=known.get("namesrv", ""),
        broker_addr=known.get("brokerAddr", ""),
        broker_name=known.get("brokerName") or None,
        table=table,
        subscription=subscription,
        start=start,
        end=end,
        tags=frozenset(tags.tags_set) if tags.tags_set else None,
        tag_expression=tags.sub_string,
        client=client_config(known, plain.pull_timeout_ms),
    )


def columns_asked(given: Mapping[str, str]) -> tuple[str, str, bool]:
    """
    Return the table, the form of its columns, and whether `properties` is one of them.

    :raises WrongUsage: an option is unknown, or there is no such table.
    """
    known = by_name(given, SOURCE_NAMES)
    form = one_of(known, "columns", FORMS)
    return one_of(known, "table", TABLES), form, read(OfMessages, known).include_properties


def without_effect(given: Mapping[str, str]) -> list[str]:
    """Return the options without effect on a batch; Spark's Kafka source ignores them, too."""
    return [name for name in by_name(given, SOURCE_NAMES) if name in _OF_STREAMS]


class _Switches(Struct):
    """The two options that switch TLS on."""

    use_tls: bool | None = field(name="useTLS", default=None)
    enabled: bool | None = field(name="tls.enable", default=None)


def client_config(known: Mapping[str, str], timeout_ms: int) -> ClientConfig:
    """
    Return the settings of the client for brokers.

    :raises WrongUsage: only half of an account is given.
    """
    access, secret = known.get("accessKey", ""), known.get("secretKey", "")
    if bool(access) != bool(secret):
        raise WrongUsage("accessKey and secretKey are given together or not at all")
    if known.get("securityToken") and not access:
        raise WrongUsage("securityToken is of an account: give accessKey and secretKey, too")
    tls = {key: value for key, value in known.items() if key.startswith("tls.")}
    said = read(_Switches, known)
    if None not in (said.use_tls, said.enabled) and said.use_tls != said.enabled:
        raise WrongUsage("useTLS and tls.enable say the same, and contradict each other here")
    switched = said.enabled if said.use_tls is None else said.use_tls
    return ClientConfig(
        namesrv_addr=known.get("namesrv", ""),
        credentials=Credentials(access, secret, known.get("securityToken") or None)
        if access
        else None,
        use_tls=bool(tls) if switched is None else switched,
        tls=tls,
        mq_client_api_timeout_ms=timeout_ms,
    )


def _check_place(known: dict[str, str]) -> None:
    """Check that one of `path`, `namesrv`, `brokerAddr` is given, and options that fit it."""
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
    (place,) = places
    if place != "path":
        addresses_of(known[place], f"{place}={known[place]}", single=place == "brokerAddr")
    useless = _OF_CLUSTERS if place == "path" else names_of(OfStores)
    where = "running brokers" if place == "path" else "stores (path)"
    for name in useless:
        if name in known:
            raise WrongUsage(f"{name} is an option for {where}, not with {place}")


def _check_scan(known: dict[str, str], streaming: bool) -> None:
    """Check that no option contradicts `scan=files`."""
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
    """Check that a read of a table is a batch, and has no options for messages."""
    if streaming:
        raise WrongUsage(f"table={table} is read as a batch (spark.read); streams read messages")
    for name in _OF_MESSAGES:
        if name in known:
            raise WrongUsage(f"{name} is an option for messages, not with table={table}")


def _boundaries(known: dict[str, str], streaming: bool) -> tuple[Boundary, Boundary]:
    """Return where the read begins and where it ends."""
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


class _TimeOptions(Struct):
    """The options that give one time for all queues."""

    starting: Moment = field(name="startingTimestamp", default=0)
    ending: Moment = field(name="endingTimestamp", default=0)


def _boundary(known: dict[str, str], which: str, default: Boundary, *, batch: bool) -> Boundary:
    """Return a boundary; as in the Kafka source one time wins over times, these over offsets."""
    name = f"{which}Timestamp"
    if name in known:
        return Boundary(
            BoundaryKind.TIME, ms=getattr(read(_TimeOptions, known), which), option=name
        )
    name = f"{which}OffsetsByTimestamp"
    if name in known:
        return parse_timestamps(known[name], name)
    name = f"{which}Offsets"
    if name in known:
        return parse_offsets(known[name], name, batch=batch, is_start=which == "starting")
    return default


def _path(text: str | None) -> str | None:
    """
    Return an absolute path, because executors work in other directories.

    Hadoop, and so a table of Spark's catalog, writes `file:/store` with a single slash.
    """
    if not text:
        return text
    return absolute(text.removeprefix("file:") if re.match("file:/[^/]", text) else text)


def _subscription(known: dict[str, str], *, required: bool) -> Subscription:
    """Return the wanted queues, by `subscribe`, `subscribePattern` or `assign`."""
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
    """Check that offsets and queues name no broker, for a store without `brokerName`."""
    named = {queue.broker for queue in (*start.by_queue, *end.by_queue)}
    named |= {queue.broker for queue in subscription.assigned or ()}
    if named - {""}:
        raise WrongUsage(
            f"the broker {max(named)} is named, but nobody said which one this store is of: give"
            " brokerName, or leave brokers out of the JSON"
        )
