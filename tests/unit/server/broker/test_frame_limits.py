"""What one frame may ask for: so many, one more is refused, and nothing of it is done."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.config.all_keys import ALL_KEYS
from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.numbers import MOST_ITEMS
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.broker.frame_limits import FrameLimits
from tests.kits.channel import FakeChannel
from tests.unit.server.broker.asked_broker import AskedBroker
from tests.unit.server.broker.sim_broker import SimBroker


def heartbeat(
    kit: AskedBroker, groups: int, subscriptions: int, expression: str | None = None
) -> Any:
    one = {"subString": expression or "*", "expressionType": "SQL92" if expression else "TAG"}
    consumers = [
        {
            "groupName": f"G{group}",
            "subscriptionDataSet": [{"topic": f"T{n}", **one} for n in range(subscriptions)],
        }
        for group in range(groups)
    ]
    body = {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": [{"groupName": "P"}]}
    return kit.request(34, None, body)


@pytest.mark.parametrize(
    ("key", "taken", "refused"),
    [
        ("maxGroupsPerHeartbeat", (3, 1), (4, 1)),
        ("maxSubscriptionsPerHeartbeat", (2, 3), (1, 7)),
        ("maxFilterCharactersPerHeartbeat", (2, 2, "a = 1"), (1, 5, "a = 1")),
    ],
)
def test_a_heartbeat(key: str, taken: tuple[Any, ...], refused: tuple[Any, ...]) -> None:
    """2,000 groups took 1.4 s, 150 SQL92 expressions 3.8 s."""
    kit = AskedBroker()
    kit.configuration.ours.max_groups_per_heartbeat = 4
    kit.configuration.ours.max_subscriptions_per_heartbeat = 6
    kit.configuration.ours.max_filter_characters_per_heartbeat = 4 * len("a = 1")
    answer = heartbeat(kit, *refused)
    assert answer.code == 1
    assert f"{key} allows" in answer.remark
    assert kit.consumers.group("G0") is None
    assert [name for name, count in kit.limits.refused.items() if count] == [key]
    assert heartbeat(kit, *taken).code == 0
    assert kit.consumers.group("G0") is not None


@pytest.mark.parametrize("code", [41, 42])
def test_a_lock(code: int) -> None:
    """50,000 queues took 0.9 s."""
    kit = AskedBroker()
    kit.configuration.ours.max_queues_per_lock = 3
    for count, expected in ((4, 1), (3, 0)):
        queues = [{"topic": "T", "brokerName": "b", "queueId": n} for n in range(count)]
        body = {"consumerGroup": "G", "clientId": "c", "mqSet": queues}
        assert kit.request(code, {}, body, channel=FakeChannel()).code == expected
    assert kit.limits.refused["maxQueuesPerLock"] == 1


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    made = SimBroker().start()
    made.broker.topics.update(TopicConfig("TopicA", 4, 4))
    yield made
    made.stop()


def send_batch(broker: SimBroker, count: int, properties: str = "") -> Any:
    ext = {"a": "P", "b": "TopicA", "e": "0", "i": properties, "m": "true"}
    body = encode_batch([(0, b"x", "")] * count)
    return broker.call(RemotingCommand(320, ext, body))


def test_a_batch(broker: SimBroker) -> None:
    """190,000 empty messages in 4 MB took 3.6 s and 300 MiB."""
    inner = broker.broker
    inner.configuration.ours.max_messages_per_batch = 3
    answer = send_batch(broker, 4)
    assert answer.code == 13
    assert "maxMessagesPerBatch allows 3" in answer.remark
    assert inner.limits.refused["maxMessagesPerBatch"] == 1
    assert inner.store.max_offset_in_queue("TopicA", 0) == 0
    assert send_batch(broker, 3).code == 0


def test_the_example_of_rocketmq_fits() -> None:
    """Its splitter puts messages of 76 bytes, overhead included, into batches of 1 MB."""
    members = [
        (0, b"Hello world%05d" % n, f"KEYS\x01OrderID{n:05}\x02TAGS\x01Tag") for n in range(13_000)
    ]
    broker = SimBroker()
    broker.configuration.store.mapped_file_size_commit_log = 1 << 23
    broker.start().broker.topics.update(TopicConfig("TopicA", 4, 4))
    ext = {"a": "P", "b": "TopicA", "e": "0", "i": "", "m": "true"}
    assert broker.call(RemotingCommand(320, ext, encode_batch(members))).code == 0
    assert broker.broker.store.max_offset_in_queue("TopicA", 0) == 13_000
    broker.stop()


def test_the_properties_of_a_batch_count_for_each_member(broker: SimBroker) -> None:
    """They stand once in the frame and in each message: 32 KB became 320 MB."""
    broker.broker.configuration.store.max_message_size = 20_000
    properties = "k\x01" + "v" * 200
    answer = send_batch(broker, 100, properties)
    assert answer.code == 13
    assert "maxMessageSize" in answer.remark
    assert send_batch(broker, 70, properties).code == 0


def test_a_batch_is_not_read_beyond_its_limit(broker: SimBroker) -> None:
    """What follows the first member too many is not looked at, whatever it is."""
    broker.broker.configuration.ours.max_messages_per_batch = 3
    body = encode_batch([(0, b"x", "")] * 4) + b"no member"
    ext = {"a": "P", "b": "TopicA", "e": "0", "i": "", "m": "true"}
    answer = broker.call(RemotingCommand(320, ext, body))
    assert (answer.code, "maxMessagesPerBatch" in answer.remark) == (13, True)


def test_keys_count_at_once() -> None:
    config = RmqHaConfig()
    limits = FrameLimits(config)
    limits.check("maxQueuesPerLock", 1500)
    config.max_queues_per_lock = 10
    with pytest.raises(RequestRejected, match="maxQueuesPerLock allows 10"):
        limits.check("maxQueuesPerLock", 11)
    limits.check("maxQueuesPerLock", 10)


@pytest.mark.parametrize(
    "key", ["maxGroupsPerHeartbeat", "maxSubscriptionsPerHeartbeat", "maxQueuesPerLock"]
)
def test_no_key_allows_more_than_is_ever_looked_at(key: str) -> None:
    """Whoever set it higher would be told one limit and meet another."""
    assert (ALL_KEYS[key].least, ALL_KEYS[key].most) == (1, MOST_ITEMS)


def test_topics_and_groups_of_clients_have_an_end(broker: SimBroker) -> None:
    """An operator still creates some; what is there already is served."""
    inner = broker.broker
    ours = inner.configuration.ours
    ours.max_topics = len(inner.topics.table) + 1
    ours.max_groups = len(inner.groups.table) + 1
    for name, code in (("First", 0), ("Second", 17), ("First", 0)):
        assert broker.call(send_request("p", name, 0, b"x", "", 0)).code == code
        assert (inner.groups.find(name) is not None) == (code == 0)
    inner.topics.update(TopicConfig("Third", 1, 1))
    inner.groups.update(SubscriptionGroupConfig("Third"))
    assert broker.call(send_request("p", "Third", 0, b"x", "", 0)).code == 0
    assert inner.groups.find("Third") is not None
    assert (inner.topics.not_created, inner.groups.not_created) == (1, 1)
