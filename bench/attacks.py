"""An honest client beside each attack of one bad peer: how long its sends take, and what is lost.

    python bench/attacks.py [--seconds 8] [--rate 50] [--only NAME ...] [--out FILE]

A master with its name server runs with its defaults on loopback; a client in a process of its own
sends `--rate` messages a second, at first alone. Then each attack goes on for `--seconds`, from
another address, while the client goes on. Prints a table; exits with 1 when the client's p99 is
more than 50 ms above that without attack, when a send is not answered SEND_OK or a message is
missing in the end, or when the broker's memory comes to 256 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.base.host.blocking import BlockingCalls
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.live.bombs import header_bomb, registration_bomb
from tests.live.lone_broker import LoneBroker

STRANGER = "127.0.0.9"
MORE_MS = 50.0
MOST_MIB = 256.0
BASES = range(25600, 25800, 4)

Attack = Callable[["Target"], Iterator[None]]


class Target:
    """The broker as the stranger sees it."""

    def __init__(self, broker: LoneBroker) -> None:
        self.broker = broker
        self._open: list[socket] = []

    def connect(self, port: int | None = None) -> socket:
        made = socket()
        self._open.append(made)
        made.settimeout(0.5)
        with suppress(OSError):
            made.bind((STRANGER, 0))
            made.connect(("127.0.0.1", port or self.broker.port))
        return made

    def send(self, data: bytes, port: int | None = None) -> None:
        """On a connection of its own, which the broker may close."""
        stranger = self.connect(port)
        with suppress(OSError):
            stranger.sendall(data)
            stranger.settimeout(2)
            stranger.recv(65536)
        stranger.close()
        self._open.remove(stranger)

    def leave(self) -> None:
        for stranger in self._open:
            stranger.close()
        self._open.clear()


def again(data: Callable[[Target], bytes], port: str = "port") -> Attack:
    """The same, as often as it is answered or refused."""

    def attack(target: Target) -> Iterator[None]:
        payload = data(target)
        while True:
            target.send(payload, getattr(target.broker, port))
            yield

    return attack


def request(code: int, ext: dict[str, str], body: Any = b"") -> bytes:
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return encode_frame(RemotingCommand(code, ext, body))


def dialect(target: Target) -> bytes:
    """The largest body in single quotes."""
    return request(34, {}, b"{'clientID':'c','x':[" + b"'y'," * 3_900_000 + b"'y']}")


def heartbeat(target: Target) -> bytes:
    """As many groups and subscriptions as one may have."""
    return request(34, {}, _heartbeat(300, 6, "*", "TAG"))


def sql(target: Target) -> bytes:
    """As much SQL92 as one heartbeat may have, new each time."""
    text = " OR ".join(f"a{n % 20} = {n}" for n in range(2600))[:32_000].rpartition(" OR")[0]
    return request(34, {}, _heartbeat(1, 1, f"{text} OR z = {time.time_ns()}", "SQL92"))


def _heartbeat(groups: int, subscriptions: int, text: str, kind: str) -> Any:
    subscription = {"subString": text, "expressionType": kind}
    topics = [{"topic": f"T{n}", **subscription} for n in range(subscriptions)]
    consumers = [
        {"groupName": f"G{n}", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": topics}
        for n in range(groups)
    ]
    return {"clientID": "stranger", "consumerDataSet": consumers, "producerDataSet": []}


def lock(target: Target) -> bytes:
    queues = [{"topic": f"T{n}", "brokerName": "b", "queueId": n} for n in range(1500)]
    return request(41, {}, {"consumerGroup": "G", "clientId": "c", "mqSet": queues})


def batch(target: Target) -> bytes:
    """20,000 messages in a frame."""
    ext = {"a": "P", "b": DEFAULT_TOPIC, "e": "0", "m": "true"}
    return request(320, ext, encode_batch([(0, b"x" * 100, "")] * 20_000))


def keys(target: Target) -> bytes:
    """10,000 messages with 80 keys each."""
    ext = {"a": "P", "b": DEFAULT_TOPIC, "e": "0", "m": "true"}
    names = "KEYS\x01" + " ".join(f"k{n}" for n in range(80))
    return request(320, ext, encode_batch([(0, b"x", names)] * 10_000))


def pipeline(target: Target) -> bytes:
    """Hundreds of small requests in one write."""
    one = request(12, {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "0",
                       "endTimestamp": str(1 << 60)})  # fmt: skip
    return (one + request(28, {}) + request(26, {})) * 300


def flood(target: Target) -> Iterator[None]:
    """Connections that say nothing, to every port."""
    broker = target.broker
    while True:
        for port in (broker.port, broker.port - 2, broker.namesrv, broker.ready["haListenPort"]):
            target.connect(port)
        if len(target._open) > 800:
            target.leave()
        yield


def unfinished(target: Target) -> Iterator[None]:
    """Frames of 16 MB of which 12 come."""
    head, megabyte = struct.pack(">ii", 16_000_000, 100), bytes(1 << 20)
    while True:
        stranger = target.connect()
        with suppress(OSError):
            stranger.sendall(head)
            for _ in range(12):
                stranger.sendall(megabyte)
        if len(target._open) > 100:
            target.leave()
        yield


def held_pulls(target: Target) -> Iterator[None]:
    """Long polls with bodies of 1 MiB."""
    stranger = target.connect()
    pull = pull_request("CID_ONSAPI_PULL", DEFAULT_TOPIC, 1, 1 << 40, hold_ms=60_000)
    data = encode_frame(RemotingCommand(11, pull.ext, bytes(1 << 20)))
    while True:
        try:
            stranger.sendall(data)
        except OSError:
            stranger = target.connect()
        yield


def garbage(target: Target) -> Iterator[None]:
    """Bytes that are no frame, of TLS or otherwise; each could be a line of the log."""
    broker, random = target.broker, os.urandom
    while True:
        for port in (broker.port, broker.namesrv, broker.ready["haListenPort"]):
            target.send(bytes([22, 3, 1]) + random(200), port)
            target.send(random(200), port)
        yield


def scrapes(target: Target) -> bytes:
    """64 KiB of requests for /metrics in one write, none of which waits for the answer before."""
    one = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    return one * (65536 // len(one))


def posted(kind: bytes, piece: bytes, size: int) -> Callable[[Target], bytes]:
    """A POST to the status port with a body of so many bytes."""
    head = b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return lambda _: head % (kind, size) + piece * (size // len(piece))


def replica(target: Target) -> Iterator[None]:
    """Slaves with empty stores, which want the whole log."""
    while True:
        stranger = target.connect(target.broker.ready["haListenPort"])
        with suppress(OSError):
            stranger.sendall(bytes(8))
            for _ in range(64):
                if not stranger.recv(1 << 20):
                    break
        stranger.close()
        target._open.remove(stranger)
        yield


ATTACKS: dict[str, Attack] = {
    "header bomb": again(lambda _: header_bomb()),
    "header bomb, name server": again(lambda _: header_bomb(), "namesrv"),
    "registration bomb": again(lambda _: registration_bomb(), "namesrv"),
    "tolerant dialect": again(dialect),
    "largest heartbeat": again(heartbeat),
    "most SQL92": again(sql),
    "largest lock": again(lock),
    "batch of 20,000": again(batch),
    "800,000 keys": again(keys),
    "pipeline of 900": again(pipeline),
    "connections": flood,
    "unfinished frames": unfinished,
    "held pulls": held_pulls,
    "garbage": garbage,
    "strange replicas": replica,
    "64 KiB of pipelined /metrics": again(scrapes, "metrics"),
    "15 MiB multipart": again(
        posted(
            b"multipart/form-data; boundary=x",
            b"--x\r\nContent-Disposition: form-data\r\n\r\n",
            15 << 20,
        ),
        "metrics",
    ),
    "4 MiB form a&a&": again(
        posted(b"application/x-www-form-urlencoded", b"a&", 4 << 20), "metrics"
    ),
    "POST that is no form": again(posted(b"text/plain", bytes(1 << 20), 64 << 20), "metrics"),
}


class Honest:
    """The client in its own process; lines `seconds code` as they come."""

    def __init__(self, port: int, rate: float, directory: Path) -> None:
        self._path = directory / "honest.txt"
        with self._path.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--honest", str(port), "--rate", str(rate)], stdout=sink
            )
        self._read = 0

    def news(self) -> list[tuple[float, int]]:
        """Seconds and code of each send since the last look."""
        lines = self._path.read_text().splitlines()
        news, self._read = lines[self._read :], len(lines)
        return [(float(took), int(code)) for took, code in map(str.split, news)]


def be_honest(port: int, rate: float) -> None:
    """Until it is killed."""
    calls, number = BlockingCalls(), 0
    due = time.monotonic()
    while True:
        number += 1
        due = max(due + 1 / rate, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic()
        message = send_request("honest", "Honest", 0, b"%d" % number, "", 1)
        code = calls.invoke(f"127.0.0.1:{port}", message, 60_000).code
        print(f"{time.monotonic() - began:.6f} {code}", flush=True)


def p99(seconds: list[float]) -> float:
    """In milliseconds."""
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1000


def endure(target: Target, attack: Attack, seconds: float) -> float:
    """The attack; the most memory that the broker had, MiB."""
    most, end, steps = 0.0, time.monotonic() + seconds, attack(target)
    while time.monotonic() < end:
        next(steps)
        most = max(most, target.broker.memory())
    target.leave()
    return most


def run(options: argparse.Namespace, directory: Path) -> int:
    broker = LoneBroker(directory, BASES, "mappedFileSizeCommitLog=67108864\n")
    honest = Honest(broker.port, options.rate, directory)
    faults: list[str] = []
    total = 0
    rows = ["| attack | honest sends | p50, ms | p99, ms | worst, ms | broker, MiB |"]
    rows.append("|---|---|---|---|---|---|")
    try:
        time.sleep(2)
        total += len(honest.news())
        calm = 0.0
        names = options.only or ATTACKS
        for name in ["none", *names]:
            attack = ATTACKS.get(name, lambda target: iter(lambda: time.sleep(0.05), 0))
            most = endure(Target(broker), attack, options.seconds)
            time.sleep(1)  # what waits still is this attack's
            news = honest.news()
            total += len(news)
            took = [seconds for seconds, _ in news]
            wrong = sum(code != 0 for _, code in news)
            if not took:
                faults.append(f"{name}: the honest client was not answered at all")
                continue
            this = p99(took)
            rows.append(
                f"| {name} | {len(news)} | {sorted(took)[len(took) // 2] * 1000:.1f} | {this:.1f} "
                f"| {max(took) * 1000:.0f} | {most:.0f} |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
            if name == "none":
                calm = this
            if wrong:
                faults.append(f"{name}: {wrong} honest sends were not answered SEND_OK")
            if this > calm + MORE_MS:
                faults.append(f"{name}: p99 {this:.0f} ms, {calm:.0f} ms without it")
            if most >= MOST_MIB:
                faults.append(f"{name}: the broker had {most:.0f} MiB")
            if broker.process.poll() is not None:
                faults.append(f"{name}: the broker is gone")
                break
    finally:
        honest.process.kill()
        honest.process.wait()
    time.sleep(1)
    total += len(honest.news())
    stored = ends(broker)
    if stored < total:
        faults.append(f"{total} were answered SEND_OK, {stored} are stored")
    if "Traceback" in broker.output.read_text():
        faults.append(f"a traceback in {broker.output}")
    if broker.end() != 0:
        faults.append("the broker did not stop cleanly")
    lines = [
        f"{platform.machine()}, {os.cpu_count()} processors; {options.seconds:g} s an attack, "
        f"honest sends {options.rate:g}/s; {total} answered, {stored} stored; log "
        f"{broker.output.stat().st_size // 1024} KiB",
        "",
        *rows,
        "",
        *([f"VIOLATED: {fault}" for fault in faults] or ["All rules hold."]),
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return 1 if faults else 0


def ends(broker: LoneBroker) -> int:
    """How many of the honest client's messages are stored."""
    calls = BlockingCalls()
    answer = calls.invoke(
        f"127.0.0.1:{broker.port}",
        RemotingCommand(30, {"topic": "Honest", "queueId": "0"}),
        10_000,
    )
    calls.close()
    return int((answer.ext or {})["offset"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8, help="of each attack")
    parser.add_argument("--rate", type=float, default=50, help="honest sends a second")
    parser.add_argument("--only", nargs="+", choices=list(ATTACKS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--honest", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.honest:
        be_honest(options.honest, options.rate)
    with tempfile.TemporaryDirectory(prefix="attacks-") as directory:
        sys.exit(run(options, Path(directory)))


if __name__ == "__main__":
    main()
