"""Receive messages one by one: each has its own acknowledgement, and its own time limit."""

import asyncio
import os
from datetime import timedelta

from rmq_ha.client import Message, MessageExt, ReceiptExpired
from rmq_ha.client.aio import SimpleConsumer, connect


async def handle(consumer: SimpleConsumer, message: MessageExt) -> None:
    await consumer.change_invisible_duration(message, timedelta(minutes=5))  # long work begins
    print(message.body.decode())
    try:
        await consumer.ack(message)
    except ReceiptExpired as error:  # somebody else has the message already
        print(error)


async def main() -> None:
    topic = f"Simple-{os.getpid()}"
    async with connect() as client:  # NAMESRV_ADDR
        producer = await client.producer()
        for number in range(5):
            await producer.send(Message(topic, f"job {number}".encode()))
        consumer = client.simple_consumer("example-simple", await_duration=timedelta(seconds=3))
        consumer.subscribe(topic)
        async with consumer:
            while messages := await consumer.receive(16, timedelta(seconds=30)):
                await asyncio.gather(*[handle(consumer, message) for message in messages])


asyncio.run(main())
