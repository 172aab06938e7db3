"""Whatever a client sends, a handler answers or rejects. Spec: remoting.md, section 1.7."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.server.broker.processors import fields
from tests.kits.channel import FakeChannel
from tests.kits.draws import draws
from tests.unit.server.broker.asked_broker import AskedBroker

NAMES = [
    "consumerGroup",
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subscription",
    "subVersion",
    "expressionType",
    "key",
    "maxNum",
    "beginTimestamp",
    "endTimestamp",
    "_UNIQUE_KEY_QUERY",
    "offset",
    "defaultTopic",
    "readQueueNums",
    "writeQueueNums",
    "perm",
    "topicFilterType",
    "topicSysFlag",
    "order",
    "timestamp",
    "clientID",
    "producerGroup",
    "group",
    "delayLevel",
    "originMsgId",
    "unitMode",
    "maxReconsumeTimes",
    "groupName",
    "removeOffset",
    "bname",
]
VALUES = st.one_of(
    st.sampled_from(
        ["TopicA", "G1", "TBW102", "*", "TagA || TagB", "SQL92", "TAG", "SINGLE_TAG", "true", ""]
    ),
    st.integers(-3, 8).map(str),
    st.integers(-(2**64), 2**64).map(str),
    st.text(max_size=12),
    st.sampled_from(["+5", "1_0", " 5", "５", "0x10", "NaN", "-", "1e3", "9" * 5000]),
)
EXT = st.one_of(
    st.none(),
    st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=5)), VALUES, max_size=14),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(
                    [
                        "clientID",
                        "consumerDataSet",
                        "producerDataSet",
                        "groupName",
                        "subscriptionDataSet",
                        "topic",
                        "subString",
                        "codeSet",
                        "tagsSet",
                        "subVersion",
                        "expressionType",
                        "mqSet",
                        "consumerGroup",
                        "clientId",
                        "queueId",
                        "brokerName",
                        "subscriptionData",
                        "retryQueueNums",
                        "$ref",
                    ]
                ),
                st.text(max_size=3),
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)
SUBSCRIPTION = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(JSON, VALUES)
        for name in (
            "topic",
            "subString",
            "codeSet",
            "tagsSet",
            "subVersion",
            "expressionType",
            "classFilterMode",
        )
    },
)
HEARTBEAT = st.fixed_dictionaries(
    {
        "clientID": st.one_of(st.just("c"), JSON),
        "consumerDataSet": st.lists(
            st.fixed_dictionaries(
                {
                    "groupName": st.one_of(st.just("G1"), VALUES, JSON),
                    "subscriptionDataSet": st.one_of(st.lists(SUBSCRIPTION, max_size=3), JSON),
                },
                optional={
                    "consumeType": JSON,
                    "messageModel": JSON,
                    "consumeFromWhere": JSON,
                    "unitMode": JSON,
                },
            ),
            max_size=3,
        ),
    }
)
RELAYS = {222, 223, 307, 309}
"""They ask a client and answer what it says, which no `FakeChannel` does."""
CODES = sorted({*map(int, AskedBroker().routes)} - RELAYS)
EXAMPLES_OF_A_BROKER = 25


class Brokers:
    """So many examples share a broker: one for each would take most of the time."""

    def __init__(self) -> None:
        self._uses = 0
        self._broker = AskedBroker()
        self.other = FakeChannel(9)

    def next(self) -> AskedBroker:
        """With a channel that nobody has used, and without the clients of the last example."""
        self._uses += 1
        self._broker.channel.close()
        self.other.close()
        if self._uses % EXAMPLES_OF_A_BROKER == 0:
            self._broker = AskedBroker()
        self._broker.channel, self.other = FakeChannel(), FakeChannel(9)
        return self._broker


@pytest.fixture(scope="module")
def brokers() -> Brokers:
    return Brokers()


def check(kit: AskedBroker, command: RemotingCommand) -> None:
    answer = kit.handle(command)
    if answer is None:
        assert command.code == 11  # written as a frame, or held
        kit.advance(1)
        answer = next((it for it in kit.channel.sent if isinstance(it, RemotingCommand)), None)
    if answer is not None:
        assert answer.opaque == command.opaque
        assert answer.flag == 1
        assert answer.ext is None or all(isinstance(item, str) for item in answer.ext.values())
        assert encode_frame(answer)


def used_broker(brokers: Brokers) -> AskedBroker:
    kit = brokers.next()
    if kit.topics.get("TopicA") is None:
        kit.topics.update(TopicConfig("TopicA", 4, 4, 6))
    kit.put("TopicA", TAGS="TagA")
    kit.heartbeat(brokers.other, "c9", "G1", "TopicA")
    return kit


@settings(max_examples=draws(1500))
@given(code=st.sampled_from(CODES), ext=EXT)
def test_any_header(brokers: Brokers, code: int, ext: dict[str, str] | None) -> None:
    check(used_broker(brokers), RemotingCommand(code, ext, b"{}", 5))


@settings(max_examples=draws(300))
@given(ext=EXT)
def test_any_pull(brokers: Brokers, ext: dict[str, str] | None) -> None:
    """With enough of the right fields to get far."""
    valid = {
        "consumerGroup": "G1",
        "topic": "TopicA",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "suspendTimeoutMillis": "100",
    }
    check(used_broker(brokers), RemotingCommand(11, {**valid, **(ext or {})}, None, 5))


@settings(max_examples=draws(500))
@given(
    code=st.sampled_from([25, 34, 41, 42, 46, 200]),
    body=st.one_of(JSON, HEARTBEAT, st.binary(max_size=40)),
)
def test_any_body(brokers: Brokers, code: int, body: Any) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "surrogatepass")
    kit = used_broker(brokers)
    check(kit, RemotingCommand(code, None, data or None, 5))
    # what it left behind can still be listed
    for listing, ext in ((201, None), (21, None), (28, None), (26, None), (43, None)):
        check(kit, RemotingCommand(listing, ext, None, 5))
    for group in kit.consumers.groups():
        check(kit, RemotingCommand(203, {"consumerGroup": group}, None, 5))


@settings(max_examples=draws(400))
@given(body=HEARTBEAT)
def test_any_heartbeat(brokers: Brokers, body: Any) -> None:
    """All of it counts, or nothing; what it left can be listed and pulled with."""
    kit = brokers.next()
    kit.put("TopicA")
    data = json.dumps(body).encode("utf-8", "surrogatepass")
    check(kit, RemotingCommand(34, None, data, 5))
    for group in kit.consumers.groups():
        check(kit, RemotingCommand(203, {"consumerGroup": group}, None, 5))
        pull = {"consumerGroup": group, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
        pull |= {"topic": "TopicA", "sysFlag": "0", "subVersion": "0"}
        check(kit, RemotingCommand(11, pull, None, 5))
    kit.channel.close()
    assert kit.consumers.groups() == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("+5", 5),
        ("-2147483648", -(2**31)),
        ("2147483647", 2**31 - 1),
        ("2147483648", None),
        ("1_0", None),
        (" 5", None),
        ("５", None),
        ("", None),
        ("9" * 5000, None),
    ],
)
def test_numbers_are_javas(text: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(RequestRejected, match="queueId"):
            fields.int32({"queueId": text}, "queueId")
    else:
        assert fields.int32({"queueId": text}, "queueId") == value


def test_flags_are_javas() -> None:
    values = ["true", "TRUE", "tRuE", "false", "1", "yes", ""]
    flags = [fields.flag({"order": value}, "order") for value in values]
    assert flags == [True, True, True, False, False, False, False]
    assert not fields.flag({}, "order")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RequestRejected, match="topic") as caught:
        fields.text({}, "topic")
    assert caught.value.code == 1
