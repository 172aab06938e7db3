"""Consumers that stop at an awkward moment, and queues that go on elsewhere."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.consume.lite_pull_consumer import LitePullConsumer
from rmq_ha.client.consume.offsets import RemoteBrokerOffsetStore
from rmq_ha.client.consume.pull_consumer import PullConsumer
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import (
    LitePullConsumerConfig,
    PullConsumerConfig,
    PushConsumerConfig,
)
from rmq_ha.client.rules.errors import NoNameServer, NotStarted
from rmq_ha.client.rules.listening import ConsumeOrderlyStatus
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from tests.unit.client.consuming import GROUP, TOPIC, Consuming, queue
from tests.unit.client.scripted import Scripted, refused


def push(instance: Any, **more: Any) -> PushConsumer:
    consumer = PushConsumer(instance, GROUP, PushConsumerConfig(), **more)
    consumer.subscribe(TOPIC)
    consumer.register_message_listener(lambda messages, context: None)
    return consumer


def lite(instance: Any) -> LitePullConsumer:
    consumer = LitePullConsumer(instance, GROUP, LitePullConsumerConfig())
    consumer.subscribe(TOPIC)
    return consumer


def pull(instance: Any) -> PullConsumer:
    consumer = PullConsumer(instance, GROUP, PullConsumerConfig())
    consumer.register_message_queue_listener(TOPIC)
    return consumer


@pytest.mark.parametrize("kind", [push, lite, pull])
@pytest.mark.parametrize("moment", [0.0, 0.002, 0.004, 0.006, 0.01, 0.02])
def test_a_stop_during_the_start_leaves_nothing_behind(kind: Any, moment: float) -> None:
    """A client that others use too would keep it alive otherwise."""
    cluster = Consuming("a")
    instance = cluster.client("c1")
    producer = Producer(instance, ProducerConfig(producer_group="P"))
    cluster.wait(producer.start())
    consumer = kind(instance)
    outcome: list[Any] = []
    consumer.start().addBoth(outcome.append)
    cluster.run(moment)
    cluster.wait(consumer.stop())
    cluster.run(20)
    assert len(outcome) == 1
    assert outcome[0] is None or outcome[0].check(NotStarted)
    assert not consumer.is_running
    assert not instance.consumers
    assert instance.is_running
    assert instance.routes._watched == {}
    cluster.wait(producer.stop())
    cluster.run(1)
    assert not cluster.hosts["c1"].clock.getDelayedCalls()


@pytest.mark.parametrize("kind", [push, lite, pull])
def test_a_consumer_starts_once_and_says_where_it_is(kind: Any) -> None:
    """Whatever is wrong with a start, its Deferred says so."""
    cluster = Consuming("a")
    consumer = kind(cluster.client("c1"))
    assert repr(consumer).endswith(f"{GROUP} new>")
    first, second = consumer.start(), consumer.start()
    with pytest.raises(NotStarted, match="make a new one"):
        cluster.wait(second)
    cluster.wait(first)
    assert repr(consumer).endswith("running>")
    stopping = consumer.stop()
    assert repr(consumer).endswith("stopping>")
    cluster.wait(stopping)
    assert repr(consumer).endswith("stopped>")
    other = kind(cluster.client("c2"))
    cluster.wait(other.stop())
    assert repr(other).endswith("stopped>")
    with pytest.raises(NotStarted):
        cluster.wait(other.start())


@pytest.mark.parametrize("kind", [push, lite, pull])
def test_a_start_is_over_when_queues_were_shared_out(kind: Any) -> None:
    """Who waits for it can ask for his queues."""
    client = Scripted()
    members: Deferred[RemotingCommand] = Deferred()
    client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = members
    consumer = kind(client.instance)
    start = consumer.start()
    assert client.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    assert not start.called
    client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refused(1)
    members.callback(refused(1))
    client.clock.run_for(1)
    client.wait(start)
    assert client.instance.is_running  # which renews routes and sends heartbeats
    assert TOPIC in client.instance.routes._watched
    consumer.stop()
    watchers = [client.instance._route_changed]
    assert client.instance.routes._watchers == watchers, "a consumer that is gone is called"


@pytest.mark.parametrize("kind", [push, lite, pull])
def test_brokers_know_a_member_before_it_asks_who_is_there(kind: Any) -> None:
    """Else it would be no member, and take nothing until the next round."""
    client = Scripted()
    beaten: Deferred[RemotingCommand] = Deferred()
    client.answers[RequestCode.HEART_BEAT] = beaten
    kind(client.instance).start()
    client.clock.run_for(1)
    assert client.of(RequestCode.HEART_BEAT)
    assert client.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []
    client.answers[RequestCode.HEART_BEAT] = RemotingCommand(0, {})
    beaten.callback(RemotingCommand(0, {}))
    assert client.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP)


@pytest.mark.parametrize("kind", [push, lite, pull])
def test_a_start_without_name_servers_fails_and_leaves_nothing_running(kind: Any) -> None:
    """Whoever took it for started would wait for messages that never come."""
    client = Scripted()
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = RemotingConnectError("refused")
    consumer = kind(client.instance)
    with pytest.raises(NoNameServer):
        client.wait(consumer.start())
    assert repr(consumer).endswith("stopped>")
    assert not client.instance.is_running
    client.asked.clear()
    client.clock.run_for(120)
    assert client.asked == []


@pytest.mark.parametrize("kind", [push, lite])
def test_a_topic_that_is_subscribed_while_name_servers_are_away_is_told_to_brokers(
    kind: Any,
) -> None:
    """They are there, and its route comes with the next look at it."""
    client = Scripted()
    client.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = refused(1)
    consumer = kind(client.instance)
    client.wait(consumer.start())
    client.asked.clear()
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = RemotingConnectError("refused")
    with capturedLogs() as events:
        consumer.subscribe("other")
    bodies = [it.body or b"" for _, it in client.asked if it.code == RequestCode.HEART_BEAT]
    assert bodies
    assert all(b'"other"' in body for body in bodies)
    assert client.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP)  # of what it has, at once
    (failure,) = [event["log_failure"] for event in events if "log_failure" in event]
    assert failure.check(NoNameServer)


def test_what_was_never_started_stops_nobody_else_s_client() -> None:
    cluster = Consuming("a")
    instance = cluster.client("c1")
    cluster.wait(instance.start())
    for kind in (push, lite, pull):
        cluster.wait(kind(instance).stop())
    assert instance.is_running


def test_routes_that_others_watch_stay_watched() -> None:
    """Subscribing twice counts once; a consumer takes back only what it asked for."""
    cluster = Consuming("a")
    instance = cluster.client("c1")
    instance.watch_topic(TOPIC)
    consumer = push(instance)
    cluster.wait(consumer.start())
    consumer.subscribe(TOPIC, "a")
    cluster.run(1)
    cluster.wait(consumer.stop())
    assert instance.routes._watched == {TOPIC: 1}


def test_an_offset_store_that_fails_does_not_keep_a_consumer_from_leaving() -> None:
    cluster = Consuming("a")
    instance = cluster.client("c1")

    class Broken(RemoteBrokerOffsetStore):
        """Of an application."""

        async def persist_all(self, queues: Any) -> None:
            raise RuntimeError("the database is away")

    consumer = push(instance, offset_store=Broken(QueueCalls(instance), GROUP))
    cluster.wait(consumer.start())
    cluster.wait(consumer.stop())
    assert not instance.consumers
    assert not instance.is_running


def test_messages_of_queues_that_are_gone_do_not_wait_behind_a_listener_that_hangs() -> None:
    cluster = Consuming("a", queues=1)
    cluster.send("a", 20, queue_id=0)
    never: Deferred[None] = Deferred()
    consumer = cluster.consumer(listener=lambda *_: never, consume_concurrency=1)
    service: Any = consumer._service
    for offset in range(5):
        cluster.run(2)
        consumer.reset_offsets(TOPIC, {queue("a", 0): offset})
        cluster.run(2)
        assert len(service._waiting) <= 20
    cluster.wait(consumer.stop())


def test_a_queue_that_goes_on_lower_is_committed_lower() -> None:
    """Else what comes between there and the old end would be skipped by the next member."""
    cluster = Consuming("a", queues=1)
    cluster.send("a", 3, queue_id=0)
    consumer = lite(cluster.client("l1"))
    cluster.wait(consumer.start())
    cluster.wait(consumer.seek_to_begin(queue("a", 0)))
    assert len(cluster.wait(consumer.poll(1000))) == 3
    ours = consumer._queues._table[queue("a", 0)]
    ours.process_queue.go_on_at(100)  # as if the broker had had more, and lost it
    assert ours.loop is not None
    ours.loop.halt()
    consumer._queues.offset_moved(queue("a", 0), ours.process_queue, 3)
    cluster.send("a", 1, queue_id=0)
    assert len(cluster.wait(consumer.poll(9000))) == 1
    cluster.wait(consumer.commit_sync())
    assert cluster.committed("a")[0] == 4
    cluster.wait(consumer.stop())


def test_a_queue_that_comes_back_is_not_committed_where_it_once_was() -> None:
    """The group has no offset at the broker: what this member remembers would skip messages."""
    cluster = Consuming("a", queues=1)
    cluster.send("a", 8, queue_id=0)
    consumer = cluster.consumer(listener=lambda *_: Deferred())
    store: Any = consumer.offset_store
    ours = queue("a", 0)

    async def nowhere(group: str, queue: Any) -> None:
        return None

    store._calls.committed = nowhere

    async def come_and_go() -> None:
        del consumer._queues._table[ours]
        store.update_offset(ours, 3, False)  # a listener that ended late
        assert await consumer._queues.take(ours)

    cluster.wait(Deferred.fromCoroutine(come_and_go()))
    cluster.run(10)
    assert cluster.committed("a").get(0, 0) == 0


def test_a_queue_that_is_ours_is_not_taken_twice() -> None:
    """What was consumed and is not committed yet is still known, also while it is given up."""
    cluster = Consuming("a", queues=1)
    consumer = cluster.consumer()
    cluster.run(2)
    consumer.offset_store.update_offset(queue("a", 0), 7, True)
    assert not cluster.wait(Deferred.fromCoroutine(consumer._queues.take(queue("a", 0))))
    assert consumer.offset_store.memory(queue("a", 0)) == 7
    cluster.wait(consumer.stop())


def test_locks_are_not_renewed_for_queues_that_were_given_up_meanwhile() -> None:
    """The member that has them now would wait for a minute."""
    cluster = Consuming("a", "b", queues=1)
    consumer = cluster.consumer(orderly=True)
    cluster.run(3)
    service: Any = consumer._service
    asked: list[list[Any]] = []
    first: Deferred[list[Any]] = Deferred()

    async def lock(broker_name: str, queues: list[Any]) -> list[Any]:
        asked.append(queues)
        return await first if len(asked) == 1 else queues

    service._lock = lock
    renewed = Deferred.fromCoroutine(service.renew_locks())
    ours = dict(service._queues)
    service.owned({key: ours[key] for key in asked[0]})
    first.callback(asked[0])
    assert renewed.called
    assert len(asked) == 1
    service.owned(ours)
    del service._lock
    cluster.wait(consumer.stop())


def test_a_stop_waits_for_one_topic_of_a_rebalance_only() -> None:
    """Each may take seconds while its brokers are silent."""
    cluster = Consuming("a")
    consumer = cluster.consumer()
    for number in range(10):
        cluster.create("a", f"T{number}", 1)
        consumer.subscribe(f"T{number}")
    cluster.run(3)
    cluster.crash("a", power=True)
    consumer._rebalancer.rebalance_soon()
    cluster.run(1)
    started = cluster.clock.seconds()
    cluster.wait(consumer.stop())
    assert cluster.clock.seconds() - started < 12


@pytest.mark.parametrize("orderly", [False, True])
def test_nonsense_in_the_context_of_a_listener_stops_no_queue(orderly: bool) -> None:
    cluster = Consuming("a", queues=1)
    got: list[str] = []

    def listener(messages: Any, context: Any) -> Any:
        got.extend(message.body.decode() for message in messages)
        if len(got) == 1 and orderly:
            context.suspend_current_queue_time_ms = "soon"
            context.auto_commit = False
            return ConsumeOrderlyStatus.ROLLBACK
        if len(got) == 1:
            context.ack_index = "all"
        return None

    sent = cluster.send("a", 2, queue_id=0)
    consumer = cluster.consumer(listener=listener, orderly=orderly)
    cluster.run(20)
    assert len(got) == 3
    assert set(got) == set(sent)
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert cluster.committed("a") == {0: 2}
