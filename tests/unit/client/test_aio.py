"""The client on asyncio: what is asked of it reaches the client below, whose answers come back."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from rmq_ha.base.errors import ConfigurationError, RemotingConnectError
from rmq_ha.base.model.process import Process
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client import aio
from rmq_ha.client.aio import Client, connect
from rmq_ha.client.aio_pull import Futures, LitePullConsumer, PullConsumer
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, Asking
from rmq_ha.client.rules.errors import NoNameServer, NotStarted
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ClientConfig
from tests.kits.descriptors import open_descriptors

QUEUE = MessageQueue("T", "b", 0)
MESSAGE = Message("T", b"")
NOBODY = "127.0.0.1:1"
PLAIN = {
    *("assign", "assignment", "pause", "register_message_listener", "resume"),
    *("subscribe", "suspend", "unsubscribe", "update_consume_offset"),
}


class Below:
    """Whatever is asked of it is written down; the answer is its name, as a Deferred or plain."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            self.asked.append((name, *args, *kwargs.items()))
            return name if name in PLAIN else succeed(name)

        return ask

    async def check(self, above: Any, name: str, *args: Any, **kwargs: Any) -> None:
        """Arguments go down as they are, and the answer comes back, when it is there."""
        answer = getattr(above, name)(*args, **kwargs)
        if name not in PLAIN:
            assert await answer == (None if name in ("start", "stop") else name)
        assert self.asked == [(name, *args, *kwargs.items())]
        self.asked.clear()


def running(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test in a loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@running
async def test_who_was_stopped_is_not_started_again() -> None:
    client = Client(ClientConfig(namesrv_addr=NOBODY))
    await client.stop()
    with pytest.raises(NotStarted, match="make a new one"):
        await client.start()


@running
async def test_what_a_producer_is_asked() -> None:
    async with connect(NOBODY) as client:
        below = Below()
        producer = aio.TransactionProducer(client, below)  # type: ignore[arg-type]
        where = {"queue": QUEUE, "selector": min, "arg": 1}
        await below.check(producer, "start")
        await below.check(producer, "send", MESSAGE, **where, timeout_ms=2)
        await below.check(producer, "send_oneway", MESSAGE, **where)
        await below.check(producer, "send_batch", [MESSAGE], queue=QUEUE, timeout_ms=2)
        await below.check(producer, "request", MESSAGE, 9, queue=QUEUE)
        await below.check(producer, "fetch_publish_message_queues", "T")
        await below.check(producer, "send_in_transaction", MESSAGE, 1, timeout_ms=2)
        await below.check(producer, "stop")


@running
async def test_what_a_lite_pull_consumer_is_asked() -> None:
    below = Below()
    lite = LitePullConsumer(Futures(asyncio.get_running_loop()), below)  # type: ignore[arg-type]
    for name, *args in (
        *(("subscribe", "T", "tag"), ("unsubscribe", "T"), ("assign", [QUEUE]), ("assignment",)),
        *(("start",), ("pause", [QUEUE]), ("resume", [QUEUE]), ("poll", 5)),
        *(("fetch_message_queues", "T"), ("seek", QUEUE, 3), ("seek_to_begin", QUEUE)),
        *(("seek_to_end", QUEUE), ("committed", QUEUE), ("offset_for_timestamp", QUEUE, 9)),
        ("stop",),
    ):
        await below.check(lite, str(name), *args)
    await below.check(lite, "commit_sync", {QUEUE: 1}, persist=False)
    assert lite.assignment() == "assignment"  # type: ignore[comparison-overlap]


@running
async def test_what_a_pull_consumer_is_asked() -> None:
    below = Below()
    pull = PullConsumer(Futures(asyncio.get_running_loop()), below)  # type: ignore[arg-type]
    for name, *args in (
        *(("start",), ("pull", QUEUE, "*", 1, 2, 3), ("max_offset", QUEUE), ("min_offset", QUEUE)),
        *(("pull_block_if_not_found", QUEUE, "*", 1, 2), ("search_offset", QUEUE, 9)),
        *(("fetch_subscribe_message_queues", "T"), ("update_consume_offset", QUEUE, 4)),
        *(("persist", QUEUE), ("stop",)),
    ):
        await below.check(pull, str(name), *args)
    await below.check(pull, "fetch_consume_offset", QUEUE, from_store=True)


@running
async def test_what_a_push_consumer_is_asked() -> None:
    async with connect(NOBODY) as client:
        below = Below()
        push = aio.PushConsumer(client, below)  # type: ignore[arg-type]
        for name, *args in (
            *(("subscribe", "T", "tag"), ("unsubscribe", "T"), ("suspend",), ("resume",)),
            *(("start",), ("stop",)),
        ):
            await below.check(push, str(name), *args)
        assert push.assignment() == "assignment"  # type: ignore[comparison-overlap]


@running
async def test_a_start_waits_and_a_stop_waits() -> None:
    """Who closes the connections before a producer has stopped loses its last sends."""
    async with connect(NOBODY) as client:
        for made in (
            lambda below: aio.Producer(client, below),
            lambda below: aio.PushConsumer(client, below),
            lambda below: LitePullConsumer(client._futures, below),
            lambda below: PullConsumer(client._futures, below),
        ):
            for name in ("start", "stop"):
                below, later = Below(), Deferred[None]()
                setattr(below, name, lambda later=later: later)
                task = asyncio.ensure_future(getattr(made(below), name)())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert not task.done()
                later.callback(None)
                await task


@running
async def test_listeners_may_be_coroutines() -> None:
    """The consumer below waits for what they return, and gets what they raise."""
    async with connect(NOBODY) as client:

        async def slow(messages: Any, context: Any) -> Any:
            await asyncio.sleep(0.001)
            return messages, context

        below = Below()
        push = aio.PushConsumer(client, below)  # type: ignore[arg-type]
        push.register_message_listener(slow, orderly=True)
        ((_, listener, orderly),) = below.asked
        assert orderly == ("orderly", True)
        assert await client.future(listener([1], 2)) == ([1], 2)
        assert client.listener(lambda messages, context: messages)([1], 2) == [1]  # type: ignore[arg-type, comparison-overlap]


@running
async def test_transaction_listeners_may_be_coroutines() -> None:
    class Listener:
        async def execute_local_transaction(self, message: Any, arg: Any) -> Any:
            return message, arg

        def check_local_transaction(self, message: Any) -> Any:
            return message

    async with connect(NOBODY) as client:
        producer = await client.transaction_producer(Listener())  # type: ignore[arg-type]
        listener: Any = producer.deferred._listener  # type: ignore[attr-defined]
        assert await client.future(listener.execute_local_transaction(1, 2)) == (1, 2)
        assert listener.check_local_transaction(3) == 3


@running
async def test_with_begins_the_client_and_ends_it() -> None:
    before = open_descriptors()
    async with connect(NOBODY) as client:
        assert client.instance.is_running
    assert not client.instance.is_running
    await asyncio.sleep(0)
    assert open_descriptors() == before


@running
async def test_connections_are_closed_also_when_a_part_does_not_stop() -> None:
    before = open_descriptors()
    client = Client(NOBODY)
    below: Any = Below()
    below.stop = lambda: fail(NotStarted("on purpose"))
    client.pull_consumer("g").deferred = below
    with pytest.raises(NotStarted):
        await client.stop()
    await asyncio.sleep(0)
    assert open_descriptors() == before


@running
async def test_a_client_stops_what_it_made_and_then_itself() -> None:
    client = Client(ClientConfig(namesrv_addr=NOBODY))
    await client.start()
    assert client.instance.is_running
    producer = await client.producer()
    assert repr(producer.deferred).endswith("running>")
    stopped = []
    parts = [
        client.push_consumer("g"),
        client.lite_pull_consumer("g"),
        client.pull_consumer("g"),
    ]
    for part in parts:
        below: Any = Below()
        below.stop = lambda part=part: succeed(stopped.append(part))
        part.deferred = below
    await client.stop()
    assert stopped == parts
    assert repr(producer.deferred).endswith("stopped>")
    assert not client.instance.is_running
    with pytest.raises(NotStarted):
        await client.instance.start()
    await client.stop()
    assert stopped == parts


@running
async def test_what_an_asking_asks_goes_over_the_client_s_connections() -> None:
    async with connect(NOBODY) as client:
        asked: list[Any] = []

        def invoke(address: str, command: RemotingCommand, timeout_ms: float) -> Any:
            asked.append((address, command.code, timeout_ms))
            return succeed(RemotingCommand(len(asked)))

        def asking() -> Asking[list[int]]:
            first = yield Ask(RemotingCommand(11), "b:1", 77)
            second = yield Ask(RemotingCommand(12), "b:1")
            return [first.code, second.code]

        client.instance.invoke = invoke  # type: ignore[method-assign]
        assert await client.ask(asking()) == [1, 2]
        limit = client.instance.settings.mq_client_api_timeout_ms
        assert asked == [("b:1", 11, 77), ("b:1", 12, limit)]
        steps: list[int] = []
        asker = Asker(client.instance)
        await client.future(asker.run(asking(), lambda: steps.append(len(asked))))
        assert steps == [3, 4]
        client.instance.route = lambda topic: succeed(topic)  # type: ignore
        assert await client.route("T") == "T"  # type: ignore[comparison-overlap]


@running
async def test_an_asking_hears_of_a_broker_that_does_not_answer_and_goes_on() -> None:
    async with connect("127.0.0.1:1;127.0.0.1:2") as client:

        def asking() -> Asking[str]:
            asked = []
            for address in ("b:1", ""):
                try:
                    yield Ask(RemotingCommand(11), address)
                except (RemotingConnectError, NoNameServer) as error:
                    asked.append(type(error).__name__)
            return " ".join(asked)

        tried: list[str] = []

        def invoke(address: str, command: RemotingCommand, timeout_ms: float) -> Any:
            tried.append(address)
            return fail(RemotingConnectError("refused"))

        client.instance.invoke = invoke  # type: ignore[method-assign]
        assert await client.ask(asking()) == "RemotingConnectError NoNameServer"
        assert tried[0] == "b:1"
        assert sorted(tried[1:]) == ["127.0.0.1:1", "127.0.0.1:2"], "each once, from any of them on"


@running
async def test_a_client_that_cannot_be_made_leaves_nothing_open() -> None:
    before = open_descriptors()
    with pytest.raises(ConfigurationError):
        Client(ClientConfig(process=Process(1, "127.0.0.1")))
    assert open_descriptors() == before


@running
async def test_a_client_has_stopped_when_its_stop_is_over() -> None:
    """Whatever it still had to say would be lost with the loop."""
    client = Client(ClientConfig(namesrv_addr=NOBODY))
    await client.start()
    leaving: Deferred[None] = Deferred()
    instance: Any = client.instance
    instance.stop = lambda: leaving
    stop = asyncio.ensure_future(client.stop())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stop.done()
    leaving.callback(None)
    await stop


def test_who_gives_up_an_answer_cancels_what_it_waits_for_once() -> None:
    """Else a place in flight would stay taken; what came meanwhile stays as it came."""
    loop = asyncio.new_event_loop()
    try:
        cancelled: list[Any] = []
        waiting = Futures(loop).make(Deferred[int](cancelled.append))
        assert [waiting.cancel() for _ in range(2)] == [True, False]
        assert len(cancelled) == 1
        done = Futures(loop).make(succeed(5))
        assert (done.cancel(), done.result()) == (False, 5)
    finally:
        loop.close()
