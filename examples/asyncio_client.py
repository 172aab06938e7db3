"""Send a hundred messages at once and consume them, with asyncio."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from rmq_ha.client.aio import connect
from rmq_ha.client.messages import Message, MessageExt


async def main() -> None:
    topic = f"Asyncio-{os.getpid()}"
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(messages: Sequence[MessageExt], context: Any) -> None:
        for message in messages:
            await received.put(message.body)

    async with connect() as client:  # NAMESRV_ADDR
        producer = await client.producer()
        bodies = [f"number {number}".encode() for number in range(100)]
        await asyncio.gather(*[producer.send(Message(topic, body)) for body in bodies])
        consumer = client.push_consumer("example-asyncio")
        consumer.subscribe(topic)
        consumer.register_message_listener(listen)
        await consumer.start()
        async with asyncio.timeout(30):
            came = {await received.get() for _ in bodies}
        print(f"{len(came)} of {len(bodies)} came back")


asyncio.run(main())
