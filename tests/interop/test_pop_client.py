"""Our client receives and pops from a broker of RocketMQ 5.3.3."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import RequestMode
from rmq_ha.client import ConsumeFromWhere, Message, MessageExt
from rmq_ha.client.aio import Client, connect
from rmq_ha.client.lookup.administration import put_topic
from tests.interop.rig import SMALL, Rig, Server
from tests.interop.test_controller import PEER5, pytestmark  # noqa: F401

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
MINUTE = timedelta(minutes=1)


def java_5(rig: Rig, namesrv: str) -> Server:
    directory = rig.directory / "java5"
    directory.mkdir()
    port = rig.ports(4) + 2
    command = [str(PEER5), "broker", "--quick", "--conf", str(SMALL / "master-async.conf")]
    command += ["--dir", str(directory), "--jvm=-XX:+UnlockDiagnosticVMOptions"]
    command += ["--namesrv", namesrv, "--set", f"listenPort={port}"]
    return rig._start(command, f"127.0.0.1:{port}", directory, java=True)


async def send(client: Client, topic: str, *bodies: str) -> None:
    producer = await client.producer(producer_group=f"p{len(client.instance.producers)}")
    for body in bodies:
        await producer.send(Message(topic, body.encode()))


async def receive(client: Client, topic: str) -> None:
    sent = [f"m{number}" for number in range(8)]
    await send(client, topic, *sent)
    consumer = client.simple_consumer(
        "simple", consume_from_where=FIRST, await_duration=timedelta(seconds=1)
    )
    consumer.subscribe(topic)
    await consumer.start()
    got: list[MessageExt] = []
    while len(got) < 8:
        got += await consumer.receive(32, MINUTE)
    assert sorted(message.body.decode() for message in got) == sent
    await consumer.change_invisible_duration(got[0], timedelta(seconds=1))
    await consumer.ack(got[1])
    await consumer.ack_all(got[2:])
    came: list[MessageExt] = []
    while not came:  # 2 to 4 s after its time, which wakes no waiting pop of Java's broker
        came = await consumer.receive(32, MINUTE)
    (again,) = came
    assert (again.body, again.reconsume_times, again.topic) == (got[0].body, 1, topic)
    await consumer.ack(again)


async def receive_in_order(client: Client, topic: str) -> None:
    await send(client, topic, "o0", "o1", "o2")
    consumer = client.simple_consumer(
        "ordered", order=True, consume_from_where=FIRST, await_duration=timedelta(seconds=1)
    )
    consumer.subscribe(topic)
    await consumer.start()
    first = await consumer.receive(2, timedelta(seconds=2))
    assert [message.body for message in first] == [b"o0", b"o1"]
    assert await consumer.receive(2, MINUTE) == []
    await consumer.ack(first[0])
    await asyncio.sleep(1.5)
    second = await consumer.receive(2, MINUTE)
    assert [(one.body, one.reconsume_times) for one in second] == [(b"o1", 1), (b"o2", 0)]
    for message in second:
        await consumer.ack(message)


async def pop_then_pull(client: Client, topic: str, address: str) -> None:
    async def set_mode(mode: str) -> None:
        body = RequestMode(topic, "pushed", mode, 0).encode()
        command = RemotingCommand(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
        answer = await client.future(client.instance.invoke(address, command, 3000))
        assert answer.code == 0, answer.remark

    def queue_ids() -> list[int]:
        return [queue.queue_id for queue in consumer.assignment() if queue.topic == topic]

    async def until(condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.05)

    got: Counter[bytes] = Counter()

    async def listen(messages: Any, context: Any) -> None:
        got.update(message.body for message in messages)

    await set_mode("POP")
    consumer = client.push_consumer(
        "pushed", client_rebalance=False, consume_from_where=FIRST, rebalance_interval_ms=500
    )
    consumer.subscribe(topic)
    consumer.register_message_listener(listen)
    await consumer.start()
    await until(lambda: queue_ids() == [-1])
    sent = [f"p{number}" for number in range(20)]
    await send(client, topic, *sent)
    await until(lambda: len(got) == 20)
    await set_mode("PULL")
    await until(lambda: queue_ids() == [0, 1])
    more = [f"q{number}" for number in range(20)]
    await send(client, topic, *more)
    await until(lambda: len(got) == 40)
    assert set(got) == {body.encode() for body in sent + more}


def test_receiving_in_and_out_of_order_and_a_change_from_pop_to_pull(rig: Rig) -> None:
    namesrv = rig.namesrv()
    java = java_5(rig, namesrv)

    async def story() -> None:
        async with connect(namesrv) as client:
            for topic, queues in (("Simple", 2), ("Ordered", 1), ("Pushed", 2)):
                await client.ask(put_topic(java.address, TopicConfig(topic, queues, queues)))
            async with asyncio.timeout(60):
                await asyncio.gather(
                    receive(client, "Simple"),
                    receive_in_order(client, "Ordered"),
                    pop_then_pull(client, "Pushed", java.address),
                )

    asyncio.run(story())
