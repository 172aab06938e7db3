"""Send ten messages, wait for each, and say where it is. NAMESRV_ADDR names the name server."""

from typing import Any

from twisted.internet.task import react

from rmq_ha.client import Message, Producer, ProducerConfig, connect


async def main(reactor: Any) -> None:
    producer = Producer(connect(reactor), ProducerConfig(producer_group="example-producers"))
    await producer.start()
    try:
        for number in range(10):
            message = Message("Example", f"hello {number}".encode(), tags="greeting", keys="hello")
            result = await producer.send(message)
            queue = result.message_queue
            print(result.send_status.name, queue.broker_name, queue.queue_id, result.queue_offset)
    finally:
        await producer.stop()


react(main)
