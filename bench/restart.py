"""What a producer notices when its master is killed under load: exceptions and latency.

    python bench/restart.py --rate 1000 --down 8            # at defaults
    python bench/restart.py --rocketmq                      # delivery_timeout_ms=0

A pair and a name server as processes on this machine; the master is killed with SIGKILL, and starts
again after `--down` seconds with its store. One JSON line tells what became of all sends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rmq_ha.client import Message, ProducerConfig
from rmq_ha.client.aio import Producer, connect

TWISTD = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "-n", "--pidfile="]
COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
maxHashSlotNum=100000
maxIndexNum=400000
"""


class Server:
    """A twistd that says READY."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._command = [*TWISTD, *arguments, "--ready"]
        self._directory = directory
        directory.mkdir()
        self.start()

    def start(self) -> None:
        log = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            self._command, cwd=self._directory, stdout=log, stderr=subprocess.STDOUT
        )

    def wait(self, times: int = 1) -> None:
        while (self._directory / "log").read_bytes().count(b"READY {") < times:
            if self._process.poll() is not None:
                raise SystemExit((self._directory / "log").read_text())
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.wait()


def broker(base: Path, name: str, role: str, port: int, namesrv: int) -> Server:
    properties = base / f"{name}.properties"
    own = f"listenPort={port}\nbrokerRole={role}\nbrokerId={int(role == 'SLAVE')}\n"
    where = f"storePathRootDir=./store\nnamesrvAddr=127.0.0.1:{namesrv}\n"
    properties.write_text(COMMON + own + where)
    return Server(base / name, "rmqha", "--config", str(properties))


async def load(producer: Producer, rate: int, stop: asyncio.Event) -> list[tuple[str, float]]:
    """Sends at a steady rate, whatever becomes of them; outcome and seconds of each."""
    outcomes: list[tuple[str, float]] = []

    async def one(number: int) -> None:
        began = time.monotonic()
        try:
            result = (await producer.send(Message("Restart", b"%d" % number))).send_status.name
        except Exception as error:
            result = type(error).__name__
        outcomes.append((result, time.monotonic() - began))

    began, sent = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            while sent < (time.monotonic() - began) * rate:
                group.create_task(one(sent))
                sent += 1
            await asyncio.sleep(0.005)
    return outcomes


async def measure(options: argparse.Namespace, base: Path) -> None:
    port = options.port
    namesrv = Server(
        base / "ns",
        *("rmqnamesrv", "--listenPort", str(port), "--set", "bindAddress=127.0.0.1"),
        *("--set", f"kvConfigPath={base}/kv.json"),
    )
    servers = [namesrv]
    try:
        namesrv.wait()
        master = broker(base, "master", "SYNC_MASTER", port + 10, port)
        servers.append(master)
        master.wait()
        servers.append(broker(base, "slave", "SLAVE", port + 20, port))
        servers[-1].wait()
        await asyncio.sleep(2)
        config = ProducerConfig(delivery_timeout_ms=0) if options.rocketmq else None
        async with connect(f"127.0.0.1:{port}") as client:
            producer = await client.producer(config)
            await producer.send(Message("Restart", b"first"))
            stop = asyncio.Event()
            running = asyncio.create_task(load(producer, options.rate, stop))
            await asyncio.sleep(2)
            master.end(signal.SIGKILL)
            await asyncio.sleep(options.down)
            master.start()
            await asyncio.to_thread(master.wait, 2)
            await asyncio.sleep(3)
            stop.set()
            outcomes = await running
        waits = sorted(took for _, took in outcomes)
        told = {
            "sends": len(outcomes),
            "outcomes": Counter(outcome for outcome, _ in outcomes),
            "longest_s": round(waits[-1], 2),
            "median_ms": round(waits[len(waits) // 2] * 1000, 1),
        }
        print(json.dumps(told))
    finally:
        for server in reversed(servers):
            server.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1000, help="sends a second")
    parser.add_argument("--down", type=float, default=8.0, help="seconds until it starts again")
    parser.add_argument("--port", type=int, default=23700, help="and some above it")
    parser.add_argument("--rocketmq", action="store_true", help="delivery_timeout_ms=0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        asyncio.run(measure(options, Path(base)))


if __name__ == "__main__":
    main()
