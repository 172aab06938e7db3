"""Ours beside the Java broker, in one run on one machine, with the rig's neutral load generator.

    python bench/compare.py [--parts send,catchup,start,footprint] [--repeats 3] [--out FILE.md]

Writes a table with ratios. Needs the peer rig (`../shared/peer`, or RMQ_HA_PEER) with Java; the
part `controlled`, which runs only when named, also 5.3.3's (`../shared/peer5`, or RMQ_HA_PEER5).
Client, master and slave share the machine's processors: the figures compare brokers, they do not
size them.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.controlled import controlled_pair
from tests.interop.rig import SMALL, Rig, Server, missing, rig_in
from tests.interop.test_controller import missing as missing5

LEVELS = ((1, 1), (4, 4), (4, 16), (4, 64))
SIDES = ("java", "ours")
MEBIBYTE = 1 << 20
RECORD = 1180  # bytes in the commit log of a message of 1 KiB
PARTS = ("send", "catchup", "start", "footprint")
CONTROLLED = "controlled"
Rows = list[tuple[str, str, dict[str, list[float]], bool]]


def conf(directory: Path, name: str) -> str:
    """One of the rig's files with stock file sizes."""
    lines = (SMALL / name).read_text().splitlines()
    drop = ("mappedFileSize", "maxHashSlotNum", "maxIndexNum")
    path = directory / name
    path.write_text("\n".join(line for line in lines if not line.startswith(drop)) + "\n")
    return str(path)


def pair(rig: Rig, side: str, master_conf: str, work: Path) -> tuple[Server, Server, str]:
    """A master and its slave, in sync; the Java name server for both sides."""
    namesrv = rig.namesrv(java=True)
    java = side == "java"
    master = rig.broker(conf(work, master_conf), "m", java=java, namesrv=namesrv, heap="1g")
    slave = rig.broker(conf(work, "slave.conf"), "s", java=java, namesrv=namesrv, heap="1g")
    if "sync" in master_conf:
        rig.wait_sync(master)
    else:
        rig.peer("load", "send", "--addr", master.address, "--create", "--count", 1)
        rig.wait_same(slave, master)
    return master, slave, namesrv


def classic_pair(master_conf: str) -> Callable[[Rig, str, Path], str]:
    """What makes a pair of 4.9's kind, and says where its master is."""
    return lambda rig, side, work: pair(rig, side, master_conf, work)[0].address


SENDS = {
    "SYNC_MASTER": classic_pair("master-sync.conf"),
    "ASYNC_MASTER": classic_pair("master-async.conf"),
}
CONTROLLED_SENDS = {"controller mode (Java 5.3.3), all in sync,": controlled_pair}


def send_part(
    rows: Rows,
    repeats: int,
    work: Path,
    seconds: int,
    pairs: dict[str, Callable[[Rig, str, Path], str]],
) -> None:
    """Sends of 1 KiB at several numbers in flight, at masters with a slave."""
    for label, make in pairs.items():
        rate: dict[int, dict[str, list[float]]] = {c * w: {s: [] for s in SIDES} for c, w in LEVELS}
        p50: dict[int, dict[str, list[float]]] = {c * w: {s: [] for s in SIDES} for c, w in LEVELS}
        p99: dict[int, dict[str, list[float]]] = {c * w: {s: [] for s in SIDES} for c, w in LEVELS}
        for _ in range(repeats):
            for side in SIDES:
                with scratch(work) as directory, rig_in(directory) as rig:
                    address = make(rig, side, directory)
                    load = ["load", "send", "--addr", address, "--create", "--size", 1024]
                    rig.peer(*load, "--conns", 4, "--inflight", 16, "--duration", "6s", check=False)
                    for conns, window in LEVELS:
                        result = rig.peer(
                            *load,
                            "--conns",
                            conns,
                            "--inflight",
                            window,
                            "--warmup",
                            "1s",
                            "--duration",
                            f"{seconds}s",
                        )[-1]
                        level = conns * window
                        rate[level][side].append(result["tps"])
                        p50[level][side].append(result["latencyMs"]["p50"])
                        p99[level][side].append(result["latencyMs"]["p99"])
        for conns, window in LEVELS:
            level = conns * window
            rows.append((f"{label} sends, 1 KiB, {level} in flight", "msgs/s", rate[level], True))
            rows.append((f"{label} p50, {level} in flight", "ms", p50[level], False))
            rows.append((f"{label} p99, {level} in flight", "ms", p99[level], False))


def fill(rig: Rig, address: str, mebibytes: int) -> None:
    """Write that much into a broker."""
    rig.peer(
        "load",
        "send",
        "--addr",
        address,
        "--create",
        "--topic",
        "fill",
        "--conns",
        4,
        "--inflight",
        16,
        "--size",
        1024,
        "--count",
        mebibytes * MEBIBYTE // RECORD,
        "--accept",
        "0,11",
        timeout=600,
    )


def catchup_part(rows: Rows, repeats: int, work: Path, mebibytes: int) -> None:
    """A slave that was down while its master took 1 GiB comes back."""
    total: dict[str, list[float]] = {side: [] for side in SIDES}
    transfer: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(repeats):
        for side in SIDES:
            with scratch(work) as directory, rig_in(directory) as rig:
                master, slave, namesrv = pair(rig, side, "master-sync.conf", directory)
                slave.stop()
                fill(rig, master.address, mebibytes)
                end = int(rig.info(master)["commitLogMaxOffset"])
                behind = end - log_size(slave)
                began = time.monotonic()
                slave = rig.broker(
                    conf(directory, "slave.conf"),
                    "s",
                    java=side == "java",
                    namesrv=namesrv,
                    heap="1g",
                    port=int(slave.address.split(":")[1]),
                )
                first = moving(rig, slave, end - behind)
                rig.peer(
                    "load",
                    "wait",
                    "--addr",
                    slave.address,
                    "--min",
                    end,
                    "--timeout",
                    "120s",
                    timeout=130,
                )
                done = time.monotonic()
                total[side].append(behind / 1e6 / (done - began))
                transfer[side].append(behind / 1e6 / (done - first))
    rows.append((f"HA catch-up of {mebibytes} MiB, from process start", "MB/s", total, True))
    rows.append((f"HA catch-up of {mebibytes} MiB, transfer alone", "MB/s", transfer, True))


def log_size(server: Server) -> int:
    """Where a stopped broker's commit log ends, by its last file's content."""
    files = sorted((server.store / "commitlog").iterdir())
    data = files[-1].read_bytes().rstrip(b"\0")
    return int(files[-1].name) + len(data)


def moving(rig: Rig, slave: Server, start: int) -> float:
    """The time at which the slave's log first grew beyond `start`."""
    rig.peer(
        "load",
        "wait",
        "--addr",
        slave.address,
        "--min",
        start + 65536,
        "--every",
        "1ms",
        "--timeout",
        "60s",
    )
    return time.monotonic()


def start_part(rows: Rows, repeats: int, work: Path, mebibytes: int) -> None:
    """Process start to the first answer: empty, and with a store after a clean stop and a kill."""
    labels = ("empty", f"{mebibytes} MiB, clean stop", f"{mebibytes} MiB, kill -9")
    took: dict[str, dict[str, list[float]]] = {label: {s: [] for s in SIDES} for label in labels}
    for side in SIDES:
        with scratch(work) as directory, rig_in(directory) as rig:
            java, settings = side == "java", conf(directory, "master-async.conf")
            for number in range(repeats):
                server = timed_start(rig, settings, f"empty{number}", java, took[labels[0]][side])
                server.stop()
            server = rig.broker(settings, "full", java=java, heap="1g")
            fill(rig, server.address, mebibytes)
            for _ in range(repeats):
                time.sleep(1.5)
                server.stop()
                server = timed_start(rig, settings, "full", java, took[labels[1]][side])
                time.sleep(1.5)
                server.kill()
                server = timed_start(rig, settings, "full", java, took[labels[2]][side])
    rows += [(f"start to first answer, {label}", "s", took[label], False) for label in labels]


def timed_start(rig: Rig, settings: str, name: str, java: bool, into: list[float]) -> Server:
    """Start a broker and note how long it took to answer a request."""
    began = time.monotonic()
    server = rig.broker(settings, name, java=java, heap="1g")
    # Any answer counts: Java's runtime info is an error until its first sample.
    rig.peer("load", "info", "--addr", server.address, check=False)
    into.append(time.monotonic() - began)
    return server


def footprint_part(rows: Rows, repeats: int, work: Path) -> None:
    """Memory and idle processor time of a master with a slave, empty and after 200,000 messages."""
    names = (
        "RSS idle, empty store, master",
        "RSS idle, empty store, slave",
        "RSS after 200,000 messages, master",
        "private memory after 200,000 messages, master",
    )
    memory: dict[str, dict[str, list[float]]] = {name: {s: [] for s in SIDES} for name in names}
    idle: dict[str, dict[str, list[float]]] = {
        n: {s: [] for s in SIDES} for n in ("master", "slave")
    }
    for _ in range(repeats):
        for side in SIDES:
            with scratch(work) as directory, rig_in(directory) as rig:
                namesrv = rig.namesrv(java=True)
                java = side == "java"
                master = rig.broker(
                    conf(directory, "master-sync.conf"), "m", java=java, namesrv=namesrv
                )
                slave = rig.broker(conf(directory, "slave.conf"), "s", java=java, namesrv=namesrv)
                rig.wait_sync(master)
                time.sleep(5)
                m, s = server_process(master), server_process(slave)
                memory[names[0]][side].append(m.memory_info().rss / 2**20)
                memory[names[1]][side].append(s.memory_info().rss / 2**20)
                before = [spent(m), spent(s)]
                time.sleep(15)
                idle["master"][side].append((spent(m) - before[0]) / 15 * 100)
                idle["slave"][side].append((spent(s) - before[1]) / 15 * 100)
                rig.peer(
                    "load",
                    "send",
                    "--addr",
                    master.address,
                    "--create",
                    "--conns",
                    4,
                    "--inflight",
                    16,
                    "--count",
                    200000,
                    "--accept",
                    "0,2",
                    timeout=200,
                )
                time.sleep(5)
                info = m.memory_info()
                memory[names[2]][side].append(info.rss / 2**20)
                memory[names[3]][side].append((info.rss - info.shared) / 2**20)
    rows += [(name, "MiB", memory[name], False) for name in names]
    rows += [(f"idle processor time, {name}", "% of one", idle[name], False) for name in idle]


def server_process(server: Server) -> psutil.Process:
    return psutil.Process(server.process.pid)


def spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class scratch:
    """A directory below `work` that is gone afterwards."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def __enter__(self) -> Path:
        self.path = Path(tempfile.mkdtemp(dir=self._work))
        return self.path

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def table(rows: Rows) -> str:
    """Markdown: median (minimum to maximum) of each side, and how much better ours is."""
    lines = ["| what | unit | Java 4.9.7 | ours | ours is better by |", "|---|---|---|---|---|"]
    for name, unit, values, more_is_better in rows:
        java, ours = statistics.median(values["java"]), statistics.median(values["ours"])
        ratio = (ours / java if more_is_better else java / ours) if java and ours else float("nan")
        cells = [
            f"{statistics.median(v):,.4g} ({min(v):,.4g} to {max(v):,.4g})"
            for v in (values["java"], values["ours"])
        ]
        lines.append(f"| {name} | {unit} | {cells[0]} | {cells[1]} | {ratio:.2f} x |")
    return "\n".join(lines)


def report(options: argparse.Namespace, rows: Rows) -> None:
    """Write what was measured so far: a later part may fail."""
    load = os.getloadavg()[0]
    head = (
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} processors, "
        f"Python {platform.python_version()}, load average at the end {load:.1f}; "
        f"median (minimum to maximum) of {options.repeats} repeats."
    )
    text = f"{head}\n\n{table(rows)}\n"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)


def part_names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """For argparse: names of parts with commas between them; another one is refused."""
    names = list(known)

    def parse(text: str) -> list[str]:
        wrong = [name for name in text.split(",") if name not in names]
        if wrong:
            raise argparse.ArgumentTypeError(f"no part {wrong[0]!r}: one of {', '.join(names)}")
        return text.split(",")

    return parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=part_names([*PARTS, CONTROLLED]), default=",".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=6, help="measured at each level")
    parser.add_argument(
        "--mebibytes", type=int, default=1024, help="store size for catch-up and start"
    )
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "compare.md"
    )
    options = parser.parse_args()
    reason = missing() or (missing5() if CONTROLLED in options.parts else None)
    if reason:
        sys.exit(f"compare: {reason}")
    rows: Rows = []
    parts: dict[str, Callable[[], Any]] = {
        "send": lambda: send_part(rows, options.repeats, options.work, options.seconds, SENDS),
        CONTROLLED: lambda: send_part(
            rows, options.repeats, options.work, options.seconds, CONTROLLED_SENDS
        ),
        "catchup": lambda: catchup_part(rows, options.repeats, options.work, options.mebibytes),
        "start": lambda: start_part(rows, options.repeats, options.work, options.mebibytes),
        "footprint": lambda: footprint_part(rows, options.repeats, options.work),
    }
    chosen = options.parts
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("measuring", total=len(chosen))
        for part in chosen:
            progress.update(task, description=part)
            parts[part]()
            report(options, rows)
            progress.advance(task)
    print(options.out.read_text())


if __name__ == "__main__":
    main()
