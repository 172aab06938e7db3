"""An honest client of gRPC beside each attack of a bad one: how long its sends take.

    python bench/grpc_attacks.py [--seconds 5] [--rate 50] [--attackers 2] [--base 49600]
                                 [--only NAME ...] [--out FILE]

A master with its name server runs on loopback; `grpcServerPort` is its `listenPort`. A client in a
process of its own sends `--rate` messages a second, at first alone. Then each attack of
`tests/kits/grpc_attacks.py` goes on for `--seconds`, from attackers in processes of their own with
another address, while the client goes on. Prints a table with the longest wait of the client, the
memory of the broker, and the connections that it closed, by limit. Exits with 1 when a wait is
above 100 ms, when a send is not answered OK, or when the broker is gone.

The attackers use the processors, too: a wait of a machine with two of them is partly theirs. The
calls of each turn, which no machine changes, are in
`tests/unit/server/grpc/test_longest_grpc_turn.py`.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import socket

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.lookup.administration import put_topic
from rmq_ha.server.grpc.wire import messages
from tests.kits.grpc_attacks import FLOODS, REQUESTS, begin, call, field, framed_bytes
from tests.kits.grpc_client import GrpcClient
from tests.live.live_ports import free_ports
from tests.live.lone_broker import LoneBroker
from tests.unit.server.grpc.raw_frames import BEGIN, data

STRANGER = "127.0.0.9"
MOST_MS = 100.0
BIG = 15 << 20
IDLE = 3000
OK = 20000
CLOSED = "rmqha_grpc_closed_total"
METADATA = [("x-mq-client-id", "honest@1"), ("x-mq-language", "PYTHON")]


def connected(port: int) -> socket:
    made = socket()
    made.settimeout(2)
    made.bind((STRANGER, 0))
    made.connect(("127.0.0.1", port))
    return made


def flood(port: int, pieces: Iterator[bytes], *, reads: bool = True) -> None:
    """Write to one connection until the broker closes it."""
    with suppress(OSError), connected(port) as stranger:
        for piece in pieces:
            stranger.sendall(piece)
            if reads:
                with suppress(BlockingIOError):
                    stranger.setblocking(False)
                    if not stranger.recv(1 << 20):
                        return
                stranger.settimeout(2)


def request(port: int, name: str) -> None:
    """Send one of the largest requests, and wait for the answer."""
    method, payload = REQUESTS[name]
    with suppress(OSError), connected(port) as stranger:
        stranger.sendall(BEGIN)
        for piece in call(method, payload(BIG)):
            stranger.sendall(piece)
        stranger.recv(65536)
        stranger.recv(65536)


def slow_readers(port: int) -> None:
    """Ask for answers, and read none."""
    opened = []
    with suppress(OSError):
        for _ in range(20):
            opened.append(connected(port))
            asked = b"".join(
                begin("QueryRoute", 2 * n + 1)
                + data(2 * n + 1, framed_bytes(field(1, field(2, b"Honest"))), 1)
                for n in range(900)
            )
            opened[-1].sendall(BEGIN + asked)
        time.sleep(0.5)
    for stranger in opened:
        stranger.close()


def too_large(port: int) -> None:
    """Messages above the limit, of which the head comes, and then bytes without end."""
    head = begin("SendMessage", 1) + data(1, b"\0" + (1 << 30).to_bytes(4, "big"))
    flood(port, iter([BEGIN, head, *([data(1, bytes(16384))] * 200)]))


def idle(port: int) -> None:
    """Thousands of connections that say nothing, or only that they speak HTTP/2."""
    opened = []
    with suppress(OSError):
        for number in range(IDLE):
            opened.append(connected(port))
            if number % 2:
                opened[-1].sendall(BEGIN)
    time.sleep(2)
    for stranger in opened:
        stranger.close()


MORE = {"slow readers": slow_readers, "messages over the limit": too_large, "idle": idle}
NAMES = [*FLOODS, *REQUESTS, *MORE]


def be_attacker(name: str, port: int) -> None:
    """Until it is killed."""
    while True:
        if name in FLOODS:
            flood(port, FLOODS[name]())
        elif name in REQUESTS:
            request(port, name)
        else:
            MORE[name](port)


def be_honest(port: int, rate: float) -> None:
    """Until it is killed: a line `seconds status` for each send."""
    client, number = GrpcClient(), 0
    link = socket()
    link.connect(("127.0.0.1", port))
    due = time.monotonic()
    while True:
        number += 1
        due = max(due + 1 / rate, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        message = messages.Message(body=b"%d" % number)
        message.topic.name = "Honest"
        message.system_properties.message_id = f"H{number}"
        began = time.monotonic()
        stream = client.call(
            "SendMessage", messages.SendMessageRequest(messages=[message]), METADATA
        )
        answer = client.answers[stream]
        while not answer.has_ended:
            link.sendall(client.take())
            client.receive(link.recv(1 << 16))
        took = time.monotonic() - began
        got = messages.SendMessageResponse.FromString(answer.messages[0]).status.code
        del client.answers[stream]
        print(f"{took:.6f} {got}", flush=True)


class Honest:
    """The honest client, in a process of its own."""

    def __init__(self, port: int, rate: float, directory: Path) -> None:
        self._path = directory / "honest.txt"
        with self._path.open("wb") as sink:
            command = [sys.executable, __file__, "--honest", str(port), "--rate", str(rate)]
            self.process = subprocess.Popen(command, stdout=sink)
        self._read = 0

    def news(self) -> list[tuple[float, int]]:
        """Seconds and code of each send since the last look."""
        lines = self._path.read_text().splitlines()
        news, self._read = lines[self._read :], len(lines)
        return [(float(took), int(code)) for took, code in map(str.split, news)]


def endure(broker: LoneBroker, name: str, options: argparse.Namespace) -> float:
    """Run an attack; return the most memory that the broker had, MiB."""
    command = [sys.executable, __file__, "--attack", name, "--port", str(broker.port)]
    count = options.attackers if name in NAMES else 0
    attackers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(count)]
    most, end = 0.0, time.monotonic() + options.seconds
    try:
        while time.monotonic() < end:
            time.sleep(0.1)
            most = max(most, broker.memory())
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.wait()
    return most


def run(options: argparse.Namespace, directory: Path) -> int:
    bases = range(options.base, options.base + 200, 4)
    port = free_ports(2, bases)[0] + 2
    broker = LoneBroker(directory, bases, f"popEnable=true\ngrpcServerPort={port}\n")
    assert broker.port == port
    with BlockingClient(f"127.0.0.1:{broker.namesrv}") as client:
        for name in ("Honest", "Normal"):
            client.run(put_topic(f"127.0.0.1:{port}", TopicConfig(name, 4, 4)))
    honest = Honest(port, options.rate, directory)
    faults: list[str] = []
    rows = ["| attack | honest sends | p50, ms | p99, ms | longest, ms | broker, MiB | closed |"]
    rows.append("|---|---|---|---|---|---|---|")
    try:
        time.sleep(2)
        honest.news()
        for name in ["none", *(options.only or NAMES)]:
            closed = broker.metric(CLOSED)
            most = endure(broker, name, options)
            time.sleep(0.5)
            if broker.process.poll() is not None:
                faults.append(f"{name}: the broker is gone")
                break
            news = honest.news()
            took = sorted(seconds * 1000 for seconds, _ in news)
            if not took:
                faults.append(f"{name}: the honest client was not answered at all")
                continue
            wrong = sum(code != OK for _, code in news)
            limits = ", ".join(
                f"{limit} {count - closed.get(limit, 0):.0f}"
                for limit, count in broker.metric(CLOSED).items()
                if count > closed.get(limit, 0)
            )
            rows.append(
                f"| {name} | {len(took)} | {took[len(took) // 2]:.1f} "
                f"| {took[int(len(took) * 0.99)]:.1f} | {took[-1]:.0f} | {most:.0f} | {limits} |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
            if wrong:
                faults.append(f"{name}: {wrong} honest sends were not answered OK")
            if took[-1] > MOST_MS:
                faults.append(f"{name}: the longest wait was {took[-1]:.0f} ms")
    finally:
        honest.process.kill()
        honest.process.wait()
    if "Traceback" in broker.output.read_text():
        faults.append(f"a traceback in {broker.output}")
    if broker.end() != 0:
        faults.append("the broker did not stop cleanly")
    lines = [
        f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; "
        f"{options.seconds:g} s an attack by {options.attackers} attackers, honest sends "
        f"{options.rate:g}/s; log {broker.output.stat().st_size // 1024} KiB",
        "",
        *rows,
        "",
        *([f"VIOLATED: {fault}" for fault in faults] or ["All rules hold."]),
    ]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    return 1 if faults else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each attack")
    parser.add_argument("--rate", type=float, default=50, help="honest sends a second")
    parser.add_argument("--attackers", type=int, default=2, help="processes of each attack")
    parser.add_argument("--base", type=int, default=49600, help="first of 200 ports")
    parser.add_argument("--only", nargs="+", choices=NAMES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--honest", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.honest:
        be_honest(options.honest, options.rate)
    if options.attack:
        be_attacker(options.attack, options.port)
    with tempfile.TemporaryDirectory(prefix="grpc-attacks-") as directory:
        sys.exit(run(options, Path(directory)))


if __name__ == "__main__":
    main()
