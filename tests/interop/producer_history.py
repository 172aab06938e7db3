"""
The history of java/ProducerHistory.java with our producer, then what only we need to show.

Run as a program with a name server and brokers; told what to do on stdin, as the Java one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from rmq_ha.base.host.real import make_host
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.messages import Message, MessageExt, MessageQueue
from rmq_ha.client.rules.queue_choice import select_by_hash
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.tracing import Tracer
from rmq_ha.client.send.transactions import LocalTransactionState, TransactionProducer

reactor: Any = installed
COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE


def tell(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


async def history(producer: Producer, broker: str) -> None:
    """Message by message what Java sends."""
    topic = f"H-ours-{broker}"
    first = MessageQueue(topic, broker, 0)
    rich = Message(topic, b"rich", "tag", "k1 k2", flag=7)
    for i in range(15):
        rich.properties[f"name-{i}"] = f"v{i}"
    rich.properties["umlaut"] = 'ä€ "q" \\ / %s'
    await producer.send(rich, queue=first)
    await producer.send(Message(topic, b"plain", flag=-1, wait_store_msg_ok=False), queue=first)
    large = "".join(f"number {i}, " for i in range(3000)).encode()
    await producer.send(Message(topic, large, "large"), queue=first)
    await producer.send(Message(topic, large[:4095]), queue=first)
    await producer.send(Message(topic, large[:4096]), queue=first)
    keys: list[str | int] = ["order-1", "order-2", "häh", "", 7, -7, 1 << 40, -(1 << 33)]
    for key in keys:
        message = Message(topic, f"key {key}".encode(), "hash")
        await producer.send(message, selector=select_by_hash, arg=key)
    batch = [
        Message(topic, b"batch %d" % i, f"tag{i}", f"key{i}", flag=i, properties={"n": str(i)})
        for i in range(5)
    ]
    await producer.send_batch(batch, queue=MessageQueue(topic, broker, 1))
    await producer.send_oneway(
        Message(topic, b"oneway", "oneway"), queue=MessageQueue(topic, broker, 2)
    )
    delayed = Message(topic, b"delayed", "delayed", delay_time_level=1)
    await producer.send(delayed, queue=MessageQueue(topic, broker, 3))
    turns = [await producer.send(Message(topic, b"turn", "turn")) for _ in range(8)]
    body = ",".join(str(result.message_queue.queue_id) for result in turns)
    tell("turns", by=broker, body=body)


async def split_batch(producer: Producer, broker: str) -> None:
    """More than fits into one request."""
    topic = f"B-{broker}"
    messages = [Message(topic, b"%04d" % i * 250) for i in range(1000)]
    results = await producer.send_batch(messages, queue=MessageQueue(topic, broker, 0))
    tell("split", by=broker, body=str(len(results)))


class Decisions:
    """As the Java program's."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        found = {"commit": COMMIT, "rollback": ROLLBACK}
        return found.get(arg, LocalTransactionState.UNKNOW)

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        tell("asked", by=message.topic, body=message.keys)
        return COMMIT if message.keys == "ask-commit" else ROLLBACK


async def decide(producer: TransactionProducer, broker: str) -> None:
    for decision in ("commit", "rollback", "ask-commit", "ask-rollback"):
        message = Message(f"X-ours-{broker}", decision.encode(), "t", decision)
        await producer.send_in_transaction(message, decision)


async def main(namesrv: str) -> None:
    config = ClientConfig(namesrv_addr=namesrv, heartbeat_broker_interval_ms=1000)
    instance = ClientInstance(make_host(reactor), config)
    patient = {"send_msg_timeout_ms": 10_000}
    producer = Producer(
        instance, ProducerConfig(producer_group="p-ours", max_batch_size=256 << 10, **patient)
    )
    group = ProducerConfig(producer_group="p-ours-transactions", **patient)
    transactions = TransactionProducer(instance, Decisions(), group)
    tracer = Tracer(instance)
    traced = Producer(instance, ProducerConfig(producer_group="p-ours-traced"), [tracer])
    for part in (producer, transactions, tracer, traced):
        await part.start()
    tell("ready")
    while True:
        line = await deferToThread(sys.stdin.readline)
        words = line.split()
        if not words or words[0] == "quit":
            break
        if words[0] == "history":
            await history(producer, words[1])
            await decide(transactions, words[1])
            await split_batch(producer, words[1])
        elif words[0] == "request":
            reply = await producer.request(Message(f"R-{words[1]}", b"question"), 20_000)
            tell("reply", by=words[1], body=reply.body.decode())
        elif words[0] == "traced":
            result = await traced.send(Message(f"T-{words[1]}", b"traced", "tag", "trace-key"))
            tell("traced", by=words[1], body=result.msg_id)
        tell("done", command=words[0])
    for part in (traced, tracer, transactions, producer):
        await part.stop()
    tell("stopped")


if __name__ == "__main__":
    running = Deferred.fromCoroutine(main(sys.argv[1]))
    running.addErrback(lambda failure: failure.printTraceback())
    running.addBoth(lambda _: reactor.stop())
    reactor.run()
