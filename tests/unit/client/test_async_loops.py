"""`async for` over consumers: what is consumed when, what comes again, and who waits for whom."""

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from copy import copy
from functools import wraps
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client import aio
from rmq_ha.client.aio_pull import Futures, LitePullConsumer, PullConsumer
from rmq_ha.client.consume.hand_over import HandOver, Messages
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.errors import MQClientError, NotStarted
from rmq_ha.client.rules.listening import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    NotTaken,
)
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.send.producer import Producer
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client.consuming import FIRST, Consuming
from tests.unit.client.scripted import message

LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


def running(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test in a loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def hand_over(*, orderly: bool = False) -> HandOver:
    return HandOver(asyncio.get_running_loop(), orderly=orderly)


def call(hand: HandOver, offset: int) -> "tuple[MessageExt, asyncio.Future[Any], Any]":
    """One listener call; message, answer and context."""
    found, context = message(offset), ConsumeConcurrentlyContext(MessageQueue("T", "a", 0))
    return found, hand.listen([found], context), context


@running
async def test_a_loop_in_a_group_over_a_whole_broker() -> None:
    """
    Consumed is what the loop went past; what it gave back comes again; what nobody saw is left.

    And of a thousand messages a slow loop lets only so many be pulled as its queues may hold.
    """
    cluster = Consuming("a", queues=1)
    hand = hand_over()
    limits = {"consume_concurrency": 2, "pull_threshold_for_queue": 4, "pull_batch_size": 2}
    consumer = cluster.consumer(listener=hand.listen, **limits)
    sent = cluster.send("a", 30, queue_id=0)
    cluster.run(2)
    assert len(hand._waiting) == 2
    pulled = [queue.count for queue in consumer._queues.process_queues().values()]
    assert 4 <= sum(pulled) < 8
    came = []
    loop = Messages(hand)
    async for found in loop:
        came.append(found.body.decode())
        if found.body == b"m1":
            hand.reconsume_later(found, 1)
        if len(came) == 5:
            break
        await turns()
        cluster.run(1)
    assert came == sent[:5]
    hand.close()
    await turns()
    cluster.wait(consumer.stop())
    assert cluster.committed("a") == {0: 5}  # the fifth, in hand, went back
    seen: dict[str, int] = {}

    def note(messages: Any, context: Any) -> None:
        seen.update((each.body.decode(), each.reconsume_times) for each in messages)

    cluster.consumer("c2", listener=note)
    cluster.run(30)
    assert seen == {name: int(name in ("m1", "m4")) for name in ("m1", *sent[4:])}


@running
async def test_each_message_goes_to_one_loop_and_the_first_who_asks_has_the_first() -> None:
    hand = hand_over()
    takers = [asyncio.ensure_future(hand.take()) for _ in range(3)]
    await turns()
    messages = [call(hand, number)[0] for number in range(2)]
    await turns()
    assert [taker.result() for taker in takers[:2]] == messages
    assert not takers[2].done()
    hand.close()
    assert await takers[2] is None


@running
async def test_a_loop_that_is_cancelled_takes_no_message_with_it() -> None:
    """With a time-out around it, say: the message is for the next who asks."""
    hand = hand_over()
    cancelled, other = (asyncio.ensure_future(hand.take()) for _ in range(2))
    await turns()
    found, *_ = call(hand, 0)
    cancelled.cancel()
    await turns()
    assert cancelled.cancelled()
    assert other.result() is found
    alone = asyncio.ensure_future(hand.take())
    await turns()
    alone.cancel()
    await turns()
    late, *_ = call(hand, 1)
    assert await hand.take() is late


@running
async def test_a_loop_that_is_cancelled_changes_nobody_s_turn() -> None:
    hand = hand_over()
    takers = [asyncio.ensure_future(hand.take()) for _ in range(3)]
    await turns()
    takers[0].cancel()
    await turns()
    messages = [call(hand, number)[0] for number in range(2)]
    await turns()
    assert [taker.result() for taker in takers[1:]] == messages


@running
async def test_what_was_answered_for_a_loop_stays_answered() -> None:
    hand = hand_over()
    found, answer, context = call(hand, 0)
    await hand.take()
    hand.reconsume_later(found, 3)
    assert (await answer, context.delay_level_when_next_consume) == (LATER, 3)
    assert not hand.consumed(found)
    with pytest.raises(MQClientError, match="answered already"):
        hand.reconsume_later(found, 0)
    found, answer, _ = call(hand, 1)
    await hand.take()
    answer.cancel()  # in hand for longer than consume_timeout: it went back
    assert hand.consumed(found)
    gone, late = call(hand, 2), call(hand, 3)
    gone[1].cancel()  # nobody took it for so long
    assert await hand.take() is late[0]


@running
async def test_an_ordered_message_lets_its_queue_rest() -> None:
    hand = hand_over(orderly=True)
    found, answer, context = call(hand, 0)
    await hand.take()
    hand.reconsume_later(found, 3)
    assert await answer is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    assert context.delay_level_when_next_consume == 0


@running
async def test_at_the_end_what_is_in_hand_fails_and_the_rest_was_never_shown() -> None:
    hand = hand_over()
    calls = [call(hand, number) for number in range(4)]
    loop = Messages(hand)
    assert await anext(loop) is calls[0][0]
    assert await hand.take() is calls[1][0]
    hand.close()
    assert [await answer for _, answer, _ in calls[:2]] == [LATER, LATER]
    assert all(isinstance(answer.exception(), NotTaken) for _, answer, _ in calls[2:])
    with pytest.raises(StopAsyncIteration):
        await anext(loop)
    with pytest.raises(NotTaken):
        call(hand, 2)


class Push:
    """In the place of the Twisted consumer."""

    config = PushConsumerConfig()

    def __init__(self, *, has_listener: bool = False) -> None:
        self.has_listener = has_listener
        self.listener: Any = None
        self.orderly = False
        self.life: list[str] = []

    def register_message_listener(self, listener: Any, *, orderly: bool = False) -> None:
        self.listener, self.orderly = listener, orderly

    def start(self) -> "Deferred[None]":
        return succeed(self.life.append("start"))

    def stop(self) -> "Deferred[None]":
        return succeed(self.life.append("stop"))


@running
async def test_a_consumer_without_a_listener_is_for_loops() -> None:
    async with aio.connect("127.0.0.1:1") as client:
        for orderly in (False, True):
            below: Any = Push()
            consumer = aio.PushConsumer(client, below, orderly=orderly)
            with pytest.raises(NotStarted, match="has no listener"):
                aiter(consumer)
            async with consumer as entered:
                assert entered is consumer
                first, second = message(0), message(1)
                context = ConsumeConcurrentlyContext(first.queue)
                answers = [below.listener([each], context) for each in (first, second)]
                seen = []
                async for found in consumer:
                    seen.append(found)
                    if found is second:
                        consumer.ack(second)
                        break
                assert seen == [first, second]
                assert [await answer for answer in answers] == [None, None]
            assert (below.life, below.orderly) == (["start", "stop"], orderly)
        below = Push(has_listener=True)
        async with aio.PushConsumer(client, below) as consumer:
            assert below.listener is None
            with pytest.raises(NotStarted):
                aiter(consumer)


@running
async def test_what_a_loop_gives_back_goes_back() -> None:
    async with aio.connect("127.0.0.1:1") as client:
        below: Any = Push()
        async with aio.PushConsumer(client, below) as consumer:
            found = message(0)
            context = ConsumeConcurrentlyContext(found.queue)
            answer = below.listener([found], context)
            assert await anext(aiter(consumer)) is found
            consumer.reconsume_later(found, -1)
            assert (await answer, context.delay_level_when_next_consume) == (LATER, -1)


class Lite:
    """In the place of the Twisted consumer; the test answers each poll."""

    def __init__(self) -> None:
        self.polls: list[Deferred[list[MessageExt]]] = []
        self.sought: list[Any] = []

    def poll(self, timeout_ms: int | None = None) -> "Deferred[list[MessageExt]]":
        self.polls.append(Deferred())
        return self.polls[-1]

    def seek(self, queue: MessageQueue, offset: int) -> "Deferred[None]":
        return succeed(self.sought.append((queue, offset)))

    def stop(self) -> "Deferred[None]":
        for poll in self.polls:
            if not poll.called:
                poll.callback([])
        return succeed(None)


def lite() -> tuple[LitePullConsumer, Lite]:
    below: Any = Lite()
    return LitePullConsumer(Futures(asyncio.get_running_loop()), below), below


@running
async def test_a_block_begins_when_its_part_has_started_and_ends_when_it_has_stopped() -> None:
    """Not when that is on its way: who polls at once would be told that nothing was started."""
    lives: list[Deferred[None]] = []
    below: Any = Push(has_listener=True)
    below.start = below.stop = lambda: lives.append(Deferred()) or lives[-1]
    futures = Futures(asyncio.get_running_loop())
    async with aio.connect("127.0.0.1:1") as client:
        for part in (
            aio.Producer(client, below),
            aio.PushConsumer(client, below),
            LitePullConsumer(futures, below),
            PullConsumer(futures, below),
        ):
            seen: list[str] = []
            task = asyncio.ensure_future(_block(part, seen))
            for wanted in ([], ["in"]):
                await turns()
                assert seen == wanted, part
                lives.pop().callback(None)
            await task
            assert (seen, lives) == (["in", "out"], []), part


async def _block(part: Any, seen: list[str]) -> None:
    async with part as entered:
        assert entered is part
        seen.append("in")
    seen.append("out")


@running
async def test_the_end_of_a_block_ends_its_loops() -> None:
    """What one had in hand comes again; what was polled and never shown is shown no more."""
    async with aio.connect("127.0.0.1:1") as client:
        below: Any = Push()
        async with aio.PushConsumer(client, below) as consumer:
            loop, found = aiter(consumer), message(0)
            answer = below.listener([found], ConsumeConcurrentlyContext(found.queue))
            assert await anext(loop) is found
        assert await answer is LATER
        with pytest.raises(StopAsyncIteration):
            await anext(loop)
    polled, polls = lite()
    task = asyncio.ensure_future(anext(polled))
    await turns()
    polls.polls[0].callback([message(0), message(1)])
    await task
    await polled.stop()
    with pytest.raises(StopAsyncIteration):
        await anext(polled)


@running
async def test_a_loop_polls_when_it_has_worked_off_the_last_poll_and_not_before() -> None:
    """A poll commits what polls before it returned."""
    consumer, below = lite()
    seen: list[int] = []

    async def loop() -> None:
        async for found in consumer:
            seen.append(found.queue_offset)
            await turns(1)

    task = asyncio.ensure_future(loop())
    await turns()
    below.polls[0].callback([message(0), message(1)])
    await asyncio.sleep(0)
    await turns(2)
    assert len(below.polls) == 1
    await turns()
    assert (seen, len(below.polls)) == ([0, 1], 2)
    below.polls[1].callback([])
    await turns()
    assert len(below.polls) == 3
    await consumer.stop()
    await task
    assert seen == [0, 1]


@running
async def test_a_time_out_around_a_loop_loses_nothing() -> None:
    consumer, below = lite()
    task = asyncio.ensure_future(anext(consumer))
    await turns()
    below.polls[0].callback([message(0), message(1)])
    task.cancel()
    await turns()
    assert task.cancelled()
    assert [(await anext(consumer)).queue_offset for _ in range(2)] == [0, 1]
    assert len(below.polls) == 1


@running
async def test_two_loops_share_one_poll() -> None:
    consumer, below = lite()
    tasks = [asyncio.ensure_future(anext(consumer)) for _ in range(2)]
    await turns()
    below.polls[0].callback([message(0), message(1)])
    assert {found.queue_offset for found in await asyncio.gather(*tasks)} == {0, 1}
    assert len(below.polls) == 1


@running
async def test_after_a_seek_a_loop_goes_on_there_and_not_with_what_it_had() -> None:
    consumer, below = lite()
    task = asyncio.ensure_future(anext(consumer))
    await turns()
    other = message(7)
    other.broker_name = "b"
    below.polls[0].callback([message(0), message(1), other])
    await task
    await consumer.seek(message(0).queue, 40)
    assert below.sought == [(message(0).queue, 40)]
    assert await anext(consumer) is other


@running
async def test_a_loop_over_what_was_never_started_says_so() -> None:
    consumer, below = lite()
    below.poll = lambda timeout_ms=None: fail(NotStarted("start it"))  # type: ignore[method-assign]
    with pytest.raises(NotStarted):
        await anext(consumer)


# Exceptions


def test_a_loop_that_begins_again_behind_each_exception_sees_all(rmqha_world: ClientWorld) -> None:
    """It stood still for 15 minutes after 20 exceptions, each of which kept a place."""

    async def story() -> None:
        async with rmqha_world.connect() as client:
            producer = await client.producer()
            for number in range(60):
                await producer.send(Message("T", b"%d" % number))
            consumer = client.push_consumer("group", PushConsumerConfig(consume_from_where=FIRST))
            consumer.subscribe("T")
            seen: list[tuple[bytes, int]] = []

            async def work() -> None:
                while True:
                    try:
                        async for found in consumer:
                            seen.append((found.body, found.reconsume_times))
                            if found.reconsume_times == 0:
                                raise ValueError("on purpose")
                    except ValueError:
                        pass

            async with consumer:
                task = asyncio.ensure_future(work())
                await asyncio.sleep(60)
                task.cancel()
                await asyncio.wait([task])
            assert sorted(seen) == sorted((b"%d" % n, t) for n in range(60) for t in (0, 1))

    rmqha_world.run(story())


@pytest.mark.parametrize(
    ("error", "expected"),
    [(None, None), (ValueError("on purpose"), LATER), (asyncio.CancelledError(), None)],
)
def test_a_block_answers_for_its_message(error: BaseException | None, expected: Any) -> None:
    """By how it ends; the exception goes on, and an answer of before stays."""

    async def story() -> None:
        async with aio.connect("127.0.0.1:1") as client:
            below: Any = Push()
            consumer = aio.PushConsumer(client, below)
            await consumer.start()
            found = message(0)
            context = ConsumeConcurrentlyContext(found.queue)
            answer = below.listener([found], context)
            taken = await anext(aiter(consumer))
            with nullcontext() if error is None else pytest.raises(type(error)):
                async with consumer.processing(taken) as entered:
                    assert entered is found
                    if error is not None:
                        raise error
            if isinstance(error, asyncio.CancelledError):
                assert not answer.done()
                assert await anext(aiter(consumer)) is found  # the next who asks has it
                consumer.reconsume_later(found, 3)
            else:
                assert await answer is expected
            async with consumer.processing(found):
                pass  # it is answered already: this changes nothing
            assert answer.done()

    asyncio.run(story())


@running
async def test_one_message_that_is_asked_for_belongs_to_no_loop() -> None:
    """`anext(aiter(consumer))` leaves no loop, but a loop that lives in a variable is one."""
    hand = hand_over()
    found, answer, _ = call(hand, 0)
    assert await anext(aiter(Messages(hand))) is found
    await turns()
    assert not answer.done()
    hand.consumed(found)
    other, answer, _ = call(hand, 1)
    loop = Messages(hand)
    assert await anext(loop) is other
    del loop
    assert await answer is LATER


def test_batches_of_a_listener_are_refused_at_the_start() -> None:
    """They made each call fail: good messages went to the dead letters."""

    async def story(world: ClientWorld) -> None:
        async with world.connect() as client:
            made = PushConsumerConfig(consume_message_batch_max_size=32)
            consumer = client.push_consumer("g", made)
            consumer.subscribe("T")
            with pytest.raises(ConfigurationError, match=r"loop over consumer\.batches\(32\)"):
                await consumer.start()

    with ClientWorld() as world:
        world.run(story(world))


def test_batches_are_handed_over_whole_and_shown_once() -> None:
    async def story(world: ClientWorld) -> list[list[bytes]]:
        async with world.connect() as client:
            producer = await client.producer()
            for number in range(6):
                await producer.send(Message("T", b"%d" % number))
            consumer = client.push_consumer("g")
            consumer.subscribe("T")
            got: list[list[bytes]] = []
            async with consumer:
                async for batch in consumer.batches(4, wait_ms=100):
                    got.append([message.body for message in batch])
                    if sum(map(len, got)) == 6:
                        for message in batch:
                            consumer.ack(message)
                        break
            return got

    with ClientWorld() as world:
        world.new_topic("T", 1)
        got = world.run(story(world))
        assert sorted(body for batch in got for body in batch) == [b"%d" % n for n in range(6)]
        assert max(map(len, got)) > 1


def test_a_message_of_a_loop_answers_for_itself_as_its_consumer_would() -> None:
    """People of other clients look for `ack` and `nack` at the message."""

    async def story() -> None:
        async with world.connect() as client:
            consumer = client.push_consumer(
                "billing", consume_from_where=FIRST, max_reconsume_times=2
            )
            consumer.subscribe("Orders")
            seen: list[tuple[bytes, int]] = []
            async with consumer:
                async for message in consumer:
                    seen.append((message.body, message.reconsume_times))
                    if message.body == b"ack":
                        message.ack()
                        message.ack()
                    elif message.body == b"block":
                        async with message.processing():
                            pass
                    elif message.body == b"dead":
                        message.nack(-1)
                    else:
                        message.nack()
                    kept = pickle.loads(pickle.dumps(message))
                    assert kept == message == copy(message)
                    with pytest.raises(MQClientError, match="only a message that a loop took"):
                        kept.ack()
                    if len(seen) == 6:
                        break
                await asyncio.sleep(1)
            assert sorted(seen) == [
                (b"ack", 0),
                (b"block", 0),
                (b"dead", 0),
                *((b"nack", times) for times in range(3)),
            ]

    with ClientWorld() as world:
        world.new_topic("Orders")
        producer = Producer(world.client())
        world.wait(producer.start())
        for body in (b"ack", b"block", b"nack", b"dead"):
            world.wait(producer.send(Message("Orders", body)))
        world.wait(producer.stop())
        world.run(story())
        dead = [message.body for message in world.messages("%DLQ%billing")]
        assert sorted(dead) == [b"dead", b"nack"]
