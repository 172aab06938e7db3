"""Heartbeats, consumer lists, offsets and locks. Spec: remoting.md, sections 7.1 to 7.4."""

import gc
import json
import weakref
from typing import Any

import pytest

from rmq_ha.base.model.flags import PULL_COMMIT_OFFSET
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.command import FLAG_ONEWAY
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.server.store.queues.queue import ConsumeQueue
from tests.kits.channel import FakeChannel
from tests.unit.server.broker.asked_broker import AskedBroker


def pushes(channel: FakeChannel) -> list[tuple[int, Any, int]]:
    found = [(int(item.code), item.ext, item.flag) for item in channel.sent]
    channel.sent.clear()
    return found


NOTICE = (40, {"consumerGroup": "G1"}, FLAG_ONEWAY)


def test_heartbeat_tells_the_group_before_its_response() -> None:
    """The sender, too; the push is there when the handler returns."""
    kit = AskedBroker()
    first, second = FakeChannel(1), FakeChannel(2)
    answer = kit.heartbeat(first, "c1", "G1", "TopicA")
    assert (answer.code, answer.ext, answer.body) == (0, None, None)
    assert pushes(first) == [NOTICE]
    kit.heartbeat(first, "c1", "G1", "TopicA")
    assert pushes(first) == []
    kit.heartbeat(first, "c1", "G1", "TopicA", expression="TagA", version=2)
    assert pushes(first) == []  # only a newer expression
    kit.heartbeat(second, "c2", "G1", "TopicA", version=2)
    assert pushes(first) == pushes(second) == [NOTICE]
    kit.heartbeat(second, "c2", "G1", "TopicB", version=2)
    assert pushes(first) == pushes(second) == [NOTICE]


@pytest.mark.parametrize("who", ["broker", "group"])
def test_notices_can_be_switched_off(who: str) -> None:
    kit = AskedBroker()
    if who == "broker":
        kit.broker_config.notify_consumer_ids_changed_enable = False
    else:
        kit.groups.update(SubscriptionGroupConfig("G1", notify_consumer_ids_changed_enable=False))
    kit.heartbeat(kit.channel, "c1", "G1", "TopicA")
    assert kit.channel.sent == []


def test_heartbeat_creates_group_and_retry_topic() -> None:
    kit = AskedBroker()
    kit.groups.update(SubscriptionGroupConfig("G2", retry_queue_nums=3))
    kit.heartbeat(kit.channel, "c1", "G1", "TopicA")
    kit.heartbeat(kit.channel, "c1", "G2", "TopicA")
    one, two = kit.topics.get("%RETRY%G1"), kit.topics.get("%RETRY%G2")
    assert one is not None
    assert two is not None
    assert (one.read_queue_nums, one.perm, two.write_queue_nums) == (1, 6, 3)
    kit.broker_config.auto_create_subscription_group = False
    kit.heartbeat(kit.channel, "c1", "G3", "TopicA")
    assert kit.topics.get("%RETRY%G3") is None
    assert kit.consumers.client_ids("G3") == ["c1"]


@pytest.mark.parametrize(("is_unit", "flag"), [(False, 0), (True, 2)])
def test_a_retry_topic_says_whether_its_group_is_of_a_unit(is_unit: bool, flag: int) -> None:
    kit = AskedBroker()
    body = {"clientID": "c", "consumerDataSet": [{"groupName": "G", "unitMode": is_unit}]}
    assert kit.request(34, None, body).code == 0
    topic = kit.topics.get("%RETRY%G")
    assert topic is not None
    assert topic.topic_sys_flag == flag


@pytest.mark.parametrize(
    ("said", "is_kept"),
    [
        ({}, ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")),
        (
            {
                "consumeType": "CONSUME_ACTIVELY",
                "messageModel": "BROADCASTING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            },
            ("CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET"),
        ),
    ],
)
def test_how_a_group_consumes_is_what_it_says(said: dict[str, str], is_kept: Any) -> None:
    kit = AskedBroker()
    body = {"clientID": "c", "consumerDataSet": [{"groupName": "G", **said}]}
    assert kit.request(34, None, body).code == 0
    group = kit.consumers.group("G")
    assert group is not None
    assert (group.consume_type, group.message_model, group.consume_from_where) == is_kept


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"x{",
        b"[]",
        b'"x"',
        {"consumerDataSet": [{"groupName": "G"}]},
        {"clientID": "c", "consumerDataSet": [{}]},
        {"clientID": "c", "consumerDataSet": 5},
        {"clientID": "c", "consumerDataSet": [5]},
        {"clientID": "c", "producerDataSet": [{}]},
        {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [[]]}]},
        {
            "clientID": "c",
            "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": [1]}]}],
        },
        {
            "clientID": "c",
            "consumerDataSet": [
                {"groupName": "G", "subscriptionDataSet": [{"topic": "T", "tagsSet": [[1]]}]}
            ],
        },
        {
            "clientID": "c",
            "consumerDataSet": [
                {
                    "groupName": "G",
                    "subscriptionDataSet": [{"topic": "T", "subString": "*"}, {"topic": [1]}],
                }
            ],
        },
    ],
)
def test_a_heartbeat_that_does_not_fit_changes_nothing(body: Any) -> None:
    kit = AskedBroker()
    assert kit.request(34, None, body).code == 1
    assert kit.consumers.groups() == []
    assert kit.producers.groups() == []
    assert kit.channel.close_callbacks == 0


def test_an_empty_heartbeat_is_fine() -> None:
    assert AskedBroker().request(34, None, {}).code == 0


def test_closed_connections_leave_their_groups() -> None:
    """Those who remain hear of it, once a turn and not once for each that left."""
    kit = AskedBroker()
    channels = [FakeChannel(port) for port in range(4)]
    for number, channel in enumerate(channels):
        kit.heartbeat(channel, f"c{number}", "G1", "TopicA")
        kit.heartbeat(channel, f"c{number}", "G1", "TopicA")
        assert channel.close_callbacks == 1
    for channel in channels:
        channel.sent.clear()
    for channel in channels[1:]:
        channel.close()
    assert kit.consumers.client_ids("G1") == ["c0"]
    assert channels[0].sent == []
    kit.advance(0)
    assert pushes(channels[0]) == [NOTICE]
    late = channels[1]
    assert kit.heartbeat(late, "c1", "G1", "TopicA").code == 0
    assert kit.consumers.client_ids("G1") == ["c0"]


def test_all_groups_of_who_left_hear_of_it() -> None:
    kit = AskedBroker()
    gone, left = FakeChannel(1), FakeChannel(2)
    for channel, client_id in ((gone, "c1"), (left, "c2")):
        for group in ("G1", "G2"):
            kit.heartbeat(channel, client_id, group, "TopicA")
    left.sent.clear()
    gone.close()
    kit.advance(0)
    assert [item.ext["consumerGroup"] for item in left.sent] == ["G1", "G2"]


def test_stopping_the_notifier() -> None:
    kit = AskedBroker()
    stays = FakeChannel(1)
    for channel, client_id in ((kit.channel, "c1"), (stays, "c2")):
        kit.heartbeat(channel, client_id, "G1", "TopicA")
    stays.sent.clear()
    kit.channel.close()
    kit.notifier.stop()
    kit.advance(60)
    assert stays.sent == []


def test_silent_clients_are_closed() -> None:
    kit = AskedBroker()
    silent, alive, silent_too = FakeChannel(1), FakeChannel(2), FakeChannel(3)
    kit.heartbeat(silent, "c1", "G1", "TopicA")
    kit.heartbeat(alive, "c2", "G1", "TopicA")
    kit.heartbeat(silent_too, "c3", "G1", "TopicA")
    kit.advance(119)
    kit.heartbeat(alive, "c2", "G1", "TopicA")
    kit.heartbeats.close_expired()
    assert silent.is_open
    assert silent_too.is_open
    kit.advance(2)
    kit.heartbeats.close_expired()
    assert (silent.is_open, silent_too.is_open, alive.is_open) == (False, False, True)
    assert kit.consumers.client_ids("G1") == ["c2"]


def test_unregister() -> None:
    kit = AskedBroker()
    first, second = FakeChannel(1), FakeChannel(2)
    kit.heartbeat(first, "c1", "G1", "TopicA")
    kit.heartbeat(second, "c2", "G1", "TopicA")
    pushes(first), pushes(second)
    ext = {"clientID": "c2", "consumerGroup": "G1", "producerGroup": "PG"}
    answer = kit.request(35, ext, channel=second)
    assert (answer.code, answer.ext) == (0, {})
    assert (pushes(first), pushes(second)) == ([NOTICE], [])
    assert [client.client_id for client in kit.producers.clients("PG")] == ["c1"]
    assert kit.request(35, ext, channel=second).code == 0
    assert kit.request(35, {"consumerGroup": "nope"}).code == 0
    assert pushes(first) == []


@pytest.mark.parametrize(
    ("kind", "expected"), [("TAG", 0), ("", 0), (None, 0), ("SQL92", 1), ("FOO", 1)]
)
def test_check_client_config(kind: str | None, expected: int) -> None:
    body = {
        "clientId": "c",
        "group": "G",
        "subscriptionData": {"topic": "T", "expressionType": kind},
    }
    assert AskedBroker().request(46, None, body).code == expected
    assert AskedBroker().request(46, None, {}).code == 0
    assert AskedBroker().request(46).code == 1


@pytest.mark.parametrize(("expression", "expected"), [("a = 1", 0), ("a = = 1", 23)])
def test_an_expression_is_compiled_before_a_client_subscribes(
    expression: str, expected: int
) -> None:
    kit = AskedBroker()
    kit.broker_config.enable_property_filter = True
    subscription = {"topic": "T", "expressionType": "SQL92", "subString": expression}
    body = {"clientId": "c", "group": "G", "subscriptionData": subscription}
    assert kit.request(46, None, body).code == expected


def test_consumer_list() -> None:
    kit = AskedBroker()
    kit.heartbeat(FakeChannel(1), "c1", "G1", "TopicA")
    kit.heartbeat(FakeChannel(2), "c2", "G1", "TopicA")
    answer = kit.request(38, {"consumerGroup": "G1"})
    assert (answer.ext, json.loads(answer.body)) == ({}, {"consumerIdList": ["c1", "c2"]})
    answer = kit.request(38, {"consumerGroup": "nope"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, nope")
    assert kit.request(38).code == 1


def test_committed_offsets() -> None:
    """Spec: remoting.md, section 7.4, codes 14 and 15."""
    kit = AskedBroker()
    fill(kit, "TopicA", 1)
    where = {"consumerGroup": "G1", "topic": "TopicA", "queueId": 1}
    answer = kit.request(15, {**where, "commitOffset": 9})
    assert (answer.code, answer.ext) == (0, {})
    assert kit.request(14, where).ext == {"offset": "9"}
    kit.request(15, {**where, "commitOffset": 4})
    assert kit.request(14, where).ext == {"offset": "4"}
    assert kit.request(14, {**where, "queueId": "x"}).code == 1
    assert kit.request(15, where).code == 1


def fill(kit: AskedBroker, topic: str, queue_id: int) -> None:
    """The queue ends at 9."""
    for _ in range(9):
        kit.put(topic, queue_id)


ODD = [
    ({"queueId": 4}, "topic TopicA has 4 queues"),
    ({"queueId": 2**31 - 1}, "topic TopicA has 4 queues"),
    ({"queueId": -7}, "queueId[-7] is illegal"),
    ({"commitOffset": -9}, "the offset -9 is negative"),
    ({"commitOffset": 10}, "the offset 10 is beyond the end 9 of queue 1 of TopicA"),
    ({"queueId": 0}, "the offset 9 is beyond the end 0 of queue 0 of TopicA"),
    ({"topic": "nope"}, "topic[nope] not exist"),
    ({"topic": "x@y"}, "topic[x@y] not exist"),
    ({"consumerGroup": "G1@TopicA"}, "contains an @"),
]


@pytest.mark.parametrize(("odd", "reason"), ODD)
@pytest.mark.parametrize("is_checked", [True, False])
def test_offsets_that_no_consumer_can_have(
    odd: dict[str, Any], reason: str, is_checked: bool
) -> None:
    """Each id made an entry for ever: with 1.5 million of them the slave got no table any more."""
    kit = AskedBroker()
    fill(kit, "TopicA", 1)
    kit.configuration.ours.check_committed_offsets = is_checked
    commit = {"consumerGroup": "G1", "topic": "TopicA", "queueId": 1, "commitOffset": 9} | odd
    answer = kit.request(15, commit)
    assert answer.code == is_checked
    assert (reason in (answer.remark or "")) is is_checked
    assert bool(kit.offsets.table) is not is_checked
    assert kit.client_offsets.refused == is_checked


def test_an_attacker_with_one_topic_and_one_group_fills_no_table() -> None:
    """H5: 1.5 million queue ids were 40,892,273 bytes for the slave, more than a frame holds."""
    kit = AskedBroker()
    for queue_id in range(4):
        kit.put("TopicA", queue_id)
    for queue_id in range(20_000):
        kit.client_offsets.commit("G1", "TopicA", queue_id, 1)
    assert len(kit.offsets.table["TopicA@G1"]) == 4
    assert len(kit.offsets.to_body()) < 100


def test_who_has_consumed_nothing_yet_says_so() -> None:
    """Else the group would be asked again where to begin, and skip what came meanwhile."""
    kit = AskedBroker()
    commit = {"consumerGroup": "G1", "topic": "TopicA", "queueId": 0, "commitOffset": 0}
    assert kit.request(15, commit).code == 0
    assert kit.offsets.query("G1", "TopicA", 0) == 0


def test_queues_that_a_topic_has_for_writing_only_count_too() -> None:
    """mqadmin resets offsets on these."""
    kit = AskedBroker()
    kit.topics.update(TopicConfig("Shrunk", 2, 8, 6))
    fill(kit, "Shrunk", 7)
    commit = {"consumerGroup": "G1", "topic": "Shrunk", "queueId": 7, "commitOffset": 9}
    assert kit.request(15, commit).code == 0


def test_a_slave_takes_an_offset_that_its_queue_does_not_reach_yet() -> None:
    """The consumer read at the master; the slave's copy of the log comes later."""
    kit = AskedBroker(BrokerRole.SLAVE)
    commit = {"consumerGroup": "G1", "topic": "TopicA", "queueId": 0, "commitOffset": 9}
    assert kit.request(15, commit).code == 0


def test_a_pull_brings_no_negative_offset() -> None:
    kit = AskedBroker()
    fill(kit, "TopicA", 0)
    pull = pull_request("G1", "TopicA", 0, 0).ext or {}
    flags = int(pull["sysFlag"]) | PULL_COMMIT_OFFSET
    kit.request(11, pull | {"sysFlag": flags, "commitOffset": -9})
    assert kit.offsets.table == {}
    kit.request(11, pull | {"sysFlag": flags, "commitOffset": 3})
    assert kit.offsets.query("G1", "TopicA", 0) == 3


def test_offset_of_a_new_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 on a young topic and on an unknown one; 22 where old messages are gone or cold."""
    kit = AskedBroker()
    where = {"consumerGroup": "new", "topic": "TopicA", "queueId": 0}
    assert kit.request(14, where).ext == {"offset": "0"}
    assert kit.request(14, {**where, "topic": "nope"}).ext == {"offset": "0"}
    kit.put("TopicA")
    assert kit.request(14, where).ext == {"offset": "0"}
    kit.configuration.store.access_message_in_memory_max_ratio = -1  # it is only on the disk
    assert kit.request(14, where).code == 22
    kit.configuration.store.access_message_in_memory_max_ratio = 40
    monkeypatch.setattr(ConsumeQueue, "min_offset", 3)
    assert kit.request(14, where).code == 22


QUEUES = [{"topic": "TopicA", "brokerName": "broker-a", "queueId": number} for number in range(2)]


def test_locks() -> None:
    """Spec: remoting.md, section 7.3."""
    kit = AskedBroker()
    body = {"consumerGroup": "G1", "clientId": "c1", "mqSet": QUEUES}
    answer = kit.request(41, None, body)
    assert json.loads(answer.body) == {"lockOKMQSet": QUEUES}
    assert answer.body.startswith(b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic"')
    other = {**body, "clientId": "c2"}
    assert json.loads(kit.request(41, None, other).body) == {"lockOKMQSet": []}
    assert kit.request(42, None, other).code == 0
    assert kit.request(42, None, {**body, "mqSet": QUEUES[:1]}, oneway=True).code == 0
    assert json.loads(kit.request(41, None, other).body) == {"lockOKMQSet": QUEUES[:1]}
    kit.advance(61)
    assert json.loads(kit.request(41, None, other).body) == {"lockOKMQSet": QUEUES}


@pytest.mark.parametrize("code", [41, 42])
def test_locks_that_do_not_fit(code: int) -> None:
    for body in (None, b"", b"nope", {"mqSet": [1]}, {"mqSet": [{"queueId": []}]}):
        assert AskedBroker().request(code, None, body).code == 1


def test_nothing_of_a_client_outlives_its_connection() -> None:
    """Else a broker would keep each connection that it ever had."""
    kit = AskedBroker()
    channel = FakeChannel(1)
    kit.heartbeat(channel, "c1", "G1", "TopicA")
    channel.close()
    channel.sent.clear()
    kept = weakref.ref(channel)
    del channel
    gc.collect()
    assert kept() is None
