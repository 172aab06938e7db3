"""What cannot work is refused where it is asked for, with the next step."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client import (
    ConsumeFromWhere,
    ForkedClient,
    IllegalMessage,
    LitePullConsumer,
    Message,
    MQClientError,
    Producer,
    ProducerConfig,
    PushConsumer,
    PushConsumerConfig,
    create_reply_message,
    select_by_hash,
)
from rmq_ha.client.aio import Client, connect
from rmq_ha.client.connection import forks
from rmq_ha.testing.client_world import ClientWorld

NOBODY = "127.0.0.1:1"
BODIES = (b"4711", bytearray(b"4711"), memoryview(b"4711"))


@pytest.fixture
def world() -> Iterator[ClientWorld]:
    with ClientWorld() as world:
        world.new_topic("Orders")
        yield world


def test_a_consumer_without_a_topic_does_not_start(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.connect() as client:
            consumer = client.push_consumer("billing")
            with pytest.raises(ConfigurationError, match=r"billing .* call subscribe\(topic\)"):
                await consumer.start()
            consumer.subscribe("Orders")  # the next step that it names is enough
            async with consumer:
                pass

    world.run(story())


def test_a_poll_of_nothing_is_an_error(world: ClientWorld) -> None:
    consumer = LitePullConsumer(world.client(), "reports")
    world.wait(consumer.start())
    with pytest.raises(ConfigurationError, match=r"reports reads nothing: call subscribe"):
        world.wait(consumer.poll())
    consumer.assign(world.wait(consumer.fetch_message_queues("Orders")))
    assert world.wait(consumer.poll(100)) == []
    world.wait(consumer.stop())


def test_a_second_producer_of_a_group_hears_how_to_share_the_first(world: ClientWorld) -> None:
    client = world.client()
    first, second = Producer(client), Producer(client)
    other = Producer(client, ProducerConfig(producer_group="others"))
    world.wait(first.start())
    with pytest.raises(MQClientError, match="DEFAULT_PRODUCER already: share that producer"):
        world.wait(second.start())
    world.wait(other.start())
    for producer in (first, other):
        world.wait(producer.stop())


def test_a_second_consumer_of_a_group_hears_how_to_share_the_first(world: ClientWorld) -> None:
    client = world.client()
    consumers = [PushConsumer(client, "billing") for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe("Orders")
        consumer.register_message_listener(lambda messages, context: None)
    world.wait(consumers[0].start())
    with pytest.raises(MQClientError, match="billing already: subscribe more topics"):
        world.wait(consumers[1].start())
    world.wait(consumers[0].stop())


def test_a_client_outside_of_a_loop_says_which_loop_it_needs() -> None:
    with pytest.raises(ConfigurationError, match=r"inside an `async def` that asyncio.run\(\)"):
        Client(NOBODY)


def test_a_client_under_trio_says_what_to_use_there() -> None:
    trio: Any = pytest.importorskip("trio")

    async def story() -> None:
        with pytest.raises(ConfigurationError, match=r"trio runs here: .*BlockingClient"):
            async with connect(NOBODY):
                pass

    with ThreadPoolExecutor() as threads:  # signals stay with the main thread
        threads.submit(trio.run, story).result()


@pytest.mark.parametrize("body", BODIES)
def test_a_buffer_is_a_body_everywhere(world: ClientWorld, body: Any) -> None:
    """A send, a batch, a request and its reply take it, and so does a message that is changed."""
    message = Message("Orders", body)
    assert type(message.body) is bytes

    async def story() -> None:
        async with world.connect() as client:
            producer = await client.producer()
            consumer = client.push_consumer(
                "answers",
                PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
            )
            consumer.subscribe("Questions")

            async def answer(messages: Any, context: Any) -> None:
                await producer.send(create_reply_message(messages[0], body))

            consumer.register_message_listener(answer)
            await consumer.start()
            await producer.send(message)
            changed: Any = Message("Orders", b"x")
            changed.body = body
            await producer.send(changed, selector=select_by_hash, arg="key")
            await producer.send_oneway(Message("Orders", body))
            batch: Any = [Message("Orders", body), Message("Orders", b"x")]
            batch[1].body = body
            await producer.send_batch(batch)
            reply = await producer.request(Message("Questions", body), 60_000)
            assert reply.body == b"4711"

    world.new_topic("Questions")
    world.run(story())
    assert [found.body for found in world.messages("Orders")] == [b"4711"] * 5


@pytest.mark.parametrize("thing", ["text", 4711, None])
def test_other_bodies_are_refused_before_a_broker_is_asked(world: ClientWorld, thing: Any) -> None:
    producer = Producer(world.client())
    world.wait(producer.start())
    with pytest.raises(IllegalMessage, match="a body is bytes, not"):
        world.wait(producer.send(Message("Orders", thing)))
    world.wait(producer.stop())


def test_what_is_no_message_is_refused_with_the_way_to_make_one(world: ClientWorld) -> None:
    producer: Any = Producer(world.client())
    world.wait(producer.start())
    for send in (producer.send, producer.send_oneway):
        with pytest.raises(IllegalMessage, match=r"not bytes: Message\(topic, body\)"):
            world.wait(send(b"T"))
    with pytest.raises(IllegalMessage, match=r"not str: Message\(topic, body\)"):
        world.wait(producer.send_batch(["T"]))
    world.wait(producer.stop())


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_fork_hears_forked_client_whatever_it_calls(
    monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    with ClientWorld(duplicate_window_millis=600_000) as world:
        world.new_topic("Orders")
        client = world.client()
        producer = Producer(client, ProducerConfig(idempotent=idempotent))
        world.wait(producer.start())
        world.wait(producer.send(Message("Orders", b"before")))
        reader = LitePullConsumer(client, "reports")
        reader.subscribe("Orders")
        world.wait(reader.start())
        (queue, *_) = world.wait(reader.fetch_message_queues("Orders"))

        def message() -> Message:
            return Message("Orders", b"in the child")

        def late() -> PushConsumer:
            consumer = PushConsumer(client, "billing")
            consumer.subscribe("Orders")
            consumer.register_message_listener(lambda messages, context: None)
            return consumer

        calls: dict[str, Any] = {
            "send": lambda: producer.send(message()),
            "send, new topic": lambda: producer.send(Message("Others", b"x")),
            "send, chosen queue": lambda: producer.send(message(), queue=queue),
            "one-way": lambda: producer.send_oneway(message()),
            "batch": lambda: producer.send_batch([message(), message()]),
            "request": lambda: producer.request(message(), 3_000),
            "poll": lambda: reader.poll(100),
            "seek": lambda: reader.seek(queue, 0),
            "commit": lambda: reader.commit_sync(),
            "a consumer": lambda: late().start(),
            "a producer": lambda: Deferred.fromCoroutine(
                Producer(client, ProducerConfig(producer_group="others")).start()
            ),
            "a route": lambda: client.routes.fetch("Orders"),
        }
        outcomes: dict[str, Any] = {}
        with monkeypatch.context() as patched:
            patched.setattr(forks, "process_id", lambda: -1)
            for name, call in calls.items():
                try:
                    outcomes[name] = world.wait(call())
                except Exception as error:
                    outcomes[name] = type(error)
        assert outcomes == dict.fromkeys(calls, ForkedClient)
        world.wait(reader.stop())
        world.wait(producer.stop())
