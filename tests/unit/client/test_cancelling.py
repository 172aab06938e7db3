"""Cancelling: what has not left is never sent, what has left is answered to nobody."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError as ThreadCancelled
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.host.loop_thread import LoopThread
from rmq_ha.client import (
    BlockingTransactionProducer,
    LocalTransactionState,
    Message,
    ProducerConfig,
    SendStatus,
)
from rmq_ha.client.aio import Client
from rmq_ha.client.send.producer import Producer
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client import whole_broker
from tests.unit.client.test_sender import Bench, stored

PLACES = 3
MANY = 40
LIMIT_S = 20.0
ONEWAY = b"one-way"


class Watch:
    """
    A hook that counts the attempts without an answer, and knows which sends were cancelled.

    :ivar most: attempts without an answer at one moment.
    :ivar began: bodies of attempts.
    """

    def __init__(self) -> None:
        self.cancelled: set[bytes] = set()
        self.began: set[bytes] = set()
        self.late: list[bytes] = []
        self.open = self.most = 0

    def before_send(self, context: Any) -> None:
        body = context.messages[0].body
        self.began.add(body)
        if body in self.cancelled:
            self.late.append(body)
        if ONEWAY in body:
            return  # no broker answers it: nobody hears of its end
        self.open += 1
        self.most = max(self.most, self.open)

    def after_send(self, context: Any) -> None:
        self.open -= 1

    def holds(self) -> None:
        """No cancelled send was sent, and the limit held at every moment."""
        assert self.late == []
        assert self.most <= PLACES
        assert self.open == 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "cancel", "answer", "lose", "turn"]), st.integers(0, 11)),
    max_size=60,
)


@settings(deadline=None, max_examples=200)
@given(STEPS, st.integers(1, 3), st.booleans())
def test_in_every_order_of_cancels_answers_and_failures(
    steps: list[tuple[str, int]], places: int, is_patient: bool
) -> None:
    """The limit holds at every moment; a send that is cancelled before it left never leaves."""
    bench = Bench(
        max_in_flight=places, retry_times_when_send_failed=1, delivery_timeout_ms=9000 * is_patient
    )
    sends: list[tuple[Deferred[Any], list[Any]]] = []
    dead: dict[Deferred[Any], int] = {}  # how often it was attempted when it was cancelled

    def attempts_of(later: Any) -> int:
        return sum(send.later is later for send, _ in bench.attempts)

    def check() -> None:
        assert sum(not later.called for _, later in bench.attempts) <= places
        assert all(attempts_of(later) == times for later, times in dead.items())
        assert all(len(outcome) <= 1 for _, outcome in sends)

    for step, number in steps:
        waiting = [index for index, (_, later) in enumerate(bench.attempts) if not later.called]
        if step == "send":
            outcome = bench.send(deadline=bench.clock.seconds() + 9)
            sends.append((bench.later, outcome))
        elif step == "cancel" and sends:
            later, outcome = sends[number % len(sends)]
            if not outcome:
                dead[later] = attempts_of(later)
                later.cancel()
                assert isinstance(outcome[0], CancelledError)
        elif step == "turn":
            bench.clock.advance(number / 10)
        elif waiting:
            lost = RemotingTimeout("slow") if number % 2 else RemotingConnectError("gone")
            bench.answer(waiting[number % len(waiting)], stored() if step == "answer" else lost)
        check()
    for index, (_, later) in enumerate(bench.attempts):  # grows while it is gone through
        if not later.called:
            bench.answer(index, stored())
            bench.clock.advance(0)
    bench.clock.advance(30)
    for _ in range(2 * MANY):
        for _, later in list(bench.attempts):
            if not later.called:
                later.callback(stored())
        bench.clock.advance(1)
    check()
    assert bench.sender.in_flight == 0
    assert all(len(outcome) == 1 for _, outcome in sends)


# On asyncio, in the forms that applications use


Call = Callable[[Any, Message], Awaitable[Any]]


async def in_order(calls: list[Awaitable[Any]], after: float) -> None:
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(after)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def backwards(calls: list[Awaitable[Any]], after: float) -> None:
    await in_order(calls[::-1], after)


async def by_timeout(calls: list[Awaitable[Any]], after: float) -> None:
    async with asyncio.timeout(after):
        await asyncio.gather(*calls)


async def by_group(calls: list[Awaitable[Any]], after: float) -> None:
    async def fail() -> None:
        await asyncio.sleep(after)
        raise TimeoutError

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(_awaited(call))
        group.create_task(fail())


async def by_wait_for(calls: list[Awaitable[Any]], after: float) -> None:
    limited = [asyncio.wait_for(call, after) for call in calls]
    await asyncio.gather(*limited, return_exceptions=True)


async def _awaited(call: Awaitable[Any]) -> Any:
    return await call


class Work:
    """Local transactions that commit."""

    async def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    async def check_local_transaction(self, message: Any) -> LocalTransactionState:
        return LocalTransactionState.ROLLBACK_MESSAGE


KINDS: dict[str, Call] = {
    "send": lambda it, message: it.send(message),
    "send_oneway": lambda it, message: it.send_oneway(message),
    "send_batch": lambda it, message: it.send_batch([message]),
    "request": lambda it, message: it.request(message, 60_000),
    "send_in_transaction": lambda it, message: it.send_in_transaction(message),
}
FORMS = [in_order, backwards, by_timeout, by_group, by_wait_for]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "send_oneway"])
@pytest.mark.parametrize("form", FORMS)
def test_of_many_that_are_cancelled_only_those_that_had_left_are_stored(
    form: Any, kind: str
) -> None:
    """5,000 of 5,000 were stored: each cancel made a place for the next, which left at once."""
    with ClientWorld() as world:
        watch = Watch()

        async def story() -> None:
            async with world.connect() as client:
                config = ProducerConfig(max_in_flight=PLACES)
                it = await client.transaction_producer(Work(), config, hooks=[watch])
                await it.send(Message("T", b"first"))
                world.pause()
                calls = [_noted(watch, KINDS[kind], it, b"%d" % n) for n in range(MANY)]
                try:
                    await form(calls, 1.0)
                except (TimeoutError, ExceptionGroup):
                    pass
                assert it.deferred.in_flight == PLACES
                world.resume()
                done = await it.send(Message("T", b"last"))
                assert done.send_status is SendStatus.SEND_OK
                await asyncio.sleep(30)
                assert it.deferred.in_flight == 0

        world.run(story())
        watch.holds()
        assert len(watch.began) == PLACES + 2
        assert len(world.messages("T")) <= PLACES + 2


def _body(kind: str, number: int) -> bytes:
    return b"%d" % number + ONEWAY * (kind == "send_oneway")


async def _noted(watch: Watch, call: Call, it: Any, body: bytes) -> Any:
    try:
        return await call(it, Message("T", body))
    except (asyncio.CancelledError, CancelledError):
        watch.cancelled.add(body)
        raise


@settings(deadline=None, max_examples=8)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 400)), max_size=MANY),
    st.booleans(),
)
def test_cancels_among_answers(calls: list[tuple[str, int]], is_killed: bool) -> None:
    """Each call ends by an answer or by its own cancel, whatever comes first."""
    with ClientWorld() as world:
        watch = Watch()

        async def story() -> None:
            async with world.connect() as client:
                config = ProducerConfig(max_in_flight=PLACES, delivery_timeout_ms=8000)
                it = await client.transaction_producer(Work(), config, hooks=[watch])
                await it.send(Message("T", b"first"))
                world.world.network.latency = 0.05, 0.05
                if is_killed:
                    asyncio.get_running_loop().call_later(0.12, world.kill_master)
                limited = [
                    asyncio.wait_for(_noted(watch, KINDS[kind], it, _body(kind, n)), ms / 1000)
                    for n, (kind, ms) in enumerate(calls)
                ]
                await asyncio.gather(*limited, return_exceptions=True)
                await asyncio.sleep(60)
                assert it.deferred.in_flight == 0

        world.run(story())
        watch.holds()


def test_deferreds_that_are_cancelled_before_there_is_a_connection() -> None:
    """They hold the places, and nothing has left: none of them, and none behind them, does."""
    with ClientWorld() as world:
        watch = Watch()
        client = world.client()
        it = Producer(client, ProducerConfig(max_in_flight=PLACES), [watch])
        world.wait(it.start())
        world.wait(it.fetch_publish_message_queues("T"))
        sends: list[Deferred[Any]] = []
        for number in range(MANY):
            is_oneway = number % 2
            body = b"%d" % number + ONEWAY * is_oneway
            sends.append((it.send, it.send_oneway)[is_oneway](Message("T", body)))
        for later in sends:
            later.addErrback(lambda failure: failure.trap(CancelledError))
            later.cancel()
        world.wind(10)
        assert it.in_flight == 0
        world.wait(it.send(Message("T", b"last")))
        world.wait(it.stop())
        assert [message.body for message in world.messages("T")] == [b"last"]
        watch.holds()


def test_pulls_and_commits_that_are_cancelled_leave_the_consumer_as_it_was() -> None:
    with ClientWorld() as world:

        async def story() -> None:
            async with world.connect() as client:
                it = await client.producer()
                for number in range(4):
                    await it.send(Message("T", b"%d" % number))
                pulling = client.pull_consumer("pulling")
                await pulling.start()
                queue, *_ = await pulling.fetch_subscribe_message_queues("T")
                end = await pulling.max_offset(queue)
                for after in (0.0, 0.0005, 0.001, 0.5):
                    held = pulling.pull_block_if_not_found(queue, "*", end, 32)
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(held, after)
                found = await pulling.pull(queue, "*", 0, 32)
                assert [each.queue_offset for each in found.msg_found_list] == list(range(end))
                lite = client.lite_pull_consumer("lite")
                lite.assign([queue])
                await lite.start()
                await lite.seek(queue, 0)
                assert await lite.poll(60_000)
                for after in (0.0, 0.0005, 0.001):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(lite.commit_sync(), after)
                await lite.commit_sync()
                assert await lite.committed(queue) == end

        world.run(story())


# Threads


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[whole_broker.Bench]:
    made = whole_broker.Bench(tmp_path_factory.mktemp("broker"))
    yield made
    made.close()


def test_threads_that_cancel_one_after_the_other(bench: whole_broker.Bench) -> None:
    """Each cancel reaches the loop in a turn of its own, and answers come between them."""
    topic, watch, thread = bench.topic(), Watch(), LoopThread("test")

    async def begin() -> tuple[Client, Any]:
        client = Client(bench.namesrv_addr)
        await client.start()
        config = ProducerConfig(max_in_flight=PLACES)
        return client, await client.producer(config, hooks=[watch])

    async def send(it: Any, body: bytes) -> None:
        await _noted(watch, lambda it, _: it.send(Message(topic, body)), it, body)

    client, it = thread.run(begin())
    sends = [
        asyncio.run_coroutine_threadsafe(send(it, b"%d" % number), client.loop)
        for number in range(300)
    ]
    cancelled = [later for later in sends if later.cancel()]  # an answer may have come before
    assert cancelled
    for later in cancelled:
        with pytest.raises(ThreadCancelled):
            later.result(LIMIT_S)
    thread.run(send(it, b"last"))
    thread.run(client.stop())
    thread.stop()
    assert watch.late == []
    assert watch.most <= PLACES


def test_a_thread_that_is_interrupted_leaves_no_transaction_behind(
    bench: whole_broker.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its half message may be stored, but its work is not begun: the broker asks about it."""

    class Shop:
        def __init__(self) -> None:
            self.begun: list[bytes] = []

        def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
            self.begun.append(message.body)
            return LocalTransactionState.COMMIT_MESSAGE

        def check_local_transaction(self, message: Any) -> LocalTransactionState:
            return LocalTransactionState.ROLLBACK_MESSAGE

    class Hook:
        def before_send(self, context: Any) -> None:
            left.set()

        def after_send(self, context: Any) -> None:
            pass

    async def begun_work() -> int:
        return sum("execute_local" in str(task) for task in asyncio.all_tasks())

    topic, shop, left = bench.topic(), Shop(), Event()
    real = asyncio.run_coroutine_threadsafe

    def interrupted(coroutine: Any, loop: Any) -> Any:
        waiting: Any = real(coroutine, loop)

        def interrupt() -> None:
            assert left.wait(LIMIT_S)
            raise KeyboardInterrupt

        waiting.result = interrupt
        return waiting

    with BlockingTransactionProducer(shop, bench.namesrv_addr, hooks=[Hook()]) as it:
        with monkeypatch.context() as patch:
            patch.setattr("rmq_ha.base.host.loop_thread.run_coroutine_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                it.send_in_transaction(Message(topic, b"interrupted"))
        it.send_in_transaction(Message(topic, b"whole"))
        assert it._run(begun_work()) == 0
    assert shop.begun == [b"whole"]
