"""Hand-overs of brokers of real processes while a client sends and another one consumes.

    python bench/pair_handovers.py --handovers 20 --rate 1000
    python bench/pair_handovers.py --client java --brokers set --handovers 5

`rmqha-admin handover` is typed again and again, for a classic pair or for a set with a controller.
With our client, eight streams send to eight queues, one message after the other. The programs of
Java's and Go's clients in `../shared/peer` send one message after the other to all queues, with
their usual retries (2). A push consumer of ours reads. Prints the errors that senders got, what was
acknowledged and is missing, what is out of order in a queue, and the longest pauses. Exits with 1
after an error, a loss or a wrong order.

`--forward 0` sets forwardAfterHandoverSeconds=0, as if a former master forwarded nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timer_sets import TimerRig, TimerSet

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client import ConsumeFromWhere, Message, MessageQueue
from rmq_ha.client.aio import Producer, connect
from tests.interop.pairs import Pair
from tests.interop.rig import PEER, Rig, Server
from tests.interop.wire import Wire

TOPIC = "Handed"
STREAMS = 8
HANDOVER = (str(Path(sys.executable).parent / "rmqha-admin"), "handover")


class Senders:
    """Streams of numbered messages, and what happened to each."""

    def __init__(self, broker_name: str, rate: float) -> None:
        self.acknowledged: list[list[int]] = [[] for _ in range(STREAMS)]
        self.errors: list[str] = []
        self.latencies_ms: list[float] = []
        self.is_over = False
        self._queues = [MessageQueue(TOPIC, broker_name, number) for number in range(STREAMS)]
        self._pause_s = STREAMS / rate

    def told(self) -> list[list[bytes]]:
        """The acknowledged messages of each stream, as their bodies name them."""
        if len(self.acknowledged) == 1:
            return [[b"%d" % count for count in self.acknowledged[0]]]
        return [
            [b"%d %d" % (number, count) for count in counts]
            for number, counts in enumerate(self.acknowledged)
        ]

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


class Program:
    """The producer of Java's or Go's client: numbered messages to all queues, without an end."""

    def __init__(self, name: str, namesrv: str, directory: Path, rate: float) -> None:
        words = ["produce"] if name == "java" else ["go", "produce"]
        words += ["--namesrv", namesrv, "--topic", TOPIC, "--count", "1000000", "--verbose"]
        words += ["--rate", str(rate)] if name == "java" else []
        self._path = directory / "producer"
        with self._path.open("w") as sink:
            self._process = subprocess.Popen([PEER, *words], stdout=sink, stderr=sink)

    def lines(self) -> list[dict[str, Any]]:
        """What it said of each send so far."""
        found = [line for line in self._path.read_text().splitlines() if line[:1] == "{"]
        return [json.loads(line) for line in found if line.endswith("}") and '"i":' in line]

    def stop(self, senders: Senders) -> None:
        """End it, and note what happened to its messages."""
        self._process.kill()
        self._process.wait(10)
        senders.acknowledged = [[]]
        for told in self.lines():
            senders.latencies_ms.append(float(told["ms"]))
            if told.get("status") == "SEND_OK":
                senders.acknowledged[0].append(int(told["i"]))
            else:
                senders.errors.append(str(told.get("status") or told.get("message") or told))


class Brokers(Protocol):
    """
    Brokers of one name.

    :ivar namesrv: address of the name server.
    """

    namesrv: str

    def master(self) -> Server: ...


class ClassicPair:
    """A SYNC_MASTER and its slave."""

    def __init__(self, rig: Rig) -> None:
        self._pair = Pair(rig, java_master=False, java_slave=False)
        self.namesrv = self._pair.namesrv
        self._pair.wait_ok()

    def master(self) -> Server:
        both = self._pair.master, self._pair.slave
        return next(server for server in both if leads(server.address))


def leads(address: str) -> bool:
    """Whether the settings of a running broker say so."""
    with Wire(address) as wire:
        told = wire.call(RequestCode.GET_BROKER_CONFIG).body or b""
    return b"brokerRole=SLAVE" not in told


def handed_over(brokers: Brokers, broker_name: str) -> float:
    """Type the command; seconds until it ended."""
    began = time.monotonic()
    said = subprocess.run(
        [*HANDOVER, broker_name, "--yes", "-n", brokers.namesrv],
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise SystemExit(f"the hand-over failed: {said.stderr}")
    return time.monotonic() - began


def stored(address: str) -> list[list[bytes]]:
    """The messages in each queue, in their order."""
    with Wire(address) as wire:
        return [
            [number_of(record.body) for record in wire.pull_all(TOPIC, queue)]
            for queue in range(STREAMS)
        ]


async def load(
    brokers: Brokers, broker_name: str, options: argparse.Namespace, directory: Path
) -> tuple[Senders, set[bytes], list[float]]:
    """Send and consume while the roles change."""
    senders, came, took = Senders(broker_name, options.rate), set[bytes](), []
    is_ours = options.client == "ours"
    async with connect(brokers.namesrv) as client:
        consumer = client.push_consumer(
            "handed", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe(TOPIC)
        async with consumer:

            async def consume() -> None:
                async for message in consumer:
                    came.add(number_of(message.body))

            reading = asyncio.create_task(consume())
            streams, program = [], None
            if is_ours:
                producer = await client.producer(retry_times_when_send_failed=options.retries)
                streams = [
                    asyncio.create_task(senders.stream(producer, number))
                    for number in range(STREAMS)
                ]
            else:
                program = Program(options.client, brokers.namesrv, directory, options.rate)
                while len(program.lines()) < options.rate:  # a JVM starts slowly
                    await asyncio.sleep(1)
            for number in range(options.handovers):
                await asyncio.sleep(options.pause)
                took.append(await asyncio.to_thread(handed_over, brokers, broker_name))
                print(f"hand-over {number + 1}: {took[-1]:.2f} s", flush=True)
            await asyncio.sleep(options.pause)
            senders.is_over = True
            await asyncio.gather(*streams)
            if program is not None:
                program.stop(senders)
            limit = time.monotonic() + 60
            while len(came) < sum(map(len, senders.acknowledged)) and time.monotonic() < limit:
                await asyncio.sleep(0.2)
            reading.cancel()
    return senders, came, took


def number_of(body: bytes) -> bytes:
    """The part of a body that tells messages apart."""
    return body.partition(b";")[0].removeprefix(b"seq=")


def run(options: argparse.Namespace, rig: TimerRig, directory: Path) -> int:
    if options.brokers == "pair":
        brokers: Brokers = ClassicPair(rig)
    else:
        brokers = TimerSet(rig, ("ours", "ours", "ours"))
    master = brokers.master()
    with Wire(master.address) as wire:
        wire.create_topic(TOPIC, STREAMS)
        wire.create_group("handed")
    time.sleep(1)
    broker_name = "broker-a" if options.brokers == "pair" else "broker-c"
    senders, came, took = asyncio.run(load(brokers, broker_name, options, directory))
    found = stored(brokers.master().address)
    kept = [set(each) for each in found]
    if options.client != "ours":  # its queues are its own choice
        kept = [set[bytes]().union(*kept)]
    acknowledged = [
        (place, number) for place, numbers in enumerate(senders.told()) for number in numbers
    ]
    missing = [number for place, number in acknowledged if number not in kept[place]]
    unconsumed = sum(number not in came for _, number in acknowledged)
    repeated = sum(len(each) - len(set(each)) for each in found)
    firsts = [[int(number.split()[-1]) for number in dict.fromkeys(each)] for each in found]
    disordered = sum(a > b for each in firsts for a, b in pairwise(each))
    print(
        f"{len(took)} hand-overs, {statistics.median(took or [0]):.2f} s (median) for the command;"
        f" {len(acknowledged)} sends acknowledged, {len(senders.errors)} errors,"
        f" {len(missing)} missing, {repeated} stored twice, {disordered} out of order,"
        f" {unconsumed} not consumed; longest send {max(senders.latencies_ms):.0f} ms"
    )
    for text in sorted(set(senders.errors))[:5]:
        print(f"{senders.errors.count(text)}: {text[:300]}")
    return 1 if senders.errors or missing or disordered or unconsumed else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--handovers", type=int, default=20)
    parser.add_argument("--brokers", choices=("pair", "set"), default="pair")
    parser.add_argument("--client", choices=("ours", "java", "go"), default="ours")
    parser.add_argument("--rate", type=float, default=1000, help="messages a second; Go has none")
    parser.add_argument("--pause", type=float, default=3, help="seconds between two hand-overs")
    parser.add_argument("--retries", type=int, default=2, help="of a send of our client")
    parser.add_argument("--forward", type=int, default=60, help="forwardAfterHandoverSeconds")
    parser.add_argument("--ports", type=int, default=48_600, help="the first of 800")
    options = parser.parse_args()
    settings = {"forwardAfterHandoverSeconds": options.forward}
    ports = range(options.ports, options.ports + 800, 8)
    with tempfile.TemporaryDirectory(prefix="handovers-") as name:
        rig = TimerRig(Path(name), settings, ports)
        try:
            code = run(options, rig, Path(name))
        finally:
            rig.close()
    sys.exit(code)


if __name__ == "__main__":
    main()
