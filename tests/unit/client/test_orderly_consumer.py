"""Orderly consumers and brokers on one fake clock."""

from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.client.rules.listening import ConsumeOrderlyStatus
from tests.unit.client.consuming import GROUP, TOPIC, Consuming

SUCCESS = ConsumeOrderlyStatus.SUCCESS
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


def test_each_queue_is_consumed_in_order_one_call_at_a_time() -> None:
    cluster = Consuming("a")
    waiting: list[tuple[int, str, Deferred[Any]]] = []

    def listener(messages: Any, context: Any) -> Deferred[Any]:
        (message,) = messages
        waiting.append((message.queue_id, message.body.decode(), Deferred()))
        return waiting[-1][2]

    sent = cluster.send("a", 40)
    consumer = cluster.consumer(listener=listener, orderly=True)
    cluster.run(2)
    assert sorted(number for number, _, _ in waiting) == [0, 1, 2, 3]
    done = 0
    while done < 40:
        waiting[done][2].callback(None if done % 2 else SUCCESS)
        done += 1
        cluster.run(0.01)
    for number in range(4):
        assert [body for queue, body, _ in waiting if queue == number] == sent[number::4]
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert cluster.committed("a") == dict.fromkeys(range(4), 10)
    assert not cluster.hosts["c1"].clock.getDelayedCalls()


def test_a_suspended_queue_rests_and_the_same_message_comes_again() -> None:
    cluster = Consuming("a", queues=1)
    got: list[str] = []

    def listener(messages: Any, context: Any) -> Any:
        got.append(messages[0].body.decode())
        if len(got) == 1:
            context.suspend_current_queue_time_ms = 5000
            return SUSPEND
        if len(got) == 2:
            raise RuntimeError("on purpose")
        return SUCCESS

    sent = cluster.send("a", 2, queue_id=0)
    cluster.consumer(listener=listener, orderly=True)
    cluster.run(3)
    assert got == [sent[0]]
    cluster.run(2.5)
    assert got == [sent[0], sent[0]]
    cluster.run(2)
    assert got == [sent[0], sent[0], *sent]


def test_after_so_many_times_a_message_goes_to_the_dead_letter_queue() -> None:
    cluster = Consuming("a", queues=1)
    got: list[str] = []

    def listener(messages: Any, context: Any) -> Any:
        got.append(messages[0].body.decode())
        return SUSPEND if got[-1] == "m0" else SUCCESS

    cluster.send("a", 2, queue_id=0)
    consumer = cluster.consumer(
        listener=listener,
        orderly=True,
        max_reconsume_times=2,
        suspend_current_queue_time_ms=100,
    )
    cluster.run(10)
    assert got == ["m0", "m0", "m0", "m1"]
    # As with the Java client, the copy keeps its delay: it arrives later.
    cluster.run(80)
    assert cluster.brokers["a"].store.max_offset_in_queue(f"%DLQ%{GROUP}", 0) == 1
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert cluster.committed("a") == {0: 2}


def test_without_auto_commit_the_listener_says_when() -> None:
    cluster = Consuming("a", queues=1)
    got: list[str] = []
    answers = [
        SUCCESS,
        SUCCESS,
        ConsumeOrderlyStatus.ROLLBACK,
        SUCCESS,
        ConsumeOrderlyStatus.COMMIT,
        SUCCESS,
    ]

    def listener(messages: Any, context: Any) -> Any:
        context.auto_commit = False
        got.append(messages[0].body.decode())
        return answers.pop(0) if answers else SUCCESS

    cluster.send("a", 4, queue_id=0)
    consumer = cluster.consumer(listener=listener, orderly=True)
    cluster.run(5)
    assert got == ["m0", "m1", "m2", "m0", "m1", "m2", "m3"]
    cluster.wait(consumer.stop())
    cluster.run(1)
    assert cluster.committed("a") == {0: 2}


def test_a_queue_changes_hands_only_when_the_listener_is_done_with_it() -> None:
    cluster = Consuming("a")
    running: dict[int, str] = {}
    overlaps: list[str] = []
    order: dict[int, list[str]] = {number: [] for number in range(4)}

    def listener_of(name: str) -> Any:
        def listener(messages: Any, context: Any) -> Deferred[Any]:
            (message,) = messages
            number = message.queue_id
            if number in running:
                overlaps.append(f"{running[number]} and {name} at {number}")
            running[number] = name
            order[number].append(message.body.decode())
            done: Deferred[Any] = Deferred()

            def end() -> None:
                running.pop(number, None)
                done.callback(SUCCESS)

            cluster.hosts["sender"].clock.callLater(0.7, end)
            return done

        return listener

    sent = cluster.send("a", 60)
    consumers = [cluster.consumer("c1", listener_of("c1"), orderly=True)]
    cluster.run(3)
    consumers.append(cluster.consumer("c2", listener_of("c2"), orderly=True))
    cluster.run(4)
    shares = [
        {queue for queue in consumer.assignment() if queue.topic == TOPIC} for consumer in consumers
    ]
    assert [len(share) for share in shares] == [2, 2]
    cluster.run(3)
    cluster.wait(consumers[0].stop())
    cluster.run(30)
    assert not overlaps
    for number in range(4):
        assert list(dict.fromkeys(order[number])) == sent[number::4]
    cluster.wait(consumers[1].stop())


def test_a_lock_that_expired_stops_the_queue() -> None:
    cluster = Consuming("a", queues=1)
    consumer = cluster.consumer(orderly=True)
    cluster.send("a", 1, queue_id=0)
    cluster.run(2)
    assert len(cluster.got["c1"]) == 1
    (process_queue,) = [
        item for queue, item in consumer._queues.process_queues().items() if queue.topic == TOPIC
    ]
    cluster.run(45)  # another member may have it a minute after the last renewal
    assert cluster.hosts["c1"].seams.steady_ms() - process_queue.last_lock_ms <= 20_100
    process_queue.locked = False
    cluster.send("a", 1, queue_id=0)
    cluster.run(25)  # the renewal brings the lock back
    assert len(cluster.got["c1"]) == 2
    assert consumer.running_info(False)["properties"]["PROP_CONSUMEORDERLY"] == "true"


def test_who_stops_unlocks_his_queues() -> None:
    """Else the next one waits a minute for each."""
    cluster = Consuming("a", queues=1)
    consumer = cluster.consumer(orderly=True)
    cluster.run(1)
    cluster.wait(consumer.stop())
    began = cluster.clock.seconds()
    cluster.consumer("c2", orderly=True)
    cluster.send("a", 1, queue_id=0)
    cluster.run(2)
    assert len(cluster.got["c2"]) == 1
    assert cluster.clock.seconds() - began < 10
