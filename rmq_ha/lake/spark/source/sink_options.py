"""The options of a write, and the columns that it accepts."""

from collections.abc import Mapping
from difflib import get_close_matches

from msgspec import Struct, field
from msgspec.structs import asdict
from pyspark.sql import types as T

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.model.topics import topic_fault
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.lake.spark.source.columns import HEADERS, KAFKA_COLUMNS, columns_of
from rmq_ha.lake.spark.source.forms import KAFKA
from rmq_ha.lake.spark.source.option_names import by_name
from rmq_ha.lake.spark.source.option_values import Small, SmallCount, names_of, one_of, read
from rmq_ha.lake.spark.source.options import ACCOUNT, SOURCE_NAMES, client_config
from rmq_ha.ops.offsets.places import addresses_of

SINK_ALIASES = {
    "rocketmq.namesrv.addr": "namesrv",
    "nameServer": "namesrv",
    "namesrvAddr": "namesrv",
    "group": "producerGroup",
}
BY_KEY, TURNS = "key", "turns"
_TEXT = (T.StringType,)
_PAIRS = (T.MapType, T.ArrayType)
_PAIRS_SHOWN = "map<string,string>, or as Kafka's headers array<struct<key:string,value:binary>>"
_NUMBER = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
SINK_COLUMNS: dict[str, tuple[type[T.DataType], ...]] = {
    "topic": _TEXT,
    "body": (T.BinaryType, T.StringType),
    "keys": (T.StringType, T.BinaryType),
    "tags": _TEXT,
    "properties": _PAIRS,
    "flag": _NUMBER,
    "queueId": _NUMBER,
    "brokerName": _TEXT,
    "delayLevel": _NUMBER,
}
"""The columns that a row may have, with their types."""
OTHER_NAMES = {"value": "body", "key": "keys", "partition": "queueId", "headers": "properties"}
"""Names of columns in Spark's Kafka sink."""


class Plain(Struct, frozen=True, kw_only=True, rename="camel"):
    """
    The options of a write, without topic and servers.

    :ivar batch_rows: most messages of one request.
    :ivar batch_bytes: about the most bytes of their bodies.
    :ivar spread: `key`: rows with the same keys go to the same queue; `turns`: rows go to the
        queues in turn, except to queues whose broker fails.
    :ivar rows_per_second: most rows a second of each task; None: no limit.
    :ivar require_send_ok: a message that is stored, but not flushed or replicated in time, counts
        as not sent.
    """

    producer_group: str = ""
    batch_rows: SmallCount = 256
    batch_bytes: SmallCount = 1 << 20
    spread: str = BY_KEY
    rows_per_second: SmallCount | None = None
    send_timeout_ms: SmallCount = 10_000
    send_retries: Small = 2
    max_message_size: SmallCount = 4 << 20
    require_send_ok: bool = False
    pull_timeout_ms: SmallCount = 3_000


class SinkOptions(Plain, frozen=True, kw_only=True):
    """
    All options of a write.

    :ivar topic: topic of all rows; empty: each row has its own.
    :ivar subscribed: topic of rows without one: the single topic of a view that is written to.
    """

    topic: str = ""
    subscribed: str = ""
    client: ClientConfig = field(default_factory=ClientConfig)
    producer: ProducerConfig = field(default_factory=ProducerConfig)


SINK_NAMES = ("namesrv", "topic", *names_of(Plain), *ACCOUNT)


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """
    Read the options of `df.write` or `df.writeStream`.

    Options of a read are ignored, because `INSERT INTO` a view passes the view's options.

    :raises WrongUsage: an option is unknown or does not fit.
    """
    known = by_name(given, (*SINK_NAMES, *SOURCE_NAMES), SINK_ALIASES)
    namesrv = known.get("namesrv", "")
    if not namesrv or "path" in known:
        raise WrongUsage(
            "where to? Give namesrv (host:port); a store (path) cannot be written to. Spark does"
            " not hand the options of a table to INSERT: write INSERT INTO t WITH"
            " ('namesrv' = 'host:port', 'topic' = 'orders') ..., or use a temporary view"
        )
    addresses_of(namesrv, f"namesrv={namesrv}")
    topic = known.get("topic", "").strip()
    fault = topic_fault(topic) if "topic" in known else None
    if fault:
        raise WrongUsage(f"topic={topic!r}: {fault}")
    plain = read(Plain, known | {"spread": one_of(known, "spread", (BY_KEY, TURNS))})
    producer = ProducerConfig(
        producer_group=plain.producer_group or "SPARK_PRODUCER",
        send_msg_timeout_ms=plain.send_timeout_ms,
        retry_times_when_send_failed=plain.send_retries,
        max_message_size=plain.max_message_size,
        max_batch_size=plain.max_message_size,
    )
    subscribed = known.get("subscribe", "").strip()
    return SinkOptions(
        **asdict(plain) | {"batch_bytes": min(plain.max_message_size, plain.batch_bytes)},
        topic=topic,
        subscribed="" if "," in subscribed else subscribed,
        client=client_config(known, plain.pull_timeout_ms),
        producer=producer,
    )


def check_columns(schema: T.StructType, options: SinkOptions) -> None:
    """
    Check that the columns make messages. Columns of a read that have no meaning in a write are
    ignored.

    :raises WrongUsage: a column is missing, of another type, or unknown; the text says what it
        should be.
    """
    columns: dict[str, str] = {}
    for column in schema.fields:
        name = OTHER_NAMES.get(column.name, column.name)
        kinds = SINK_COLUMNS.get(name)
        if kinds is None:
            if column.name not in columns_of(KAFKA):
                raise WrongUsage(_unknown(column.name))
            continue
        if name in columns:
            raise WrongUsage(f"columns {columns[name]} and {column.name} mean the same: drop one")
        columns[name] = column.name
        if not isinstance(column.dataType, kinds):
            types = " or ".join(kind().simpleString() for kind in kinds if kinds is not _PAIRS)
            raise WrongUsage(
                f"column {column.name} is {column.dataType.simpleString()}: it should be"
                f" {types or _PAIRS_SHOWN}"
            )
        if kinds is _PAIRS and not _are_pairs(column.dataType):
            raise WrongUsage(f"column {column.name} should be {_PAIRS_SHOWN}")
    if "body" not in columns:
        raise WrongUsage("what to send? There is no column body (or value)")
    if "topic" not in columns and not (options.topic or options.subscribed):
        raise WrongUsage("where to? Give the option topic, or a column topic")


def _are_pairs(kind: T.DataType) -> bool:
    """Return whether a type has one of the two forms of properties."""
    if isinstance(kind, T.MapType):
        return (kind.keyType, kind.valueType) == (T.StringType(), T.StringType())
    return kind.simpleString() == KAFKA_COLUMNS[HEADERS].simpleString()


def _unknown(name: str) -> str:
    known = {column.lower(): column for column in (*SINK_COLUMNS, *OTHER_NAMES)}
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean {known[near[0]]!r}?" if near else f"there are {', '.join(SINK_COLUMNS)}"
    return f"a message has no {name!r}; {hint}"
