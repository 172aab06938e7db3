"""Parts of `compare.py` with more and more of something, at one and the same rate of sends.

What a message costs has to stay flat: a row for each number, and one that says how much dearer a
message is with the most of it than with the least.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from measure import SIDES, Ends, Window, conf, scratch
from scale import allow_descriptors
from sends import Bench

from tests.interop.rig import PEER, rig_in

RATE = 4000
SLAVES = (1, 4, 16)
CONNECTIONS = (10, 1000, 10_000)
QUEUES = (8, 800, 8000, 80_000)
_MAPS = 30_000
"""Queues that Java can map beside all else: vm.max_map_count is 65,530, and a queue takes two."""


@contextmanager
def _master(bench: Bench, side: str) -> Iterator[Ends]:
    with scratch(bench.work) as work, rig_in(work) as rig:
        settings = conf(work, "master-async.conf")
        server = rig.broker(settings, "m", java=side == "java", heap="1g")
        yield Ends(rig, server.address, {"master": server})


def _at_rate(
    bench: Bench, ends: Ends, side: str, label: str, *load: object, seconds: float = 0.0
) -> list[float]:
    """Send at `RATE`; the master's processor time a message, us, in each window."""
    options = ("--create", "--size", 1024, "--rate", RATE, *load)
    warm, seconds = bench.warm_s(side) + seconds, bench.seconds + seconds
    ends.load("send", *options, "--duration", f"{warm}s")

    def attempt() -> tuple[tuple[dict[str, Any], float], Window]:
        with Window(ends.servers) as window:
            result = ends.load("send", *options, "--duration", f"{seconds}s")
        return (result, window.cpu["master"]), window

    costs = []
    for _ in range(bench.repeats):
        (result, cpu), others = bench.figures.quietly(attempt)
        costs.append(cpu / result["responses"] * 1e6)
        name = f"{RATE:,} sends/s, {label}"
        bench.figures.add(f"{name}: CPU a message, master", "us", side, costs[-1], others)
        bench.figures.add(f"{name}: p99", "ms", side, result["latencyMs"]["p99"], others)
        bench.figures.add(f"{name}: sends", "msgs/s", side, result["tps"], others)
    return costs


def _flat(bench: Bench, side: str, what: str, costs: list[list[float]]) -> None:
    growth = statistics.median(costs[-1]) / statistics.median(costs[0])
    bench.figures.add(f"CPU a message with the most {what} to the least", "x", side, growth, 0.0)


def slaves_part(bench: Bench) -> None:
    """Slaves that only take and acknowledge: the load generator's."""
    for side in SIDES:
        with _master(bench, side) as ends:
            host, _, port = ends.address.rpartition(":")
            command = [str(PEER), "load", "hb", "--addr", f"{host}:{int(port) + 1}"]
            command += ["--broker", ends.address, "--ack", "frame", "--idle", "0"]
            slaves: list[subprocess.Popen[bytes]] = []
            try:
                costs = []
                for count in SLAVES:
                    while len(slaves) < count:
                        slaves.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
                    label = f"{count} slaves"
                    load = ("--conns", 4, "--inflight", 16)
                    costs.append(_at_rate(bench, ends, side, label, *load))
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


def _connections(count: int) -> tuple[object, ...]:
    return "--conns", count, "--inflight", 1


def queues_part(bench: Bench) -> None:
    """Queues of one topic, in turn."""
    _each(bench, "queues", list(QUEUES), _queues)


def _queues(count: int) -> tuple[object, ...]:
    conns = min(8, count)
    topic = ("--topic", f"queues-{count}", "--queues", count)
    return *topic, "--conns", conns, "--inflight", max(16, count // conns)


def _each(
    bench: Bench, what: str, counts: list[int], load: Callable[[int], tuple[object, ...]]
) -> None:
    for side in SIDES:
        costs = []
        for count in counts:
            if side == "java" and what == "queues" and count > _MAPS:
                print(f"(Java cannot map {count:,} queues)", end=" ", file=sys.stderr)
                continue
            with _master(bench, side) as ends:
                seconds = count / RATE  # each is used in a window
                label = f"{count:,} {what}"
                costs.append(_at_rate(bench, ends, side, label, *load(count), seconds=seconds))
        _flat(bench, side, what, costs)
