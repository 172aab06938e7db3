"""Hand-overs of a classic pair of real processes while a client sends and consumes.

    python bench/pair_handovers.py --handovers 20 --rate 1000

`rmqha-admin handover broker-a` is typed again and again. Eight streams send to eight queues, one
message after the other, and a push consumer reads. Prints the errors that senders got, what was
acknowledged and is missing, what is out of order in a queue, and the longest pauses. Exits with 1
after an error, a loss or a wrong order.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.client import ConsumeFromWhere, Message, MessageQueue
from rmq_ha.client.aio import Producer, connect
from tests.interop.pairs import Pair
from tests.interop.rig import Rig, rig_in
from tests.interop.wire import Wire

TOPIC = "Handed"
STREAMS = 8
BETWEEN_S = 3.0
HANDOVER = (str(Path(sys.executable).parent / "rmqha-admin"), "handover", "broker-a", "--yes")


class Senders:
    """Streams of numbered messages, and what happened to each."""

    def __init__(self, broker_name: str, rate: float) -> None:
        self.acknowledged: list[list[int]] = [[] for _ in range(STREAMS)]
        self.errors: list[str] = []
        self.latencies_ms: list[float] = []
        self.is_over = False
        self._queues = [MessageQueue(TOPIC, broker_name, number) for number in range(STREAMS)]
        self._pause_s = STREAMS / rate

    async def stream(self, producer: Producer, number: int) -> None:
        """Send until it is over, each message after the answer to the one before it."""
        count, due = 0, time.monotonic()
        while not self.is_over:
            due += self._pause_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            body = f"{number} {count}".encode()
            try:
                await producer.send(Message(TOPIC, body), queue=self._queues[number])
                self.acknowledged[number].append(count)
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            self.latencies_ms.append((time.monotonic() - began) * 1000)
            count += 1


def handed_over(pair: Pair) -> float:
    """Type the command; seconds until it ended."""
    began = time.monotonic()
    said = subprocess.run(
        [*HANDOVER, "-n", pair.namesrv],
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise SystemExit(f"the hand-over failed: {said.stderr}")
    pair.master, pair.slave = pair.slave, pair.master
    return time.monotonic() - began


def stored(address: str) -> list[list[int]]:
    """The numbers in each queue, in their order."""
    with Wire(address) as wire:
        return [
            [int(record.body.split()[1]) for record in wire.pull_all(TOPIC, queue)]
            for queue in range(STREAMS)
        ]


async def load(pair: Pair, options: argparse.Namespace) -> tuple[Senders, set[bytes], list[float]]:
    """Send and consume while the roles change."""
    senders, came, took = Senders("broker-a", options.rate), set[bytes](), []
    async with connect(pair.namesrv) as client:
        producer = await client.producer(retry_times_when_send_failed=options.retries)
        consumer = client.push_consumer(
            "handed", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe(TOPIC)
        async with consumer:

            async def consume() -> None:
                async for message in consumer:
                    came.add(message.body)

            reading = asyncio.create_task(consume())
            streams = [
                asyncio.create_task(senders.stream(producer, number)) for number in range(STREAMS)
            ]
            for number in range(options.handovers):
                await asyncio.sleep(BETWEEN_S)
                took.append(await asyncio.to_thread(handed_over, pair))
                print(f"hand-over {number + 1}: {took[-1]:.2f} s, {len(senders.errors)} errors")
            await asyncio.sleep(BETWEEN_S)
            senders.is_over = True
            await asyncio.gather(*streams)
            limit = time.monotonic() + 60
            while len(came) < sum(map(len, senders.acknowledged)) and time.monotonic() < limit:
                await asyncio.sleep(0.2)
            reading.cancel()
    return senders, came, took


def run(options: argparse.Namespace, rig: Rig) -> int:
    pair = Pair(rig, java_master=False, java_slave=False)
    pair.wait_ok()
    with Wire(pair.master.address) as wire:
        wire.create_topic(TOPIC, STREAMS)
        wire.create_group("handed")
    time.sleep(1)
    senders, came, took = asyncio.run(load(pair, options))
    found = stored(pair.master.address)
    missing = [
        (number, count)
        for number, counts in enumerate(senders.acknowledged)
        for count in set(counts) - set(found[number])
    ]
    unconsumed = sum(
        f"{number} {count}".encode() not in came
        for number, counts in enumerate(senders.acknowledged)
        for count in counts
    )
    repeated = sum(len(each) - len(set(each)) for each in found)
    firsts = [list(dict.fromkeys(each)) for each in found]
    disordered = sum(a > b for each in firsts for a, b in pairwise(each))
    print(
        f"{len(took)} hand-overs, {statistics.median(took or [0]):.2f} s (median) for the command;"
        f" {sum(map(len, senders.acknowledged))} sends acknowledged, {len(senders.errors)} errors,"
        f" {len(missing)} missing, {repeated} stored twice, {disordered} out of order,"
        f" {unconsumed} not consumed; longest send {max(senders.latencies_ms):.0f} ms"
    )
    for text in sorted(set(senders.errors))[:5]:
        print(text)
    return 1 if senders.errors or missing or disordered or unconsumed else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--handovers", type=int, default=20)
    parser.add_argument("--rate", type=float, default=1000, help="messages a second of all streams")
    parser.add_argument("--retries", type=int, default=2, help="of a send, as the client's default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="handovers-") as name, rig_in(Path(name)) as rig:
        code = run(options, rig)
    sys.exit(code)


if __name__ == "__main__":
    main()
