"""Send a hundred messages at once and consume them, with asyncio."""

import asyncio
import os

from rmq_ha.client import Message
from rmq_ha.client.aio import connect


async def main() -> None:
    topic = f"Asyncio-{os.getpid()}"
    bodies = [f"number {number}".encode() for number in range(100)]
    async with connect() as client, asyncio.timeout(30):  # NAMESRV_ADDR
        producer = await client.producer()
        await asyncio.gather(*[producer.send(Message(topic, body)) for body in bodies])
        consumer = client.push_consumer("example-asyncio")
        consumer.subscribe(topic)
        came: set[bytes] = set()
        async with consumer:
            async for message in consumer:  # consumed when the next one is asked for
                came.add(message.body)
                if len(came) == len(bodies):
                    consumer.ack(message)
                    break
        print(f"{len(came)} of {len(bodies)} came back")


asyncio.run(main())
