"""A DLedger group of ours beside one of Java brokers, in one run on one machine.

    python bench/dledger.py [--parts send,failover,idle,catchup] [--repeats 3] [--out FILE.md]

Writes a table with ratios. Needs the peer rig (`../shared/peer`, or RMQ_HA_PEER) with Java. Load
generator and three members share the machine's processors: the figures compare groups, they do not
size them. Fail-over is from kill -9 of the leader to the first SEND_OK of the next; 6 s of it are
the protocol's silence, less what had passed since the last heartbeat.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compare import SIDES, Rows, part_names, report, scratch, server_process, spent
from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.interop.groups import OK, TOPIC, Group, Member
from tests.interop.rig import SMALL, missing, rig_in
from tests.interop.wire import log_end

LEVELS = ((1, 1), (4, 16), (4, 64))
MEMBERS = 3
IDLE_S = 15
PARTS = ("send", "failover", "idle", "catchup")


def stock_conf(directory: Path) -> Path:
    """The rig's files of DLedger nodes with stock file sizes."""
    folder = directory / "conf"
    folder.mkdir()
    drop = ("mappedFileSize", "maxHashSlotNum", "maxIndexNum")
    for path in SMALL.glob("dledger-*.conf"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith(drop)]
        (folder / path.name).write_text("\n".join(lines) + "\n")
    return folder


@contextmanager
def group_of(side: str, work: Path) -> Any:
    """A group of one side, with a leader that serves."""
    with scratch(work) as directory, rig_in(directory) as rig:
        group = Group(rig, [side == "java"] * MEMBERS, conf=stock_conf(directory), heap="1g")
        yield group, group.wait_leader(seconds=60)


def send(group: Group, leader: Member, *options: Any) -> dict[str, Any]:
    """The load generator's summary."""
    command = ["load", "send", "--addr", leader.server.address, "--topic", TOPIC, "--size", 1024]
    result: dict[str, Any] = group.rig.peer(*command, *options, check=False, timeout=600)[-1]
    return result


def send_part(rows: Rows, options: argparse.Namespace) -> None:
    """Sends of 1 KiB at several numbers in flight."""
    levels = [conns * window for conns, window in LEVELS]
    found: dict[str, dict[int, dict[str, list[float]]]] = {
        what: {level: {side: [] for side in SIDES} for level in levels}
        for what in ("tps", "p50", "p99")
    }
    for _ in range(options.repeats):
        for side in SIDES:
            with group_of(side, options.work) as (group, leader):
                send(group, leader, "--conns", 4, "--inflight", 16, "--duration", "6s")
                for conns, window in LEVELS:
                    load = ("--conns", conns, "--inflight", window, "--warmup", "1s")
                    result = send(group, leader, *load, "--duration", f"{options.seconds}s")
                    level = conns * window
                    found["tps"][level][side].append(result["tps"])
                    found["p50"][level][side].append(result["latencyMs"]["p50"])
                    found["p99"][level][side].append(result["latencyMs"]["p99"])
    for level in levels:
        rows.append((f"sends, 1 KiB, {level} in flight", "msgs/s", found["tps"][level], True))
        rows.append((f"p50, {level} in flight", "ms", found["p50"][level], False))
        rows.append((f"p99, {level} in flight", "ms", found["p99"][level], False))


def failover_part(rows: Rows, options: argparse.Namespace) -> None:
    """Without sends from kill -9 of the leader; and over a transfer."""
    took: dict[str, list[float]] = {side: [] for side in SIDES}
    handed: dict[str, list[float]] = {side: [] for side in SIDES}
    for side in SIDES:
        with group_of(side, options.work) as (group, leader):
            for _ in range(options.repeats):
                began = time.monotonic()
                leader.server.kill()
                new_leader = group.wait_leader(leader.name)
                took[side].append(time.monotonic() - began)
                group.restart(leader.name)
                group.wait_same()
                began = time.monotonic()
                if group.transfer(leader.name) == OK:
                    leader = group.wait_leader(new_leader.name)
                    handed[side].append(time.monotonic() - began)
                else:
                    leader = group.wait_leader()
    rows.append(("kill -9 of the leader to the next SEND_OK", "s", took, False))
    if all(handed.values()):
        rows.append(("leadership transfer to the next SEND_OK", "s", handed, False))


def idle_part(rows: Rows, options: argparse.Namespace) -> None:
    """Processor time and memory of a group to which nobody sends."""
    names = ("leader", "follower")
    idle: dict[str, dict[str, list[float]]] = {n: {side: [] for side in SIDES} for n in names}
    memory: dict[str, dict[str, list[float]]] = {n: {side: [] for side in SIDES} for n in names}
    for _ in range(options.repeats):
        for side in SIDES:
            with group_of(side, options.work) as (group, leader):
                send(group, leader, "--conns", 4, "--inflight", 16, "--count", 20_000)
                follower = next(one for one in group.members.values() if one != leader)
                time.sleep(5)
                processes = [server_process(one.server) for one in (leader, follower)]
                before = [spent(process) for process in processes]
                time.sleep(IDLE_S)
                for name, process, then in zip(names, processes, before, strict=True):
                    idle[name][side].append((spent(process) - then) / IDLE_S * 100)
                    memory[name][side].append(process.memory_info().rss / 2**20)
    rows += [(f"idle processor time, {name}", "% of one", idle[name], False) for name in names]
    rows += [(f"RSS after 20,000 messages, {name}", "MiB", memory[name], False) for name in names]


def catchup_part(rows: Rows, options: argparse.Namespace) -> None:
    """A follower whose store is gone gets everything again; its start is part of the time."""
    speed: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(options.repeats):
        for side in SIDES:
            with group_of(side, options.work) as (group, leader):
                count = options.mebibytes * 1024
                load = ("--conns", 4, "--inflight", 64, "--count", count, "--accept", "0,1")
                send(group, leader, *load)
                end = group.wait_same()
                follower = next(one for one in group.members.values() if one != leader)
                follower.server.kill()
                shutil.rmtree(follower.server.store)
                began = time.monotonic()
                group.restart(follower.name)
                fill(group, leader, follower, end)
                speed[side].append(end / 1e6 / (time.monotonic() - began))
    what = f"catch-up of a wiped follower, {options.mebibytes} MiB, from process start"
    rows.append((what, "MB/s", speed, True))


def fill(group: Group, leader: Member, follower: Member, end: int) -> None:
    """
    Until the follower has the log up to `end`.

    Something is sent now and then: an idle Java leader never finds out that it has lost it.
    """
    deadline = time.monotonic() + 120
    while log_end(follower.server.address) < end:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{follower.name} did not catch up in 120 s")
        group.is_serving(leader)
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=part_names(PARTS), default=",".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=6, help="measured at each level")
    parser.add_argument("--mebibytes", type=int, default=256, help="log size for catch-up")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "dledger.md"
    )
    options = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(f"dledger: {reason}")
    rows: Rows = []
    parts: dict[str, Callable[[Rows, argparse.Namespace], None]] = {
        "send": send_part,
        "failover": failover_part,
        "idle": idle_part,
        "catchup": catchup_part,
    }
    chosen = options.parts
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=len(chosen))
        for part in chosen:
            progress.update(task, description=part)
            parts[part](rows, options)
            report(options, rows)
            progress.advance(task)
    print(options.out.read_text())


if __name__ == "__main__":
    main()
