"""Members of groups for threads, over a whole broker in this process."""

import os
import pickle
import warnings
from asyncio import get_running_loop
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, get_ident
from threading import enumerate as enumerate_threads

import pytest
from prometheus_client import CollectorRegistry

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.loop_thread import LoopThread, ThreadStopped
from rmq_ha.client import (
    BlockingClient,
    BlockingConsumer,
    BlockingPullConsumer,
    ForkedClient,
    IllegalMessage,
    LitePullConsumerConfig,
    Message,
    MessageExt,
    MQClientError,
    NotStarted,
    PushConsumerConfig,
    blocking,
)
from rmq_ha.client.prometheus import PrometheusMetrics
from tests.unit.client.whole_broker import FIRST, Bench

LIMIT_S = 20.0


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("broker"))
    yield made
    made.close()


def take(consumer: BlockingConsumer) -> MessageExt:
    found = consumer.poll(int(LIMIT_S * 1000))
    assert found is not None, "nothing came"
    return found


def test_batches_of_a_listener_are_refused_at_the_start(bench: Bench) -> None:
    """They made each call fail: good messages went to the dead letters."""
    made = PushConsumerConfig(consume_message_batch_max_size=32)
    consumer = BlockingConsumer("batches", bench.namesrv_addr, made)
    consumer.subscribe(bench.topic())
    with pytest.raises(ConfigurationError, match=r"loop over consumer\.batches\(32\)"):
        consumer.start()


def test_what_a_loop_went_past_is_consumed_and_what_it_was_left_at_is_not(bench: Bench) -> None:
    topic = bench.topic()
    bench.send(topic, b"0", b"1", b"2")
    with bench.consumer(topic) as consumer:
        for message in consumer:
            if message.body == b"1":
                break
    # That which was in hand went to the retry topic, and the last one was not shown.
    assert bench.committed(topic) == [2]
    with bench.consumer(topic) as consumer:
        assert take(consumer).body == b"2"
        assert consumer.assignment()
    bench.send(topic, b"3")
    with bench.consumer(topic) as consumer:
        message = take(consumer)
        assert message.body == b"3"
        consumer.ack(message)
        consumer.ack(message)
        with pytest.raises(MQClientError, match="answered already"):
            consumer.reconsume_later(message)


def test_poll_does_not_wait_for_ever_and_loses_nothing(bench: Bench) -> None:
    topic = bench.topic()
    with bench.consumer(topic) as consumer:
        assert consumer.poll(10) is None
        bench.send(topic, b"0")
        assert take(consumer).body == b"0"


def test_each_message_goes_to_one_of_many_threads(bench: Bench) -> None:
    topic = bench.topic(2)
    bench.send(topic, *[b"%d" % number for number in range(30)])
    both = Barrier(2)
    seen: list[tuple[bytes, int]] = []

    def handle(message: MessageExt) -> None:
        if not any(thread == get_ident() for _, thread in seen):
            both.wait(LIMIT_S)  # neither thread has all of them
        seen.append((message.body, get_ident()))
        if len(seen) == 30:
            enough.set()

    enough = Event()
    with ThreadPoolExecutor(2) as pool, bench.consumer(topic) as consumer:
        loops = [pool.submit(consumer.consume, handle) for _ in range(2)]
        assert enough.wait(LIMIT_S)
        consumer.stop()
        assert [loop.result(LIMIT_S) for loop in loops] == [None, None]
    assert sorted(int(body) for body, _ in seen) == list(range(30))
    assert len({thread for _, thread in seen}) == 2


def test_what_a_handler_raises_for_comes_again_and_goes_to_the_dead_letters(bench: Bench) -> None:
    topic = bench.topic()
    bench.send(topic, b"poison")
    times: list[int] = []
    with bench.consumer(topic, max_reconsume_times=1) as consumer:
        message = take(consumer)
        consumer.reconsume_later(message, 1)
        for message in consumer:
            times.append(message.reconsume_times)
            consumer.reconsume_later(message, -1)
            break
    assert times == [1]
    assert bench.dead(topic) == [b"poison"]


def test_consume_goes_on_behind_an_exception(bench: Bench) -> None:
    topic = bench.topic()
    bench.send(topic, b"0", b"1")
    seen: list[bytes] = []

    def handle(message: MessageExt) -> None:
        seen.append(message.body)
        if len(seen) == 2:
            consumer.stop()
        raise RuntimeError("on purpose")

    consumer = bench.consumer(topic)
    consumer.start()
    consumer.start()
    consumer.consume(handle)
    assert seen == [b"0", b"1"]
    assert bench.committed(topic) == [2]  # both wait for their retry


def test_a_thread_that_loops_again_behind_an_exception_goes_on(bench: Bench) -> None:
    """Its message comes again, and keeps no place meanwhile."""
    topic = bench.topic()
    bench.send(topic, b"0", b"1", b"2")
    seen: list[bytes] = []
    with bench.consumer(topic, consume_concurrency=1) as consumer:
        while len(seen) < 3:
            try:
                for message in consumer:
                    with consumer.processing(message) as entered:
                        seen.append(entered.body)
                    raise ValueError("behind the block: the message is consumed")
            except ValueError:
                pass
        bench.send(topic, b"3")

        def fail() -> None:
            for message in consumer:
                seen.append(message.body)
                raise ValueError("in the loop")

        with pytest.raises(ValueError, match="in the loop"):
            fail()
    assert seen == [b"0", b"1", b"2", b"3"]
    assert bench.committed(topic) == [4]


def test_ordered_messages_wait_for_the_one_before(bench: Bench) -> None:
    topic = bench.topic()
    bench.send(topic, b"0", b"1")
    with bench.consumer(topic, orderly=True, suspend_current_queue_time_ms=10) as consumer:
        first = take(consumer)
        assert consumer.poll(50) is None
        consumer.reconsume_later(first)
        again = take(consumer)
        assert (first.body, again.body) == (b"0", b"0")
        consumer.ack(again)
        assert take(consumer).body == b"1"


def test_subscriptions_change_while_it_runs(bench: Bench) -> None:
    one, other = bench.topic(), bench.topic()
    bench.send(other, b"0")
    with bench.consumer(one) as consumer:
        consumer.suspend()
        consumer.resume()
        consumer.subscribe(other)
        assert take(consumer).topic == other
        consumer.unsubscribe(other)
        left = consumer._ask(
            lambda it: [name in it.deferred._subscriptions for name in (one, other)]
        )
        assert left == [True, False]
    consumer.unsubscribe("never")
    consumer.unsubscribe(one)
    assert consumer._subscriptions == {}


def test_a_member_that_asks_for_messages(bench: Bench) -> None:
    topic = bench.topic()
    bench.send(topic, b"0", b"1", b"2")
    config = LitePullConsumerConfig(consume_from_where=FIRST, auto_commit=False)
    (queue,) = bench.client.queues(topic)

    def bodies(consumer: BlockingPullConsumer, wanted: int) -> list[bytes]:
        found: list[bytes] = []
        for _ in range(20):
            found += [message.body for message in consumer.poll(1000)]
            if len(found) >= wanted:
                break
        return found

    consumer = BlockingPullConsumer(f"g-{topic}", bench.namesrv_addr, config)
    consumer.subscribe(topic)
    with consumer:
        assert bodies(consumer, 3) == [b"0", b"1", b"2"]
        consumer.commit_sync()
        assert consumer.committed(queue) == 3
    reader = BlockingPullConsumer(f"r-{topic}", bench.namesrv_addr, config)
    reader.assign([queue])
    with reader:
        assert reader.fetch_message_queues(topic) == [queue]
        reader.seek(queue, 1)
        assert bodies(reader, 2) == [b"1", b"2"]
        reader.assign([])
        assert reader.assignment() == []


def test_a_consumer_that_does_not_run_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = bench.consumer(bench.topic())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for ask in (consumer.poll, consumer.assignment, consumer.suspend, iter(consumer).__next__):
            with pytest.raises(NotStarted, match="call `start"):
                ask()
    assert not said  # of a coroutine that nobody awaits
    consumer.stop()
    with consumer:
        consumer.stop()
        assert consumer.poll() is None
        assert list(consumer) == []
    with consumer:
        assert consumer.poll(1) is None
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    nowhere = BlockingConsumer("nowhere")
    with pytest.raises(ConfigurationError):
        nowhere.start()
    assert "rmq-ha-nowhere" not in {thread.name for thread in enumerate_threads()}


def test_a_fork_has_to_start_its_own_and_leaves_its_parent_s_alone(bench: Bench) -> None:
    topic = bench.topic()
    later = bench.consumer(topic)
    with bench.consumer(topic) as consumer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(ForkedClient, match="start one in each process"):
                    consumer.poll()
                consumer.stop()
                later.start()
                later.stop()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        bench.send(topic, b"0")
        assert take(consumer).body == b"0"


def test_names_are_where_applications_look() -> None:
    assert blocking.BlockingConsumer is BlockingConsumer
    assert blocking.BlockingPullConsumer is BlockingPullConsumer
    with pytest.raises(AttributeError, match="no attribute 'Consumer'"):
        blocking.Consumer  # type: ignore[attr-defined]  # noqa: B018


def test_who_waits_in_a_thread_that_stops_is_told() -> None:
    thread = LoopThread("test")
    began = Event()

    async def for_ever() -> None:
        began.set()
        await get_running_loop().create_future()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thread.run, for_ever())
        assert began.wait(LIMIT_S)
        thread.stop()
        thread.stop()
        with pytest.raises(ThreadStopped):
            waiting.result(LIMIT_S)
    with pytest.raises(ThreadStopped):
        thread.run(for_ever())


def test_a_part_whose_thread_has_ended_by_itself_is_stopped_in_silence(bench: Bench) -> None:
    """As at the end of an interpreter; what waits is told, and who stops it has nothing to do."""
    consumer = bench.consumer(bench.topic())
    consumer.start()
    thread, client = consumer._thread, consumer._client
    assert thread is not None
    assert client is not None
    thread.run(client.stop())
    thread.stop()
    consumer.stop()
    assert list(consumer) == []


def test_hooks_see_what_blocking_clients_do(bench: Bench) -> None:
    """Sends with their outcome, and messages until they are answered."""
    topic, registry = bench.topic(), CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    with BlockingClient(bench.namesrv_addr, hooks=[metrics]) as client:
        client.send(Message(topic, b"0"))
        client.send_batch([Message(topic, b"1"), Message(topic, b"2")])
        client.send_oneway(Message(topic, b"3"))
        with pytest.raises(IllegalMessage):
            client.send(Message(topic, b""))
        assert pickle.loads(pickle.dumps(client)).settings == client.settings
    made = PushConsumerConfig(consume_from_where=FIRST)
    consumer = BlockingConsumer(f"g-{topic}", bench.namesrv_addr, made, hooks=[metrics])
    consumer.subscribe(topic)
    with consumer:
        for _ in range(4):
            consumer.ack(take(consumer))
    names = {"topic": topic}
    sent, consumed = "rmqha_client_sent_messages_total", "rmqha_client_consumed_messages_total"
    assert registry.get_sample_value(sent, {**names, "outcome": "SEND_OK"}) == 4
    assert registry.get_sample_value(sent, {**names, "outcome": "IllegalMessage"}) == 1
    labels = {**names, "group": f"g-{topic}", "outcome": "CONSUME_SUCCESS"}
    assert registry.get_sample_value(consumed, labels) == 4
