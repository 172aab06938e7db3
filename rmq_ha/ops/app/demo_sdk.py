"""The demo with RocketMQ 5's official SDK for Python, unchanged, through a fail-over.

The SDK runs in processes of its own, as an application does. It gets the addresses of both brokers,
and finds the new master by itself.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from rmq_ha.base.model.printable import words_of
from rmq_ha.ops.app.demo_failover import LIMIT_S, PAUSE_S, FailoverStory
from rmq_ha.ops.app.demo_parts import PROBE, TOPIC
from rmq_ha.server.grpc.extra import missing_package

GROUP = "demo-readers"
KEYS = """\
popEnable=true
grpcServerPort={port}
"""
SENDING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from rocketmq import ClientConfiguration, Credentials, Message, Producer

endpoints, topic = sys.argv[1:]
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
producer = Producer(ClientConfiguration(endpoints, Credentials()), (topic,))
producer.startup()
numbers = count()

def send_on():
    while not over.is_set():
        number = next(numbers)
        message = Message()
        message.topic, message.body = topic, b"%d" % number
        try:
            producer.send(message)
        except Exception as error:
            print(f"failed {type(error).__name__}\\n", end="", flush=True)
            over.wait(0.05)
        else:
            print(f"sent {number}\\n", end="", flush=True)

with ThreadPoolExecutor(8) as pool:
    for _ in range(8):
        pool.submit(send_on)
producer.shutdown()
print("end", flush=True)
"""
READING = """
import sys, time
from rocketmq import ClientConfiguration, Credentials, SimpleConsumer

endpoints, topic, group = sys.argv[1:]
consumer = SimpleConsumer(ClientConfiguration(endpoints, Credentials()), group, None, 5)
consumer.startup()
consumer.subscribe(topic)
began = time.monotonic()
empty = 0
while empty < 3 and time.monotonic() - began < 120:
    try:
        messages = consumer.receive(32, 60)
    except Exception as error:
        print(f"failed {type(error).__name__}", flush=True)
        time.sleep(1)
        continue
    empty = 0 if messages else empty + 1
    for message in messages:
        consumer.ack(message)
        print(f"got {message.body.decode()}", flush=True)
consumer.shutdown()
print("end", flush=True)
"""


def missing_sdk() -> str:
    """Return why the SDK cannot be used here, and the next step; empty if it can."""
    try:
        spec = find_spec("rocketmq.grpc_protocol")
    except ImportError:
        spec = None
    if spec is None:
        return (
            "--sdk needs RocketMQ 5's official SDK, which is not installed here: "
            "pip install rocketmq-python-client"
        )
    return missing_package()


class SdkStory(FailoverStory):
    """The SDK sends while the master is killed, and reads all messages from the new master."""

    def _keys(self, base: int, port: int) -> str:
        return super()._keys(base, port) + KEYS.format(port=port)

    async def _send_on(self, namesrv: str) -> None:
        """Have the SDK send until a second master has taken its half."""
        half, end = self.messages // 2, self.host.clock.seconds() + LIMIT_S
        with self._program("sending", SENDING, TOPIC) as (process, output):
            lines = ProgramLines(output)
            while sum(count >= half for count in self._accepted_by.values()) < 2:
                if process.poll() is not None or self.host.clock.seconds() > end:
                    raise click.ClickException(
                        f"the SDK did not send to the new master within {LIMIT_S:.0f} s: "
                        + " ".join(output.read_text().splitlines()[-3:])
                    )
                self._note(lines.news())
                await self.pause(PAUSE_S)
                await self._look(namesrv)
            process.stdin.close()

            async def has_ended() -> bool:
                return process.poll() is not None

            await self.wait_until(has_ended, "the SDK does not end")
            self._note(lines.news())

    async def verdict(self, who: str, address: str) -> bool:
        """Have the SDK read all messages, and print the result."""
        with self._program("reading", READING, TOPIC, GROUP) as (process, output):
            while process.poll() is None:
                await self.pause(PAUSE_S)
            lines = ProgramLines(output).news()
        got = [int(word) for kind, word in lines if kind == "got" and int(word) != PROBE]
        missing = self.acknowledged.difference(got)
        self.console.print(
            f"the SDK received {len(got):,} messages from {who} at {address}; acknowledged but "
            f"missing: {len(missing)}; repeated: {len(got) - len(set(got))} (the SDK sends a "
            "message again when it got no answer)"
        )
        is_good = bool(self.acknowledged) and not missing
        self.console.print(
            "[green]nothing that was acknowledged is lost[/green]"
            if is_good
            else f"[red]FAILED[/red]: lost {words_of(sorted(missing)[:10])}"
        )
        return is_good

    def _note(self, lines: list[tuple[str, str]]) -> None:
        self._number += len(lines)
        for kind, word in lines:
            if kind == "sent":
                self._accepted(self._master, int(word))
            elif kind == "failed":
                self.count_other(word)

    @contextmanager
    def _program(self, name: str, text: str, *words: str) -> Iterator[tuple[Any, Path]]:
        """Run a program of the SDK while the block runs; the block gets process and output."""
        output = self.directory / f"{name}.log"
        command = [sys.executable, "-c", text, ";".join(self.addresses), *words]
        with output.open("wb") as sink, (self.directory / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.PIPE, stdout=sink, stderr=errors
            )
        try:
            yield process, output
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


class ProgramLines:
    """The lines of a file that grows; each is a kind and a word."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def news(self) -> list[tuple[str, str]]:
        """Return the lines that were added since the last look."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        rows = [line.decode().partition(" ") for line in whole.splitlines()]
        return [(kind, word) for kind, _, word in rows]
