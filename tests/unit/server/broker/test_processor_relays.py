"""Requests that reach clients. Spec: remoting.md, sections 2.4, 7.5 and 7.6."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame
from rmq_ha.base.wire.versions import V3_0_7_SNAPSHOT
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.broker.processors.admin_progress import _unit_filter
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.sim_client import SILENT, SimClient

GOLDEN = json.loads(
    (Path(__file__).parents[3] / "vectors" / "remoting" / "relays.json").read_text()
)


def header_of(text: str) -> RemotingCommand:
    """A recorded header as a command."""
    data = text.encode()
    frame = (len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data
    (item,) = FrameReader().receive_data(frame)
    return decode_frame(*item)


def same_header(pushed: RemotingCommand, golden: str) -> bool:
    """All but the opaque."""
    expected = header_of(golden)
    return (pushed.code, pushed.ext, pushed.flag, pushed.language, pushed.version) == (
        expected.code,
        expected.ext,
        expected.flag,
        expected.language,
        expected.version,
    )


@pytest.fixture
def broker() -> Any:
    """Topic T as in the recording: three messages in queue 0, one in queue 1."""
    broker = SimBroker().start()
    broker.broker.topics.update(TopicConfig("T", 2, 2))
    for queue_id in (0, 0, 0, 1):
        request = send_request("PG", "T", queue_id, b"m", "TAGS\x01A", broker.host.now_ms())
        assert broker.call(request).code == 0
    broker.world.clock.run_for(1)
    yield broker
    broker.stop()


def ask(broker: SimBroker, code: int, language: str = "JAVA", **ext: Any) -> RemotingCommand:
    fields = {name: str(value) for name, value in ext.items()}
    return broker.call(RemotingCommand(code, fields, language=language))


def offsets(body: bytes | None) -> dict[int, int]:
    table = fastjson.parse(body or b"")["offsetTable"]
    return {dict(queue)["queueId"]: offset for queue, offset in table.items()}


def commit(broker: SimBroker, *queues: int, group: str = "g") -> None:
    for queue_id, offset in enumerate(queues):
        broker.broker.consumer_offsets.commit(group, "T", queue_id, offset)


RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


# ---------------------------------------------------------------- 222


def test_reset_refusals_come_in_rocketmqs_order(broker: SimBroker) -> None:
    """Unknown topic, no offset, nobody online."""
    to_end: dict[str, Any] = {"group": "g", "timestamp": -1, "isForce": "true"}
    assert ask(broker, RESET, topic="NO", **to_end).code == ResponseCode.SYSTEM_ERROR
    missing = ask(broker, RESET, topic="T", **to_end)
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert (missing.remark or "").startswith("THe consumer group <g> not exist")
    commit(broker, 1, 1)
    absent = ask(broker, RESET, topic="T", **to_end)
    assert absent.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert absent.remark == (
        "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: -1"
    )


def test_reset_to_the_end_is_pushed_as_java_does(broker: SimBroker) -> None:
    """The table that its own offsets do not show: clients report it back by themselves."""
    commit(broker, 1, 1)
    clients = [SimClient(broker, "c1"), SimClient(broker, "c2", version=317, language="GO")]
    answer = ask(broker, RESET, topic="T", group="g", timestamp=-1, isForce="true")
    assert (answer.code, offsets(answer.body)) == (0, {0: 3, 1: 1})
    broker.world.clock.run_for(1)
    for client in clients:
        (push,) = client.pushed
        assert same_header(push, GOLDEN["reset_push_header"])
        assert offsets(push.body) == offsets(GOLDEN["reset_body"].encode())
        assert b" " not in (push.body or b"")
    assert broker.broker.consumer_offsets.query("g", "T", 0) == 1


@pytest.mark.parametrize(
    ("timestamp", "force", "expected"),
    [
        (0, "true", {0: 0, 1: 0}),
        (-1, "false", {0: 1, 1: 1}),  # never further on without force
        (0, "false", {0: 0, 1: 0}),
        (0, None, {0: 0, 1: 0}),
    ],
)
def test_reset_by_time(
    broker: SimBroker, timestamp: int, force: str | None, expected: dict[int, int]
) -> None:
    commit(broker, 1, 1)
    SimClient(broker)
    ext: dict[str, Any] = {"isForce": force} if force else {}
    answer = ask(broker, RESET, topic="T", group="g", timestamp=timestamp, **ext)
    assert (answer.code, offsets(answer.body)) == (0, expected)


def test_reset_asked_by_cpp_is_a_list(broker: SimBroker) -> None:
    """In the push; the answer keeps the map."""
    commit(broker, 1, 1)
    client = SimClient(broker)
    answer = ask(broker, RESET, "CPP", topic="T", group="g", timestamp=0, isForce="true")
    assert offsets(answer.body) == {0: 0, 1: 0}
    broker.world.clock.run_for(1)
    pushed = json.loads(client.pushed[0].body or b"")
    golden = json.loads(GOLDEN["reset_list_body"])
    by_queue = sorted(golden["offsetTable"], key=lambda item: int(item["queueId"]))
    assert pushed == {"offsetTable": by_queue}


def test_an_old_member_stops_the_reset(broker: SimBroker) -> None:
    """Before anybody is told."""
    commit(broker, 1, 1)
    young, old = SimClient(broker, "young"), SimClient(broker, "old", version=27)
    answer = ask(broker, RESET, topic="T", group="g", timestamp=-1, isForce="true")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "V3_0_6" in (answer.remark or "")
    broker.world.clock.run_for(1)
    assert young.pushed == old.pushed == []
    assert ask(broker, STATUS, topic="T", group="g").code == ResponseCode.SYSTEM_ERROR


def test_the_oldest_member_that_can_be_reset_is(broker: SimBroker) -> None:
    commit(broker, 1, 1)
    oldest = SimClient(broker, "oldest", version=V3_0_7_SNAPSHOT)
    assert ask(broker, RESET, topic="T", group="g", timestamp=-1, isForce="true").code == 0
    broker.world.clock.run_for(1)
    assert len(oldest.pushed) == 1


def test_a_member_that_does_not_read_is_not_sent_more(broker: SimBroker) -> None:
    """The others are; an operator who tries again and again fills no memory."""
    commit(broker, 1, 1)
    stuck, other = SimClient(broker, "c1"), SimClient(broker, "c2")
    broker.broker.consumers.find_client("g", "c1").channel.is_full = True
    assert ask(broker, RESET, topic="T", group="g", timestamp=-1, isForce="true").code == 0
    broker.world.clock.run_for(1)
    assert (len(stuck.pushed), len(other.pushed)) == (0, 1)


# ---------------------------------------------------------------- 223


def test_consumer_status(broker: SimBroker) -> None:
    """Of every member that answers; of one, if its id is given."""
    assert ask(broker, STATUS, topic="T", group="g").code == ResponseCode.SYSTEM_ERROR
    first, second, third = (SimClient(broker, name) for name in ("c1", "c2", "c3"))
    body = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}'
    first.answers[221] = RemotingCommand(0, body=body)
    second.answers[221] = RemotingCommand(1, body=body, remark="no")
    third.answers[221] = RemotingCommand(0, body=b'{"messageQueueTable":{"x":[]}}')
    answer = ask(broker, STATUS, topic="T", group="g")
    assert (answer.code, answer.body) == (0, GOLDEN["status_body"].encode())
    assert same_header(first.pushed[0], GOLDEN["status_push_header"])
    assert len(second.pushed) == 1
    broker.broker.consumers.find_client("g", "c3").channel.is_full = True
    answer = ask(broker, STATUS, topic="T", group="g")  # it cannot be asked
    assert answer.body == GOLDEN["status_body"].encode()
    assert (len(second.pushed), len(third.pushed)) == (2, 1)
    answer = ask(broker, STATUS, topic="T", group="g", clientAddr="c1")
    assert answer.body == GOLDEN["status_body"].encode()
    assert len(second.pushed) == 2
    answer = ask(broker, STATUS, topic="T", group="g", clientAddr="nobody")
    assert answer.body == GOLDEN["status_body_of_nobody"].encode()


def test_a_silent_member_is_left_out_after_5_s(broker: SimBroker) -> None:
    SimClient(broker)
    began = broker.world.clock.seconds()
    answer = ask(broker, STATUS, topic="T", group="g")
    assert answer.body == GOLDEN["status_body_of_nobody"].encode()
    assert 5 <= broker.world.clock.seconds() - began < 6


# ---------------------------------------------------------------- 307, 309


def test_running_info_is_relayed_word_for_word(broker: SimBroker) -> None:
    """What the client says of itself stays, language and version, too; no secrets go out."""
    client = SimClient(broker)
    client.answers[307] = RemotingCommand(
        5, {"a": "b"}, b'{"x":1}', remark="mine", language="GO", version=99
    )
    ext = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true", "other": "kept"}
    answer = ask(broker, 307, **ext, AccessKey="k", Signature="s")
    assert (answer.code, answer.remark, answer.ext) == (5, "mine", {"a": "b"})
    assert (answer.body, answer.language, answer.version) == (b'{"x":1}', "GO", 99)
    assert same_header(client.pushed[0], GOLDEN["running_info_push_header"])


def test_relays_to_nobody(broker: SimBroker) -> None:
    SimClient(broker, "old", version=61)
    absent = ask(broker, 307, consumerGroup="g", clientId="zz")
    assert (absent.code, absent.remark) == (1, "The Consumer <g> <zz> not online")
    assert ask(broker, 307, consumerGroup="g").remark == "The Consumer <g> <null> not online"
    old = ask(broker, 307, consumerGroup="g", clientId="old")
    assert old.code == 1
    assert "too low to finish, please upgrade it to V3_1_8_SNAPSHOT" in (old.remark or "")
    assert ask(broker, 307, clientId="c1").code == 1


def test_a_silent_client_times_out(broker: SimBroker) -> None:
    """After 10 s, with a code of its own."""
    SimClient(broker).answers[307] = SILENT
    began = broker.world.clock.seconds()
    answer = broker.wait(
        broker.client.invoke(
            f"{broker.host.ip}:{broker.configuration.server.listen_port}",
            RemotingCommand(307, {"consumerGroup": "g", "clientId": "c1"}),
            20_000,
        )
    )
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (answer.remark or "").startswith("consumer <g> <c1> Timeout: ")
    assert 10 <= broker.world.clock.seconds() - began < 11


def test_a_client_that_leaves_is_answered_for_at_once(broker: SimBroker) -> None:
    """Java lets the operator wait for 10 s."""
    client = SimClient(broker)
    asked = broker.ask(RemotingCommand(307, {"consumerGroup": "g", "clientId": "c1"}))
    broker.world.clock.run_while(lambda: not client.pushed, 5)
    began = broker.world.clock.seconds()
    client.leave()
    answer = broker.wait(asked)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "lost the connection" in (answer.remark or "")
    assert broker.world.clock.seconds() - began < 1


def test_of_two_connections_the_later_is_asked(broker: SimBroker) -> None:
    """The earlier may be dead without anybody knowing."""
    first, second = SimClient(broker), SimClient(broker)
    second.answers[307] = RemotingCommand(0)
    assert ask(broker, 307, consumerGroup="g", clientId="c1").code == 0
    assert first.pushed == []


def test_consume_directly(broker: SimBroker) -> None:
    """The client gets the record and our name; its answer comes back as it is."""
    client = SimClient(broker)
    client.answers[309] = RemotingCommand(0, body=b'{"consumeResult":"CR_SUCCESS"}')
    sent = broker.call(send_request("PG", "T", 0, b"body!", "", 1))
    message_id = (sent.ext or {})["msgId"]
    answer = ask(broker, 309, consumerGroup="g", clientId="c1", msgId=message_id)
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    (push,) = client.pushed
    assert push.ext == {
        "consumerGroup": "g",
        "clientId": "c1",
        "msgId": message_id,
        "brokerName": "broker-a",
    }
    offset = int(message_id[-16:], 16)
    viewed = broker.call(RemotingCommand(33, {"offset": str(offset)}))
    assert push.body == viewed.body
    ipv6 = "0" * 40 + message_id[-16:]
    assert ask(broker, 309, consumerGroup="g", clientId="c1", msgId=ipv6).code == 0


@pytest.mark.parametrize("message_id", ["junk", "", "7F" * 8, "7F" * 16, "FF" * 28])
def test_consume_directly_what_is_not_there(broker: SimBroker, message_id: str) -> None:
    """A clear refusal, whatever the id; the client hears nothing."""
    client = SimClient(broker)
    answer = ask(broker, 309, consumerGroup="g", clientId="c1", msgId=message_id)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "offsetMsgId" in (answer.remark or "")
    assert client.pushed == []


# ---------------------------------------------------------------- 303, 308, 314, 321


def test_consume_time_span(broker: SimBroker) -> None:
    """Per write queue: first, last and consumed message, and how long the next one waits."""
    assert ask(broker, 303, topic="NO", group="g").code == ResponseCode.TOPIC_NOT_EXIST
    commit(broker, 1, 1)
    answer = ask(broker, 303, topic="T", group="g")
    first, second = fastjson.parse(answer.body or b"")["consumeTimeSpanSet"]
    store = broker.broker.store
    now_ms = broker.host.now_ms()
    assert first["minTimeStamp"] == first["consumeTimeStamp"] == store.store_timestamp_at("T", 0, 0)
    assert first["maxTimeStamp"] == store.store_timestamp_at("T", 0, 2)
    assert abs(now_ms - first["delayTime"] - store.store_timestamp_at("T", 0, 1)) < 100
    assert second["delayTime"] == 0
    commit(broker, 0, 0, group="beginner")
    begun = fastjson.parse(ask(broker, 303, topic="T", group="beginner").body or b"")
    assert begun["consumeTimeSpanSet"][0]["consumeTimeStamp"] == first["minTimeStamp"]
    nobody = fastjson.parse(ask(broker, 303, topic="T", group="").body or b"")
    for span in nobody["consumeTimeSpanSet"]:
        assert abs(now_ms - span["delayTime"] - span["minTimeStamp"]) < 100
        assert span["consumeTimeStamp"] == span["minTimeStamp"]


def test_correction_offset(broker: SimBroker) -> None:
    """The slowest of the groups that count; asking changes nothing, unlike in Java."""
    commit(broker, 1, 1)
    ask_for = {"topic": "T", "compareGroup": "g"}
    assert ask(broker, 308, filterGroups="", **ask_for).body == GOLDEN["correction_body"].encode()
    commit(broker, 3, 0, group="h")
    assert ask(broker, 308, **ask_for).body == b'{"correctionOffsets":{0:1,1:0}}'
    before = broker.broker.consumer_offsets.to_body()
    filtered = ask(broker, 308, filterGroups="g,x", topic="T", compareGroup="h")
    assert filtered.body == b'{"correctionOffsets":{0:3,1:0}}'
    assert broker.broker.consumer_offsets.to_body() == before
    behind = ask(broker, 308, filterGroups="g", **ask_for)
    assert behind.body == b'{"correctionOffsets":{0:9223372036854775807,1:0}}'
    assert ask(broker, 308, topic="NO").body == b'{"correctionOffsets":{}}'


def test_clone_group_offset(broker: SimBroker) -> None:
    """One topic or all; unknown topics and those that are not subscribed are skipped."""
    commit(broker, 3, 0, group="h")
    table = broker.broker.consumer_offsets
    for name in ("Absent", "gone"):  # the one before T, the other behind it
        table.commit("h", name, 0, 1)
    clone = RequestCode.CLONE_GROUP_OFFSET
    assert ask(broker, clone, srcGroup="h", destGroup="a", topic="T", offline="true").code == 0
    assert table.queues("a", "T") == {0: 3, 1: 0}
    assert ask(broker, clone, srcGroup="h", destGroup="b", offline="true").code == 0
    assert table.which_topics("b") == {"T"}
    assert ask(broker, clone, srcGroup="nobody", destGroup="c", topic="T").code == 0
    assert not table.which_topics("c")
    SimClient(broker, group="h", topic="Other")
    assert ask(broker, clone, srcGroup="h", destGroup="d", topic="T").code == 0
    assert not table.which_topics("d")
    assert ask(broker, clone, srcGroup="h", destGroup="e", topic="T", offline="true").code == 0
    assert table.which_topics("e") == {"T"}
    table.commit("h", "T", 0, 2)
    assert table.queues("a", "T") == {0: 3, 1: 0}
    assert ask(broker, clone, srcGroup="h").code == 1


def test_consume_queue(broker: SimBroker) -> None:
    """Raw units, with the subscription of a group where one is named."""
    size = 100
    answer = ask(broker, 321, topic="T", queueId=0, index=1, count=5)
    body = fastjson.parse(answer.body or b"")
    golden = fastjson.parse(GOLDEN["queue_body"].encode())
    assert body.keys() == golden.keys()
    assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 3)
    assert [unit.keys() for unit in body["queueData"]] == [
        unit.keys() for unit in golden["queueData"]
    ]
    first, second = body["queueData"]
    assert first["tagsCode"] == 65
    assert second["physicOffset"] == first["physicOffset"] + first["physicSize"]
    assert size < first["physicSize"] < 2 * size
    SimClient(broker)
    one = fastjson.parse(
        ask(broker, 321, topic="T", queueId=0, index=1, count=1, consumerGroup="g").body or b""
    )
    golden = fastjson.parse(GOLDEN["queue_body_with_group"].encode())
    assert one["subscriptionData"] == golden["subscriptionData"]
    assert one["filterData"] == "null"
    sql = SubscriptionData("T", "a = 1", sub_version=2, expression_type="SQL92")
    broker.broker.consumers.group("g").subscriptions["T"] = sql
    broker.broker.consumer_filters.register("g", [sql])
    filtered = fastjson.parse(
        ask(broker, 321, topic="T", queueId=0, index=1, count=1, consumerGroup="g").body or b""
    )
    assert json.loads(filtered["filterData"])["expression"] == "a = 1"
    other = ask(broker, 321, topic="T", queueId=0, index=1, count=1, consumerGroup="nog")
    assert fastjson.parse(other.body or b"")["filterData"] == "nog@T is not online!"


@pytest.mark.parametrize("index", [0, 2])
def test_consume_queue_from_its_first_unit_to_its_last(broker: SimBroker, index: int) -> None:
    answer = ask(broker, 321, topic="T", queueId=0, index=index, count=5)
    assert answer.remark is None
    assert len(fastjson.parse(answer.body or b"")["queueData"]) == 3 - index


def test_consume_queue_without_a_number_of_units_tells_the_bounds(broker: SimBroker) -> None:
    body = fastjson.parse(ask(broker, 321, topic="T", queueId=0, index=1).body or b"")
    assert (body["minQueueIndex"], body["maxQueueIndex"], body["queueData"]) == (0, 3, [])


@pytest.mark.parametrize("index", [-1, 3, 1 << 40])
def test_consume_queue_outside_its_bounds(broker: SimBroker, index: int) -> None:
    """Java leaves the body out, and mqadmin falls over that."""
    answer = ask(broker, 321, topic="T", queueId=0, index=index, count=5)
    assert (answer.code, answer.remark) == (0, f"Index {index} of 0@T is not exist!")
    assert fastjson.parse(answer.body or b"")["queueData"] == []


def test_consume_queue_of_an_unknown_queue(broker: SimBroker) -> None:
    for topic, queue_id in (("T", 9), ("NO", 0)):
        answer = ask(broker, 321, topic=topic, queueId=queue_id, index=0, count=5)
        assert (answer.code, answer.remark) == (1, f"{queue_id}@{topic} is not exist!")
    assert ask(broker, 321, topic="T").code == 1
    assert ask(broker, 321, topic="T", queueId=0, index=0, count=2147483647).code == 0


def test_without_a_compiled_expression_every_unit_is_wanted() -> None:
    """As a pull lets everything pass then, and the record decides."""
    sql = SubscriptionData("T", "a = 1", sub_version=2, expression_type="SQL92")
    uncompiled: Any = SimpleNamespace(selector=None)
    for data in (None, uncompiled):
        assert _unit_filter(sql, data)(1, 2, b"")
