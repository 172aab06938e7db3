"""PULL_MESSAGE. Spec: remoting.md, chapter 6; store.md, section 8.4; checked on a Java 4.9.7."""

import json
import sys
from typing import Any

import pytest
from zope.interface import implementer

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.interfaces import IConsumeMessageHook, IHookPlugin
from rmq_ha.base.model.message import GetMessageResult
from rmq_ha.base.model.status import BrokerRole, GetMessageStatus
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.broker.processors.pull_response import found_frame
from rmq_ha.server.store.queues.queue import ConsumeQueue
from tests.kits.channel import FakeChannel
from tests.unit.server.broker.asked_broker import AskedBroker

PULL = {
    "consumerGroup": "G1",
    "topic": "TopicA",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 15000,
    "subVersion": 2,
    "subscription": "*",
}


def pull(kit: AskedBroker, channel: FakeChannel | None = None, **changes: Any) -> Any:
    """The response, also when it was written as a frame."""
    ext = {name: value for name, value in {**PULL, **changes}.items() if value is not None}
    channel = channel or kit.channel
    seen = len(channel.sent)
    answer = kit.request(11, ext, channel=channel)
    return last(channel) if answer is None and len(channel.sent) > seen else answer


def last(channel: FakeChannel) -> RemotingCommand:
    sent = channel.sent[-1]
    if isinstance(sent, bytes):
        (frame,) = FrameReader().receive_data(sent)
        return decode_frame(*frame)
    assert isinstance(sent, RemotingCommand)
    return sent


def code(answer: RemotingCommand) -> tuple[int, dict[str, str] | None]:
    return int(answer.code), answer.ext


def offsets(next_begin: int, low: int, high: int, suggest: int = 0) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": str(suggest),
        "nextBeginOffset": str(next_begin),
        "minOffset": str(low),
        "maxOffset": str(high),
    }


def test_found() -> None:
    """The records come one after the other, with the queue's bounds."""
    kit = AskedBroker()
    kit.put("TopicA", body=b"one")
    kit.put("TopicA", body=b"two")
    answer = pull(kit)
    assert code(answer) == (0, offsets(2, 0, 2))
    assert (answer.remark, answer.opaque, answer.flag) == ("FOUND", 7, 1)
    assert answer.body == kit.log
    assert code(pull(kit, maxMsgNums=1)) == (0, offsets(1, 0, 2))


def test_found_frame_is_what_the_generic_encoder_writes() -> None:
    command = RemotingCommand(
        0,
        {"suggestWhichBrokerId": "0", "nextBeginOffset": "2", "maxOffset": "2", "minOffset": "0"},
        b"onetwo",
        -5,
        1,
        "FOUND",
    )
    assert found_frame(-5, 0, 2, 2, 0, [b"one", b"two"], 6) == encode_frame(command)


def test_found_in_the_requests_own_serialisation() -> None:
    """A binary request is answered through the general encoder."""
    kit = AskedBroker()
    kit.put("TopicA")
    answer = kit.request(11, PULL, binary=True)
    assert (answer.binary, answer.body, answer.remark) == (True, kit.log, "FOUND")
    assert kit.channel.sent == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"topic": "nope"}, 17),
        ({"queueId": 4}, 1),
        ({"queueId": -1}, 1),
        ({"queueId": "x"}, 1),
        ({"consumerGroup": "not allowed!"}, 26),
        ({"sysFlag": 0}, 24),
        ({"subscription": None, "expressionType": "SQL92"}, 23),
        ({"subscription": "a > 1", "expressionType": "SQL92"}, 1),
        ({"subscription": "", "expressionType": ""}, 23),
        ({"sysFlag": 5, "commitOffset": None}, 1),
        ({"sysFlag": 6, "suspendTimeoutMillis": None}, 1),
        *[
            ({name: None}, 1)
            for name in (
                "consumerGroup",
                "topic",
                "queueId",
                "queueOffset",
                "maxMsgNums",
                "sysFlag",
            )
        ],
    ],
)
def test_refused(changes: dict[str, Any], expected: int) -> None:
    """Validation answers with an empty header map."""
    assert code(pull(AskedBroker(), **changes)) == (expected, {})


def test_optional_fields() -> None:
    """What no flag asks for may be missing."""
    kit = AskedBroker()
    kit.put("TopicA")
    answer = pull(kit, commitOffset=None, suspendTimeoutMillis=None, subVersion=None)
    assert answer.code == 0
    assert pull(kit, subscription=None).code == 0


def test_permissions() -> None:
    kit = AskedBroker()
    kit.topics.update(TopicConfig("WriteOnly", 4, 4, 2))
    assert pull(kit, topic="WriteOnly").code == 16
    kit.groups.update(SubscriptionGroupConfig("Off", consume_enable=False))
    assert pull(kit, consumerGroup="Off").code == 16
    kit.broker_config.auto_create_subscription_group = False
    assert pull(kit, consumerGroup="unknown").code == 26
    kit.broker_config.broker_permission = 2
    assert pull(kit).code == 16


def test_subscription_of_the_heartbeat() -> None:
    """Spec: remoting.md, section 6.2, 7b to 7e."""
    kit = AskedBroker()
    kit.put("TopicA", TAGS="TagA")
    kit.put("TopicA", TAGS="TagB")
    kit.heartbeat(FakeChannel(), "c1", "G1", "TopicA", expression="TagB", version=5)
    assert pull(kit, sysFlag=0, topic="TBW102").code == 24
    assert pull(kit, sysFlag=0, subVersion=6).code == 25
    assert pull(kit, sysFlag=0, subVersion=None).code == 1
    answer = pull(kit, sysFlag=0, subVersion=5)
    assert answer.code == 0
    assert answer.body == kit.record("TopicA", 0, 1)
    kit.heartbeat(FakeChannel(1), "c", "B", "TopicA", model="BROADCASTING")
    kit.groups.update(SubscriptionGroupConfig("B", consume_broadcast_enable=False))
    assert pull(kit, consumerGroup="B", sysFlag=0, subVersion=1).code == 16
    kit.heartbeat(FakeChannel(2), "c", "S", "TopicA", kind="SQL92", expression="a = 1")
    assert pull(kit, consumerGroup="S", sysFlag=0, subVersion=1).code == 1


def test_tags_of_the_request() -> None:
    kit = AskedBroker()
    kit.put("TopicA", TAGS="TagA")
    assert pull(kit, subscription=" TagA || TagC ").code == 0
    assert code(pull(kit, subscription="TagC")) == (20, offsets(1, 0, 1))
    # an empty type is no TAG to Java: only `*` matches
    assert pull(kit, subscription="TagA", expressionType="").code == 20
    assert pull(kit, subscription="*", expressionType="").code == 0


@pytest.mark.parametrize(
    ("offset", "count", "expected"),
    [
        (0, 0, (19, offsets(0, 0, 0))),
        (3, 0, (21, offsets(0, 0, 0))),
        (2, 2, (19, offsets(2, 0, 2))),
        (9, 2, (21, offsets(2, 0, 2))),
        (-1, 2, (21, offsets(0, 0, 2))),
    ],
)
def test_statuses(offset: int, count: int, expected: Any) -> None:
    """Spec: remoting.md, section 6.3."""
    kit = AskedBroker()
    for _ in range(count):
        kit.put("TopicA")
    assert code(pull(kit, queueOffset=offset)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (GetMessageStatus.OFFSET_FOUND_NULL, 19),
        (GetMessageStatus.MESSAGE_WAS_REMOVING, 20),
        (GetMessageStatus.NO_MATCHED_MESSAGE, 20),
        (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 19),
    ],
)
def test_rare_statuses(
    status: GetMessageStatus, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = AskedBroker()
    found = GetMessageResult(status, 0, 0, 0, [], False)
    monkeypatch.setattr(kit.store, "get_message", lambda *asked: found)
    answer = pull(kit)
    assert (answer.code, answer.remark) == (expected, status.name)


def test_unreadable_store() -> None:
    kit = AskedBroker()
    kit.stop()
    assert pull(kit).code == 1


def test_offset_moved_event() -> None:
    """A master leaves a message, as Java does, byte for byte in its body."""
    kit = AskedBroker()
    kit.put("TopicA")
    assert pull(kit, queueOffset=99).code == 21
    message = kit.messages[-1]
    assert message.topic == "OFFSET_MOVED_EVENT"
    assert message.queue_id == 0
    assert message.body == (
        b'{"consumerGroup":"G1","messageQueue":{"brokerName":"broker-a","queueId":0,'
        b'"topic":"TopicA"},"offsetNew":1,"offsetRequest":99}'
    )
    assert message.properties == {"KEYS": "G1", "DELAY": "0", "TAGS": "G1"}
    assert (message.born_host, message.store_host) == (kit.address, kit.address)
    assert json.loads(message.body)["offsetNew"] == 1


def test_a_consumer_ahead_of_the_queue_goes_on_where_its_group_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    It read those messages at a master that is gone: what came here meanwhile is new to it.

    RocketMQ answers the end of the queue, and the consumer skips them.
    """
    kit = AskedBroker()
    for _ in range(40):
        kit.put("TopicA")
    kit.offsets.commit("G1", "TopicA", 0, 25)
    answer = pull(kit, queueOffset=99)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "25")
    with monkeypatch.context() as deleted:
        deleted.setattr(ConsumeQueue, "min_offset", 30)
        assert pull(kit, queueOffset=99).ext["nextBeginOffset"] == "30"
    kit.offsets.commit("G1", "TopicA", 0, 99)
    assert pull(kit, queueOffset=99).ext["nextBeginOffset"] == "40"
    as_java = AskedBroker(check_committed_offsets=False)
    for _ in range(40):
        as_java.put("TopicA")
    as_java.offsets.commit("G1", "TopicA", 0, 25)
    assert pull(as_java, queueOffset=99).ext["nextBeginOffset"] == "40"


def test_one_event_for_a_group_and_queue_in_a_minute() -> None:
    """A flood of such pulls, which cost nothing, leaves one message; each is answered."""
    kit = AskedBroker()
    kit.put("TopicA")
    assert [pull(kit, queueOffset=99 + n).code for n in range(500)] == [21] * 500
    assert len(kit.messages) == 2
    kit.advance(60)
    assert pull(kit, queueOffset=99).code == 21
    assert len(kit.messages) == 3


def test_events_as_java_leaves_them() -> None:
    kit = AskedBroker(offset_moved_event_interval=0)
    kit.put("TopicA")
    for _ in range(5):
        pull(kit, queueOffset=99)
    assert len(kit.messages) == 6


def test_slave_does_not_move_offsets() -> None:
    """It may only be behind: 20, and the group's broker."""
    kit = AskedBroker()
    kit.put("TopicA")
    kit.groups.update(SubscriptionGroupConfig("G1", broker_id=3))
    kit.configuration.store.broker_role = BrokerRole.SLAVE
    answer = pull(kit, queueOffset=99)
    assert code(answer) == (20, offsets(99, 0, 1, suggest=3))
    assert len(kit.messages) == 1
    kit.configuration.store.offset_check_in_slave = True
    assert pull(kit, queueOffset=99).code == 21
    assert len(kit.messages) == 1


def test_slave_serves_although_reads_are_not_enabled() -> None:
    kit = AskedBroker()
    kit.put("TopicA")
    kit.configuration.store.broker_role = BrokerRole.SLAVE
    assert code(pull(kit)) == (0, offsets(1, 0, 1))


def test_suggestion() -> None:
    """Spec: remoting.md, section 6.4."""
    kit = AskedBroker()
    kit.groups.update(
        SubscriptionGroupConfig("G1", broker_id=2, which_broker_when_consume_slowly=4)
    )
    kit.put("TopicA")
    kit.configuration.store.access_message_in_memory_max_ratio = -1  # all of it is only on the disk
    assert pull(kit).ext["suggestWhichBrokerId"] == "0"
    kit.broker_config.slave_read_enable = True
    assert pull(kit).ext["suggestWhichBrokerId"] == "4"
    kit.configuration.store.access_message_in_memory_max_ratio = 40
    assert pull(kit).ext["suggestWhichBrokerId"] == "2"


def test_commit_in_pull() -> None:
    """Once, whatever the pull finds; not on a slave and not after a refusal."""
    kit = AskedBroker()
    for _ in range(12):
        kit.put("TopicA")
    assert pull(kit, sysFlag=7, queueOffset=12, commitOffset=12) is None  # held
    assert kit.offsets.query("G1", "TopicA", 0) == 12
    kit.offsets.commit("G1", "TopicA", 0, 20)
    kit.advance(15)
    assert last(kit.channel).code == 19
    assert kit.offsets.query("G1", "TopicA", 0) == 20
    pull(kit, sysFlag=5, commitOffset=1, queueId=9)
    assert kit.offsets.query("G1", "TopicA", 0) == 20
    slave = AskedBroker(BrokerRole.SLAVE)
    pull(slave, sysFlag=5, commitOffset=12)
    assert slave.offsets.query("G1", "TopicA", 0) == -1


def test_held_until_a_message_arrives() -> None:
    kit = AskedBroker()
    assert pull(kit, sysFlag=6) is None
    assert kit.channel.sent == []
    kit.put("TopicA", body=b"new")
    answer = last(kit.channel)
    assert code(answer) == (0, offsets(1, 0, 1))
    assert answer.body == kit.log
    kit.advance(100)
    assert len(kit.channel.sent) == 1


def test_held_until_its_limit() -> None:
    kit = AskedBroker()
    assert pull(kit, sysFlag=6, suspendTimeoutMillis=3000) is None
    kit.advance(2.999)
    assert kit.channel.sent == []
    kit.advance(0.001)
    assert code(last(kit.channel)) == (19, offsets(0, 0, 0))


def test_short_polling() -> None:
    kit = AskedBroker()
    kit.broker_config.long_polling_enable = False
    assert pull(kit, sysFlag=6) is None
    kit.advance(1)
    assert last(kit.channel).code == 19


def test_only_19_is_held() -> None:
    """Spec: remoting.md, section 6.5."""
    kit = AskedBroker()
    assert pull(kit, sysFlag=6, queueOffset=3).code == 21
    kit.put("TopicA", TAGS="TagB")
    assert pull(kit, sysFlag=6, subscription="TagA").code == 20
    assert pull(kit, sysFlag=4, queueOffset=1).code == 19


def test_one_way_pull_gets_no_answer() -> None:
    kit = AskedBroker()
    kit.request(11, {**PULL, "sysFlag": 6}, oneway=True)
    kit.put("TopicA")
    assert kit.channel.sent == []


def test_how_much_one_request_may_scan_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = AskedBroker()
    asked: list[int] = []
    get_message = kit.store.get_message

    def noted(group: str, topic: str, queue: int, offset: int, most: int, *rest: Any) -> Any:
        asked.append(most)
        return get_message(group, topic, queue, offset, most, *rest)

    monkeypatch.setattr(kit.store, "get_message", noted)
    pull(kit, maxMsgNums=2**31 - 1)
    assert asked == [4096]


@implementer(IConsumeMessageHook, IHookPlugin)
class Hook:
    """A hook that refuses from the second call on, and the plugin that makes it."""

    name = "hook"
    options = ()

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []

    def make_hook(self, context: Any) -> "Hook":
        return self

    def before_consume(self, context: dict[str, Any]) -> None:
        self.contexts.append(context)
        if len(self.contexts) > 1:
            raise RequestRejected(16, "enough")


def test_hooks_see_what_is_found_and_may_refuse() -> None:
    hook = Hook()
    kit = AskedBroker(plugins=[hook], hook_plug_in="hook")
    kit.put("TopicA")
    assert pull(kit).code == 0
    assert hook.contexts == [
        {
            "topic": "TopicA",
            "queue_id": 0,
            "consumer_group": "G1",
            "client_host": "127.0.0.1:5000",
            "count": 1,
            "size": len(kit.log),
        }
    ]
    assert pull(kit).code == 16
    assert pull(kit, sysFlag=6, queueOffset=1) is None
    kit.put("TopicA")
    assert last(kit.channel).code == 16


def test_statistics() -> None:
    kit = AskedBroker()
    kit.put("TopicA")
    pull(kit)
    pull(kit, queueOffset=1)
    kit.advance(60)
    assert kit.stats.group_get_rate("TopicA", "G1") == pytest.approx(1 / 60)


@pytest.mark.parametrize("sys_flag", [2, 6])
def test_a_held_pull_keeps_only_what_its_answer_needs(sys_flag: int) -> None:
    """120 pulls with bodies of 15 MiB, held for an hour on one connection, kept 1.9 GiB."""
    kit = AskedBroker()
    kit.heartbeat(kit.channel, "c", "G1", "TopicA", version=2)
    body, remark, field = bytes(1000), "r" * 1000, "f" * 1000
    before = [sys.getrefcount(item) for item in (body, remark, field)]
    ext = {**{name: str(value) for name, value in PULL.items()}, "sysFlag": str(sys_flag)}
    request = RemotingCommand(11, {**ext, "more": field}, body, 7, remark=remark)
    assert kit.routes[11](kit.channel, request) is None
    del request
    assert len(kit.hold) == 1
    assert [sys.getrefcount(item) for item in (body, remark, field)] == before
    kit.put("TopicA")
    assert (last(kit.channel).code, last(kit.channel).opaque) == (0, 7)


def test_a_held_pull_counts_its_own_expression() -> None:
    kit = AskedBroker()
    assert pull(kit, sysFlag=6, subscription="TagA||TagB") is None
    assert kit.hold._expressions == len("TagA||TagB")
