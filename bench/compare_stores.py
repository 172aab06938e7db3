"""Parts of `compare.py` that begin with a full store: pull, catch-up, start.

Both sides get copies of one store, which ours has written.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from measure import MEBIBYTE, Ends, Window, alone, conf, rig_of, scratch
from sends import Bench

from rmq_ha.base.wire.codes import RequestCode
from tests.interop.rig import Rig, Server, rig_in
from tests.interop.wire import Wire

RECORD = 1180
"""Bytes in the commit log of a message of 1 KiB."""
TOPIC = "fill"
QUEUES = 8
_SEED = 1000
_TAIL = 2000
_SYNC_S = 300


def fill(rig: Rig, address: str, count: int) -> None:
    """That many messages."""
    load = ("load", "send", "--addr", address, "--create", "--topic", TOPIC, "--conns", 4)
    rig.peer(*load, "--inflight", 64, "--size", 1024, "--count", count, timeout=900)


def messages_in(mebibytes: int) -> int:
    """Messages of 1 KiB whose log is so large, with room left in the last file of 1 GiB."""
    return (mebibytes - 16) * MEBIBYTE // RECORD


@cache
def full_store(work: Path, mebibytes: int) -> Path:
    """
    A store of so much, in `full` below the answer, and in `seed` what it was in the beginning.

    Made once; both have stopped cleanly.
    """
    directory = work / "stores"
    directory.mkdir()
    with rig_in(directory) as rig:
        settings = conf(directory, "master-async.conf")
        server = rig.broker(settings, "seed")
        fill(rig, server.address, _SEED)
        server.stop()
        copy(directory / "seed", directory / "full")
        server = rig.broker(settings, "full")
        fill(rig, server.address, messages_in(mebibytes) - _SEED)
        server.stop()
    return directory


def copy(source: Path, target: Path) -> None:
    """A broker's directory, holes as holes."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


def broker_on_copy(
    rig: Rig, work: Path, source: Path, side: str, name: str, **options: Any
) -> Server:
    """A broker with a copy of a store."""
    copy(source, rig.directory / name)
    settings = conf(work, options.pop("settings", "master-async.conf"))
    return rig.broker(settings, name, java=side == "java", heap="1g", **options)


# ---------------------------------------------------------------- pull


def pull_part(bench: Bench) -> None:
    """All of 8 queues whose messages lie side by side, 32 a pull, each queue by one request."""
    full = full_store(bench.work, bench.mebibytes) / "full"
    with ExitStack() as stack:
        work = stack.enter_context(scratch(bench.work))
        live: dict[str, Ends] = {}
        for side in bench.sides:
            rig = stack.enter_context(rig_of(side, work / side))
            rig.directory.mkdir()
            server = broker_on_copy(rig, work, full, side, "m")
            live[side] = Ends(rig, server.address, {"master": server})
        for side, ends in live.items():
            with alone(side, live):
                until = time.monotonic() + bench.warm_s(side)
                while time.monotonic() < until:
                    _pull(ends, bench.warm)
        for number in range(bench.repeats):
            for side in bench.sides[:: -1 if number % 2 else 1]:
                _pull_window(bench, live, side)


def _pull(ends: Ends, seconds: float) -> dict[str, Any]:
    load = ("--topic", TOPIC, "--queues", f"0-{QUEUES - 1}", "--conns", 4)
    return ends.load("pull", *load, "--duration", f"{seconds}s")


def _pull_window(bench: Bench, live: dict[str, Ends], side: str) -> None:
    def attempt() -> tuple[tuple[list[dict[str, Any]], dict[str, float]], Window]:
        with alone(side, live), Window(live[side].servers) as window:
            found, until = [], time.monotonic() + bench.seconds
            while time.monotonic() < until:
                found.append(_pull(live[side], bench.seconds))
        return (found, window.cpu), window

    figures = bench.figures
    (found, cpu), others = figures.quietly(attempt)
    size, messages, seconds = (
        sum(one[what] for one in found) for what in ("bytes", "messages", "seconds")
    )
    name = f"pull, {QUEUES} queues"
    figures.add(
        f"{name}: of a CPU second of the master", "MB", side, size / 1e6 / cpu["master"], others,
        more_is_better=True, aim=1.6,
    )  # fmt: skip
    figures.add(f"{name}: rate", "MB/s", side, size / 1e6 / seconds, others, more_is_better=True)
    for who, took in cpu.items():
        figures.add(f"{name}: CPU a message, {who}", "us", side, took / messages * 1e6, others)


# ---------------------------------------------------------------- catch-up


def catchup_part(bench: Bench) -> None:
    """A slave that has the beginning only comes back, until it has the log, and the queues."""
    stores = full_store(bench.work, bench.mebibytes)
    for number in range(bench.repeats):
        for side in bench.sides[:: -1 if number % 2 else 1]:
            with scratch(bench.work) as work, rig_of(side, work) as rig:
                _catchup(bench, stores, work, rig, side)


def _catchup(bench: Bench, stores: Path, work: Path, rig: Rig, side: str) -> None:
    namesrv = rig.namesrv(java=True)
    sync = {"settings": "master-sync.conf", "namesrv": namesrv}
    master = broker_on_copy(rig, work, stores / "full", side, "m", **sync)
    # Java's runtime info is an error until its first sample.
    rig.peer("load", "wait", "--addr", master.address, "--min", 1, "--timeout", "30s")
    end = int(rig.info(master)["commitLogMaxOffset"])
    total = messages_in(bench.mebibytes)
    behind = end - _SEED * RECORD

    def attempt() -> tuple[tuple[float, float, dict[str, float]], Window]:
        name = f"s{len(rig.servers)}"
        with Window({"master": master}) as window:
            began = time.monotonic()
            slave = broker_on_copy(
                rig, work, stores / "seed", side, name, settings="slave.conf", namesrv=namesrv,
                wait=False,
            )  # fmt: skip
            window.add("slave", slave)
            wait = ("load", "wait", "--addr", slave.address, "--min", end)
            rig.peer(*wait, "--timeout", f"{_SYNC_S}s", timeout=_SYNC_S + 10)
            synced = time.monotonic() - began
            _until_built(rig, slave, total)
            built = time.monotonic() - began
        slave.kill()
        return (synced, built, window.cpu), window

    figures = bench.figures
    (synced, built, cpu), others = figures.quietly(attempt)
    name = f"catch-up of {bench.mebibytes} MiB from process start"
    for what, seconds, aim in (("log in sync", synced, 3.0), ("queues built, too", built, None)):
        figures.add(
            f"{name}, {what}", "MB/s", side, behind / 1e6 / seconds, others,
            more_is_better=True, aim=aim,
        )  # fmt: skip
    for who in ("master", "slave"):
        cost = cpu[who] / (behind / RECORD) * 1e6
        figures.add(f"{name}: CPU a record, {who}", "us", side, cost, others)


def _until_built(rig: Rig, server: Server, total: int) -> None:
    """Until the queues have so many messages."""

    def built() -> bool:
        with Wire(server.address, timeout=10) as wire:
            ends = [
                wire.call(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=queue)
                for queue in range(QUEUES)
            ]
        return sum(int(one.ext["offset"]) for one in ends) >= total

    rig.until(built, _SYNC_S, "all queues", server)


# ---------------------------------------------------------------- start

_EMPTY, _CLEAN, _KILLED, _LOST = "empty", "clean stop", "kill -9", "lost power"
_AIMS = {_EMPTY: 2.5, _CLEAN: 3.3, _KILLED: 3.3, _LOST: 2.0}


def start_part(bench: Bench) -> None:
    """
    Process start to the first answer, after each way to stop.

    Lost power: killed, what it wrote is on the disk and out of memory, and the mark of this boot of
    the machine is gone. Nothing of it is torn: that is for tests/interop and the simulator.
    """
    full = full_store(bench.work, bench.mebibytes) / "full"
    for side in bench.sides:
        with scratch(bench.work) as work, rig_of(side, work) as rig:
            server = broker_on_copy(rig, work, full, side, "full")
            server.stop()
            for number in range(bench.repeats):
                _timed(bench, rig, work, side, f"empty{number}", _EMPTY).stop()
                server = _timed(bench, rig, work, side, "full", _CLEAN)
                _killed(rig, server)
                server = _timed(bench, rig, work, side, "full", _KILLED)
                _killed(rig, server)
                _out_of_memory(server.store)
                server = _timed(bench, rig, work, side, "full", _LOST)
                fill(rig, server.address, _TAIL)
                server.stop()


def _killed(rig: Rig, server: Server) -> None:
    fill(rig, server.address, _TAIL)
    time.sleep(1.5)
    server.kill()


def _out_of_memory(store: Path) -> None:
    """On the disk, and nowhere else."""
    (store / "boot").unlink(missing_ok=True)
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _timed(bench: Bench, rig: Rig, work: Path, side: str, name: str, how: str) -> Server:
    """Start a broker, and note how long it took to answer; once only, as it changes the store."""
    settings = conf(work, "master-async.conf")
    with Window() as window:
        began = time.monotonic()
        server = rig.broker(settings, name, java=side == "java", heap="1g", wait=False)
        window.add("master", server)
        # Any answer counts: Java's runtime info is an error until its first sample.
        wait = ("load", "wait", "--addr", server.address, "--min", 0, "--timeout", "180s")
        rig.peer(*wait, timeout=190)
        took = time.monotonic() - began
    label = f"start, {'empty' if how == _EMPTY else f'{bench.mebibytes} MiB, {how}'}"
    add: Callable[..., None] = bench.figures.add
    add(f"{label}: to the first answer", "s", side, took, window.others, aim=_AIMS[how])
    add(f"{label}: CPU", "s", side, window.cpu["master"], window.others)
    return server
