"""What tools of RocketMQ 5 say about topics and groups. Spec: pop.md, section 7; grpc.md, 8."""

import json
from typing import Any

import pytest

from rmq_ha.base.model.attributes import format_changes, parse_changes, with_changes
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.base.wire.fastjson import pretty
from rmq_ha.base.wire.members import from_members, to_members
from rmq_ha.base.wire.route_bodies import RegisterBrokerBody
from tests.unit.server.broker.asked_broker import AskedBroker
from tests.unit.server.broker.test_processor_admin import TOPIC

MEMBERS_OF_5 = {"groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0}


def test_changes_are_read_as_they_are_written() -> None:
    before = {"message.type": "FIFO", "old": "1"}
    after = {"message.type": "MIXED"}
    text = format_changes(before, after)
    assert text == "+message.type=MIXED,-old"
    assert with_changes(before, parse_changes(text)) == after
    assert parse_changes("") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message.type=FIFO", "has not the form"),
        ("+message.type", "has not the form"),
        ("+message.type=", "has not the form"),
        ("-message.type=FIFO", "has not the form"),
        ("+", "has not the form"),
        ("+message.type=FIFO,-message.type", "named twice"),
        ("+message.type=fifo", "choose one of NORMAL, FIFO"),
        ("+cleanup.policy=COMPACTION", "only DELETE is served"),
        ("+queue.type=BatchCQ", "only SimpleCQ is served"),
        ("+reserve.time=5", "fileReservedTime"),
        ("+colour=red", "the attribute colour is not served; message.type, "),
        ("-message.type", "no attribute message.type"),
        ("+" + "x" * 2000 + "=1", "1024 are the most"),
    ],
)
def test_changes_that_are_refused(text: str, words: str) -> None:
    answer = AskedBroker().request(17, {**TOPIC, "attributes": text})
    assert answer.code == 1
    assert words in (answer.remark or "")


def test_a_topics_attributes_reach_its_file_its_listing_and_the_name_server() -> None:
    kit = AskedBroker()
    attributes = {"message.type": "FIFO"}
    assert kit.request(17, {**TOPIC, "attributes": "+message.type=FIFO"}).code == 0
    known = kit.topics.get("NewT")
    assert known is not None
    assert known.attributes == attributes
    assert kit.request(17, {**TOPIC, "readQueueNums": 5}).code == 0  # a tool of RocketMQ 4
    assert TopicTable.decode(kit.request(21).body).topics["NewT"].attributes == attributes
    assert json.loads(kit.topics.encode())["topicConfigTable"]["NewT"]["attributes"] == attributes
    assert kit.request(17, {**TOPIC, "attributes": "-message.type"}).code == 0
    assert b"attributes" not in kit.topics.encode()


def test_one_topic_is_shown_as_5_3_3_shows_it() -> None:
    kit = AskedBroker()
    kit.topics.update(TopicConfig("GFifo", 2, 2, attributes={"message.type": "FIFO"}))
    kit.topics.update(TopicConfig("Bare", 2, 2))
    assert kit.request(351, {"topic": "GFifo", "lo": "true"}).body == (
        b'{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":2,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"GFifo","topicSysFlag":0,"writeQueueNums":2}'
    )
    assert json.loads(kit.request(351, {"topic": "Bare"}).body or b"")["attributes"] == {}
    missing = kit.request(351, {"topic": "NoSuchT9"})
    assert (missing.code, missing.remark) == (17, "No topic in this broker. topic: NoSuchT9")


def test_one_group_is_shown_as_5_3_3_shows_it() -> None:
    kit = AskedBroker()
    assert kit.request(352, {"group": "NoSuchG98"}).body == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        b'"groupName":"NoSuchG98","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        b'"whichBrokerWhenConsumeSlowly":1}'
    )
    kit.configuration.broker.auto_create_subscription_group = False
    assert kit.request(352, {"group": "Other"}).code == 26


def test_what_5_3_3_says_of_a_group_is_kept_in_its_file() -> None:
    kit = AskedBroker()
    group = {"groupName": "G5", "consumeMessageOrderly": True, "retryMaxTimes": 3, **MEMBERS_OF_5}
    assert kit.request(200, body={**group, "subscriptionDataSet": None}).code == 0
    known = kit.groups.get("G5")
    assert known is not None
    assert (known.consume_message_orderly, known.foreign) == (True, MEMBERS_OF_5)
    written = json.loads(kit.groups.encode())["subscriptionGroupTable"]["G5"]
    assert written.items() >= group.items()
    assert "subscriptionDataSet" not in written
    assert GroupTable.decode(kit.groups.encode()).groups["G5"] == known
    assert from_members(SubscriptionGroupConfig, to_members(known)) == known  # the way to slaves


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ({"attributes": {"+priority.factor": "50"}}, "priority.factor is not served"),
        ({"deep": json.loads("[" * 62 + "]" * 62)}, "nested deeper than 64"),
    ],
)
def test_a_group_that_could_not_be_kept_is_refused(member: dict[str, Any], words: str) -> None:
    kit = AskedBroker()
    answer = kit.request(200, body={"groupName": "G5", **member})
    assert answer.code == 1
    assert words in (answer.remark or "")
    assert kit.groups.get("G5") is None


def test_attributes_of_a_group_stay_until_they_are_removed() -> None:
    kit = AskedBroker()
    kit.request(200, body=json.loads('{"groupName":"G5","attributes":{"priority.factor":"50"}}'))
    kit.request(200, body=json.loads('{"groupName":"G5","attributes":{"+priority.factor":"50"}}'))
    for asked, left in (("{}", {"priority.factor": "50"}), ('{"-priority.factor":""}', {})):
        assert (
            kit.request(200, body=json.loads(f'{{"groupName":"G5","attributes":{asked}}}')).code
            == 0
        )
        known = kit.groups.get("G5")
        assert known is not None
        assert known.attributes == left


def test_a_table_keeps_members_of_a_newer_rocketmq() -> None:
    text = (
        b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"perm":6,'
        b'"later":{"b":[1,2.5,null],"a":"x"},"topicName":"T"}}}'
    )
    table = TopicTable.decode(text)
    assert table.topics["T"].foreign == {"later": {"b": [1, 2.5, None], "a": "x"}}
    assert TopicTable.decode(pretty(table)) == table
    assert b'"later":{"a":"x","b":[1,2.5,null]}' in table.encode()


def test_a_compressed_registration_of_rocketmq_5_is_read() -> None:
    body = RegisterBrokerBody(topics={"T": TopicConfig("T SINGLE", 1, 1)}).encode(compressed=True)
    with pytest.raises(Exception, match="malformed"):  # a name with a space shifts the fields
        RegisterBrokerBody.decode(body, compressed=True)
    filter_type = 'SINGLE_TAG {"message.type":"FIFO"}'
    topics = {"T": TopicConfig("T", 1, 1, topic_filter_type=filter_type)}
    body = RegisterBrokerBody(topics=topics).encode(compressed=True)
    assert RegisterBrokerBody.decode(body, compressed=True).topics == {"T": TopicConfig("T", 1, 1)}
