"""Parts of `compare.py` with more and more of something, at one and the same rate of sends.

What a message costs has to stay flat: a row for each number, and one that says how much dearer a
message is with the most of it than with the least. A window opens when all connections stand, and
closes before they do: making one is no part of a message. Queues have a message each before, as
making a file is the disk's matter: where that is slow, `--work /dev/shm`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
from measure import Ends, Window, conf, rig_of, scratch, server_process
from scale import allow_descriptors, fill_queues
from sends import Bench

from tests.interop.rig import PEER, Server

Load = tuple[object, ...]

RATE = 4000
SLAVES = (1, 4, 16)
CONNECTIONS = (10, 1000, 10_000)
QUEUES = (8, 800, 8000, 80_000)
MOST_QUEUES = 40_000
"""Of one topic: ours makes no topic with more than 65,536."""
_MANY = {"maxConnectionsPerIp": 2 * CONNECTIONS[-1]}
_MARGIN_S = 1.0
"""Between a window and what is before and behind it."""
_MADE_A_SECOND = 1000
"""Connections, at least."""
_MAPS = 30_000
"""Queues that Java can map beside all else: vm.max_map_count is 65,530, and a queue takes two."""


@contextmanager
def _master(bench: Bench, side: str) -> Iterator[Ends]:
    """One address may have all connections, as with Java."""
    with scratch(bench.work) as work, rig_of(side, work) as rig:
        settings = conf(work, "master-async.conf")
        server = rig.broker(settings, "m", java=side == "java", heap="1g", **_MANY)
        yield Ends(rig, server.address, {"master": server})


def _at_rate(bench: Bench, ends: Ends, side: str, label: str, loads: list[Load]) -> list[float]:
    """Send at `RATE`, by some load generators; us of the master's a message, in each window."""
    master = ends.servers["master"]
    before = _connected(master)
    connections = sum(int(str(load[load.index("--conns") + 1])) for load in loads)

    def until(is_so: Callable[[int], bool], what: str) -> None:
        ends.rig.until(lambda: is_so(_connected(master) - before), 60, what, master)

    def start(pool: ThreadPoolExecutor, seconds: float, *more: object) -> list[Future[Any]]:
        duration = f"{seconds + 2 * _MARGIN_S + connections / _MADE_A_SECOND}s"
        options = ("--size", 1024, "--rate", RATE // len(loads), "--duration", duration, *more)
        return [pool.submit(ends.load, "send", *options, *load) for load in loads]

    def attempt() -> tuple[tuple[list[dict[str, Any]], float], Window]:
        until(lambda count: count <= 0, "no connection of the load before")
        with ThreadPoolExecutor(len(loads)) as pool:
            running = start(pool, bench.seconds)
            until(lambda count: count >= connections, f"{connections:,} connections")
            time.sleep(_MARGIN_S)
            with Window(ends.servers) as window:
                time.sleep(bench.seconds)
            results = [each.result() for each in running]
        return (results, window.cpu["master"] / window.seconds), window

    with ThreadPoolExecutor(len(loads)) as pool:
        for each in start(pool, bench.warm_s(side), "--create"):
            each.result()
    costs = []
    for _ in range(bench.repeats):
        (results, share), others = bench.figures.quietly(attempt)
        rate = sum(each["tps"] for each in results)
        costs.append(share / rate * 1e6)
        name = f"{RATE:,} sends/s, {label}"
        late = max(each["latencyMs"]["p99"] for each in results)
        bench.figures.add(f"{name}: CPU a message, master", "us", side, costs[-1], others)
        bench.figures.add(f"{name}: p99", "ms", side, late, others)
        bench.figures.add(f"{name}: sends", "msgs/s", side, rate, others, more_is_better=True)
    return costs


def _connected(server: Server) -> int:
    """Connections of clients that stand."""
    port = int(server.address.rpartition(":")[2])
    ends = server_process(server).net_connections("tcp")
    return sum(end.status == psutil.CONN_ESTABLISHED and end.laddr.port == port for end in ends)


def _flat(bench: Bench, side: str, what: str, costs: list[list[float]]) -> None:
    growth = statistics.median(costs[-1]) / statistics.median(costs[0])
    bench.figures.add(f"CPU a message with the most {what} to the least", "x", side, growth, 0.0)


def slaves_part(bench: Bench) -> None:
    """Slaves that only take and acknowledge: the load generator's."""
    for side in bench.sides:
        with _master(bench, side) as ends:
            host, _, port = ends.address.rpartition(":")
            command = [str(PEER), "load", "hb", "--addr", f"{host}:{int(port) + 1}"]
            command += ["--broker", ends.address, "--ack", "frame", "--idle", "0"]
            # A Java master with an empty store refuses what a slave of the load generator asks it.
            ends.load("send", "--create", "--size", 1024, "--rate", 100, "--duration", "1s")
            slaves: list[subprocess.Popen[bytes]] = []
            try:
                costs = []
                for count in SLAVES:
                    while len(slaves) < count:
                        slaves.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
                    label = f"{count} slaves"
                    loads: list[Load] = [("--conns", 4, "--inflight", 16)]
                    costs.append(_at_rate(bench, ends, side, label, loads))
                    gone = [one for one in slaves if one.poll() is not None]
                    if gone:
                        raise RuntimeError(f"{len(gone)} of {count} slaves ended")
                _flat(bench, side, "slaves", costs)
            finally:
                for slave in slaves:
                    slave.kill()
                    slave.wait()


def connections_part(bench: Bench) -> None:
    """Connections that all send, in turn."""
    most = allow_descriptors(CONNECTIONS[-1])
    _each(bench, "connections", [min(most, count) for count in CONNECTIONS], _connections)


def _connections(count: int) -> list[Load]:
    return [("--conns", count, "--inflight", 1)]


def queues_part(bench: Bench) -> None:
    """Queues of one topic or more, in turn."""
    _each(bench, "queues", list(QUEUES), _queues)


def _queues(count: int) -> list[Load]:
    topics = -(-count // MOST_QUEUES)
    each, conns = count // topics, 8
    window = ("--conns", conns, "--inflight", max(16, each // conns))
    return [("--topic", f"queues-{n}", "--queues", each, *window) for n in range(topics)]


def _make_queues(ends: Ends, loads: list[Load]) -> None:
    for _, topic, _, queues, *_ in loads:
        ends.rig.peer("load", "topic", "--addr", ends.address, "--topic", topic, "--queues", queues)
        fill_queues(ends.address, [str(topic)], int(str(queues)))


def _each(
    bench: Bench, what: str, counts: list[int], loads_of: Callable[[int], list[Load]]
) -> None:
    for side in bench.sides:
        costs = []
        for count in counts:
            if side == "java" and what == "queues" and count > _MAPS:
                print(f"(Java cannot map {count:,} queues)", end=" ", file=sys.stderr)
                continue
            with _master(bench, side) as ends:
                loads = loads_of(count)
                if what == "queues":
                    _make_queues(ends, loads)
                costs.append(_at_rate(bench, ends, side, f"{count:,} {what}", loads))
        _flat(bench, side, what, costs)
