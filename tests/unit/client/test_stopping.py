"""A stop waits for the messages in hand, whatever form it has: none of them is shown again."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest

from rmq_ha.client import BlockingConsumer, Message, MessageExt, PushConsumerConfig
from rmq_ha.client.aio import Client
from rmq_ha.client.aio_push import PushConsumer
from rmq_ha.client.consume.hand_over import HandOver, Messages
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client.scripted import message
from tests.unit.client.whole_broker import FIRST, Bench

IN_HAND = 12
LIMIT_S = 20.0


class Story:
    """
    Twelve loops with a message each in hand, and what the next member of their group is shown.

    :ivar done: bodies whose handling ended.
    :ivar shown: bodies with their attempts, as the next member sees them.
    """

    def __init__(self, world: ClientWorld, **config: Any) -> None:
        self.world = world
        self.config = PushConsumerConfig(consume_from_where=FIRST, **config)
        self.done: list[bytes] = []
        self.shown: list[tuple[bytes, int]] = []
        self.workers: list[asyncio.Task[None]] = []

    async def work(self, consumer: PushConsumer, seconds: float) -> None:
        async for found in consumer:
            await asyncio.sleep(seconds)
            self.done.append(found.body)

    async def begin(self, consumer: PushConsumer, seconds: float) -> None:
        self.workers = [asyncio.create_task(self.work(consumer, seconds)) for _ in range(IN_HAND)]
        assert consumer._hand_over is not None
        async with asyncio.timeout(60):
            while len(consumer._hand_over._in_hand) < IN_HAND:
                await asyncio.sleep(0.1)

    def consumer(self, client: Client) -> PushConsumer:
        consumer = client.push_consumer("group", self.config)
        consumer.subscribe("T")
        return consumer

    async def show(self) -> None:
        """The next member, for as long as retries take."""
        async with self.world.connect() as client:
            consumer = self.consumer(client)

            def listen(messages: Any, context: Any) -> None:
                self.shown.extend((each.body, each.reconsume_times) for each in messages)

            consumer.register_message_listener(listen)
            async with consumer:
                await asyncio.sleep(120)


async def by_stop(story: Story, client: Client, consumer: PushConsumer) -> None:
    await consumer.start()
    await story.begin(consumer, 3.0)
    await consumer.stop()


async def by_the_client(story: Story, client: Client, consumer: PushConsumer) -> None:
    await consumer.start()
    await story.begin(consumer, 3.0)
    await client.stop()


async def by_a_cancelled_task(story: Story, client: Client, consumer: PushConsumer) -> None:
    """As by Ctrl-C in `asyncio.run`, and by a handler of SIGTERM that cancels the main task."""

    async def main() -> None:
        async with consumer:
            await story.begin(consumer, 3.0)
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(main())
    await asyncio.sleep(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("form", [by_stop, by_the_client, by_a_cancelled_task])
def test_what_is_in_hand_is_finished_and_not_shown_again(form: Any, orderly: bool) -> None:
    with ClientWorld() as world:
        story = Story(world, await_termination_when_shutdown_ms=10_000)
        world.new_topic("T", IN_HAND)
        world.wind(1)

        async def run() -> None:
            async with world.connect() as client:
                producer = await client.producer()
                queues = await producer.fetch_publish_message_queues("T")
                for number, queue in enumerate(queues):
                    await producer.send(Message("T", b"%d" % number), queue=queue)
                consumer = client.push_consumer("group", story.config, orderly=orderly)
                consumer.subscribe("T")
                await form(story, client, consumer)
                assert len(story.done) == IN_HAND
                await asyncio.gather(*story.workers)  # their loops ended
            await story.show()

        world.run(run())
        assert story.shown == []


def test_what_is_not_finished_in_time_is_shown_again_and_that_is_no_attempt() -> None:
    with ClientWorld() as world:
        story = Story(world, await_termination_when_shutdown_ms=2_000)

        async def run() -> None:
            async with world.connect() as client:
                producer = await client.producer()
                for number in range(IN_HAND):
                    await producer.send(Message("T", b"%d" % number))
                consumer = story.consumer(client)
                async with consumer:
                    await story.begin(consumer, 60.0)
                    began = asyncio.get_running_loop().time()
                assert 2 <= asyncio.get_running_loop().time() - began < 3
                assert story.done == []
            await story.show()

        world.run(run())
        assert sorted(story.shown) == sorted((b"%d" % number, 0) for number in range(IN_HAND))


def test_a_loop_whose_task_is_cancelled_uses_up_no_attempt() -> None:
    """Its message is for the other loops, and when the consumer stops for the next member."""
    with ClientWorld() as world:
        story = Story(world)

        async def run() -> None:
            async with world.connect() as client:
                producer = await client.producer()
                for number in range(IN_HAND):
                    await producer.send(Message("T", b"%d" % number))
                consumer = story.consumer(client)
                async with consumer:
                    await story.begin(consumer, 5.0)
                    story.workers[0].cancel()
                    await asyncio.sleep(30)
                    assert len(story.done) == IN_HAND
                    await producer.send(Message("T", b"last"))
                    await asyncio.sleep(2)
                    for worker in story.workers:
                        worker.cancel()
            await story.show()

        world.run(run())
        assert story.shown == [(b"last", 0)]


def test_a_stop_that_is_cancelled_waits_no_longer_and_keeps_the_offsets() -> None:
    with ClientWorld() as world:
        story = Story(world, await_termination_when_shutdown_ms=60_000)

        async def run() -> None:
            async with world.connect() as client:
                producer = await client.producer()
                for number in range(IN_HAND + 1):
                    await producer.send(Message("T", b"%d" % number))
                consumer = story.consumer(client)
                await consumer.start()
                found = await anext(aiter(consumer))
                consumer.ack(found)
                await story.begin(consumer, 50.0)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.stop(), 1.0)
                await asyncio.sleep(1)
                assert not consumer.deferred.is_running
            await story.show()
            assert (found.body, 0) not in story.shown

        world.run(run())
        assert len(story.shown) == IN_HAND


def test_an_iterator_that_outlives_its_loop_says_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """After `asyncio.run`, say: its consumer is gone, and so is its connection."""
    kept: list[Any] = []

    async def run() -> None:
        hand = HandOver(asyncio.get_running_loop(), orderly=False)
        hand.listen([message(0)], None)
        loop = Messages(hand)
        await anext(loop)
        kept.append(loop)

    asyncio.run(run())
    kept.clear()
    assert [str(warning.message) for warning in recwarn] == []


# Threads


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("broker"))
    yield made
    made.close()


def test_threads_that_consume_finish_what_they_have(bench: Bench) -> None:
    topic = bench.topic()
    bench.send(topic, *[b"%d" % number for number in range(IN_HAND + 5)])
    all_have, go_on = Barrier(IN_HAND + 1), Event()
    done: list[bytes] = []

    def handle(found: MessageExt) -> None:
        all_have.wait(LIMIT_S)
        assert go_on.wait(LIMIT_S)
        done.append(found.body)

    with ThreadPoolExecutor(IN_HAND + 1) as pool, bench.consumer(topic) as consumer:
        loops = [pool.submit(consumer.consume, handle) for _ in range(IN_HAND)]
        all_have.wait(LIMIT_S)
        stopping = pool.submit(consumer.stop)
        assert consumer.poll(10_000) is None  # it takes no more, and waits
        assert not stopping.done()
        go_on.set()
        assert [loop.result(LIMIT_S) for loop in [*loops, stopping]] == [None] * (IN_HAND + 1)
    assert bench.committed(topic) == [IN_HAND]
    assert len(done) == IN_HAND


def in_the_loop(consumer: BlockingConsumer, found: MessageExt) -> None:
    """As a handler of SIGTERM does, which Python calls in the main thread, in its loop."""
    consumer.stop()


def interrupted(consumer: BlockingConsumer, found: MessageExt) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("end", "committed"), [(in_the_loop, 2), (interrupted, 1)], ids=["stop", "Ctrl-C"]
)
def test_a_loop_that_is_ended_in_its_own_thread(
    bench: Bench, end: Callable[..., None], committed: int
) -> None:
    """A stop lets it finish its message; an interrupt is no attempt of the one it broke off."""
    topic = bench.topic()
    bench.send(topic, b"0", b"1", b"2")

    def handle(found: MessageExt) -> None:
        if found.body == b"1":
            end(consumer, found)

    try:
        with bench.consumer(topic) as consumer:
            consumer.consume(handle)
    except KeyboardInterrupt:
        assert end is interrupted
    assert consumer._thread is None
    assert bench.committed(topic) == [committed]
    with bench.consumer(topic) as consumer:
        found = consumer.poll(int(LIMIT_S * 1000))
        assert found is not None
        assert (found.body, found.reconsume_times) == (b"%d" % committed, 0)
