"""Pull consumers and brokers on one fake clock."""

from typing import Any

import msgspec
import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.flags import PULL_SUSPEND
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.pull_consumer import PullConsumer
from rmq_ha.client.rules.consumer_settings import MessageModel, PullConsumerConfig
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NotStarted
from rmq_ha.client.rules.messages import PullStatus
from tests.unit.client.consuming import GROUP, TOPIC, Consuming, queue
from tests.unit.client.scripted import HERE, MASTER, OTHER, QUEUE, Scripted, message, refused


def started(cluster: Consuming, name: str = "p1", listener: Any = None) -> PullConsumer:
    consumer = PullConsumer(cluster.client(name), GROUP)
    if listener is not None:
        consumer.register_message_queue_listener(TOPIC, listener)
    cluster.wait(consumer.start())
    return consumer


def mine_of(consumer: PullConsumer) -> list[Any]:
    return consumer.fetch_message_queues_in_balance(TOPIC)


def bodies(result: Any) -> list[str]:
    return [message.body.decode() for message in result.msg_found_list]


def test_it_pulls_where_it_likes_and_learns_what_there_is() -> None:
    cluster = Consuming("a")
    sent = cluster.send("a", 8, queue_id=2)
    consumer = started(cluster)
    queues = cluster.wait(consumer.fetch_subscribe_message_queues(TOPIC))
    assert queues == [queue("a", number) for number in range(4)]
    found = cluster.wait(consumer.pull(queues[2], "*", 3, 4))
    assert found.pull_status is PullStatus.FOUND
    assert bodies(found) == sent[3:7]
    assert (found.next_begin_offset, found.min_offset, found.max_offset) == (7, 0, 8)
    nothing = cluster.wait(consumer.pull(queues[2], "*", 8, 4))
    assert nothing.pull_status is PullStatus.NO_NEW_MSG
    beyond = cluster.wait(consumer.pull(queues[2], "*", 99, 4))
    assert beyond.pull_status is PullStatus.OFFSET_ILLEGAL
    assert beyond.next_begin_offset == 8
    assert cluster.wait(consumer.max_offset(queues[2])) == 8
    assert cluster.wait(consumer.min_offset(queues[2])) == 0
    assert cluster.wait(consumer.earliest_msg_store_time(queues[2])) > 0
    assert cluster.wait(consumer.search_offset(queues[2], 0)) == 0
    cluster.wait(consumer.stop())


def test_it_waits_at_the_broker_for_a_message() -> None:
    cluster = Consuming("a")
    consumer = started(cluster)
    found: list[Any] = []
    consumer.pull_block_if_not_found(queue("a", 0), "red", 0, 32).addCallback(found.append)
    cluster.run(3)
    cluster.send("a", queue_id=0, TAGS="blue")
    cluster.run(1)
    assert not found
    sent = cluster.send("a", queue_id=0, TAGS="red")
    cluster.run(1)
    assert bodies(found[0]) == sent


def test_its_offsets_are_those_that_it_says() -> None:
    cluster = Consuming("a")
    cluster.send("a", 20)
    consumer = started(cluster)
    assert cluster.wait(consumer.fetch_consume_offset(queue("a", 1))) == 0
    consumer.update_consume_offset(queue("a", 1), 5)
    cluster.wait(consumer.persist(queue("a", 1)))
    cluster.run(1)
    assert cluster.committed("a") == {1: 5}
    consumer.update_consume_offset(queue("a", 1), 3)
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert cluster.committed("a") == {1: 3}


def test_offsets_of_its_own_machine_are_there_again() -> None:
    """The one that consumes for itself would begin anew after each start."""
    cluster = Consuming("a")
    config = PullConsumerConfig(message_model=MessageModel.BROADCASTING)
    consumer = PullConsumer(cluster.client("p1"), GROUP, config)
    cluster.wait(consumer.start())
    consumer.update_consume_offset(queue("a", 1), 5)
    cluster.wait(consumer.stop())
    again = ClientInstance(cluster.hosts["p1"].seams, consumer._instance.settings)
    consumer = PullConsumer(again, GROUP, config)
    cluster.wait(consumer.start())
    assert cluster.wait(consumer.fetch_consume_offset(queue("a", 1))) == 5
    cluster.wait(consumer.stop())
    assert not cluster.committed("a")


def test_queues_of_registered_topics_are_shared_out() -> None:
    cluster = Consuming("a")
    cluster.send("a", 48)
    told: list[Any] = []
    first = started(cluster, "p1", lambda *change: told.append(change))
    every = [queue("a", number) for number in range(4)]
    assert first.fetch_message_queues_in_balance(TOPIC) == every
    assert not any(map(first.is_stuck, every))  # whoever pulls takes his time
    assert told == [(TOPIC, every, every)]
    assert set(cluster.brokers["a"].consumers.group(GROUP).subscriptions) == {TOPIC}
    for number, one in enumerate(every):
        first.update_consume_offset(one, 7 + number)
    second = started(cluster, "p2", print)
    cluster.run(2)
    handed_over = cluster.committed("a")  # whoever has them now goes on there
    assert handed_over == {one.queue_id: 7 + one.queue_id for one in mine_of(second)}
    gone = mine_of(second)[0]
    second.update_consume_offset(gone, 11)
    cluster.wait(second.persist(gone))
    cluster.run(0.1)
    assert cluster.wait(first.fetch_consume_offset(gone)) == 11
    second.update_consume_offset(gone, 12)
    cluster.wait(second.persist(gone))
    cluster.run(6)  # what the first one has read of it is not written back
    assert cluster.committed("a")[gone.queue_id] == 12
    mine = [consumer.fetch_message_queues_in_balance(TOPIC) for consumer in (first, second)]
    assert [len(share) for share in mine] == [2, 2]
    assert len({*mine[0], *mine[1]}) == 4
    assert told[-1] == (TOPIC, [queue("a", number) for number in range(4)], mine[0])
    cluster.wait(second.stop())
    cluster.run(2)
    assert len(first.fetch_message_queues_in_balance(TOPIC)) == 4


def test_a_message_is_sent_back_for_the_group() -> None:
    cluster = Consuming("a")
    cluster.send("a", queue_id=0)
    consumer = started(cluster)
    (message,) = cluster.wait(consumer.pull(queue("a", 0), None, 0, 1)).msg_found_list
    assert cluster.wait(consumer.send_message_back(message, 1))
    cluster.run(5)
    assert cluster.brokers["a"].store.max_offset_in_queue(f"%RETRY%{GROUP}", 0) == 1


@pytest.mark.parametrize(
    ("told", "of_message", "address"),
    [("b", "a", OTHER), (None, "b", OTHER), (None, "a", MASTER), (None, "", "127.0.0.1:10911")],
)
def test_a_message_goes_back_to_the_broker_that_is_named_or_else_to_its_own(
    told: str | None, of_message: str, address: str
) -> None:
    client = Scripted()
    client.know()
    consumer = PullConsumer(client.instance, GROUP)
    taken = message(3)
    taken.broker_name = of_message
    assert client.wait(consumer.send_message_back(taken, 1, told))
    ((asked, _),) = client.of(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert asked == address


def test_what_cannot_work_is_refused() -> None:
    cluster = Consuming("a")
    consumer = PullConsumer(cluster.client(), GROUP)
    later = consumer.pull(queue("a", 0), "*", 0, 1)  # whoever waits for it is told
    with pytest.raises(NotStarted):
        cluster.wait(later)
    cluster.wait(consumer.start())
    with pytest.raises(NotStarted):
        cluster.wait(consumer.start())
    with pytest.raises(MQClientError, match="positive"):
        cluster.wait(consumer.pull(queue("a", 0), "*", -1, 1))
    with pytest.raises(BrokerRefused):
        cluster.wait(consumer.pull(queue("a", 99), "*", 0, 1))
    with pytest.raises(MQClientError, match="zzz"):
        cluster.wait(consumer.pull(queue("zzz", 0), "*", 0, 1))
    with pytest.raises(ConfigurationError, match="less than"):
        PullConsumerConfig(consumer_timeout_when_suspend_ms=1).checked()
    with pytest.raises(ConfigurationError, match="consumer_group"):
        PullConsumer(cluster.client("x"), "a b")


def test_a_broker_hears_of_a_topic_with_the_first_pull_and_holds_none() -> None:
    """Before the next round of heartbeats it would refuse the group's expressions."""
    client = Scripted()
    consumer = PullConsumer(client.instance, GROUP)
    client.wait(consumer.start())
    client.know()
    client.answers[RequestCode.PULL_MESSAGE] = RemotingCommand(
        19, {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
    )
    for _ in range(2):
        client.wait(consumer.pull(QUEUE, "*", 0, 1))
    assert len(client.of(RequestCode.HEART_BEAT)) == 3  # each broker once
    (_, ext), _again = client.of(RequestCode.PULL_MESSAGE)
    assert (ext["suspendTimeoutMillis"], int(ext["sysFlag"]) & PULL_SUSPEND) == ("0", 0)


def test_what_is_pulled_has_the_names_that_the_application_knows() -> None:
    client = Scripted(namespace="N")
    consumer = PullConsumer(client.instance, GROUP)
    client.wait(consumer.start())
    client.know("N%T")
    body = b"".join(
        encode_record(Record(*(0, 1, 0, 0, number, 0, 0, 5, HERE, 6, HERE, 7, 8, b"x", "N%T", "")))
        for number in range(2)
    )
    client.answers[RequestCode.PULL_MESSAGE] = RemotingCommand(
        0, {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2"}, body
    )
    found = client.wait(consumer.pull(QUEUE, "*", 0, 9)).msg_found_list
    assert [message.topic for message in found] == ["T", "T"]


def test_a_queue_that_goes_to_another_member_is_committed_and_then_nobody_s_here() -> None:
    """What is remembered of it would overwrite what the other one commits."""
    client = Scripted()
    client.know()
    consumer = PullConsumer(client.instance, GROUP)
    choice = consumer._base.choice
    other = msgspec.structs.replace(QUEUE, queue_id=1)
    for each in (QUEUE, other):
        assert client.wait(consumer.take(each))
        consumer.update_consume_offset(each, 7)
        choice.suggest(each, 1)
    client.wait(consumer.give_up(QUEUE))
    ((_, told),) = client.of(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert (told["queueId"], told["commitOffset"]) == ("0", "7")
    assert (consumer.offset_store.memory(QUEUE), consumer.offset_store.memory(other)) == (None, 7)
    assert (choice.broker_id(QUEUE), choice.broker_id(other)) == (0, 1)
    assert list(consumer.owned()) == [other]
    assert set(consumer._base.queues_to_persist()) == {other}
    consumer.update_consume_offset(QUEUE, 5)
    assert client.wait(consumer.take(QUEUE))
    assert consumer.offset_store.memory(QUEUE) is None  # of its time before


def test_what_brokers_ask_a_member_that_pulls() -> None:
    """It has no listener, and keeps what an operator may look at to itself."""
    client = Scripted()
    client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refused(1)
    consumer = PullConsumer(client.instance, GROUP)
    consumer.register_message_queue_listener("T")
    part = consumer._part
    client.asked.clear()
    part.on_group_changed()
    assert client.asked == []
    client.wait(consumer.start())
    client.asked.clear()
    part.on_group_changed()
    assert client.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    info = part.running_info(True)
    assert info["properties"] == {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"}
    assert [item.topic for item in info["subscriptionSet"]] == ["T"]
    assert (info["mqTable"], info["statusTable"]) == ({}, {})
    consumer.update_consume_offset(QUEUE, 3)
    consumer.update_consume_offset(msgspec.structs.replace(QUEUE, topic="U"), 4)
    assert part.consume_status("T") == {QUEUE: 3}
    part.reset_offsets("T", {QUEUE: 1})
    assert part.consume_status("T") == {QUEUE: 3}
    with pytest.raises(MQClientError, match="no listener"):
        part.consume_directly(message(1))
    beat = part.heartbeat_data()
    assert (beat.group_name, beat.consume_type) == (GROUP, "CONSUME_ACTIVELY")
    assert (beat.message_model, beat.unit_mode) == ("CLUSTERING", False)
