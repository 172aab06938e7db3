"""Properties and topics of RocketMQ 5 are refused with the reason, as this broker serves none."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.unserved_properties import TIMERS, UNSERVED
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.test_processor_send import send, stored

LATER = {
    "TIMER_DELAY_SEC": "3600",
    "TIMER_DELAY_MS": "3600000",
    "TIMER_DELIVER_MS": "1893456000123",
    "TIMER_DEL_UNIQKEY": "TopicA+7F00",
    "_SYS_MSG_PRIORITY_": "3",
    "__LITE_TOPIC": "orders-7",
}

NOT_ENABLED = "accurate timer message is not enabled, timerWheelEnable is false"
"""What a broker of RocketMQ 5 answers, with code 1, while its timers are off."""


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    made = SimBroker().start()
    made.broker.topics.update(TopicConfig("TopicA", 4, 4))
    yield made
    made.stop()


@pytest.mark.parametrize("name", UNSERVED)
@pytest.mark.parametrize("code", [10, 310])
def test_a_message_is_refused(broker: SimBroker, name: str, code: int) -> None:
    """Alone and in a transaction; a made-up topic is not made for it."""
    text = f"KEYS\x01k\x02{name}\x01{LATER[name]}"
    for more, topic in (("", "TopicA"), ("\x02TRAN_MSG\x01true", "TopicA"), ("", "New")):
        answer = send(broker, text + more, code=code, topic=topic)
        assert answer.code == (1 if name in TIMERS else 13)
        assert answer.remark.startswith(NOT_ENABLED) == (name in TIMERS)
        assert f"the message asks for {UNSERVED[name]} ({name})" in answer.remark
        assert "refuseUnservedProperties=false" in answer.remark
    assert broker.broker.unserved.refused[name] == 3
    assert broker.broker.topics.get("New") is None
    assert broker.broker.store.max_offset_in_queue("TopicA", 1) == 0


@pytest.mark.parametrize("name", UNSERVED)
def test_the_key_brings_the_way_of_4_9(broker: SimBroker, name: str) -> None:
    """Stored in its topic and delivered at once, with the property."""
    broker.broker.configuration.ours.refuse_unserved_properties = False
    answer = send(broker, f"{name}\x01{LATER[name]}")
    assert answer.code == 0
    assert stored(broker, answer).topic == "TopicA"
    assert stored(broker, answer).properties[name] == LATER[name]
    assert sum(broker.broker.unserved.refused.values()) == 0


def test_a_delay_level_wins_over_timers(broker: SimBroker) -> None:
    """RocketMQ 5 delays such a message by its level, and so does this broker."""
    answer = send(broker, "TIMER_DELAY_SEC\x013600\x02DELAY\x013")
    assert answer.code == 0
    assert stored(broker, answer).topic == "SCHEDULE_TOPIC_XXXX"
    assert send(broker, "TIMER_DELAY_SEC\x013600\x02DELAY\x010").code == 1
    assert send(broker, "_SYS_MSG_PRIORITY_\x013\x02DELAY\x013").code == 13


@pytest.mark.parametrize(
    "text", ["TIMER_DELAY_SEC\x01", "KEYS\x01TIMER_DELAY_SEC", "MY_TIMER_DELAY_SEC\x015"]
)
def test_what_only_looks_like_one_is_stored(broker: SimBroker, text: str) -> None:
    """An empty value counts as none, and the name may be in a value or in another name."""
    assert send(broker, text).code == 0
    assert send(broker, batch="true", body=encode_batch([(0, b"b", text)])).code == 0


def test_a_batch_says_which_message(broker: SimBroker) -> None:
    """The property of a member, and one that all of them share."""
    members = [(0, b"TIMER_DELAY_SEC in a body", f"KEYS\x01k{n}") for n in range(700)]
    assert send(broker, batch="true", body=encode_batch(members[:100])).code == 0
    members[600] = (0, b"b", "TIMER_DELIVER_MS\x011893456000123")
    answer = send(broker, batch="true", body=encode_batch(members))
    assert answer.code == 1
    assert "message 600 of the batch asks for a delay of its own (TIMER_DELIVER_MS)" in (
        answer.remark
    )
    answer = send(broker, "__LITE_TOPIC\x01x", batch="true", body=encode_batch(members[:3]))
    assert answer.code == 13
    assert "the message asks for a lite topic" in answer.remark
    assert broker.broker.store.max_offset_in_queue("TopicA", 1) == 100


SYSTEM = (
    "rmq_sys_wheel_timer",
    "rmq_sys_rmqha_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "rmq_sys_anything",
)


@pytest.mark.parametrize("topic", SYSTEM)
def test_system_topics_of_5_refuse_clients(broker: SimBroker, topic: str) -> None:
    """Also where the topic is there, as a store of a Java 5 broker has it."""
    pull = {
        "consumerGroup": "G",
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    for _ in range(2):
        for batch, body in (("false", b"x"), ("true", encode_batch([(0, b"x", "")]))):
            answer = send(broker, topic=topic, queueId=0, batch=batch, body=body)
            assert (answer.code, answer.remark) == (
                16,
                f"sending message to topic[{topic}] is forbidden",
            )
        answer = broker.call(RemotingCommand(11, dict(pull)))
        assert answer.code == 16
        assert f"the topic[{topic}] is for brokers only" in answer.remark
        broker.broker.topics.update(TopicConfig(topic, 1, 1))
    assert broker.broker.store.max_offset_in_queue(topic, 0) == 0


def test_clients_of_a_cloud_write_their_traces(broker: SimBroker) -> None:
    assert send(broker, topic="rmq_sys_TRACE_DATA_cn", queueId=0).code == 0


# ---------------------------------------------------------------- why a message is illegal


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ("A\x01" + "v" * 33_000, {}, "its properties have 33025 bytes"),
        ("A\x01" + "ü" * 20_000, {}, "its properties have 40025 bytes"),
        ("DELAY\x014Pinpoint-Flags", {}, "its DELAY is '4Pinpoint-Flags', and a delay level is a"),
        ("", {"body": bytes(20_001)}, "too large: its body may have 20000 bytes (maxMessageSize)"),
        ("WAIT\x01no", {"body": bytes(20_001)}, "its body has 20001 bytes; 20000 are allowed"),
    ],
)
@pytest.mark.parametrize("code", [10, 310])
def test_code_13_names_the_cause(
    broker: SimBroker, text: str, changes: dict[str, Any], reason: str, code: int
) -> None:
    broker.broker.configuration.store.max_message_size = 20_000
    answer = send(broker, text, code=code, **changes)
    assert answer.code == 13
    assert reason in answer.remark


@pytest.mark.parametrize(
    ("member", "code", "reason"),
    [
        ((0, b"b", "DELAY\x013"), 13, "message 2 of the batch is illegal: it has a delay level"),
        ((0, b"b", "DELAY\x013x"), 13, "message 2 of the batch is illegal: its DELAY is '3x'"),
        (
            (0, b"b", "A\x01" + "v" * 32_760),
            13,
            "message 2 of the batch is illegal: its properties",
        ),
        ((0, b"b", "A\x01" + "v" * 32_998), 1, "message 2 of a batch has 33000 bytes of properti"),
    ],
)
def test_a_batch_names_the_message_and_the_cause(
    broker: SimBroker, member: tuple[int, bytes, str], code: int, reason: str
) -> None:
    good = encode_batch([(0, b"b", "KEYS\x01k")] * 2)
    flag, body, text = member
    tail = len(text).to_bytes(2, "big") + text.encode()
    head = [22 + len(body) + len(text), 0, 0, flag, len(body)]
    bad = b"".join(number.to_bytes(4, "big") for number in head) + body + tail
    answer = send(broker, batch="true", body=good + bad)
    assert answer.code == code
    assert reason in answer.remark
