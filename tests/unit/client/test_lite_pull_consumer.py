"""Lite pull consumers and brokers on one fake clock."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.consume.lite_pull_consumer import LitePullConsumer
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.consumer_settings import LitePullConsumerConfig, MessageModel
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoNameServer, NotStarted
from rmq_ha.client.rules.subscriptions import MessageSelector
from tests.unit.client.consuming import FIRST, GROUP, TOPIC, Consuming, queue


def made(cluster: Consuming, name: str = "l1", **config: Any) -> LitePullConsumer:
    config.setdefault("consume_from_where", FIRST)
    return LitePullConsumer(cluster.client(name), GROUP, LitePullConsumerConfig(**config))


def subscribed(cluster: Consuming, name: str = "l1", **config: Any) -> LitePullConsumer:
    consumer = made(cluster, name, **config)
    consumer.subscribe(TOPIC)
    cluster.wait(consumer.start())
    return consumer


def drain(cluster: Consuming, consumer: LitePullConsumer, timeout_ms: int = 1000) -> list[str]:
    got: list[str] = []
    while messages := cluster.wait(consumer.poll(timeout_ms)):
        got.extend(message.body.decode() for message in messages)
    return got


def test_polling_gets_everything_and_commits_what_an_earlier_poll_returned() -> None:
    cluster = Consuming("a", "b")
    sent = cluster.send("a", 40) + cluster.send("b", 40)
    consumer = subscribed(cluster)
    assert set(cluster.brokers["a"].consumers.group(GROUP).subscriptions) == {TOPIC}
    assert sorted(drain(cluster, consumer)) == sorted(sent)
    assert len(consumer.assignment()) == 8
    assert not any(map(consumer.is_stuck, consumer.assignment()))  # it would all come again
    waiting = consumer.poll(20_000)
    sent = cluster.send("a", 1)
    assert [message.body.decode() for message in cluster.wait(waiting)] == sent
    cluster.run(6)
    assert cluster.wait(consumer.poll(0)) == []
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert sum(cluster.committed("a").values()) == 41
    assert sum(cluster.committed("b").values()) == 40
    assert not cluster.hosts["l1"].clock.getDelayedCalls()


def test_brokers_hear_at_once_that_a_member_has_more_queues() -> None:
    """Not with the next heartbeat, half a minute later: what they know is as old as its share."""
    cluster = Consuming("a")
    first, second = subscribed(cluster, "l1"), subscribed(cluster, "l2")
    cluster.run(5)
    assert len(first.assignment()) == 2
    known = cluster.brokers["a"].consumers.group(GROUP).subscriptions
    before = known[TOPIC].sub_version
    cluster.wait(second.stop())
    cluster.run(3)
    assert len(first.assignment()) == 4
    assert known[TOPIC].sub_version > before
    cluster.wait(first.stop())


def test_an_expression_that_a_broker_refuses_stops_the_start() -> None:
    """Of any topic; else every poll is empty, and nobody says why."""
    cluster = Consuming("a")
    cluster.create("a", "other", 1)
    consumer = made(cluster)
    consumer.subscribe(TOPIC)
    consumer.subscribe("other", MessageSelector.by_sql("a > 1"))
    with pytest.raises(BrokerRefused, match="not support"):
        cluster.wait(consumer.start())
    assert not consumer.is_running


def test_who_polls_before_the_start_is_told_so() -> None:
    cluster = Consuming("a")
    later = made(cluster).poll(0)
    with pytest.raises(NotStarted):
        cluster.wait(later)


def test_without_a_commit_everything_comes_again() -> None:
    cluster = Consuming("a")
    sent = cluster.send("a", 12)
    consumer = subscribed(cluster, auto_commit=False)
    assert sorted(drain(cluster, consumer)) == sorted(sent)
    cluster.wait(consumer.stop())
    consumer = subscribed(cluster, "l2", auto_commit=False)
    assert sorted(drain(cluster, consumer)) == sorted(sent)
    cluster.wait(consumer.commit_sync())
    assert sum(cluster.committed("a").values()) == 12
    with pytest.raises(
        MQClientError, match="not assigned to this consumer"
    ):  # another member's would be set back
        cluster.wait(consumer.commit_sync({queue("a", 99): 1}))
    cluster.wait(consumer.commit_sync({queue("a", 1): 1}))
    assert cluster.committed("a")[1] == 1
    assert cluster.wait(consumer.committed(queue("a", 1))) == 1
    cluster.wait(consumer.commit([queue("a", 1)], persist=False))
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert cluster.committed("a")[1] == 3


def test_assigned_queues_are_read_whoever_else_does_and_can_be_sought() -> None:
    cluster = Consuming("a")
    sent = cluster.send("a", 40)
    readers = [made(cluster, name) for name in ("l1", "l2")]
    for reader in readers:
        reader.assign([queue("a", 1)])
        cluster.wait(reader.start())
        assert TOPIC in reader._instance.routes._watched  # or its broker would be forgotten
        assert drain(cluster, reader) == sent[1::4]
    reader = readers[0]
    cluster.wait(reader.seek(queue("a", 1), 7))
    assert drain(cluster, reader) == sent[1::4][7:]
    cluster.wait(reader.seek_to_begin(queue("a", 1)))
    assert drain(cluster, reader) == sent[1::4]
    cluster.wait(reader.seek_to_end(queue("a", 1)))
    assert drain(cluster, reader) == []
    for wrong, problem in (
        ((queue("a", 2), 0), "not assigned to this consumer"),
        ((queue("a", 1), 99), "0 to 10"),
    ):
        with pytest.raises(MQClientError, match=problem):
            cluster.wait(reader.seek(*wrong))
    reader.assign([queue("a", 2)])
    assert reader.assignment() == [queue("a", 2)]
    assert drain(cluster, reader) == sent[2::4]
    assert cluster.wait(reader.offset_for_timestamp(queue("a", 2), 0)) == 0


def test_a_seek_throws_away_what_was_pulled_ahead() -> None:
    cluster = Consuming("a", queues=1)
    sent = cluster.send("a", 30, queue_id=0)
    consumer = subscribed(cluster)
    cluster.run(2)
    cluster.wait(consumer.seek(queue("a", 0), 25))
    assert drain(cluster, consumer) == sent[25:]
    cluster.wait(consumer.commit_sync())
    assert cluster.committed("a") == {0: 30}
    cluster.wait(consumer.seek(queue("a", 0), 5))
    cluster.wait(consumer.commit_sync())
    assert cluster.committed("a") == {0: 5}  # lower: who sought wants it again
    for offset in (20, 10):
        cluster.wait(consumer.commit_sync({queue("a", 0): offset}))
        assert cluster.committed("a") == {0: offset}
    with pytest.raises(MQClientError, match="not assigned to this consumer"):
        cluster.wait(consumer.commit_sync({queue("a", 9): 1}))
    cluster.wait(consumer.commit_sync({queue("a", 0): 3}, persist=False))
    assert cluster.committed("a") == {0: 10}
    assert cluster.wait(consumer.committed(queue("a", 0))) == 3


def test_paused_queues_give_nothing_until_they_are_resumed() -> None:
    cluster = Consuming("a")
    consumer = subscribed(cluster)
    consumer.pause([queue("a", 0), queue("a", 1)])
    sent = cluster.send("a", 8)
    assert sorted(drain(cluster, consumer)) == sorted(sent[2::4] + sent[3::4])
    consumer.resume([queue("a", 1)])
    assert drain(cluster, consumer) == sent[1::4]
    consumer.resume([queue("a", 0)])
    assert drain(cluster, consumer) == sent[0::4]


def test_members_share_queues_and_those_who_leave_hand_over() -> None:
    cluster = Consuming("a")
    first, second = subscribed(cluster), subscribed(cluster, "l2")
    cluster.run(2)
    shares = [set(consumer.assignment()) for consumer in (first, second)]
    assert [len(share) for share in shares] == [2, 2]
    assert not shares[0] & shares[1]
    sent = cluster.send("a", 20)
    got = drain(cluster, first)
    cluster.wait(first.commit_sync())
    cluster.wait(first.stop())
    cluster.run(2)
    got += drain(cluster, second)
    assert sorted(got) == sorted(sent)


def test_a_queue_that_is_given_up_is_committed_first() -> None:
    """Its next owner asks the broker, and not five seconds later."""
    cluster = Consuming("a")
    cluster.send("a", 7, queue_id=2)
    consumer = subscribed(cluster)
    consumer.offset_store.update_offset(queue("a", 2), 7, True)
    cluster.wait(Deferred.fromCoroutine(consumer.give_up(queue("a", 2))))
    cluster.run(0.1)
    assert cluster.committed("a")[2] == 7
    assert consumer.offset_store.memory(queue("a", 2)) is None


def test_choices_of_messages_and_an_offset_that_is_gone() -> None:
    cluster = Consuming("a", queues=1)
    for number in range(6):
        cluster.send("a", queue_id=0, TAGS="red" if number % 2 else "blue")
    consumer = made(cluster)
    consumer.assign([queue("a", 0)])
    consumer.set_sub_expression_for_assign(TOPIC, MessageSelector.by_tag("red"))
    cluster.wait(consumer.start())
    assert drain(cluster, consumer) == ["m1", "m3", "m5"]
    consumer._queues.seek(queue("a", 0), 99)
    cluster.run(3)
    cluster.send("a", queue_id=0, TAGS="red")
    assert drain(cluster, consumer) == ["m6"]


def test_an_operator_sets_it_back() -> None:
    """For good: who takes the queues next goes on there, too, though nothing was polled since."""
    cluster = Consuming("a")
    sent = [cluster.send("a", 4, queue_id=number) for number in range(2)]
    consumer = subscribed(cluster, auto_commit=False)
    assert sorted(drain(cluster, consumer)) == sorted(sent[0] + sent[1])
    cluster.wait(consumer.commit_sync())
    offsets = {queue("a", 99): 1, queue("a", 0): 2, queue("a", 1): 3}  # one is not ours
    consumer._part.reset_offsets(TOPIC, offsets)
    cluster.wait(consumer.stop())
    heir = subscribed(cluster, "l2", auto_commit=False)
    assert sorted(drain(cluster, heir)) == sorted(sent[0][2:] + sent[1][3:])
    heir._part.reset_offsets(TOPIC, {queue("a", 0): 1})
    assert drain(cluster, heir) == sent[0][1:]


def test_a_listener_hears_of_new_queues() -> None:
    cluster = Consuming("a")
    consumer = subscribed(cluster)
    told: list[Any] = []
    consumer.register_topic_message_queue_change_listener(
        TOPIC, lambda topic, queues: told.append((topic, len(queues)))
    )
    cluster.create("a", TOPIC, 6)
    cluster.run(40)
    assert told == [(TOPIC, 6)]
    assert len(consumer.assignment()) == 6


def test_a_topic_is_subscribed_and_left_while_it_runs() -> None:
    """As often as one likes: brokers are told at once, and its route is followed again."""
    cluster = Consuming("a", route_idle_ms=60_000)
    consumer = subscribed(cluster, rebalance_interval_ms=3_600_000)
    cluster.create("a", "other", 2)
    group = cluster.brokers["a"].consumers.group(GROUP)
    for _ in range(2):
        consumer.subscribe("other")
        cluster.run(1)
        assert len(consumer.assignment()) == 6
        assert set(group.subscriptions) == {TOPIC, "other"}
        consumer.unsubscribe("other")
        cluster.run(1)
        assert len(consumer.assignment()) == 4
        assert set(group.subscriptions) == {TOPIC}
    consumer.subscribe("other")
    cluster.run(150)
    cluster.create("a", "other", 4)
    cluster.run(40)
    assert len(consumer.assignment()) == 8


def test_routes_of_all_topics_are_followed() -> None:
    cluster = Consuming("a", route_idle_ms=60_000)
    cluster.create("a", "other", 2)
    consumer = made(cluster, rebalance_interval_ms=3_600_000)
    consumer.subscribe(TOPIC)
    consumer.subscribe("other")
    cluster.wait(consumer.start())
    cluster.run(150)
    cluster.create("a", TOPIC, 5)
    cluster.create("a", "other", 3)
    cluster.run(40)
    assert len(consumer.assignment()) == 8


def test_who_listens_to_a_topic_hears_of_its_queues_though_it_is_not_read_any_more() -> None:
    cluster = Consuming("a")
    consumer = subscribed(cluster)
    told: list[int] = []
    consumer.register_topic_message_queue_change_listener(
        TOPIC, lambda _, queues: told.append(len(queues))
    )
    consumer.unsubscribe(TOPIC)
    cluster.create("a", TOPIC, 6)
    cluster.run(40)
    assert told == [6]
    assert consumer.assignment() == []


def test_a_listener_that_breaks_keeps_nobody_from_new_queues() -> None:
    cluster = Consuming("a")
    consumer = subscribed(cluster, rebalance_interval_ms=3_600_000)

    def broken(topic: str, queues: object) -> None:
        raise RuntimeError("planted")

    consumer.register_topic_message_queue_change_listener(TOPIC, broken)
    cluster.create("a", TOPIC, 6)
    cluster.run(40)
    assert len(consumer.assignment()) == 6


def test_queues_that_come_are_read_as_soon_as_the_route_says_so() -> None:
    """Not only with the next rebalance, which is an hour away here."""
    cluster = Consuming("a")
    consumer = subscribed(cluster, rebalance_interval_ms=3_600_000)
    cluster.create("a", TOPIC, 6)
    cluster.run(40)
    assert len(consumer.assignment()) == 6
    sent = cluster.send("a", 1, queue_id=5)
    assert drain(cluster, consumer) == sent


def test_without_a_name_server_it_does_not_start() -> None:
    """Whoever starts it learns so at once, and may start another one later."""
    cluster = Consuming("a")
    cluster.namesrv.host.crash()
    consumer = made(cluster)
    consumer.subscribe(TOPIC)
    with pytest.raises(NoNameServer):
        cluster.wait(consumer.start())
    assert not consumer.is_running
    assert not cluster.hosts["l1"].clock.getDelayedCalls()
    cluster.namesrv.start()
    cluster.run(40)
    assert len(subscribed(cluster, "l2").assignment()) == 4


def test_brokers_know_it_before_it_asks_for_its_share() -> None:
    """Who is in the group is what heartbeats said: it has its queues when it has started."""
    cluster = Consuming("a")
    consumer = subscribed(cluster, rebalance_interval_ms=3_600_000)
    assert len(consumer.assignment()) == 4


def test_what_cannot_work_is_refused_and_a_stop_ends_polls() -> None:
    cluster = Consuming("a")
    consumer = made(cluster)
    with pytest.raises(NotStarted):
        cluster.wait(consumer.poll())
    with pytest.raises(ConfigurationError, match="is empty"):
        consumer.set_sub_expression_for_assign(TOPIC, MessageSelector.by_sql(" "))
    consumer.subscribe(TOPIC)
    with pytest.raises(ConfigurationError, match="exclude"):
        consumer.assign([])
    cluster.wait(consumer.start())
    waiting = consumer.poll(60_000)
    cluster.wait(consumer.stop())
    assert cluster.wait(waiting) == []
    with pytest.raises(ConfigurationError, match="auto_commit_interval"):
        made(cluster, "l2", auto_commit_interval_ms=1)
    other = made(cluster, "l3")
    other.assign([])
    with pytest.raises(ConfigurationError, match="exclude"):
        other.subscribe(TOPIC)


def test_who_waits_for_a_commit_to_a_file_waits_until_it_is_there() -> None:
    """A process that ends right after it would read the messages again."""
    cluster = Consuming("a", queues=1)
    cluster.send("a", 3, queue_id=0)
    consumer = made(cluster, message_model=MessageModel.BROADCASTING, auto_commit=False)
    consumer.subscribe(TOPIC)
    cluster.wait(consumer.start())
    assert len(drain(cluster, consumer)) == 3
    store: Any = consumer.offset_store
    written: list[Any] = []
    consumer.commit_sync().addCallback(lambda _: written.append(dict(store._written)))
    cluster.run(1)
    assert [list(table.values()) for table in written] == [[3]]


def test_a_namespace_is_seen_by_brokers_only() -> None:
    cluster = Consuming("a")
    cluster.create("a", f"ns%{TOPIC}", 2)
    consumer = LitePullConsumer(
        cluster.client("l1", namespace="ns"), GROUP, LitePullConsumerConfig(auto_commit=False)
    )
    told: list[Any] = []
    consumer.register_topic_message_queue_change_listener(TOPIC, lambda *news: told.append(news))
    consumer.subscribe(TOPIC)
    cluster.wait(consumer.start())
    now = cluster.hosts["sender"].now_ms()
    command = send_request("p", f"ns%{TOPIC}", 0, b"x", "", now)
    cluster.wait(cluster.sender.invoke(cluster.address("a"), command, 3000))
    queues = [queue("a", 0), queue("a", 1)]
    assert cluster.wait(consumer.fetch_message_queues(TOPIC)) == consumer.assignment() == queues
    (found,) = cluster.wait(consumer.poll(5000))
    assert found.topic == TOPIC
    cluster.wait(consumer.commit(queues))
    assert [cluster.wait(consumer.committed(each)) for each in queues] == [1, 0]
    assert cluster.wait(consumer.offset_for_timestamp(queues[0], now)) == 0
    kept = dict(cluster.brokers["a"].consumer_offsets.queues(f"ns%{GROUP}", f"ns%{TOPIC}"))
    assert kept == {0: 1, 1: 0}
    cluster.create("a", f"ns%{TOPIC}", 3)
    cluster.run(40)
    assert told[-1] == (TOPIC, [*queues, queue("a", 2)])
    consumer.pause(queues)
    cluster.wait(consumer.seek_to_begin(queues[0]))
    assert cluster.wait(consumer.poll(2000)) == []
    consumer.resume(queues)
    assert [each.topic for each in cluster.wait(consumer.poll(2000))] == [TOPIC]
    consumer.unsubscribe(TOPIC)
    cluster.run(2)
    assert consumer.assignment() == []
    cluster.wait(consumer.stop())
