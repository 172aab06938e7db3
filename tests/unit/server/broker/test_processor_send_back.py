"""CONSUMER_SEND_MSG_BACK. Spec: remoting.md, section 4.7; checked on a Java 4.9.7."""

from typing import Any

import pytest

from rmq_ha.base.model.message import Address, Message, offset_msg_id
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.versions import V3_4_9
from tests.unit.server.broker.processor_kit import BROKER, START_MS, Kit, properties_of


def back(kit: Kit, offset: int = 0, *, version: int = 407, **changes: Any) -> Any:
    ext = {
        "offset": offset,
        "group": "G1",
        "delayLevel": 0,
        "originMsgId": "x",
        "originTopic": "TopicA",
        "unitMode": "false",
        "maxReconsumeTimes": 16,
        **changes,
    }
    ext = {name: value for name, value in ext.items() if value is not None}
    return kit.request(36, ext, version=version)


def retried(kit: Kit, times: int, **properties: str) -> int:
    """A message that was given back before."""
    offset = len(kit.store.log)
    kit.store.put_message(
        Message(
            "%RETRY%G1",
            0,
            b"again",
            Address.parse("10.0.0.9", 77),
            BROKER,
            reconsume_times=times,
            properties=properties,
            properties_string=encode_properties(properties),
        )
    )
    return offset


def test_a_copy_goes_to_the_retry_topic() -> None:
    kit = Kit()
    kit.store.put("TopicA", body=b"other")
    offset = kit.store.put("TopicA", 1, b"body", KEYS="k", UNIQ_KEY="U", TAGS="TagA")
    answer = back(kit, offset)
    assert (answer.code, answer.ext, answer.body) == (0, None, None)
    copy = kit.store.messages[-1]
    original = kit.store.messages[1]
    assert (copy.topic, copy.queue_id, copy.body, copy.flag) == ("%RETRY%G1", 0, b"body", 5)
    assert (copy.born_host, copy.born_timestamp) == (original.born_host, 123)
    assert copy.store_host == BROKER
    assert (copy.reconsume_times, copy.wait_store_ok) == (1, False)
    expected = {
        "KEYS": "k",
        "UNIQ_KEY": "U",
        "TAGS": "TagA",
        "RETRY_TOPIC": "TopicA",
        "WAIT": "false",
        "ORIGIN_MESSAGE_ID": offset_msg_id(BROKER, offset),
        "DELAY": "3",
    }
    assert properties_of(copy) == copy.properties == expected
    topic = kit.topics.get("%RETRY%G1")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert topic.topic_sys_flag == 0


def test_the_store_host_stays_the_originals() -> None:
    kit = Kit()
    message = Message("TopicA", 0, b"", BROKER, Address.parse("10.9.8.7", 10911))
    kit.store.put_message(message)
    assert back(kit).code == 0
    assert kit.store.messages[-1].store_host == message.store_host
    assert START_MS  # the record's own time is the store's matter


def test_later_rounds() -> None:
    """The first topic and id are kept, the delay grows."""
    kit = Kit()
    offset = retried(kit, 2, RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="ID", DELAY="4")
    back(kit, offset)
    copy = kit.store.messages[-1]
    assert copy.reconsume_times == 3
    properties = properties_of(copy)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("First", "ID")
    assert properties["DELAY"] == "5"
    back(kit, offset, delayLevel=9)
    assert properties_of(kit.store.messages[-1])["DELAY"] == "9"


@pytest.mark.parametrize(
    ("times", "changes", "version", "topic"),
    [
        (15, {}, 407, "%RETRY%G1"),
        (16, {}, 407, "%DLQ%G1"),
        (3, {"maxReconsumeTimes": 3}, 407, "%DLQ%G1"),
        (3, {"maxReconsumeTimes": 3}, V3_4_9 - 1, "%RETRY%G1"),
        (3, {"maxReconsumeTimes": 3}, V3_4_9, "%DLQ%G1"),
        (16, {"maxReconsumeTimes": None}, 407, "%DLQ%G1"),
        (0, {"delayLevel": -1}, 407, "%DLQ%G1"),
        (0, {"maxReconsumeTimes": 0}, 407, "%DLQ%G1"),
    ],
)
def test_dead_letters(times: int, changes: Any, version: int, topic: str) -> None:
    kit = Kit()
    offset = retried(kit, times)
    assert back(kit, offset, version=version, **changes).code == 0
    copy = kit.store.messages[-1]
    assert copy.topic == topic
    if topic.startswith("%DLQ%"):
        assert (copy.queue_id, properties_of(copy)["DELAY"]) == (0, "0")
        config = kit.topics.get(topic)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    # What waits for its delay is counted there, a dead letter is none of a producer's messages.
    waits = kit.stats.growths("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")
    assert (waits is None) == topic.startswith("%DLQ%")
    assert kit.stats.growths("TOPIC_PUT_NUMS", topic) is None


def test_queues_are_chosen_at_random() -> None:
    kit = Kit()
    kit.groups.update(SubscriptionGroupConfig("G1", retry_queue_nums=4))
    kit.store.put("TopicA")
    for _ in range(50):
        back(kit)
    assert {message.queue_id for message in kit.store.messages[1:]} == {0, 1, 2, 3}


def test_only_queues_that_the_retry_topic_has_are_chosen() -> None:
    """Nobody may read the others. The group's number may be larger than the topic's numbers."""
    kit = Kit()
    kit.store.put("TopicA")
    kit.groups.update(SubscriptionGroupConfig("G1", retry_queue_nums=8))
    for reads, writes, chosen in ((1, 1, {0}), (2, 4, {0, 1}), (4, 3, {0, 1, 2})):
        kit.topics.update(TopicConfig("%RETRY%G1", reads, writes))
        known = len(kit.store.messages)
        for _ in range(50):
            assert back(kit).code == 0
        assert {message.queue_id for message in kit.store.messages[known:]} == chosen
    kit.topics.update(TopicConfig("%RETRY%G1", 0, 4))
    refused = back(kit)
    assert refused.code == 1
    assert "%RETRY%G1 has no queue that consumers may read" in refused.remark


def test_refusals() -> None:
    kit = Kit()
    kit.store.put("TopicA")
    assert back(kit, 7).code == 1
    assert back(kit, 99999).code == 1
    assert back(kit, -5).code == 1
    for name in ("offset", "group", "delayLevel"):
        assert back(kit, **{name: None}).code == 1
    for name in ("originMsgId", "originTopic", "unitMode", "maxReconsumeTimes"):
        assert back(kit, **{name: None}).code == 0
    kit.topics.update(TopicConfig("%RETRY%closed", 1, 1, 4))
    assert back(kit, group="closed").code == 16
    kit.groups.update(SubscriptionGroupConfig("never", retry_queue_nums=0))
    stored = len(kit.store.messages)
    assert back(kit, group="never").code == 0
    kit.broker.auto_create_subscription_group = False
    assert back(kit, group="unknown").code == 26
    kit.broker.broker_permission = 4
    assert back(kit).code == 16
    kit.store.busy = True
    assert back(kit).code == 2
    assert len(kit.store.messages) == stored


def test_a_put_that_fails() -> None:
    kit = Kit()
    kit.store.put("TopicA")
    kit.store.put_status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    answer = back(kit)
    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")


def test_unit_mode() -> None:
    kit = Kit()
    kit.store.put("TopicA")
    back(kit, unitMode="TRUE")
    topic = kit.topics.get("%RETRY%G1")
    assert topic is not None
    assert topic.topic_sys_flag == 2
