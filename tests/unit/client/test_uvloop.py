"""The client on uvloop, which uvicorn takes where it is installed."""

import asyncio
from pathlib import Path

import pytest

from rmq_ha.client import Message, PushConsumerConfig
from rmq_ha.client.aio import connect
from tests.unit.client.whole_broker import FIRST, Bench

uvloop = pytest.importorskip("uvloop", reason="pip install uvloop")
COUNT = 200


def test_sends_and_loops_on_uvloop(tmp_path: Path) -> None:
    """Sockets, timers, calls from threads and an orderly end are as on asyncio's own loop."""
    bench = Bench(tmp_path)
    topic = bench.topic(4)

    async def story() -> set[bytes]:
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        seen: set[bytes] = set()
        async with connect(bench.namesrv_addr) as client:
            producer = await client.producer()
            sends = [producer.send(Message(topic, b"%d" % number)) for number in range(COUNT)]
            await asyncio.gather(*sends)
            consumer = client.push_consumer("g", PushConsumerConfig(consume_from_where=FIRST))
            consumer.subscribe(topic)
            async with consumer:
                async for message in consumer:
                    seen.add(message.body)
                    if len(seen) == COUNT:
                        consumer.ack(message)
                        break
        return seen

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert len(runner.run(asyncio.wait_for(story(), 20))) == COUNT
    queues = bench.client.queues(topic)
    assert sum(bench.client.committed("g", queue) or 0 for queue in queues) == COUNT
    bench.close()
