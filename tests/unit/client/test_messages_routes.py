"""Messages as they are read, namespaces, and what a route means."""

import zlib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import ConfigurationError, CorruptRecord
from rmq_ha.base.model.flags import COMPRESSED
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.client.rules.compression import MAX_INFLATED, inflate
from rmq_ha.client.rules.errors import BrokerRefused, IllegalMessage, code_name
from rmq_ha.client.rules.messages import (
    Message,
    MessageQueue,
    UndecodableBody,
    decode_messages,
    decode_pulled,
    message_of,
)
from rmq_ha.client.rules.namespaces import unwrap, wrap
from rmq_ha.client.rules.routes import (
    borrowed_route,
    choose_address,
    is_changed,
    publish_info,
    subscribe_queues,
)
from rmq_ha.client.rules.send_frames import properties_text
from rmq_ha.client.rules.settings import name_servers

HOST = Address(bytes([10, 0, 0, 1]), 10911)
NAMES = st.text("abcXYZ019_-", min_size=1, max_size=20)


def record(body: bytes, sys_flag: int = 0, **properties: str) -> Record:
    text = encode_properties(properties)
    return Record(
        *(100 + len(body), 1, 2, 3, 4, 0x1234, sys_flag, 5, HOST, 6, HOST, 7, 8, body, "T", text)
    )


def test_a_record_as_a_message() -> None:
    """Ids, hosts, numbers; a half message has its unique id as transaction id."""
    found = message_of(record(b"x", UNIQ_KEY="ABC", TRAN_MSG="true", TAGS="t", KEYS="a b"), "b")
    assert (found.msg_id, found.transaction_id) == ("ABC", "ABC")
    assert found.offset_msg_id == "0A00000100002A9F0000000000001234"
    assert (found.tags, found.keys, found.queue) == ("t", "a b", MessageQueue("T", "b", 2))
    assert message_of(record(b"x")).msg_id == found.offset_msg_id
    assert message_of(record(b"x", UNIQ_KEY="ABC")).transaction_id is None


@settings(deadline=None)
@given(st.binary(max_size=2000), st.sampled_from([0x1, 0x301]))
def test_compressed_bodies(body: bytes, sys_flag: int) -> None:
    """Java's and Go's flags; the bit is gone with the compression."""
    found = message_of(record(zlib.compress(body, 5), sys_flag))
    assert (found.body, found.sys_flag & COMPRESSED) == (body, 0)


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 0x7FF))
def test_a_body_that_does_not_decompress(body: bytes, sys_flag: int) -> None:
    """It stays as it is, and says so; its queue goes on."""
    found = message_of(record(body, sys_flag | COMPRESSED))
    if found.sys_flag & COMPRESSED:
        assert found.body == body
        with pytest.raises(UndecodableBody):
            inflate(body, sys_flag)


def test_bombs_and_other_kinds() -> None:
    """No more than 64 MiB come out."""
    bomb = zlib.compress(bytes(MAX_INFLATED + 1), 9)
    with pytest.raises(UndecodableBody, match="64 MiB"):
        inflate(bomb, 1)
    with pytest.raises(UndecodableBody, match="the way 7"):
        inflate(b"x", 0x701)


def test_an_answer_of_bombs_is_taken_piece_by_piece() -> None:
    """32 messages in 2 MiB became 2,131 MiB; each is taken once, and nothing is left out."""
    body = zlib.compress(bytes(6 << 20), 9)
    records = [record(body, 1)._replace(queue_offset=3 + n) for n in range(8)]
    records.insert(1, record(b"plain")._replace(queue_offset=99))
    data = b"".join(map(encode_record, records))
    messages, left = decode_pulled(data)
    assert [one.queue_offset for one in messages] == [3, 99, 4, 5]
    assert left == 6
    messages, left = decode_pulled(b"".join(map(encode_record, records[4:])), most=1)
    assert ([one.queue_offset for one in messages], left) == ([6], 7)
    messages, left = decode_pulled(b"".join(map(encode_record, records[-3:])))
    assert ([one.queue_offset for one in messages], left) == ([8, 9, 10], None)
    found = decode_messages(data)
    assert len(found) == 9
    assert [len(one.body) for one in found if one.sys_flag & COMPRESSED] == [len(body)] * 5
    assert decode_pulled(b"") == ([], None)


def test_an_answer_is_taken_until_so_many_bytes_and_no_further() -> None:
    body = zlib.compress(bytes(100))
    records = [record(body, 1)._replace(queue_offset=n) for n in range(3)]
    data = b"".join(map(encode_record, records))
    for most, count in ((1, 1), (100, 1), (101, 2), (200, 2), (201, 3)):
        messages, left = decode_pulled(data, most=most)
        assert len(messages) == count
        assert left == (count if count < 3 else None)


def test_requests_say_what_java_s_do() -> None:
    """To the field: what a broker makes of a topic that is not there yet depends on them."""
    send = send_request("g", "T", 3, b"x", "k\x01v", 7)
    assert (send.code, send.body) == (RequestCode.SEND_MESSAGE_V2, b"x")
    assert send.ext == {
        "a": "g",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "0",
        "g": "7",
        "h": "0",
        "i": "k\x01v",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    assert send_request("g", "T", 3, b"", "", 7).body is None
    whole = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "1",
        "queueOffset": "5",
        "maxMsgNums": "32",
        "commitOffset": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    at_once, held = pull_request("g", "T", 1, 5), pull_request("g", "T", 1, 5, hold_ms=900)
    assert at_once.ext == whole | {"sysFlag": "4", "suspendTimeoutMillis": "0"}
    assert held.ext == whole | {"sysFlag": "6", "suspendTimeoutMillis": "900"}


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    """Messages, or the one error."""
    try:
        assert isinstance(decode_messages(data), list)
    except CorruptRecord:
        pass


def test_message_properties() -> None:
    """Arguments become RocketMQ's properties, and win over those given as such."""
    message = Message(
        "T", b"x", "t", ["a", "b"], properties={"TAGS": "other", "mine": "1"}, delay_time_level=3
    )
    assert message.properties == {
        "TAGS": "t",
        "KEYS": "a b",
        "WAIT": "true",
        "DELAY": "3",
        "mine": "1",
    }
    assert (message.delay_time_level, message.wait_store_msg_ok) == (3, True)
    assert not Message("T", b"x", wait_store_msg_ok=False).wait_store_msg_ok
    message.properties["DELAY"] = "x"
    assert message.delay_time_level == 0


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (timedelta(seconds=1), 1),
        (timedelta(minutes=10), 14),
        (timedelta(hours=2), 18),
        (timedelta(0), 0),
    ],
)
def test_a_delay_by_its_time(delay: timedelta, level: int) -> None:
    message = Message("T", b"x", delay=delay)
    assert message.delay_time_level == level
    assert ("DELAY" in message.properties) is (level > 0)


SOON = datetime(2030, 1, 1, 12, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("asked", "properties"),
    [
        ({"delay": timedelta(seconds=90)}, {"TIMER_DELAY_MS": "90000"}),
        ({"delay": timedelta(microseconds=1)}, {"TIMER_DELAY_MS": "1"}),
        ({"delay": timedelta(days=2)}, {"TIMER_DELAY_MS": "172800000"}),
        ({"deliver_at": SOON}, {"TIMER_DELIVER_MS": "1893499200001"}),
        (
            {"deliver_at": datetime(2030, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))},
            {"TIMER_DELIVER_MS": "1893499200000"},
        ),
    ],
)
def test_other_delays_are_timers(asked: dict[str, Any], properties: dict[str, str]) -> None:
    """In ms, rounded up: a message is never early."""
    message = Message("T", b"x", **asked)
    assert message.properties == {"WAIT": "true", **properties}
    assert message.delay_time_level == 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"delay": timedelta(seconds=-1)}, "a delay is not below 0"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),
        ({"deliver_at": 1.0}, "deliver_at is a datetime, not float"),
        ({"deliver_at": SOON, "delay": timedelta(0)}, "not several"),
        ({"delay": 60}, "a delay is a timedelta, not int"),
        ({"delay": timedelta(seconds=1), "delay_time_level": 1}, "not several"),
        ({"delay_time_level": 19}, r"levels are 1 \(1s\) to 18 \(2h\)"),
        ({"delay_time_level": -1}, "delay_time_level=-1"),
        ({"delay_time_level": "3"}, "delay_time_level='3'"),
        ({"delay_time_level": True}, "delay_time_level=True"),
        ({"properties": {"price": 12}}, "'price' has 12"),
        ({"properties": {1: "x"}}, "1 has 'x'"),
        ({"keys": 17}, "this is int"),
        ({"keys": ["a", 17]}, "keys are one text or several"),
    ],
)
def test_what_would_be_sent_as_something_else_is_refused(
    wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(IllegalMessage, match=sentence):
        Message("T", b"x", **wrong)


@settings(deadline=None)
@given(NAMES, NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_namespaces(namespace: str, name: str, prefix: str) -> None:
    """There and back; twice is once."""
    if name.startswith(namespace):
        return
    wrapped = wrap(namespace, prefix + name)
    assert wrapped == f"{prefix}{namespace}%{name}"
    assert wrap(namespace, wrapped) == wrapped
    assert unwrap(namespace, wrapped) == prefix + name


def test_names_without_a_namespace() -> None:
    """RocketMQ's own, and all when there is none."""
    for name in ("TBW102", "RMQ_SYS_TRACE_TOPIC", "CID_RMQ_SYS_TRANS", "rmq_sys_x", ""):
        assert wrap("ns", name) == name
    assert wrap("", "T") == unwrap("", "T") == "T"


ROUTE = TopicRoute(
    [
        QueueRoute("c", 2, 3, 6),
        QueueRoute("a", 4, 1, 6),
        QueueRoute("r", 2, 2, 4),
        QueueRoute("w", 2, 2, 2),
        QueueRoute("gone", 2, 2, 6),
    ],
    [
        BrokerRoute("C", "a", {0: "a:1", 1: "a:2"}),
        BrokerRoute("C", "c", {0: "c:1"}),
        BrokerRoute("C", "r", {0: "r:1"}),
        BrokerRoute("C", "w", {0: "w:1"}),
        BrokerRoute("C", "gone", {1: "gone:1"}),
    ],
)


def test_where_to_send() -> None:
    """Writable queues of brokers with a master, by broker name."""
    info = publish_info("T", ROUTE)
    assert [(queue.broker_name, queue.queue_id) for queue in info.queues] == [
        *[("a", 0), ("c", 0), ("c", 1), ("c", 2), ("w", 0), ("w", 1)]
    ]
    assert info.write_queues["c"] == 3


def test_where_to_read() -> None:
    """Readable queues, without a master too, sorted."""
    found = [(queue.broker_name, queue.queue_id) for queue in subscribe_queues("T", ROUTE)]
    assert found == [
        *[("a", 0), ("a", 1), ("a", 2), ("a", 3), ("c", 0), ("c", 1)],
        *[("gone", 0), ("gone", 1), ("r", 0), ("r", 1)],
    ]


def test_a_configured_order_decides_alone() -> None:
    """`orderTopicConf`; what is malformed in it is left out."""
    ordered = TopicRoute(ROUTE.queues, ROUTE.brokers, {}, "z:2;a:1;x;:3;y:-1")
    info = publish_info("T", ordered)
    assert info.is_ordered
    assert [(queue.broker_name, queue.queue_id) for queue in info.queues] == [
        *[("z", 0), ("z", 1), ("a", 0)]
    ]


def test_a_route_with_too_many_queues_fills_no_memory() -> None:
    """Whatever a name server says."""
    mad = TopicRoute(
        [QueueRoute("a", 2**31 - 1, 2**31 - 1, 6, 0)], [BrokerRoute("c", "a", {0: "x"})]
    )
    assert len(subscribe_queues("T", mad)) == 0xFFFF
    assert len(publish_info("T", mad).queues) == 0xFFFF


def test_a_borrowed_route() -> None:
    """As many queues as the producer would like, at most what the template has."""
    found = {item.broker_name: item for item in borrowed_route(ROUTE, 3).queues}
    assert (found["a"].write_queue_nums, found["c"].write_queue_nums) == (3, 2)
    assert (found["a"].read_queue_nums, found["c"].read_queue_nums) == (3, 2)


def test_changes() -> None:
    """The order of parts is none."""
    assert is_changed(None, ROUTE)
    assert not is_changed(ROUTE, TopicRoute(ROUTE.queues[::-1], ROUTE.brokers[::-1]))
    assert is_changed(ROUTE, TopicRoute(ROUTE.queues[1:], ROUTE.brokers))


@pytest.mark.parametrize(
    ("addresses", "broker_id", "only_this", "found"),
    [
        ({0: "m", 1: "s"}, 0, False, ("m", 0, False)),
        ({0: "m", 1: "s"}, 1, True, ("s", 1, True)),
        ({0: "m", 2: "s"}, 1, True, ("s", 2, True)),
        ({2: "s"}, 1, True, ("s", 2, True)),
        ({1: "s"}, 0, False, ("s", 1, True)),
        ({1: "s"}, 0, True, None),
        ({0: "m"}, 3, False, ("m", 0, False)),
        ({}, 0, False, None),
    ],
)
def test_whom_to_ask(
    addresses: dict[int, str],
    broker_id: int,
    only_this: bool,
    found: tuple[str, int, bool] | None,
) -> None:
    """As Java's findBrokerAddressInSubscribe."""
    assert choose_address(addresses, broker_id, only_this=only_this) == found


def test_errors_say_what_to_do() -> None:
    """Code, remark and the next step."""
    error = BrokerRefused(17, "no such topic", "h:1")
    assert "TOPIC_NOT_EXIST (17): no such topic; create the topic" in str(error)
    assert code_name(4711) == "4711"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tags": 17}, "topic and tags are texts, not 'T' and 17"),
        ({"topic": None}, "not None and ''"),
        ({"keys": 17}, "keys are one text or several texts, and this is int"),
        ({"keys": [17]}, "keys are one text or several"),
        ({"flag": "x"}, "flag='x': it is a whole number of 32 bits"),
        ({"flag": 1 << 31}, "a whole number of 32 bits"),
        ({"flag": True}, "a whole number of 32 bits"),
        ({"properties": {"price": 1}}, "texts: 'price' has 1"),
        ({"delay_time_level": 30}, "levels are 1"),
        ({"delay_time_level": -1}, "levels are 1"),
    ],
)
def test_what_makes_no_message_is_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    """In silence it would come out as something else, or not at all."""
    with pytest.raises(IllegalMessage, match=said):
        Message(**{"topic": "T", "body": b"x", **arguments})


def test_a_property_that_becomes_a_number_later_is_refused_when_it_is_sent() -> None:
    message = Message("T", b"x")
    message.properties["price"] = 17  # type: ignore[assignment]
    with pytest.raises(IllegalMessage, match="texts"):
        properties_text(message.properties)


@pytest.mark.parametrize("text", ["a:1,b:2", "a:1, b:2", "a/x:1", "a b:1", "a:x"])
def test_name_servers_that_are_none_are_refused(text: str) -> None:
    """`a:1,b` would be one host, which nobody ever finds."""
    with pytest.raises(ConfigurationError, match="between two of them is a semicolon"):
        name_servers(text)


@pytest.mark.parametrize("text", ["-5", "+5", "", " 3", "3s", "1.5", "٣"])
def test_a_delay_that_is_no_level_is_refused(text: str) -> None:
    """A broker would refuse it, or deliver it at once."""
    with pytest.raises(IllegalMessage, match=r'properties=\{"DELAY": .*timedelta'):
        Message("T", b"", properties={"DELAY": text})


@pytest.mark.parametrize("text", ["0", "3", "20"])
def test_a_level_of_a_broker_with_levels_of_its_own(text: str) -> None:
    message = Message("T", b"", properties={"DELAY": text})
    assert message.delay_time_level == int(text)
    assert Message("T", b"", properties={"DELAY": text}, delay_time_level=2).delay_time_level == 2
