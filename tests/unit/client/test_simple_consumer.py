"""Simple consumers of whole brokers on a simulated clock: leases, acknowledgements, fail-overs.

Spec: pop.md, sections 2 and 14.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from rmq_ha.base.errors import ConfigurationError, RemotingError
from rmq_ha.base.model.properties import POP_CK
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client import (
    BrokerRefused,
    ConsumeFromWhere,
    Credentials,
    Message,
    MessageExt,
    MessageSelector,
    MQClientError,
    NotStarted,
    ReceiptExpired,
    SimpleConsumer,
)
from rmq_ha.client.aio import Client
from rmq_ha.client.aio import SimpleConsumer as AioSimpleConsumer
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client.consuming import Consuming

TOPIC, GROUP = "Orders", "billing"
MINUTE = timedelta(minutes=1)
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def world() -> Iterator[ClientWorld]:
    with ClientWorld() as made:
        made.new_topic(TOPIC)
        yield made


async def joined(client: Client, expression: Any = "*", **options: Any) -> AioSimpleConsumer:
    given = {"consume_from_where": FIRST, "await_duration": timedelta(0), **options}
    consumer = client.simple_consumer(GROUP, **given)
    consumer.subscribe(TOPIC, expression)
    await consumer.start()
    return consumer


async def send(client: Client, *bodies: bytes, **more: Any) -> None:
    producer = await client.producer(producer_group=f"p{len(client.instance.producers)}")
    for body in bodies:
        await producer.send(Message(TOPIC, body, **more))


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)


def test_what_is_acknowledged_never_comes_again_and_all_else_does(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.connect() as client:
            await send(client, b"0", b"1", b"2", b"3")
            consumer = await joined(client)
            first = await consumer.receive(32, MINUTE)
            assert bodies(first) == [b"0", b"1", b"2", b"3"]
            assert {message.topic for message in first} == {TOPIC}
            done, rest = first[:2], first[2:]
            await consumer.ack(done[0])
            await consumer.ack_all([done[1]])
            await consumer.ack(done[0])  # a repetition changes nothing
            await asyncio.sleep(50)
            assert await consumer.receive(32, MINUTE) == []
            await asyncio.sleep(15)
            again = await consumer.receive(32, MINUTE)
            assert bodies(again) == bodies(rest)
            assert {message.reconsume_times for message in again} == {1}
            assert {message.topic for message in again} == {TOPIC}
            await consumer.ack_all(again)
            await asyncio.sleep(3600)
            assert await consumer.receive(32, MINUTE) == []

    world.run(story())


def test_a_lease_ends_when_its_holder_says_so(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.connect() as client:
            await send(client, b"long", b"soon")
            consumer = await joined(client)
            by_body = {message.body: message for message in await consumer.receive(32, MINUTE)}
            before = by_body[b"long"].properties[POP_CK]
            await consumer.change_invisible_duration(by_body[b"long"], 10 * MINUTE)
            assert by_body[b"long"].properties[POP_CK] != before
            await consumer.change_invisible_duration(by_body[b"soon"], timedelta(0))
            await asyncio.sleep(5)
            (soon,) = await consumer.receive(32, MINUTE)
            assert soon.body == b"soon"
            await consumer.ack(soon)
            await asyncio.sleep(500)
            await consumer.ack(by_body[b"long"])  # by the new receipt
            await asyncio.sleep(3600)
            assert await consumer.receive(32, MINUTE) == []

    world.run(story())


def test_an_answer_that_comes_too_late_says_what_happens_and_what_to_do(
    world: ClientWorld,
) -> None:
    async def story() -> None:
        async with world.connect() as client:
            await send(client, b"0")
            consumer = await joined(client)
            (message,) = await consumer.receive(1, timedelta(seconds=5))
            await asyncio.sleep(20)
            (again,) = await consumer.receive(1, MINUTE)
            with pytest.raises(ReceiptExpired, match="change_invisible_duration") as told:
                await consumer.ack(message)
            assert told.value.msg_id == message.msg_id
            assert (told.value.code, told.value.retriable) == (208, False)
            with pytest.raises(ReceiptExpired):
                await consumer.change_invisible_duration(message, MINUTE)
            with pytest.raises(ReceiptExpired):
                await consumer.ack_all([message])
            await consumer.ack(again)

    world.run(story())


def test_a_receive_waits_for_the_first_message_and_no_longer_than_it_may(
    world: ClientWorld,
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with world.connect() as client:
            consumer = await joined(client, await_duration=timedelta(seconds=20))
            began = loop.time()
            assert await consumer.receive(8, MINUTE) == []
            assert 19 < loop.time() - began < 21
            began = loop.time()
            waiting = asyncio.ensure_future(consumer.receive(8, MINUTE))
            await asyncio.sleep(7)
            await send(client, b"0")
            (message,) = await waiting
            assert 7 <= loop.time() - began < 8
            await consumer.ack(message)
            waiting = asyncio.ensure_future(consumer.receive(8, MINUTE))
            await asyncio.sleep(1)
            await consumer.stop()
            with pytest.raises(NotStarted, match="receive"):
                await waiting

    world.run(story())


def test_expressions_choose_and_may_change(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.connect() as client:
            await send(client, b"a", tags="A")
            await send(client, b"b", tags="B")
            consumer = await joined(client, "A")
            (message,) = await consumer.receive(32, MINUTE)
            assert message.body == b"a"
            await consumer.ack(message)
            consumer.subscribe(TOPIC, MessageSelector.by_sql("price > 10"))
            await send(client, b"cheap", properties={"price": "9"})
            await send(client, b"dear", properties={"price": "11"})
            (message,) = await consumer.receive(32, MINUTE)
            assert message.body == b"dear"
            await consumer.ack(message)

    world.run(story())


def test_tags_of_one_hash_are_told_apart_and_the_others_acknowledged(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.connect() as client:
            await send(client, b"Aa", tags="Aa")
            await send(client, b"BB", tags="BB")  # of the same hash as Aa
            consumer = await joined(client, "BB")
            (message,) = await consumer.receive(32, timedelta(seconds=5))
            assert message.body == b"BB"
            await consumer.ack(message)
            await asyncio.sleep(30)
            assert await consumer.receive(32, MINUTE) == []
            assert world.messages(f"%RETRY%{GROUP}_{TOPIC}") == []

    world.run(story())


def test_ordered_messages_wait_for_the_one_before_them(world: ClientWorld) -> None:
    async def story() -> None:
        world.new_topic(TOPIC, 1)
        await asyncio.sleep(35)
        async with world.connect() as client:
            await send(client, b"0", b"1", b"2")
            consumer = await joined(client, order=True)
            first = await consumer.receive(2, timedelta(seconds=10))
            assert [message.body for message in first] == [b"0", b"1"]
            assert PopReceipt.parse(first[0].properties[POP_CK]).is_orderly
            assert await consumer.receive(2, MINUTE) == []
            await consumer.ack(first[0])
            await asyncio.sleep(15)
            second = await consumer.receive(2, MINUTE)
            assert [(one.body, one.reconsume_times) for one in second] == [(b"1", 1), (b"2", 0)]
            await consumer.ack_all(second)
            assert await consumer.receive(2, MINUTE) == []

    world.run(story())


def test_names_have_the_namespace_at_the_broker_only(world: ClientWorld) -> None:
    world.new_topic(f"shop%{TOPIC}")

    async def story() -> None:
        async with world.connect(namespace="shop") as client:
            await send(client, b"0")
            consumer = await joined(client)
            (message,) = await consumer.receive(1, timedelta(seconds=5))
            assert message.topic == TOPIC
            await asyncio.sleep(10)
            (message,) = await consumer.receive(1, MINUTE)
            assert (message.topic, message.reconsume_times) == (TOPIC, 1)
            await consumer.ack(message)
        assert len(world.messages(f"%RETRY%shop%{GROUP}_shop%{TOPIC}")) == 1

    world.run(story())


def test_a_message_that_nobody_acknowledges_goes_to_the_dead_letters(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.connect() as client:
            await send(client, b"poison")
            consumer = await joined(client)
            tries = 0
            for _ in range(40):
                tries += len(await consumer.receive(1, timedelta(seconds=5)))
                await asyncio.sleep(10)
            assert tries == 17
        (dead,) = world.messages(f"%DLQ%{GROUP}")
        assert dead.body == b"poison"

    world.run(story())


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_holds_across_a_fail_over(seed: int) -> None:
    with ClientWorld(seed, pair=True) as world:
        world.new_topic(TOPIC)

        async def story() -> None:
            async with world.connect() as client:
                sent = [b"%d" % number for number in range(40)]
                await send(client, *sent)
                consumer = await joined(client)
                out: list[MessageExt] = []
                while len(out) < 40:
                    out += await consumer.receive(16, timedelta(minutes=3))
                done = out[:10]
                for message in done:
                    await consumer.ack(message)
                last = asyncio.ensure_future(consumer.ack(out[10]))
                await asyncio.sleep(0.001 * seed)  # its answer is lost with the master
                world.kill_master()
                acks = [asyncio.ensure_future(consumer.ack(one)) for one in out[11:20]]
                await asyncio.sleep(4)
                world.fail_over()
                await asyncio.gather(last, *acks)
                await consumer.change_invisible_duration(out[20], 20 * MINUTE)
                await asyncio.sleep(300)
                again: list[MessageExt] = []
                while popped := await consumer.receive(32, timedelta(minutes=3)):
                    await consumer.ack_all(popped)
                    again += popped
                assert bodies(again) == bodies(out[21:])
                await asyncio.sleep(1500)
                (late,) = await consumer.receive(32, timedelta(minutes=3))
                assert late.body == out[20].body
                await consumer.ack(late)

        world.run(story())


def test_an_answer_fails_in_time_while_no_master_serves(world: ClientWorld) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with world.connect() as client:
            await send(client, b"0")
            consumer = await joined(client, ack_timeout_ms=8000)
            (message,) = await consumer.receive(1, MINUTE)
            world.kill_master()
            began = loop.time()
            with pytest.raises(RemotingError):
                await consumer.ack(message)
            assert 5 < loop.time() - began < 9
            world.start_master()
            await asyncio.sleep(3)
            await consumer.ack(message)  # the lease goes on

    world.run(story())


def test_members_get_the_messages_of_all_brokers_and_live_without_one() -> None:
    cluster = Consuming()
    for name in ("a", "b"):
        cluster.add(name, ours={"pop_enable": True})
        cluster.create(name, "topic", 4)
    sent = cluster.send("a", 20) + cluster.send("b", 20)
    members = []
    for name in ("c1", "c2"):
        member = SimpleConsumer(
            cluster.client(name),
            GROUP,
            consume_from_where=FIRST,
            await_duration=timedelta(seconds=3),
        )
        member.subscribe("topic")
        cluster.wait(member.start())
        members.append(member)
    got: Counter[str] = Counter()
    while sum(got.values()) < 40:
        for member in members:
            messages = cluster.wait(member.receive(8, MINUTE))
            got.update(message.body.decode() for message in messages)
            cluster.wait(member.ack_all(messages))
    assert got == Counter(sent)
    cluster.crash("a", power=True)
    more = cluster.send("b", 4)
    received: list[MessageExt] = []
    for _ in range(8):
        received += cluster.wait(members[0].receive(8, MINUTE))
    assert bodies(received) == sorted(body.encode() for body in more)
    for member in members:
        cluster.wait(member.stop())


def test_a_broker_without_pops_says_how_to_allow_them() -> None:
    cluster = Consuming("a")
    member = SimpleConsumer(cluster.client("c1"), GROUP)
    member.subscribe("topic")
    cluster.wait(member.start())
    with pytest.raises(BrokerRefused, match="popEnable=true"):
        cluster.wait(member.receive(8, MINUTE))
    cluster.wait(member.stop())


def test_wrong_arguments_are_refused_with_the_right_ones(world: ClientWorld) -> None:
    async def story() -> None:
        async with world.connect() as client:
            with pytest.raises(ConfigurationError, match="timedelta"):
                client.simple_consumer(GROUP, await_duration=20)  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match="at the last message only"):
                client.simple_consumer(
                    GROUP, consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
                )
            with pytest.raises(ConfigurationError, match="subscribe"):
                await client.simple_consumer(GROUP).start()
            consumer = await joined(client)
            with pytest.raises(ConfigurationError, match="1 to 32"):
                await consumer.receive(33, MINUTE)
            with pytest.raises(ConfigurationError, match="millisecond"):
                await consumer.receive(1, timedelta(0))
            with pytest.raises(ConfigurationError, match="timedelta"):
                await consumer.receive(1, 30)  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match="negative"):
                await consumer.receive(1, timedelta(seconds=-1))
            await send(client, b"0")
            pulled = world.messages(TOPIC)[0]
            with pytest.raises(MQClientError, match="no receipt"):
                await consumer.ack(pulled)
            await consumer.stop()
            with pytest.raises(NotStarted):
                await consumer.receive(1, MINUTE)

    world.run(story())


ACCOUNTS = """\
accounts:
- {accessKey: ada-1815, secretKey: engine-1843, admin: true}
- accessKey: worker-1
  secretKey: worker-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [topic=SUB]
  groupPerms: [group=SUB]
"""


def test_an_account_needs_the_topic_and_the_group_and_no_retry_topic() -> None:
    ada = Credentials("ada-1815", "engine-1843")
    cluster = Consuming(credentials=ada)
    host = cluster.hosts["a"] = cluster.world.add("a")
    host.disk.replace("/conf/plain_acl.yml", ACCOUNTS.encode())
    guard = {"acl_plug_in": "plain", "acl_directory": "/conf", "pop_enable": True}
    cluster.add("a", broker={"acl_enable": True}, ours=guard)
    cluster.create("a", "topic", 1)
    command = send_request("p", "topic", 0, b"0", "", 0)
    assert cluster.wait(cluster.sender.invoke(cluster.address("a"), command, 3000)).code == 0
    worker = cluster.client("c1", credentials=Credentials("worker-1", "worker-secret"))
    member = SimpleConsumer(worker, "group", consume_from_where=FIRST)
    member.subscribe("topic")
    cluster.wait(member.start())
    (message,) = cluster.wait(member.receive(8, timedelta(seconds=5)))
    cluster.run(8)
    (message,) = cluster.wait(member.receive(8, MINUTE))
    assert message.reconsume_times == 1
    cluster.wait(member.change_invisible_duration(message, MINUTE))
    cluster.wait(member.ack_all([message]))
    member.subscribe("another")
    member.unsubscribe("topic")
    other = SimpleConsumer(cluster.client("c2", credentials=worker.settings.credentials), "others")
    other.subscribe("topic")
    cluster.wait(other.start())
    with pytest.raises(BrokerRefused) as told:
        cluster.wait(other.receive(8, MINUTE))
    assert told.value.is_access


def test_an_acknowledgement_whose_answer_is_lost_is_repeated(world: ClientWorld) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with world.connect() as client:
            await send(client, b"0", b"1", b"2")
            consumer = await joined(client)
            messages = await consumer.receive(3, MINUTE)
            for message, seconds in zip(messages, (0.0, 0.0005, 0.001), strict=True):
                answer = consumer.ack(message)
                await asyncio.sleep(seconds)  # the request is under way, or there already
                world.pause()
                began = loop.time()
                await asyncio.sleep(7)
                world.resume()
                await answer
                assert loop.time() - began < 15
            await asyncio.sleep(600)
            assert await consumer.receive(3, MINUTE) == []

    world.run(story())


def test_a_change_whose_answer_is_lost_says_that_the_message_comes_again(
    world: ClientWorld,
) -> None:
    async def story() -> None:
        async with world.connect() as client:
            await send(client, b"0")
            consumer = await joined(client)
            (message,) = await consumer.receive(1, MINUTE)
            change = consumer.change_invisible_duration(message, 5 * MINUTE)
            await asyncio.sleep(0.001)
            world.pause()
            await asyncio.sleep(7)
            world.resume()
            with pytest.raises(ReceiptExpired, match="expect the message again"):
                await change
            await asyncio.sleep(285)
            assert await consumer.receive(1, MINUTE) == []
            await asyncio.sleep(15)
            (again,) = await consumer.receive(1, MINUTE)
            await consumer.ack(again)

    world.run(story())
