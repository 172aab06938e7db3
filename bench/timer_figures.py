"""What timer messages cost: ours beside Java 5.3.3, in one run on one machine.

    python bench/timer_figures.py [--parts waiting,sends,late,burst] [--waiting 1000000]

`waiting`: memory, disk and idle processor time with many messages that wait, and what a start after
`kill -9` costs. It needs no quiet machine. `sends`: timer messages beside plain ones. `late`: how
late 1,000 a second are while many others wait. `burst`: 50,000 that are due in one ms. Prints a
table, and writes it to `bench/results/timer_figures.md`.

One ASYNC_MASTER of each make, messages of 100 bytes. Needs both peer rigs with Java.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from measure import MEBIBYTE, SIDES, Figures, Window, part_names, run_parts, scratch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timer_load import QUEUES, TOPIC, Book, Reader, Route, Sender, all_deliveries

from rmq_ha.base.wire.codes import RequestCode
from tests.interop.rig import Rig, Server, missing, rig_in
from tests.interop.test_controller import PEER5
from tests.interop.test_controller import missing as missing_5
from tests.interop.wire import Wire

CONF = """\
brokerClusterName=TimersCluster
brokerName=broker-t
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
"""
PATIENCE = {"waitTimeMillsInSendQueue": "10000", "osPageCacheBusyTimeOutMills": "10000"}
"""On a busy machine both refuse what waited 200 ms, or comes after a write of 1 s."""
IDLE_S = 15.0
START_S = 10.0
"""So long after READY a start is over."""
BATCHES = 20
BURST = 50_000
RATE, RATE_S = 1000, 60.0
_HOUR_MS = 3_600_000
_SETTLED_S = 300.0


class Broker:
    """
    One broker of a side, through its lives.

    :param topic: made with so many queues.
    :param settings: of its file, besides timers.
    """

    def __init__(
        self, rig: Rig, side: str, topic: str = TOPIC, queues: int = QUEUES, **settings: str
    ) -> None:
        self.rig, self.side, self._settings = rig, side, settings
        self._load = ("--size", 100, "--topic", topic, "--queues", queues)
        self.namesrv = rig.namesrv()
        self._conf = rig.directory / "timers.conf"
        self._conf.write_text(CONF)
        self._port = rig.ports(4) + 2
        self.server = self.start()
        with Wire(self.server.address) as wire:
            wire.create_topic(topic, queues)

    def start(self, *, timers: bool = True) -> Server:
        """Begin a life, and wait for READY."""
        settings = {"timerWheelEnable": str(timers).lower(), **PATIENCE, **self._settings}
        if self.side != "java":
            self.server = self.rig.broker(
                str(self._conf), "broker", namesrv=self.namesrv, port=self._port, **settings
            )
            return self.server
        directory = self.rig.directory / "broker"
        directory.mkdir(exist_ok=True)
        command = [str(PEER5), "broker", "--heap", "1g", "--conf", str(self._conf)]
        command += ["--dir", str(directory), "--namesrv", self.namesrv]
        for key, value in (settings | {"listenPort": str(self._port)}).items():
            command += ["--set", f"{key}={value}"]
        address = f"127.0.0.1:{self._port}"
        self.server = self.rig._start(command, address, directory, java=True)
        return self.server

    @property
    def store(self) -> Path:
        """The directory of its store."""
        return self.server.directory / "store"

    def runtime(self) -> dict[str, Any]:
        """Return what GET_BROKER_RUNTIME_INFO answers."""
        with Wire(self.server.address) as wire:
            found: dict[str, Any] = wire.table(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
        return found

    def send(self, count: int, due_ms: int | None = None) -> dict[str, Any]:
        """Have the load generator send messages of a time, or plain ones."""
        load = ["load", "send", "--addr", self.server.address, *self._load]
        load += ["--conns", 2, "--inflight", 256, "--count", count]
        if due_ms is not None:
            load += ["--tags", f"T\x02TIMER_DELIVER_MS\x01{due_ms}"]
        found: dict[str, Any] = self.rig.peer(*load, timeout=900)[-1]
        return found

    def fill(self, count: int) -> None:
        """Let many messages wait, each batch for a minute of its own, the first in an hour."""
        first = int(time.time() * 1000) + _HOUR_MS
        for number in range(BATCHES):
            self.send(count // BATCHES, first + number * 60_000)
        deadline = time.monotonic() + _SETTLED_S
        while int(self.runtime().get("timerOffsetBehind", 0)) > 0:
            if time.monotonic() > deadline:
                raise RuntimeError("the broker does not take note of all messages")
            time.sleep(0.5)


@contextmanager
def broker_of(side: str, work: Path) -> Iterator[Broker]:
    """A broker of one side, and its name server."""
    with scratch(work) as directory, rig_in(directory) as rig:
        yield Broker(rig, side)


def waiting_part(figures: Figures, options: argparse.Namespace) -> None:
    """Memory, disk, idle processor time, and starts."""
    many = f"{options.waiting:,} waiting"
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            _idle(figures, side, broker, "empty")
            broker.fill(options.waiting)
            _idle(figures, side, broker, many)
            files = [broker.store / "timerlog", broker.store / "timerwheel"]
            size = sum(_disk(path) for path in files if path.exists())
            figures.add(f"disk beside log and queues, {many}", "MiB", side, size / MEBIBYTE, 0.0)
            for timers in (True, False):
                broker.server.kill()
                with Window() as window:
                    window.add("broker", broker.start(timers=timers))
                    time.sleep(START_S)
                which = "on" if timers else "off"
                if timers and side != "java":
                    found = int(broker.runtime()["timerCongestNum"])
                    if found != options.waiting:
                        raise RuntimeError(f"{found} messages wait after the start")
                name = f"start after kill -9, {many}, timers {which}"
                figures.add(f"{name}: CPU", "s", side, window.cpu["broker"], window.others)
                rss = window.memory["broker"].rss / MEBIBYTE
                figures.add(f"{name}: RSS", "MiB", side, rss, 0.0)


def _idle(figures: Figures, side: str, broker: Broker, state: str) -> None:
    time.sleep(5)
    with Window({"broker": broker.server}) as window:
        time.sleep(IDLE_S)
    share = window.cpu["broker"] / IDLE_S * 100
    figures.add(f"idle processor time, {state}", "% of one", side, share, window.others)
    figures.add(f"RSS, {state}", "MiB", side, window.memory["broker"].rss / MEBIBYTE, 0.0)


def _disk(path: Path) -> int:
    done = subprocess.run(["du", "-sk", str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0]) * 1024


def sends_part(figures: Figures, options: argparse.Namespace) -> None:
    """Timer messages beside plain ones, as fast as 512 in flight go."""
    count = options.sends
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            broker.send(count)  # what is compiled while it runs is compiled now
            rates: dict[str, float] = {}
            for name in ("plain", "timer"):
                due = int(time.time() * 1000) + _HOUR_MS if name == "timer" else None
                with Window({"broker": broker.server}) as window:
                    rates[name] = broker.send(count, due)["tps"]
                cost = window.cpu["broker"] / count * 1e6
                figures.add(
                    f"{name} sends", "msgs/s", side, rates[name], window.others, more_is_better=True
                )
                figures.add(f"{name} sends: CPU a message", "us", side, cost, window.others)
            share = rates["timer"] / rates["plain"]
            figures.add("timer sends for a plain send", "", side, share, 0.0, more_is_better=True)


def late_part(figures: Figures, options: argparse.Namespace) -> None:
    """1,000 a second fall due while many others wait: from the due time to the consumer."""
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            broker.fill(options.waiting)
            book, route = Book(), Route(broker.namesrv)
            readers = [Reader(book, route, number) for number in range(QUEUES)]
            sender = Sender(book, route, RATE, 5.0, 0.0, Random(1))
            with Window({"broker": broker.server}) as window:
                for worker in (*readers, sender):
                    worker.start()
                time.sleep(RATE_S)
                sender.stop()
                time.sleep(10)
            for reader in readers:
                reader.stop()
            pairs = zip(book.came, book.dues, strict=True)
            late = sorted(came - due for came, due in pairs if came)
            if len(late) != len(book.dues):
                raise RuntimeError(f"{len(book.dues) - len(late)} messages did not come")
            for what, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
                value = late[int(len(late) * share)]
                name = f"late, 1,000 a second, {options.waiting:,} waiting: {what}"
                figures.add(name, "ms", side, value, window.others)
            figures.add(name.replace("p99.9", "max"), "ms", side, late[-1], window.others)


def burst_part(figures: Figures, options: argparse.Namespace) -> None:
    """Many are due in one ms: from then to their store times."""
    for side in _sides(options):
        with broker_of(side, options.work) as broker:
            due = int(time.time() * 1000) + 30_000
            broker.send(BURST, due)
            time.sleep(max(0.0, due / 1000 - time.time()))
            with Window({"broker": broker.server}) as window:
                time.sleep(30)
            late = sorted(one.stored_ms - due for one in all_deliveries(broker.server.address))
            if len(late) != BURST or late[0] < 0:
                raise RuntimeError(f"{len(late)} messages came, the first after {late[:1]} ms")
            for what, value in (("first", late[0]), ("p50", late[BURST // 2]), ("last", late[-1])):
                name = f"{BURST:,} due in one ms: {what}"
                figures.add(name, "ms", side, value, window.others)


def _sides(options: argparse.Namespace) -> list[str]:
    return [side for _ in range(options.repeats) for side in SIDES]


PARTS = {"waiting": waiting_part, "sends": sends_part, "late": late_part, "burst": burst_part}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=part_names(PARTS), default=",".join(PARTS))
    parser.add_argument("--waiting", type=int, default=1_000_000, help="messages that wait")
    parser.add_argument("--sends", type=int, default=300_000, help="messages of the part `sends`")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results / "timer_figures.md")
    options = parser.parse_args()
    reason = missing() or missing_5()
    if reason:
        sys.exit(f"timer_figures: {reason}")
    figures = Figures()
    parts = {name: partial(part, figures, options) for name, part in PARTS.items()}
    run_parts(parts, options.parts, figures, options.out)


if __name__ == "__main__":
    main()
