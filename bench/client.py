"""Our client beside the Java client, and those of PyPI, at one and the same broker.

    python bench/client.py [--broker java|ours] [--messages 20000] [--size 1024] [--pypi PYTHON]
    python bench/client.py --profile          where the time of our sends goes

Each figure comes from a process of its own: sends a second at 1, 64 and 256 in flight, messages
consumed a second, processor time a message (with the start of the process), largest resident
memory. Java needs some ten thousand messages to warm up. `--pypi` names an interpreter that has
the package `rocketmq` (see WHY).
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

TOPIC = "BenchClient"
IN_FLIGHT = (1, 64, 256)
PATIENCE_MS = 30_000  # on a loaded machine nobody shall fail for that
WHY = """\
PyPI (tried on CPython 3.11, x86_64 Linux):
  rocketmq 0.4.4                 installs: a binary of librocketmq of 2019 is in its wheel
  rocketmq-client-python 2.0.0   installs, but does not import: librocketmq.so is to be put there by
                                 hand
  rocketmq-python-client 5.1.2   speaks gRPC to a proxy of version 5, not to 4.9 brokers"""


class Outcome:
    """What one process came to."""

    def __init__(self, line: dict[str, Any], rusage: Any, messages: int) -> None:
        self.rate = messages / line["seconds"]
        self.cpu_us = (rusage.ru_utime + rusage.ru_stime) * 1e6 / messages
        self.memory_mib = rusage.ru_maxrss / 1024


def run(command: list[str], messages: int) -> Outcome:
    """Its last JSON line, and what the system says of the process."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, text=True)
        _, status, rusage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            raise SystemExit(f"{' '.join(command)}: {process.returncode}\n{err.read()[-2000:]}")
    return Outcome(json.loads(lines[-1]), rusage, messages)


# ------------------------------------------------------------ one process each


def send_twisted(options: argparse.Namespace) -> None:
    """Deferreds."""
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react

    from rmq_ha.client.connecting import connect
    from rmq_ha.client.rules.messages import Message
    from rmq_ha.client.rules.settings import ProducerConfig
    from rmq_ha.client.send.producer import Producer

    body = b"x" * options.size

    async def main(reactor: Any) -> None:
        config = ProducerConfig(send_msg_timeout_ms=PATIENCE_MS)
        producer = Producer(connect(reactor, options.namesrv), config)
        await producer.start()
        await producer.send(Message(TOPIC, body))
        left, over = [options.messages, options.messages], Deferred[None]()

        def one(_: object) -> None:
            if _ is not None:
                left[1] -= 1
            if left[0]:
                left[0] -= 1
                producer.send(Message(TOPIC, body)).addCallbacks(one, over.errback)
            elif not left[1]:
                over.callback(None)

        begun = time.perf_counter()
        for _ in range(options.in_flight):
            one(None)
        await over
        report(begun)
        await producer.stop()

    react(main)


def send_asyncio(options: argparse.Namespace) -> None:
    """As many tasks as are in flight."""
    from rmq_ha.client.aio import connect
    from rmq_ha.client.rules.messages import Message
    from rmq_ha.client.rules.settings import ProducerConfig

    body = b"x" * options.size

    async def main() -> None:
        async with connect(options.namesrv) as client:
            producer = await client.producer(ProducerConfig(send_msg_timeout_ms=PATIENCE_MS))
            await producer.send(Message(TOPIC, body))
            numbers = iter(range(options.messages))

            async def work() -> None:
                for _ in numbers:
                    await producer.send(Message(TOPIC, body))

            begun = time.perf_counter()
            await asyncio.gather(*[work() for _ in range(options.in_flight)])
            report(begun)

    asyncio.run(main())


def send_blocking(options: argparse.Namespace) -> None:
    """One at a time."""
    from rmq_ha.client.blocking import BlockingClient
    from rmq_ha.client.rules.messages import Message

    body = b"x" * options.size
    with BlockingClient(options.namesrv) as client:
        client.send(Message(TOPIC, body))
        begun = time.perf_counter()
        for _ in range(options.messages):
            client.send(Message(TOPIC, body))
        report(begun)


def send_pypi(options: argparse.Namespace) -> None:
    """The package `rocketmq`."""
    from rocketmq.client import Message, Producer  # type: ignore[import-not-found]

    producer = Producer("bench")
    producer.set_namesrv_addr(options.namesrv)
    producer.set_timeout(PATIENCE_MS)
    producer.start()
    room, failures = threading.Semaphore(options.in_flight), []

    def one() -> Any:
        message = Message(TOPIC)
        message.set_body("x" * options.size)
        return message

    def failed(error: Any) -> None:
        failures.append(error)
        room.release()

    producer.send_sync(one())
    begun = time.perf_counter()
    for _ in range(options.messages):
        if options.in_flight == 1:
            producer.send_sync(one())
        else:
            room.acquire()
            producer.send_async(one(), lambda result: room.release(), failed)
    if options.in_flight > 1:
        for _ in range(options.in_flight):
            room.acquire()
    if not failures:
        report(begun)
    os._exit(bool(failures))  # its shutdown hangs now and then


def consume_twisted(options: argparse.Namespace) -> None:
    """A push consumer with a plain listener."""
    from twisted.internet.defer import Deferred
    from twisted.internet.task import react

    from rmq_ha.client.connecting import connect
    from rmq_ha.client.consume.push_consumer import PushConsumer
    from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig

    async def main(reactor: Any) -> None:
        config = PushConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        group = f"bench-{os.getpid()}"
        consumer = PushConsumer(connect(reactor, options.namesrv), group, config)
        left, over = [options.messages], Deferred[None]()

        def listen(messages: Any, context: Any) -> None:
            left[0] -= len(messages)
            if left[0] <= 0 and not over.called:
                over.callback(None)

        consumer.subscribe(TOPIC)
        consumer.register_message_listener(listen)
        begun = time.perf_counter()
        await consumer.start()
        await over
        report(begun)
        await consumer.stop()

    react(main)


def report(begun: float) -> None:
    print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)


ARMS: dict[str, Callable[[argparse.Namespace], None]] = {
    "twisted": send_twisted,
    "asyncio": send_asyncio,
    "blocking": send_blocking,
    "pypi": send_pypi,
    "consume": consume_twisted,
}


# ------------------------------------------------------------ all of them


def ours(arm: str, options: argparse.Namespace, in_flight: int, messages: int) -> Outcome:
    python = options.pypi if arm == "pypi" else sys.executable
    command = [python, __file__, "--arm", arm, "--namesrv", options.namesrv]
    command += ["--size", str(options.size), "--in-flight", str(in_flight)]
    return run([*command, "--messages", str(messages)], messages)


def java_send(peer: str, options: argparse.Namespace, in_flight: int, messages: int) -> Outcome:
    command = [peer, "produce", "--namesrv", options.namesrv, "--topic", TOPIC]
    command += ["--count", str(messages), "--size", str(options.size), "--no-seq"]
    command += ["--send-timeout", str(PATIENCE_MS)]
    mode = ["--mode", "sync"] if in_flight == 1 else ["--mode", "async"]
    return run([*command, *mode, "--inflight", str(in_flight)], messages)


def java_consume(peer: str, options: argparse.Namespace, messages: int) -> Outcome:
    command = [peer, "consume", "--namesrv", options.namesrv, "--topic", TOPIC, "--from", "first"]
    command += ["--group", f"bench-java-{os.getpid()}", "--count", str(messages), "--quiet"]
    return run([*command, "--threads", "20", "--cache", "1000", "--timeout", "120"], messages)


def compare(options: argparse.Namespace) -> None:
    from tests.interop.rig import PEER, rig_in

    peer = str(PEER)
    with tempfile.TemporaryDirectory() as directory, rig_in(Path(directory)) as rig:
        java = options.broker == "java"
        options.namesrv = rig.namesrv(java=java)
        rig.broker(
            "master-async.conf",
            "broker",
            java=java,
            namesrv=options.namesrv,
            heap="1g" if java else None,
            mappedFileSizeCommitLog=1 << 28,
            waitTimeMillsInSendQueue=10_000,
            sendMessageThreadPoolNums=4,
        )
        rig.mqadmin("updateTopic", "-n", options.namesrv, "-c", "DefaultCluster", "-t", TOPIC)
        rows: list[tuple[str, str, Outcome, Outcome]] = []
        for in_flight in IN_FLIGHT:
            count = options.messages if in_flight > 1 else options.messages // 5
            theirs = java_send(peer, options, in_flight, count)
            what = f"send, {in_flight} in flight"
            rows.append((what, "Java", theirs, theirs))
            names = ["twisted", "asyncio"]
            names += ["blocking"] if in_flight == 1 else []
            names += ["pypi"] if options.pypi else []
            for name in names:
                shown = "rocketmq 0.4.4" if name == "pypi" else f"ours, {name}"
                rows.append((what, shown, ours(name, options, in_flight, count), theirs))
        theirs = java_consume(peer, options, options.messages)
        rows.append(("consume", "Java", theirs, theirs))
        mine = ours("consume", options, 1, options.messages)
        rows.append(("consume", "ours, twisted", mine, theirs))
    show(rows, options)


def show(rows: list[tuple[str, str, Outcome, Outcome]], options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    load = f"load of the machine {os.getloadavg()[0]:.1f}"
    table = Table(title=f"{options.size} bytes, {options.broker} broker, {load}")
    for column in ("what", "client", "per second", "to Java", "CPU us", "MiB"):
        table.add_column(column, justify="left" if column in ("what", "client") else "right")
    for what, name, outcome, theirs in rows:
        table.add_row(
            what,
            name,
            f"{outcome.rate:,.0f}",
            f"{outcome.rate / theirs.rate:.2f}",
            f"{outcome.cpu_us:,.0f}",
            f"{outcome.memory_mib:,.0f}",
        )
    console = Console(width=100)
    console.print(table)
    console.print(WHY)


def profile(options: argparse.Namespace) -> None:
    """Our producer at 64 in flight, against a broker of ours."""
    from tests.interop.rig import rig_in

    with tempfile.TemporaryDirectory() as directory, rig_in(Path(directory)) as rig:
        options.namesrv = rig.namesrv()
        rig.broker("master-async.conf", "broker", namesrv=options.namesrv)
        profiler = cProfile.Profile()
        try:
            profiler.runcall(send_twisted, options)
        except SystemExit:
            pass
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("java", "ours"), default="java")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--pypi", metavar="PYTHON")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--arm", choices=sorted(ARMS), help=argparse.SUPPRESS)
    parser.add_argument("--namesrv", help=argparse.SUPPRESS)
    parser.add_argument("--in-flight", type=int, default=64, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        ARMS[options.arm](options)
    elif options.profile:
        profile(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
