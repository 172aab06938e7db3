"""Three orders, three steps each: equal keys share a queue, and a queue is consumed in order."""

from collections import defaultdict
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from rmq_ha.client import Message, Producer, PushConsumer, connect
from rmq_ha.client import select_by_hash as by_key


async def main(reactor: Any) -> None:
    producer = Producer(connect(reactor))
    await producer.start()
    for step in (b"created", b"paid", b"shipped"):
        for key in "order-1", "order-2", "order-3":
            await producer.send(Message("Orders", step, keys=key), selector=by_key, arg=key)
    steps, complete = defaultdict[str, list[str]](list), Deferred[Any]()

    def listen(messages: Any, context: Any) -> None:
        for message in messages:
            steps[message.keys].append(message.body.decode())
        if sum(map(len, steps.values())) == 9:
            complete.callback(sorted(steps.items()))

    consumer = PushConsumer(producer.instance, "example-orders")
    consumer.subscribe("Orders")
    consumer.register_message_listener(listen, orderly=True)
    await consumer.start()
    print(await complete)
    await consumer.stop()
    await producer.stop()


react(main)
