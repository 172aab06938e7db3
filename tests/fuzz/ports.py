"""
Fuzz the ports of running servers: `tox -e fuzz-ports`, or `python -m tests.fuzz.ports`.

A stranger, on an address of his own, sends to every port of a name server, a pair and a DLedger
member; half of the brokers' requests are signed by an account that may do nothing. Afterwards: no
server ended, no traceback, no topic, group, offset, queue, route or setting moved, memory and
descriptors are what they were, and honest sends are stored and replicated.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.dledger.codec import encode_body
from tests.fuzz.mutate import Mutator
from tests.fuzz.of_links import REPORTS, TRANSFERS
from tests.fuzz.of_ports import ASKED, NAMESRV, REQUESTS, both, signed
from tests.fuzz.servers import DENIED, STRANGER, Cluster

BATCH = 50
MARK = 1_234_567
PAGES = [
    b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
]
MOST_MORE_MIB, MOST_MORE_OPEN = 48, 4
"""What a process may keep: the tables of who was refused lately, and Python's own."""


def is_served(data: bytes) -> bool:
    """Frames, and nothing but frames that can be read: the connection stays."""
    reader = FrameReader()
    try:
        frames = reader.receive_data(data)
        for frame in frames:
            decode_frame(*frame)
    except ProtocolViolation:
        return False
    return bool(frames) and reader.fault is None and not reader.unfinished


def connect(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 10, (STRANGER, 0))
    made.settimeout(10)
    return made


class Remoting:
    """
    A stranger at a port that speaks remoting.

    :param mark: a request whose answer says that all before it is done.
    :ivar sent: inputs.
    """

    def __init__(self, port: int, mutator: Mutator, mark: bytes, *, signs: bool) -> None:
        self.sent = 0
        self._port = port
        self._mutator = mutator
        self._mark = mark
        self._signs = signs
        self._turn = 0

    def batch(self) -> None:
        """One connection: what can be read, until that is answered, and one that cannot."""
        good: list[bytes] = []
        bad = b""
        self._turn += 1
        while len(good) < BATCH:
            data = self._mutator.next()
            if not is_served(data):
                bad = bad or data
            elif self._signs and self._turn % 2:
                good.append(signed(data, DENIED))
            else:
                good.append(data)
        with connect(self._port) as stranger:
            stranger.sendall(b"".join([*good, self._mark]))
            self._read(stranger, b'"opaque":%d' % MARK)
            with suppress(OSError):  # it is closed, perhaps before all is sent
                stranger.sendall(bad)
                stranger.settimeout(0.005)
                while stranger.recv(65536):
                    pass
        self.sent += len(good) + bool(bad)

    @staticmethod
    def _read(stranger: socket.socket, wanted: bytes) -> None:
        data = b""
        while wanted not in data:
            more = stranger.recv(1 << 18)
            assert more, "the connection was closed for nothing"
            data = data[-100:] + more


class Streams:
    """A stranger at a port that speaks something else: one input a connection."""

    def __init__(self, port: int, mutator: Mutator) -> None:
        self.sent = 0
        self._port = port
        self._mutator = mutator

    def batch(self) -> None:
        for _ in range(5):
            with connect(self._port) as stranger, suppress(OSError):
                stranger.sendall(self._mutator.next())
                stranger.settimeout(0.005)
                while stranger.recv(65536):
                    pass
            self.sent += 1


def strangers(cluster: Cluster, seed: int) -> dict[str, Remoting | Streams]:
    """By port; those of remoting first."""

    def mutator(port: int, seeds: list[bytes]) -> Mutator:
        return Mutator(Random(f"{seed}/{port}"), seeds, is_framed=True)

    mark = encode_frame(RemotingCommand(105, {"topic": "none"}, None, MARK))
    found: dict[str, Remoting | Streams] = {}
    for port in cluster.remoting:
        seeds = both(NAMESRV) if port == cluster.names else REQUESTS
        signs = port != cluster.names
        found[f"remoting {port}"] = Remoting(port, mutator(port, seeds), mark, signs=signs)
    for port in cluster.peers:
        frames = [encode_frame(RemotingCommand(c, None, encode_body(said))) for c, said in ASKED]
        asks = encode_frame(RemotingCommand(50000, None, b'{"group":"g"}', MARK))
        found[f"members {port}"] = Remoting(port, mutator(port, frames), asks, signs=False)
    for port in cluster.replication:
        found[f"replication {port}"] = Streams(port, mutator(port, [*REPORTS, *TRANSFERS]))
    for port in cluster.pages:
        found[f"metrics {port}"] = Streams(port, mutator(port, PAGES))
    return found


class Report:
    """What came of it."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.sent: Counter[str] = Counter()
        self.pulls: list[float] = []
        self.memory: dict[str, tuple[float, float]] = {}
        self.descriptors: dict[str, tuple[int, int]] = {}

    def lines(self) -> Iterator[str]:
        """For people."""
        for name, count in self.sent.items():
            yield f"{name:<20} {count:>9} inputs"
        for name, (before, after) in self.memory.items():
            fds = self.descriptors[name]
            yield f"{name:<20} {before:.0f} -> {after:.0f} MiB, {fds[0]} -> {fds[1]} descriptors"
        took = sorted(self.pulls)
        if took:
            at = min(len(took) - 1, len(took) * 99 // 100)
            worst = f"p99 {1e3 * took[at]:.0f} ms, max {1e3 * took[-1]:.0f} ms"
            yield f"honest pulls: {len(took)}, {worst}"
        yield f"{sum(self.sent.values())} inputs, {len(self.faults)} faults"
        yield from self.faults


def settle(cluster: Cluster, opened: dict[str, int]) -> None:
    """Let the servers see that the strangers are gone; ten seconds on a machine that does more."""
    deadline = time.monotonic() + 10
    for name, server in cluster.servers.items():
        with suppress(OSError):  # it has ended, which is told later
            while server.descriptors() > opened[name] and time.monotonic() < deadline:
                time.sleep(0.05)


def fuzz(cluster: Cluster, inputs: int, seed: int, until: float = 0.0) -> Report:
    """
    :param until: stop at that `time.monotonic()`; 0: when all were sent.
    """
    report = Report()
    servers = cluster.servers
    before = cluster.state()
    memory = {name: server.memory() for name, server in servers.items()}
    opened = {name: server.descriptors() for name, server in servers.items()}
    attackers = strangers(cluster, seed)
    rounds = 0
    while sum(attacker.sent for attacker in attackers.values()) < inputs:
        for attacker in attackers.values():
            attacker.batch()
        rounds += 1
        if rounds % 10 == 1:
            report.pulls.append(cluster.pull(cluster.brokers[0]))
        if until and time.monotonic() > until:
            break
    report.sent.update({name: attacker.sent for name, attacker in attackers.items()})
    settle(cluster, opened)
    report.faults += [fault for server in servers.values() for fault in server.faults()]
    if report.faults:
        return report
    after = cluster.state()
    for key, value in before.items():
        if after[key] != value:
            report.faults.append(f"moved: {key}: {value!r:.2000} became {after[key]!r:.2000}")
    for name, server in servers.items():
        report.memory[name] = memory[name], server.memory()
        report.descriptors[name] = opened[name], server.descriptors()
        if server.memory() > memory[name] + MOST_MORE_MIB:
            report.faults.append(f"{name} keeps {server.memory() - memory[name]:.0f} MiB")
        if server.descriptors() > opened[name] + MOST_MORE_OPEN:
            report.faults.append(f"{name} keeps {server.descriptors() - opened[name]} descriptors")
    wanted = (0,) if cluster.peers else (0, 10, 11)
    for port in cluster.masters():
        if cluster.send(port, "after") not in wanted:
            report.faults.append(f"an honest send to {port} is not stored as it was before")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=0, help="stop then; 0: at the last input")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        cluster = Cluster(Path(folder), is_whole=True)
        try:
            began = time.monotonic()
            until = began + 60 * options.minutes if options.minutes else 0.0
            report = fuzz(cluster, options.inputs, options.seed, until)
            print("\n".join(report.lines()))
            print(f"{time.monotonic() - began:.0f} s")
        finally:
            cluster.stop()
    return min(1, len(report.faults))


if __name__ == "__main__":
    sys.exit(main())
