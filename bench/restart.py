"""What a producer notices when its master is killed under load: exceptions and latency.

    python bench/restart.py --rate 1000 --down 8            # at defaults
    python bench/restart.py --rocketmq                      # delivery_timeout_ms=0
    python bench/restart.py --controller                    # a controller elects the other one

A pair and a name server as processes on this machine; the master is killed with SIGKILL, and starts
again after `--down` seconds with its store. In controller mode the other broker is master by then.
One JSON line tells what became of all sends, and how many that were acknowledged are missing.
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

from rmq_ha.client import BlockingClient, Message, MQClientError, ProducerConfig, SendStatus
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
CONTROLLER = """\
controllerDLegerPeers=n0-127.0.0.1:{port}
controllerStorePath={base}/controller-log
bindAddress=127.0.0.1
mappedFileSize=1048576
"""
CONTROLLED = (
    "enableControllerMode=true\nallAckInSyncStateSet=true\ncontrollerAddr=127.0.0.1:{port}\n"
)
TOPIC = "Restart"
WAIT_S = 60.0


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


class Cluster:
    """
    A name server and a pair, with a controller or without.

    :ivar brokers: by address; the first is the master of a pair without a controller.
    """

    def __init__(self, base: Path, port: int, *, controller: bool) -> None:
        self.namesrv_addr = f"127.0.0.1:{port}"
        self.servers: list[Server] = []
        self.brokers: dict[str, Server] = {}
        self._base = base
        names = ("--listenPort", str(port), "--set", "bindAddress=127.0.0.1")
        place = ("--set", f"kvConfigPath={base}/kv.json")
        self._begin("ns", "rmqnamesrv", *names, *place)
        if controller:
            config = base / "controller.properties"
            config.write_text(CONTROLLER.format(port=port + 1, base=base))
            self._begin("controller", "rmqcontroller", "--config", str(config))
        roles = [CONTROLLED.format(port=port + 1)] * 2
        if not controller:
            roles = ["brokerRole=SYNC_MASTER\nbrokerId=0\n", "brokerRole=SLAVE\nbrokerId=1\n"]
        for number, role in enumerate(roles):
            own = port + 10 * (number + 1)
            config = base / f"broker-{number}.properties"
            where = f"storePathRootDir=./store\nnamesrvAddr={self.namesrv_addr}\n"
            config.write_text(f"{COMMON}{where}listenPort={own}\n{role}")
            made = self._begin(f"broker-{number}", "rmqha", "--config", str(config))
            self.brokers[f"127.0.0.1:{own}"] = made

    def _begin(self, name: str, *arguments: str) -> Server:
        self.servers.append(Server(self._base / name, *arguments))
        self.servers[-1].wait()
        return self.servers[-1]

    def master(self) -> str | None:
        """Its address, as the name server has it."""
        with BlockingClient(self.namesrv_addr) as client:
            try:
                route = client.route("TBW102")
            except MQClientError:
                return None
        return route.brokers[0].addresses.get(0)

    def until_master(self, unlike: str = "") -> str:
        """Wait until there is one."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            found = self.master()
            if found not in (None, unlike):
                return str(found)
            time.sleep(0.05)
        raise SystemExit("no master was elected")

    def stored(self) -> set[bytes]:
        """The bodies of all messages."""
        with BlockingClient(self.namesrv_addr) as client:
            return {
                message.body
                for queue in client.queues(TOPIC)
                for message in client.messages(queue, 0, client.max_offset(queue))
            }


async def load(
    producer: Producer, rate: int, stop: asyncio.Event
) -> list[tuple[str, float, bytes]]:
    """Sends at a steady rate, whatever becomes of them; outcome, seconds and body of each."""
    outcomes: list[tuple[str, float, bytes]] = []

    async def one(number: int) -> None:
        began, body = time.monotonic(), b"%d" % number
        try:
            result = (await producer.send(Message(TOPIC, body))).send_status.name
        except Exception as error:
            result = type(error).__name__
        outcomes.append((result, time.monotonic() - began, body))

    began, sent = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            while sent < (time.monotonic() - began) * rate:
                group.create_task(one(sent))
                sent += 1
            await asyncio.sleep(0.005)
    return outcomes


async def measure(options: argparse.Namespace, base: Path) -> None:
    cluster = Cluster(base, options.port, controller=options.controller)
    try:
        await asyncio.sleep(2)
        first = cluster.until_master()
        config = ProducerConfig(delivery_timeout_ms=0) if options.rocketmq else None
        async with connect(cluster.namesrv_addr) as client:
            producer = await client.producer(config)
            await producer.send(Message(TOPIC, b"first"))
            stop = asyncio.Event()
            running = asyncio.create_task(load(producer, options.rate, stop))
            await asyncio.sleep(2)
            cluster.brokers[first].end(signal.SIGKILL)
            await asyncio.sleep(options.down)
            cluster.brokers[first].start()
            await asyncio.to_thread(cluster.brokers[first].wait, 2)
            await asyncio.sleep(3)
            stop.set()
            outcomes = await running
        last = await asyncio.to_thread(cluster.until_master, first if options.controller else "")
        acknowledged = {body for name, _, body in outcomes if name == SendStatus.SEND_OK.name}
        waits = sorted(took for _, took, _ in outcomes)
        told = {
            "sends": len(outcomes),
            "outcomes": Counter(outcome for outcome, _, _ in outcomes),
            "lost": len(acknowledged - await asyncio.to_thread(cluster.stored)),
            "longest_s": round(waits[-1], 2),
            "median_ms": round(waits[len(waits) // 2] * 1000, 1),
            "masters": [first, last],
        }
        print(json.dumps(told))
    finally:
        for server in reversed(cluster.servers):
            server.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=1000, help="sends a second")
    parser.add_argument("--down", type=float, default=8.0, help="seconds until it starts again")
    parser.add_argument("--port", type=int, default=23700, help="and some above it")
    parser.add_argument("--rocketmq", action="store_true", help="delivery_timeout_ms=0")
    parser.add_argument("--controller", action="store_true", help="brokers in controller mode")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        asyncio.run(measure(options, Path(base)))


if __name__ == "__main__":
    main()
