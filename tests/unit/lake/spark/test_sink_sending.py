"""Rows as messages, and messages as requests: without a broker."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.errors import MQClientError, NoRoute, SendFailed
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus
from rmq_ha.lake.spark.source.sink import make_stream_writer, make_writer
from rmq_ha.lake.spark.source.sink_options import SinkOptions, check_columns, parse_sink_options
from rmq_ha.lake.spark.source.sink_rows import ROW_ID, BadRow, QueueTarget, SinkTask, messages_of
from rmq_ha.lake.spark.source.sink_sending import NotSent, Outbox

PLACE = SinkTask("query", "3", 1)


def rows(
    columns: dict[str, Any], place: SinkTask = PLACE, first: int = 0, topic: str = "t"
) -> list[Any]:
    return list(messages_of(pa.RecordBatch.from_pydict(columns), topic, place, first))


def test_columns_become_parts_of_a_message() -> None:
    columns = {
        "topic": ["own"],
        "value": ["text"],
        "key": ["k"],
        "tags": ["T"],
        "flag": [7],
        "delayLevel": [2],
        "queueId": [3],
        "brokerName": ["b"],
        "bodyCRC": [5],
    }
    ((message, target),) = rows(columns, topic="")
    assert (message.topic, message.body, message.keys, message.tags) == ("own", b"text", "k", "T")
    assert (message.flag, message.delay_time_level) == (7, 2)
    assert target == QueueTarget("b", 3)


def test_the_option_wins_over_the_column_topic() -> None:
    ((message, target),) = rows({"topic": ["column"], "body": [b"x"]}, topic="option")
    assert (message.topic, target) == ("option", None)


def test_properties_of_brokers_are_not_sent_on() -> None:
    """What a read gave can be written: it is not delayed or in a transaction again."""
    own = {"a": "b", "DELAY": "3", "TRAN_MSG": "true", "TAGS": "old", "UNIQ_KEY": "U", "gone": None}
    kinds = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"x"]), pa.array([list(own.items())], kinds)], ["body", "properties"]
    )
    ((message, _),) = messages_of(batch, "t", PLACE, 0)
    assert message.properties.pop(ROW_ID)
    assert message.properties == {"a": "b", "UNIQ_KEY": "U", "WAIT": "true"}


@pytest.mark.parametrize(
    "columns", [{"body": [None], "topic": ["t"]}, {"body": [b"x"], "topic": [None]}]
)
def test_a_row_without_body_or_topic_is_named(columns: dict[str, Any]) -> None:
    with pytest.raises(BadRow, match="row 41 of partition 1"):
        rows(columns, topic="", first=41)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"delayLevel": [19]}, "delayLevel 19: it goes from 1 to 18"),
        ({"delayLevel": [-1]}, "delayLevel -1"),
        ({"flag": [1 << 31]}, "flag 2147483648: it has 32 bits"),
        ({"flag": [-(1 << 31) - 1]}, "flag -2147483649: it has 32 bits"),
    ],
)
def test_a_number_that_brokers_do_not_know_is_named(columns: dict[str, Any], why: str) -> None:
    """Brokers would shorten the delay, or refuse a whole batch without saying for which row."""
    with pytest.raises(BadRow, match=f"row 41 of partition 1 has the {why}"):
        rows({"body": [b"x"], **columns}, first=41)


def ids(place: SinkTask = PLACE, first: int = 0, **columns: Any) -> list[str]:
    return [message.properties[ROW_ID] for message, _ in rows(columns, place, first)]


def test_the_id_of_a_row_is_the_same_when_it_is_sent_again() -> None:
    """And another one for other rows, batches, partitions and queries, or other content there."""
    same = ids(body=[b"x", b"x", b"y"])
    assert same == ids(body=[b"x", b"x", b"y"])
    assert len(set(same)) == 3
    assert same[1:] == ids(body=[b"x", b"y"], first=1)
    others = [SinkTask("other", "3", 1), SinkTask("query", "4", 1), SinkTask("query", "3", 2)]
    all_ids = [ids(body=[b"x"], place=place)[0] for place in (PLACE, *others)]
    all_ids += ids(body=[b"z"]) + ids(body=[b"x"], tags=["T"]) + ids(body=[b"x"], keys=["T"])
    assert len(set(all_ids)) == 7


class FakeClient:
    """Remembers requests; fails from the one on that it is told."""

    def __init__(self, fail_at: int = 1 << 30) -> None:
        self.requests: list[tuple[list[bytes], MessageQueue | None]] = []
        self.fail_at = fail_at
        self.status = SendStatus.SEND_OK

    def send(self, message: Message, *, queue: MessageQueue | None = None) -> Any:
        return self.send_batch([message], queue=queue)[0]

    def send_batch(self, messages: list[Message], *, queue: MessageQueue | None = None) -> Any:
        if len(self.requests) >= self.fail_at:
            raise SendFailed("the disk is full")
        self.requests.append(([message.body for message in messages], queue))
        return [SendResult(self.status, "id", MessageQueue("t", "b", 0), 0, "")]

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, broker, number) for broker in "ba" for number in range(2)]


def outbox(client: Any, **more: Any) -> Outbox:
    return Outbox(client, SinkOptions(**more), PLACE)


def test_messages_leave_together_in_their_order() -> None:
    client = FakeClient()
    box = outbox(client, batch_rows=3)
    for number in range(7):
        box.put(Message("t", b"%d" % number), None)
    box.flush()
    assert [bodies for bodies, _ in client.requests] == [
        [b"0", b"1", b"2"],
        [b"3", b"4", b"5"],
        [b"6"],
    ]


def test_a_request_is_bounded_in_bytes_and_so_is_what_waits() -> None:
    client = FakeClient()
    box = outbox(client, batch_bytes=100)
    box.put(Message("t", b"x" * 99), None)
    assert not client.requests
    box.put(Message("t", b"x"), None)
    assert len(client.requests) == 1
    for number in range(20):
        box.put(Message(f"t{number}", b"x" * 60), None)
    assert len(client.requests) > 10


def test_rows_with_the_same_keys_go_to_the_queue_that_javas_hash_chooses() -> None:
    """In their order; without keys, or with spread=turns, wherever there is room."""
    client = FakeClient()
    box = outbox(client)
    for number, key in enumerate(["k1", "k2", "k1", "", "k3", "k1"]):
        box.put(Message("t", b"%d" % number, keys=key), None)
    box.flush()
    queues = client.publish_queues("t")  # b/0, b/1, a/0, a/1
    # "k1".hashCode() is 3366, "k2" 3367, "k3" 3368: Java's remainders by 4 are 2, 3, 0.
    assert client.requests == [
        ([b"0", b"2", b"5"], queues[2]),
        ([b"1"], queues[3]),
        ([b"3"], None),
        ([b"4"], queues[0]),
    ]
    client = FakeClient()
    box = outbox(client, spread="turns")
    box.put(Message("t", b"x", keys="k1"), None)
    box.flush()
    assert client.requests == [([b"x"], None)]


def test_a_view_that_is_written_to_brings_the_options_of_its_reads() -> None:
    given = {"namesrv": "ns:1", "subscribe": "orders", "startingOffsets": "earliest"}
    options = parse_sink_options(given)
    assert (options.topic, options.subscribed) == ("", "orders")
    batch = pa.RecordBatch.from_pydict({"topic": [None, "own"], "body": [b"1", b"2"]})
    found = messages_of(batch, options.topic, PLACE, 0, options.subscribed)
    assert [message.topic for message, _ in found] == ["orders", "own"]
    assert parse_sink_options({**given, "subscribe": "a,b"}).subscribed == ""


def test_a_key_that_is_no_text_is_named() -> None:
    with pytest.raises(BadRow, match=r"row 0 of partition 1 has a key that is no text"):
        rows({"value": [b"x"], "key": [b"\xff\xfe"]})


def test_topics_and_queues_do_not_mix() -> None:
    client = FakeClient()
    box = outbox(client)
    for topic, target in (
        ("t", None),
        ("u", None),
        ("t", QueueTarget("", 1)),
        ("t", QueueTarget("b", 1)),
    ):
        box.put(Message(topic, b"x"), target)
    box.flush()
    assert [queue for _, queue in client.requests] == [
        None,
        None,
        MessageQueue("t", "a", 1),
        MessageQueue("t", "b", 1),
    ]


@pytest.mark.parametrize(
    "message", [Message("t", b"x", delay_time_level=1), Message("%RETRY%g", b"x")]
)
def test_what_brokers_refuse_in_a_batch_goes_alone(message: Message) -> None:
    client = FakeClient()
    outbox(client).put(message, None)
    assert client.requests == [([b"x"], None)]


def test_a_failed_send_says_how_many_where_and_why() -> None:
    box = outbox(FakeClient(fail_at=0))
    box.put(Message("t", b"1"), None)
    box.put(Message("t", b"2"), None)
    with pytest.raises(NotSent, match="2 messages of partition 1 could not be sent to t: the disk"):
        box.flush()


def test_stored_less_safely_is_enough_unless_more_is_asked_for() -> None:
    client = FakeClient()
    client.status = SendStatus.FLUSH_SLAVE_TIMEOUT
    box = outbox(client)
    box.put(Message("t", b"1"), None)
    box.flush()
    box = outbox(client, require_send_ok=True)
    box.put(Message("t", b"1"), None)
    with pytest.raises(NotSent, match="b stored them, but answered FLUSH_SLAVE_TIMEOUT"):
        box.flush()


def test_a_queue_that_is_not_there_is_named_with_those_that_are() -> None:
    box = outbox(FakeClient())
    box.put(Message("t", b"1"), QueueTarget("c", 1))
    with pytest.raises(NotSent, match=r"no queue 1 on c; there are b/0, b/1, a/0, a/1"):
        box.flush()
    assert issubclass(SendFailed, MQClientError)


def columns(text: str) -> StructType:
    """A schema from DDL, without a JVM."""
    kinds: dict[str, DataType] = {
        "string": StringType(),
        "binary": BinaryType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "map<string,string>": MapType(StringType(), StringType()),
        "map<string,int>": MapType(StringType(), IntegerType()),
    }
    pairs = [piece.split(" ") for piece in text.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


GOOD = {"namesrv": "localhost:9876", "topic": "t"}


def test_options_and_columns_that_fit() -> None:
    writer = make_writer(GOOD, columns("value string, key string, storeSize int"), False)
    other = make_writer(GOOD, columns("value string"), False)
    assert writer._job != other._job
    make_stream_writer(
        {"nameServer": "h:1", "checkpointLocation": "/x"},
        columns("topic string, body binary, queueId bigint, properties map<string,string>"),
        False,
    )
    parsed = parse_sink_options(
        {**GOOD, "batchRows": "5", "sendRetries": "0", "accessKey": "a", "secretKey": "s"}
    )
    assert parsed.batch_rows == 5
    assert parsed.producer.retry_times_when_send_failed == 0
    assert parsed.client.credentials is not None


@pytest.mark.parametrize(
    ("options", "fields", "reason"),
    [
        ({}, "body binary", "namesrv"),
        ({"namesrv": "h:1"}, "body binary", "topic"),
        (GOOD, "key string", "no column body"),
        (GOOD, "body int", "body is int: it should be binary or string"),
        (GOOD, "body binary, value string", "mean the same"),
        (GOOD, "body binary, properties map<string,int>", "map<string,string>"),
        (GOOD, "body binary, tag string", "did you mean 'tags'"),
        ({**GOOD, "topc": "t"}, "body binary", "did you mean 'topic'"),
        ({**GOOD, "topic": "a b"}, "body binary", "characters"),
        ({**GOOD, "batchRows": "0"}, "body binary", "batchRows"),
        ({**GOOD, "path": "/x"}, "body binary", "path"),
        ({**GOOD, "requireSendOk": "yes"}, "body binary", "requireSendOk"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_hint(
    options: dict[str, str], fields: str, reason: str
) -> None:
    with pytest.raises(WrongUsage, match=reason):
        make_writer(options, columns(fields), False)


def test_messages_cannot_be_overwritten() -> None:
    with pytest.raises(WrongUsage, match="append"):
        make_writer(GOOD, columns("body binary"), True)
    check_columns(columns("body binary"), SinkOptions(topic="t"))


def test_what_has_left_does_not_count_as_waiting() -> None:
    """Else a long task would send each message by itself from some place on."""
    client = FakeClient()
    box = outbox(client, batch_bytes=100)
    for number in range(20):
        box.put(Message("t", b"x" * 100), None)
        assert len(client.requests) == number + 1
    box.put(Message("u", b"x"), None)
    box.put(Message("v", b"x"), None)
    assert len(client.requests) == 20


class Knows(FakeClient):
    """Of a topic the queues that it is told; None: it has no route."""

    def __init__(self, queues: list[MessageQueue] | None) -> None:
        super().__init__()
        self.queues = queues
        self.looked: list[str] = []

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        self.looked.append(topic)
        if self.queues is None:
            raise NoRoute(topic, "unknown")
        return self.queues


def test_where_nobody_knows_the_topic_yet_its_broker_chooses() -> None:
    """Brokers make it then, so that it is looked up again; what is known is looked up once."""
    client = Knows(None)
    box = outbox(client)
    for _ in range(2):
        box.put(Message("t", b"x", keys="k1"), None)
    assert client.looked == ["t", "t"]
    client.queues = [MessageQueue("t", "b", 4), MessageQueue("t", "b", 7)]
    for key in ("k1", "k2", "k1"):
        box.put(Message("t", b"y", keys=key), None)
    box.flush()
    # One look for the keys, and one for each queue that something is sent to.
    assert client.looked == ["t"] * 5
    assert client.requests == [
        ([b"x", b"x"], None),
        ([b"y", b"y"], client.queues[0]),
        ([b"y"], client.queues[1]),
    ]
    client.queues = []
    box.put(Message("u", b"z", keys="k1"), None)
    box.flush()
    assert client.requests[-1] == ([b"z"], None)


def test_many_topics_wait_only_for_so_long() -> None:
    client = FakeClient()
    box = outbox(client)
    for number in range(1000):
        box.put(Message(f"t{number}", b""), None)
    assert not client.requests
    box.put(Message("more", b""), None)
    assert len(client.requests) == 1001


def test_what_waits_in_all_is_bounded_by_eight_requests() -> None:
    client = FakeClient()
    box = outbox(client, batch_bytes=100)
    for number in range(8):
        box.put(Message(f"t{number}", b"x" * 99), None)
    box.put(Message("u", b"x" * 7), None)
    assert not client.requests
    box.put(Message("v", b"x"), None)
    assert len(client.requests) == 10


def test_what_a_write_is_told_is_what_producers_do() -> None:
    told = {
        **GOOD, "producerGroup": "g", "batchRows": "7", "batchBytes": "8", "rowsPerSecond": "9",
        "sendTimeoutMs": "10", "sendRetries": "11", "maxMessageSize": "12", "spread": "turns",
        "requireSendOk": "true", "pullTimeoutMs": "13", "subscribe": " orders ",
    }  # fmt: skip
    options = parse_sink_options(told)
    assert options == SinkOptions(
        topic="t", subscribed="orders", producer_group="g", batch_rows=7, batch_bytes=8,
        rows_per_second=9, send_timeout_ms=10, send_retries=11, max_message_size=12,
        spread="turns", require_send_ok=True, pull_timeout_ms=13,
        client=options.client, producer=options.producer,
    )  # fmt: skip
    producer = options.producer
    assert (producer.producer_group, producer.send_msg_timeout_ms) == ("g", 10)
    assert (producer.retry_times_when_send_failed, producer.max_message_size) == (11, 12)
    assert producer.max_batch_size == 12
    assert options.client.namesrv_addr == "localhost:9876"
    assert options.client.mq_client_api_timeout_ms == 13
    usual = parse_sink_options({"namesrv": "a:1"})
    assert (usual.topic, usual.subscribed, usual.spread) == ("", "", "key")
    assert usual.producer.producer_group == "SPARK_PRODUCER"
    small = parse_sink_options({**GOOD, "maxMessageSize": "100", "batchBytes": "1000"})
    assert (small.batch_bytes, small.max_message_size) == (100, 100), "no batch is larger"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"topic": "t"}, "where to"),
        ({"namesrv": "h:1", "path": "", "topic": "t"}, "a store"),
        ({"namesrv": "host", "topic": "t"}, "not host:port"),
        ({**GOOD, "topic": ""}, "topic=''"),
        ({**GOOD, "spread": "random"}, "one of key, turns"),
    ],
)
def test_a_write_that_has_no_place_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        parse_sink_options(given)


HEADERS_OF_KAFKA = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("headers", HEADERS_OF_KAFKA, ""),
        ("headers", MapType(StringType(), StringType()), ""),
        ("properties", MapType(IntegerType(), StringType()), "should be map<string,string>, or"),
        ("properties", ArrayType(StringType()), "should be map<string,string>, or as Kafka's"),
        ("properties", StringType(), "is string: it should be map<string,string>, or as Kafka's"),
        ("keys", IntegerType(), "is int: it should be string or binary"),
        ("flag", StringType(), "is string: it should be tinyint or smallint or int or bigint"),
        ("bornTimestamp", StringType(), ""),  # a read has it, and a write has no use for it
        ("timestampType", StringType(), ""),  # as Kafka's
        ("xyzzy", StringType(), "no 'xyzzy'; there are topic, body"),
        ("BDOY", StringType(), "did you mean 'body'"),
        ("partitio", IntegerType(), "did you mean 'partition'"),
    ],
)
def test_each_column_says_what_it_should_be(name: str, kind: DataType, why: str) -> None:
    schema = columns("body binary").add(name, kind)
    if not why:
        check_columns(schema, SinkOptions(topic="t"))
        return
    with pytest.raises(WrongUsage, match=why):
        check_columns(schema, SinkOptions(topic="t"))


@pytest.mark.parametrize(
    ("fields", "given", "fits"),
    [
        ("body binary", {"topic": "t"}, True),
        ("body binary", {"subscribed": "t"}, True),
        ("body binary, topic string", {}, True),
        ("body binary", {}, False),
    ],
)
def test_each_row_needs_a_topic_from_somewhere(
    fields: str, given: dict[str, str], fits: bool
) -> None:
    if fits:
        check_columns(columns(fields), SinkOptions(**given))  # type: ignore[arg-type]
        return
    with pytest.raises(WrongUsage, match="or a column topic"):
        check_columns(columns(fields), SinkOptions(**given))  # type: ignore[arg-type]


def test_each_part_of_a_batch_has_to_be_stored_safely() -> None:
    """A client may send it in several requests, and each has an answer of its own."""

    class Parts(FakeClient):
        def send_batch(self, messages: list[Message], *, queue: MessageQueue | None = None) -> Any:
            good = super().send_batch(messages, queue=queue)
            self.status = SendStatus.FLUSH_DISK_TIMEOUT
            return [*good, *super().send_batch(messages, queue=queue)]

    box = outbox(Parts(), require_send_ok=True)
    for body in (b"1", b"2"):
        box.put(Message("t", body), None)
    with pytest.raises(NotSent, match="answered FLUSH_DISK_TIMEOUT"):
        box.flush()
