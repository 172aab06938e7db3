"""Push consumers and brokers on one fake clock."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.consume.offsets import RemoteBrokerOffsetStore
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, MessageModel, PushConsumerConfig
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError
from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus
from rmq_ha.client.rules.subscriptions import MessageSelector
from tests.unit.client.consuming import FIRST, GROUP, TOPIC, Consuming, queue

LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


def of_topic(consumer: Any) -> set[MessageQueue]:
    return {queue for queue in consumer.assignment() if queue.topic == TOPIC}


def test_everything_sent_is_consumed_once_and_committed() -> None:
    cluster = Consuming("a", "b")
    sent = cluster.send("a", 40) + cluster.send("b", 40)
    consumer = cluster.consumer()
    sent += cluster.send("a", 10)
    cluster.run(2)
    assert sorted(cluster.got["c1"]) == sorted(sent)
    assert len(of_topic(consumer)) == 8
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert sum(cluster.committed("a").values()) == 50
    assert sum(cluster.committed("b").values()) == 40
    assert not cluster.hosts["c1"].clock.getDelayedCalls()


def test_queues_follow_members_that_come_and_go_and_nothing_is_lost() -> None:
    cluster = Consuming("a", "b")
    consumers = {name: cluster.consumer(name) for name in ("c1", "c2", "c3")}
    sent = []

    def check(*names: str) -> None:
        cluster.run(2)
        shares = [of_topic(consumers[name]) for name in names]
        assert sum(map(len, shares)) == len(set().union(*shares)) == 8
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        sent.extend(cluster.send("a", 20) + cluster.send("b", 20))
        cluster.run(2)
        assert set(cluster.all_got()) == set(sent)

    check("c1", "c2", "c3")
    cluster.wait(consumers["c1"].stop())
    check("c2", "c3")
    cluster.hosts["c2"].crash()
    check("c3")
    consumers["c4"] = cluster.consumer("c4")
    check("c3", "c4")


@pytest.mark.parametrize(
    ("where", "timestamp", "expected"),
    [
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, "", {"m0", "m1", "m2", "m3", "m4"}),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, "", {"m4"}),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, "20200101000000", {"m0", "m1", "m2", "m3", "m4"}),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, "20300101000000", {"m4"}),
    ],
)
def test_a_group_without_offset_begins_where_it_is_told(
    where: Any, timestamp: str, expected: set[str]
) -> None:
    class Forgetful(RemoteBrokerOffsetStore):
        """A broker says 0 for a group that is new to a young topic."""

        async def read_offset(self, *_: Any) -> None:
            return None

    cluster = Consuming("a", queues=1)
    cluster.send("a", 4, queue_id=0)
    client = cluster.client("c1")
    cluster.consumer(
        client=client,
        consume_from_where=where,
        consume_timestamp=timestamp,
        more={"offset_store": Forgetful(QueueCalls(client), GROUP)},
    )
    cluster.send("a", queue_id=0)
    cluster.run(2)
    assert set(cluster.got["c1"]) == expected


def test_what_fails_comes_again_and_ends_in_the_dead_letter_queue() -> None:
    cluster = Consuming("a")
    tries: list[int] = []

    def listener(messages: Any, context: Any) -> Any:
        tries.append(messages[0].reconsume_times)
        assert messages[0].topic == TOPIC
        context.delay_level_when_next_consume = 1
        if len(tries) % 2:
            raise RuntimeError("on purpose")
        return LATER

    consumer = cluster.consumer(listener=listener, max_reconsume_times=2)
    cluster.send("a")
    cluster.run(10)
    assert tries == [0, 1, 2]
    dead = cluster.brokers["a"].store.max_offset_in_queue(f"%DLQ%{GROUP}", 0)
    assert dead == 1
    cluster.wait(consumer.stop())
    assert sum(cluster.committed("a").values()) == 1


@pytest.mark.parametrize(("ack_index", "kept"), [(1, 2), (-1, 0), (-3, 0)])
def test_of_a_batch_only_what_was_not_acknowledged_comes_again(ack_index: int, kept: int) -> None:
    cluster = Consuming("a", queues=1)
    got: list[list[str]] = []

    def listener(messages: Any, context: Any) -> None:
        got.append([message.body.decode() for message in messages])
        context.ack_index = ack_index
        context.delay_level_when_next_consume = 1

    sent = cluster.send("a", 4, queue_id=0)
    cluster.consumer(listener=listener, consume_message_batch_max_size=4)
    cluster.run(8)
    assert got[0] == sent
    assert {body for batch in got[1:] for body in batch} == set(sent[kept:])


def test_no_more_listeners_run_at_a_time_than_allowed_and_stop_waits_for_them() -> None:
    cluster = Consuming("a")
    waiting: list[Deferred[None]] = []

    def listener(messages: Any, context: Any) -> Deferred[None]:
        waiting.append(Deferred())
        return waiting[-1]

    cluster.send("a", 20)
    consumer = cluster.consumer(listener=listener, consume_concurrency=3)
    cluster.run(2)
    assert len(waiting) == 3
    waiting[0].callback(None)
    assert len(waiting) == 4
    stopped = consumer.stop()
    cluster.run(1)
    assert not stopped.called
    for later in waiting[1:]:
        later.callback(None)
    cluster.wait(stopped)
    assert len(waiting) == 4
    assert sum(cluster.committed("a").values()) <= 4


def test_a_listener_that_does_not_end_is_cancelled_and_its_message_not_committed() -> None:
    cluster = Consuming("a")
    cancelled: list[int] = []

    def listener(messages: Any, context: Any) -> Deferred[None]:
        return Deferred(lambda _: cancelled.append(1))

    cluster.send("a")
    consumer = cluster.consumer(listener=listener, await_termination_when_shutdown_ms=3000)
    cluster.run(1)
    cluster.wait(consumer.stop())
    assert cancelled
    assert sum(cluster.committed("a").values()) == 0


def test_a_message_that_the_listener_keeps_for_too_long_goes_back() -> None:
    cluster = Consuming("a")
    tries: list[int] = []

    def listener(messages: Any, context: Any) -> Deferred[None] | None:
        tries.append(messages[0].reconsume_times)
        return Deferred() if len(tries) == 1 else None

    cluster.send("a")
    cluster.consumer(listener=listener, consume_timeout_ms=60_000)
    cluster.run(150)
    assert tries == [0, 1]


@pytest.mark.parametrize(
    ("expression", "numbers"),
    [("red", {0}), ("red || AaAa", {0, 1}), (MessageSelector.by_tag("BBBB"), {2})],
)
def test_tags_are_compared_as_texts_too(expression: Any, numbers: set[int]) -> None:
    cluster = Consuming("a")
    sent = [cluster.send("a", TAGS=tag)[0] for tag in ("red", "AaAa", "BBBB")]  # the same hash
    consumer = cluster.consumer(expression=expression)
    cluster.run(2)
    assert set(cluster.got["c1"]) == {sent[number] for number in numbers}
    cluster.wait(consumer.stop())
    assert sum(cluster.committed("a").values()) == 3


def test_an_expression_that_a_broker_refuses_stops_the_start() -> None:
    """Of any topic; else nothing is ever consumed, and nobody says why."""
    cluster = Consuming("a")
    cluster.create("a", "other", 1)
    consumer = PushConsumer(cluster.client("c1"), GROUP)
    consumer.subscribe(TOPIC)
    consumer.subscribe("other", MessageSelector.by_sql("a > 1"))
    consumer.register_message_listener(cluster.note("c1"))
    with pytest.raises(BrokerRefused, match="not support"):
        cluster.wait(consumer.start())
    assert not consumer.is_running


def test_a_topic_that_is_subscribed_later_is_consumed_at_once() -> None:
    """And not with the next rebalance, 20 s later."""
    cluster = Consuming("a")
    client = cluster.client("c1")
    consumer = PushConsumer(client, GROUP, PushConsumerConfig(consume_from_where=FIRST))
    consumer.register_message_listener(cluster.note("c1"))
    consumer.subscribe("another")
    cluster.wait(consumer.start())
    sent = cluster.send("a", 4)
    consumer.subscribe(TOPIC)
    cluster.run(2)
    assert sorted(cluster.got["c1"]) == sorted(sent)


def test_flow_control_pulls_no_more_than_is_allowed_and_goes_on() -> None:
    cluster = Consuming("a", queues=1)
    waiting: list[Deferred[None]] = []

    def listener(messages: Any, context: Any) -> Deferred[None]:
        waiting.append(Deferred())
        return waiting[-1]

    cluster.send("a", 60, queue_id=0)
    consumer = cluster.consumer(
        listener=listener, pull_threshold_for_queue=20, pull_batch_size=10, consume_concurrency=1
    )
    cluster.run(2)
    (info,) = [
        found
        for key, found in consumer.running_info(False)["mqTable"].items()
        if key.topic == TOPIC
    ]
    assert info["cachedMsgCount"] == 30
    for number in range(60):
        waiting[number].callback(None)
        cluster.run(0.2)
    assert len(waiting) == 60


def test_an_operator_sets_the_offset_back_and_it_is_consumed_again() -> None:
    cluster = Consuming("a")
    sent = cluster.send("a", 8)
    consumer = cluster.consumer()
    cluster.run(2)
    consumer.reset_offsets(TOPIC, {queue("a", 1): 0, queue("a", 2): 1, queue("zzz", 0): 0})
    cluster.run(5)
    assert sorted(cluster.got["c1"][8:]) == [sent[1], sent[5], sent[6]]
    assert len(of_topic(consumer)) == 4


def test_a_reset_holds_at_a_broker_that_takes_one_way_offsets_late() -> None:
    """A Java broker handles the requests of one connection in several threads."""
    cluster = Consuming("a")
    sent = cluster.send("a", 8)
    client = cluster.client("c1")
    consumer = cluster.consumer(client=client)
    cluster.run(6)
    one_way = client._calls.oneway

    def late(address: str, command: RemotingCommand) -> Any:
        cluster.hosts["c1"].clock.callLater(0.2, one_way, address, command)
        return succeed(None)

    client._calls.oneway = late  # type: ignore[method-assign]
    consumer.reset_offsets(TOPIC, {queue("a", number): 0 for number in range(4)})
    cluster.run(5)
    assert cluster.all_got() == dict.fromkeys(sent, 2)


def test_suspended_it_pulls_nothing() -> None:
    cluster = Consuming("a")
    consumer = cluster.consumer()
    consumer.suspend()
    cluster.run(20)
    sent = cluster.send("a", 4)
    cluster.run(20)
    late = cluster.got["c1"][:]
    consumer.resume()
    cluster.run(2)
    assert len(late) < 4
    assert sorted(cluster.got["c1"]) == sorted(sent)


def test_broadcasting_everybody_gets_all_and_goes_on_where_it_was() -> None:
    cluster = Consuming("a")
    consumers = [
        cluster.consumer(name, message_model=MessageModel.BROADCASTING) for name in ("c1", "c2")
    ]
    first = cluster.send("a", 8)
    cluster.run(2)
    assert sorted(cluster.got["c1"]) == sorted(cluster.got["c2"]) == sorted(first)
    cluster.wait(consumers[0].stop())
    second = cluster.send("a", 8)
    again = ClientInstance(cluster.hosts["c1"].seams, consumers[0]._instance.settings)
    cluster.got["c1"] = []
    cluster.consumer("c1", client=again, message_model=MessageModel.BROADCASTING)
    cluster.run(2)
    assert sorted(cluster.got["c1"]) == sorted(second)
    assert not cluster.committed("a")


def test_a_topic_is_subscribed_and_left_while_it_runs() -> None:
    cluster = Consuming("a")
    consumer = cluster.consumer(rebalance_interval_ms=3_600_000)
    cluster.create("a", "other", 2)
    group = cluster.brokers["a"].consumers.group(GROUP)
    for _ in range(2):
        consumer.subscribe("other")
        cluster.run(1)
        assert len(consumer.assignment()) == 7
        assert "other" in group.subscriptions
        consumer.unsubscribe("other")
        cluster.run(1)
        assert len(consumer.assignment()) == 5
        assert "other" not in group.subscriptions
    consumer.subscribe("other")
    cluster.create("a", "other", 4)
    cluster.run(40)
    assert len(consumer.assignment()) == 9
    cluster.send("a", 4)
    cluster.run(1)
    rate = [consumer.running_info(False)["statusTable"][TOPIC]["consumeOKTPS"]]
    consumer.unsubscribe(TOPIC)
    consumer.subscribe(TOPIC)
    rate.append(consumer.running_info(False)["statusTable"][TOPIC]["consumeOKTPS"])
    assert rate == [pytest.approx(4 / 60), 0.0]  # of its time before nothing is told


def test_queues_that_come_are_taken_as_soon_as_the_route_says_so() -> None:
    """Not only with the next rebalance, which is an hour away here."""
    cluster = Consuming("a")
    consumer = cluster.consumer(rebalance_interval_ms=3_600_000)
    assert len(consumer.assignment()) == 5
    cluster.create("a", TOPIC, 6)
    cluster.run(40)
    assert len(consumer.assignment()) == 7
    sent = cluster.send("a", 1, queue_id=5)
    cluster.run(1)
    assert cluster.got["c1"] == sent


def test_a_topic_that_comes_later_is_consumed_then() -> None:
    cluster = Consuming()
    consumer = cluster.consumer()
    cluster.add("a")
    cluster.create("a", TOPIC, 4)
    cluster.run(40)
    sent = cluster.send("a", 4)
    cluster.run(2)
    assert sorted(cluster.got["c1"]) == sorted(sent)
    cluster.wait(consumer.stop())


def test_consuming_one_message_for_an_operator_and_what_it_sees() -> None:
    cluster = Consuming("a")
    consumer = cluster.consumer()
    seen: list[Any] = []
    consumer2 = cluster.consumer("c2", lambda messages, _: seen.append(messages[0]))
    cluster.send("a", 8)
    cluster.run(2)
    result = cluster.wait(consumer.consume_directly(seen[0]))
    assert result["consumeResult"] == "CR_SUCCESS"
    assert "jstack" not in consumer2.running_info(False)
    info = consumer2.running_info(True)
    assert "no threads" in info["jstack"]
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
    assert info["statusTable"][TOPIC]["consumeOKTPS"] > 0
    assert consumer2.consume_status(TOPIC)


def test_what_cannot_work_is_refused_at_once() -> None:
    cluster = Consuming("a")
    without = PushConsumer(cluster.client("c9"), GROUP).start()
    with pytest.raises(ConfigurationError, match="comes before start"):
        cluster.wait(without)
    consumer = cluster.consumer()
    with pytest.raises(ConfigurationError, match="before start"):
        consumer.register_message_listener(print)
    with pytest.raises(ConfigurationError, match="topic"):
        consumer.subscribe("a b")
    with pytest.raises(MQClientError, match="a consumer of the group group already"):
        cluster.consumer("again", client=consumer._instance)
    with pytest.raises(ConfigurationError, match="pull_batch_size"):
        cluster.consumer("c3", pull_batch_size=0)
    with pytest.raises(ConfigurationError, match="consume_timestamp"):
        cluster.consumer("c4", consume_timestamp="yesterday", consume_from_where=FIRST)


def test_hooks_see_every_call_and_a_broken_one_breaks_nothing() -> None:
    cluster = Consuming("a")
    seen: list[Any] = []

    class Hook:
        def before_consume(self, context: Any) -> None:
            context.properties["n"] = len(context.messages)

        def after_consume(self, context: Any) -> None:
            seen.append((context.status, context.success, context.properties["n"]))
            raise RuntimeError("on purpose")

    cluster.consumer(more={"hooks": [Hook()]})
    cluster.send("a", 2)
    cluster.run(2)
    assert seen == [("CONSUME_SUCCESS", True, 1)] * 2
    assert len(cluster.got["c1"]) == 2


def test_a_namespace_is_seen_by_brokers_only() -> None:
    cluster = Consuming("a")
    cluster.create("a", f"ns%{TOPIC}", 4)
    seen: list[Any] = []

    def listener(messages: Any, context: Any) -> Any:
        seen.append((messages[0].topic, messages[0].reconsume_times))
        context.delay_level_when_next_consume = 1
        return LATER if len(seen) == 1 else None

    client = cluster.client("c1", namespace="ns")
    consumer = cluster.consumer(client=client, listener=listener)
    now = cluster.hosts["sender"].now_ms()
    command = send_request("p", f"ns%{TOPIC}", 0, b"x", "", now)
    cluster.wait(cluster.sender.invoke(cluster.address("a"), command, 3000))
    cluster.run(5)
    assert seen == [(TOPIC, 0), (TOPIC, 1)]
    assert len(of_topic(consumer)) == 4
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert dict(cluster.brokers["a"].consumer_offsets.queues(f"ns%{GROUP}", f"ns%{TOPIC}"))[0] == 1
