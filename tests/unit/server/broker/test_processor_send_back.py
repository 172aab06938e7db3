"""CONSUMER_SEND_MSG_BACK. Spec: remoting.md, section 4.7; checked on a Java 4.9.7."""

from typing import Any

import pytest

from rmq_ha.base.model.message import Address, BrokerMessage, offset_msg_id
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.base.wire.versions import V3_4_9
from tests.unit.server.broker.asked_broker import CLIENT, AskedBroker


def back(kit: AskedBroker, offset: int = 0, *, version: int = 407, **changes: Any) -> Any:
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


def retried(kit: AskedBroker, times: int, **properties: str) -> int:
    """A message that was given back before."""
    return kit.put_message(
        BrokerMessage(
            "%RETRY%G1",
            0,
            b"again",
            CLIENT,
            kit.address,
            reconsume_times=times,
            properties=properties,
            properties_string=encode_properties(properties),
        )
    )


class Copy:
    """The last message of the log, under the topic and queue where it ends up."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.properties = record.properties
        self.topic, self.queue_id = record.topic, record.queue_id
        if record.topic == SCHEDULE_TOPIC:
            self.topic = self.properties.pop("REAL_TOPIC")
            self.queue_id = int(self.properties.pop("REAL_QID"))


def last_copy(kit: AskedBroker) -> Copy:
    return Copy(kit.messages[-1])


def test_a_copy_goes_to_the_retry_topic() -> None:
    kit = AskedBroker()
    kit.put("TopicA", body=b"other")
    offset = kit.put("TopicA", 1, b"body", KEYS="k", UNIQ_KEY="U", TAGS="TagA")
    answer = back(kit, offset)
    assert (answer.code, answer.ext, answer.body) == (0, None, None)
    copy = last_copy(kit)
    record, original = copy.record, kit.messages[1]
    assert (copy.topic, copy.queue_id, record.body, record.flag) == ("%RETRY%G1", 0, b"body", 5)
    assert (record.born_host, record.born_timestamp) == (original.born_host, 123)
    assert record.store_host == kit.address
    assert record.reconsume_times == 1
    expected = {
        "KEYS": "k",
        "UNIQ_KEY": "U",
        "TAGS": "TagA",
        "RETRY_TOPIC": "TopicA",
        "WAIT": "false",
        "ORIGIN_MESSAGE_ID": offset_msg_id(kit.address, offset),
        "DELAY": "3",
    }
    assert copy.properties == expected
    topic = kit.topics.get("%RETRY%G1")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert topic.topic_sys_flag == 0


def test_the_store_host_stays_the_originals() -> None:
    kit = AskedBroker()
    message = BrokerMessage("TopicA", 0, b"", CLIENT, Address.parse("10.9.8.7", 10911))
    kit.put_message(message)
    assert back(kit).code == 0
    assert last_copy(kit).record.store_host == message.store_host


def test_later_rounds() -> None:
    """The first topic and id are kept, the delay grows."""
    kit = AskedBroker()
    offset = retried(kit, 2, RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="ID", DELAY="4")
    back(kit, offset)
    copy = last_copy(kit)
    assert copy.record.reconsume_times == 3
    properties = copy.properties
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("First", "ID")
    assert properties["DELAY"] == "5"
    back(kit, offset, delayLevel=9)
    assert last_copy(kit).properties["DELAY"] == "9"


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
    kit = AskedBroker()
    offset = retried(kit, times)
    assert back(kit, offset, version=version, **changes).code == 0
    copy = last_copy(kit)
    assert copy.topic == topic
    if topic.startswith("%DLQ%"):
        assert (copy.queue_id, copy.properties["DELAY"]) == (0, "0")
        config = kit.topics.get(topic)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    # What waits for its delay is counted there, a dead letter is none of a producer's messages.
    waits = kit.stats.growths("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")
    assert (waits is None) == topic.startswith("%DLQ%")
    assert kit.stats.growths("TOPIC_PUT_NUMS", topic) is None


def test_queues_are_chosen_at_random() -> None:
    kit = AskedBroker()
    kit.groups.update(SubscriptionGroupConfig("G1", retry_queue_nums=4))
    kit.put("TopicA")
    for _ in range(50):
        back(kit)
    assert {Copy(record).queue_id for record in kit.messages[1:]} == {0, 1, 2, 3}


def test_only_queues_that_the_retry_topic_has_are_chosen() -> None:
    """Nobody may read the others. The group's number may be larger than the topic's numbers."""
    kit = AskedBroker()
    kit.put("TopicA")
    kit.groups.update(SubscriptionGroupConfig("G1", retry_queue_nums=8))
    for reads, writes, chosen in ((1, 1, {0}), (2, 4, {0, 1}), (4, 3, {0, 1, 2})):
        kit.topics.update(TopicConfig("%RETRY%G1", reads, writes))
        known = len(kit.messages)
        for _ in range(50):
            assert back(kit).code == 0
        assert {Copy(record).queue_id for record in kit.messages[known:]} == chosen
    kit.topics.update(TopicConfig("%RETRY%G1", 0, 4))
    refused = back(kit)
    assert refused.code == 1
    assert "%RETRY%G1 has no queue that consumers may read" in refused.remark


def test_refusals() -> None:
    kit = AskedBroker()
    kit.put("TopicA")
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
    stored = len(kit.messages)
    assert back(kit, group="never").code == 0
    kit.broker_config.auto_create_subscription_group = False
    assert back(kit, group="unknown").code == 26
    kit.broker_config.broker_permission = 4
    assert back(kit).code == 16
    kit.store.slow_until = kit.world.clock.seconds() + 60
    assert back(kit).code == 2
    assert len(kit.messages) == stored


def test_a_put_that_fails() -> None:
    kit = AskedBroker()
    kit.put("TopicA")
    kit.store.flags.hoist(Flag.INDEX_FILE, "it cannot be written")
    answer = back(kit)
    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")


def test_unit_mode() -> None:
    kit = AskedBroker()
    kit.put("TopicA")
    back(kit, unitMode="TRUE")
    topic = kit.topics.get("%RETRY%G1")
    assert topic is not None
    assert topic.topic_sys_flag == 2
