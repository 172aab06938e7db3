"""What the benchmarks beside Java share: windows, a table that refuses ratios, files and servers.

A window counts processor time: of the servers in it, of the clients that ran, and what everybody
else took of the machine. Where others took more than the limit, it is measured again, and where
that does not help, the table shows the figures and no ratio.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from tests.interop.rig import SMALL, Rig, Server, rig_in

SIDES = ("java", "ours")
"""What is compared. Ours has the maker of runs that a broker chooses by itself."""
MAKERS = {"pure": "0", "kernel": "1"}
"""Sides of ours whose maker of runs is named, and the value of `RMQ_HA_KERNEL` for each."""
MEBIBYTE = 1 << 20
LIMIT = 3.0
TRIES = 3
_SETTLE_S = 0.3
T = TypeVar("T")


def spent(process: psutil.Process) -> float:
    """Processor seconds."""
    times = process.cpu_times()
    return times.user + times.system


def server_process(server: Server) -> psutil.Process:
    return psutil.Process(server.process.pid)


def _of_us() -> float:
    """Processor seconds of this process and of all that it started."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _of_all() -> tuple[float, float]:
    """Seconds in which a processor worked, or was another machine's, and all there were."""
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return busy, busy + times.idle + times.iowait


class Window:
    """
    Counts while its block runs.

    :param servers: by the name under which their share is told.
    :ivar seconds: how long the block took.
    :ivar cpu: seconds of each server, and of `client`: what ran and ended in the block.
    :ivar memory: of each server, in the end.
    :ivar others: what everybody else took, % of the machine's processors.
    """

    def __init__(self, servers: Mapping[str, Server] | None = None) -> None:
        self._processes = {name: server_process(one) for name, one in (servers or {}).items()}
        self.cpu: dict[str, float] = {}
        self.memory: dict[str, Any] = {}
        self.seconds = self.others = 0.0

    def add(self, name: str, server: Server) -> Server:
        """One that was started within the block."""
        self._processes[name] = server_process(server)
        self._before[name] = 0.0
        return server

    def __enter__(self) -> Window:
        self._before = {name: spent(one) for name, one in self._processes.items()}
        self._children = os.times()
        self._us, (self._busy, self._all) = _of_us(), _of_all()
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        us, (busy, total) = _of_us() - self._us, _of_all()
        others = max(0.0, busy - self._busy - us)
        self.others = 100 * others / max(0.01, total - self._all)
        self.cpu = {name: spent(one) - self._before[name] for name, one in self._processes.items()}
        self.memory = {name: one.memory_info() for name, one in self._processes.items()}
        now = os.times()
        self.cpu["client"] = (
            now.children_user
            + now.children_system
            - self._children.children_user
            - self._children.children_system
        )


@contextmanager
def rig_of(side: str, directory: Path) -> Iterator[Rig]:
    """A rig whose brokers have the maker of runs of this side."""
    with rig_in(directory) as rig:
        if side in MAKERS:
            rig.environment["RMQ_HA_KERNEL"] = MAKERS[side]
        yield rig


class _Row(NamedTuple):
    unit: str
    more_is_better: bool
    aim: float | None
    values: dict[str, list[float]]
    others: list[float]


class Figures:
    """
    What was measured, row by row.

    :param limit: others may take this much of the machine, %.
    :param sides: Java and what is compared with it.
    """

    def __init__(self, limit: float = LIMIT, sides: tuple[str, ...] = SIDES) -> None:
        self.limit = limit
        self.sides = sides
        self._rows: dict[str, _Row] = {}

    def add(
        self,
        name: str,
        unit: str,
        side: str,
        value: float,
        others: float,
        *,
        more_is_better: bool = False,
        aim: float | None = None,
    ) -> None:
        """
        One figure of one side.

        :param others: of its window.
        :param aim: the ratio that issue 14 asks for.
        """
        row = self._rows.get(name)
        if row is None:
            values: dict[str, list[float]] = {side: [] for side in self.sides}
            self._rows[name] = row = _Row(unit, more_is_better, aim, values, [])
        row.values[side].append(value)
        row.others.append(others)

    def quietly(self, attempt: Callable[[], tuple[T, Window]]) -> tuple[T, float]:
        """What an attempt found, and what others took meanwhile; `TRIES` attempts at most."""
        for _ in range(TRIES):
            found, window = attempt()
            if window.others <= self.limit:
                break
        return found, window.others

    def table(self) -> str:
        """Markdown: median (minimum to maximum) of each side, and how much better ours are."""
        ours = self.sides[1:]
        head = ["what", "unit", "Java", *ours, *[f"{side} is better by" for side in ours], "aim"]
        lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for name, row in self._rows.items():
            cells = [_cell(row.values[side]) for side in self.sides]
            cells += [self._ratio(row, side) for side in ours]
            aim = f"{row.aim:.1f}" if row.aim else ""
            lines.append(f"| {name} | {row.unit} | {' | '.join(cells)} | {aim} |")
        return "\n".join(lines)

    def _ratio(self, row: _Row, side: str) -> str:
        values = [row.values[name] for name in (self.sides[0], side)]
        if not all(values):
            return "-"
        if max(row.others) > self.limit:
            return f"not quiet: others took {max(row.others):.0f} %"
        java, ours = map(statistics.median, values)
        if not (java and ours):
            return "-"
        return f"{ours / java if row.more_is_better else java / ours:.2f} x"

    def write(self, path: Path) -> None:
        """All of it so far: a later part may fail."""
        head = (
            f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} processors, "
            f"Python {platform.python_version()} ({Path(sys.executable).resolve()}: how it was "
            f"built counts), load average at the end {os.getloadavg()[0]:.1f}; median (minimum "
            f"to maximum). No ratio where others took more than {self.limit:g} % of the machine."
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}\n\n{self.table()}\n")


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    middle = f"{statistics.median(values):,.4g}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.4g} to {max(values):,.4g})"


class Ends(NamedTuple):
    """
    What is measured of one side.

    :ivar address: where sends go.
    :ivar servers: by the name under which their share is told.
    """

    rig: Rig
    address: str
    servers: dict[str, Server]

    def load(self, mode: str, *options: object, timeout: float = 600) -> dict[str, Any]:
        """Run the load generator; its summary."""
        command = ("load", mode, "--addr", self.address, *options)
        found: dict[str, Any] = self.rig.peer(*command, check=False, timeout=timeout)[-1]
        if not (found.get("responses") or found.get("messages")):
            raise RuntimeError(f"{command}: {found}")
        return found


@contextmanager
def alone(side: str, sides: Mapping[str, Ends]) -> Iterator[None]:
    """All servers of the other side are stopped (SIGSTOP) meanwhile: they take no processor."""
    others = [one for other, ends in sides.items() if other != side for one in ends.rig.servers]
    running = [server.process for server in others if server.process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(_SETTLE_S)
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGCONT)
        time.sleep(_SETTLE_S)


def conf(directory: Path, name: str) -> str:
    """One of the rig's files with stock file sizes."""
    lines = (SMALL / name).read_text().splitlines()
    drop = ("mappedFileSize", "maxHashSlotNum", "maxIndexNum")
    path = directory / name
    path.write_text("\n".join(line for line in lines if not line.startswith(drop)) + "\n")
    return str(path)


@contextmanager
def scratch(work: Path) -> Iterator[Path]:
    """A directory below `work` that is gone afterwards."""
    path = Path(tempfile.mkdtemp(dir=work))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def part_names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """For argparse: names of parts with commas between them; another one is refused."""
    names = list(known)

    def parse(text: str) -> list[str]:
        wrong = [name for name in text.split(",") if name not in names]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(names)}")
        return text.split(",")

    return parse


def run_parts(
    parts: Mapping[str, Callable[[], None]], chosen: list[str], figures: Figures, out: Path
) -> None:
    """
    One after the other; how long each takes goes to stderr, the table to stdout.

    One that fails does not end the others, only the exit code.
    """
    failed: list[str] = []
    for name in chosen:
        began = time.monotonic()
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
        try:
            parts[name]()
        except (RuntimeError, AssertionError, subprocess.TimeoutExpired) as error:
            failed.append(name)
            print(f"failed: {error}", end=" ", file=sys.stderr)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        figures.write(out)
    print(out.read_text())
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
