"""
A side of the museum: ours or Java's brokers, driven in the same way.

Every exhibit gets a side of its own, with nothing running and an empty folder; whatever it starts
ends with it.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.interop.groups import Group
from tests.interop.pairs import Pair, log_end
from tests.interop.rig import Rig, Server, rig_in
from tests.interop.wire import PULL_FOUND, Refused, Wire

MASTER, SLAVE = "master-sync.conf", "slave.conf"
SEND_OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE = 0, 12, 11
QUICK = {"haSendHeartbeatInterval": 500, "registerNameServerPeriod": 10000}


class Side:
    """Starts the brokers of one side."""

    def __init__(self, rig: Rig, java: bool) -> None:
        self.rig = rig
        self.java = java
        self._count = 0
        self._metrics: dict[str, int] = {}

    def namesrv(self) -> str:
        """A name server of this side; its address."""
        self._count += 1
        return self.rig.namesrv(java=self.java, name=f"ns{self._count}")

    def broker(self, conf: str = MASTER, **settings: Any) -> Server:
        """A new broker; both sides ignore the other's keys."""
        self._count += 1
        return self.start(conf, f"b{self._count}", **settings)

    def again(self, server: Server, conf: str = MASTER, **settings: Any) -> Server:
        """Start a broker that is down on its own store and port."""
        name, port = server.directory.name, port_of(server)
        return self.start(conf, name, **{"port": port, "namesrv": server.namesrv} | settings)

    def start(self, conf: str, name: str, **settings: Any) -> Server:
        """As `Rig.broker`, with short waits; ours with `metricsPort` gives pages."""
        settings = QUICK | settings
        server = self.rig.broker(conf, name, java=self.java, heap="256m", **settings)
        self._metrics[server.address] = settings.get("metricsPort", 0)
        return server

    def pair(self, **settings: Any) -> MuseumPair:
        """A SYNC_MASTER and its slave, in step."""
        return MuseumPair(self, settings)

    def group(self) -> Group:
        """A DLedger group of three."""
        return Group(self.rig, [self.java] * 3)

    def until(self, condition: Callable[[], Any], seconds: float, what: str) -> float:
        """Wait for a condition that has to come; the seconds that it took."""
        began = time.monotonic()
        self.rig.until(condition, seconds, what)
        return time.monotonic() - began

    def log_of(self, server: Server) -> str:
        """All that a broker has written about itself."""
        files = server.directory.glob("logs/*.log") if self.java else [server.output]
        return "\n".join(path.read_text(errors="replace") for path in sorted(files))

    def metered(self) -> dict[str, int]:
        """The setting that opens a broker's pages; Java has none."""
        return {} if self.java else {"metricsPort": self.rig.ports(1)}

    def page(self, server: Server, path: str) -> str:
        """A page of a broker that was started `metered`; empty on Java's."""
        if self.java:
            return ""
        url = f"http://127.0.0.1:{self._metrics[server.address]}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()


class MuseumPair(Pair):
    """A pair of one side; the slave knows its master from the start."""

    def __init__(self, side: Side, settings: dict[str, Any]) -> None:
        self.rig = side.rig
        self.side = side
        self._settings = settings
        self.namesrv = side.namesrv()
        self.master = side.start(MASTER, "m", namesrv=self.namesrv, **settings)
        self.slave = self._follow("s", None, self.master)
        self.wait_ok()

    def _follow(self, name: str, port: int | None, master: Server) -> Server:
        address = f"127.0.0.1:{port_of(master) + 1}"
        return self.side.start(
            SLAVE, name, port=port, namesrv=self.namesrv, haMasterAddress=address, **self._settings
        )

    def _again(self, server: Server, conf: str) -> Server:
        return self.side.again(server, conf, **self._settings)

    def restart_master(self) -> None:
        self.master = self.side.again(self.master, MASTER, **self._settings)

    def restart_slave(self) -> None:
        self.slave = self._follow(self.slave.directory.name, port_of(self.slave), self.master)

    def promote(self) -> None:
        """The master is dead: its slave is started anew as the master, without a slave."""
        self.slave.stop()
        self.master = self._again(self.slave, MASTER)

    def copy_tables(self) -> None:
        """
        Until the slave has the tables of now: a topic made now is among them.

        Ours copies them at once when a message of a topic comes that it does not know, Java every
        ten seconds.
        """
        topic = f"copied-{time.monotonic_ns()}"
        create(self.master, topic)
        send(self.master, topic, 1)
        self.wait_for_topic(topic)


@contextlib.contextmanager
def side_in(directory: Path, java: bool) -> Iterator[Side]:
    """A side that is taken down at the end, whatever happened; paused processes, too."""
    directory.mkdir(parents=True)
    with rig_in(directory) as rig:
        yield Side(rig, java)


def port_of(server: Server) -> int:
    return int(server.address.rpartition(":")[2])


def end_of(server: Server) -> int:
    """Where a broker's commit log ends; a Java broker cannot say so in its first seconds."""
    deadline = time.monotonic() + 20
    while (end := log_end(server.address)) < 0:
        assert time.monotonic() < deadline, f"{server.address} does not tell where its log ends"
        time.sleep(0.1)
    return end


# ------------------------------------------------------------ sending and reading


def requests(topic: str, count: int, **options: Any) -> list[RemotingCommand]:
    """Sends of `count` messages."""
    body, queue_id = options.get("body", b"museum"), options.get("queue_id", 0)
    born = int(time.time() * 1000)
    return [
        send_request("museum", topic, queue_id, body, options.get("properties", ""), born)
        for _ in range(count)
    ]


def send(server: Server, topic: str, count: int, **options: Any) -> list[RemotingCommand]:
    """
    Send messages in one write.

    :returns: the answers.
    """
    with Wire(server.address, 20) as wire:
        return wire.exchange(requests(topic, count, **options))


def codes(server: Server, topic: str, count: int, **options: Any) -> Counter[int]:
    """How often which code answered `count` sends."""
    return Counter(answer.code for answer in send(server, topic, count, **options))


class Sending:
    """Sends in the background, for scenarios in which the answer has to wait for something."""

    def __init__(self, server: Server, topic: str, count: int, **options: Any) -> None:
        self._answers: list[RemotingCommand] = []
        self._began = self._seconds = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, args=(server, topic, count, options), daemon=True
        )
        self._thread.start()

    def _run(self, server: Server, topic: str, count: int, options: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._answers = send(server, topic, count, **options)
        self._seconds = time.monotonic() - self._began

    def codes(self) -> Counter[int]:
        """Wait for the answers; none if the broker gave none."""
        self._thread.join(30)
        return Counter(answer.code for answer in self._answers)

    def seconds(self) -> float:
        """How long the answers took."""
        self._thread.join(30)
        return self._seconds


def create(server: Server, topic: str, queues: int = 1) -> None:
    with Wire(server.address) as wire:
        wire.create_topic(topic, queues)


def readable(server: Server, topic: str, queue_id: int = 0) -> list[Record]:
    """All that a queue serves; nothing while it cannot be asked."""
    with contextlib.suppress(OSError, Refused), Wire(server.address) as wire:
        return wire.pull_all(topic, queue_id, wire.min_offset(topic, queue_id))
    return []


def serves(server: Server, topic: str, queue_offset: int, queue_id: int = 0) -> bytes | None:
    """The body that one offset gives, or None."""
    with contextlib.suppress(OSError), Wire(server.address) as wire:
        (answer,) = wire.exchange([pull_request("museum", topic, queue_id, queue_offset, 1)])
        if answer.code == PULL_FOUND:
            for record in decode_records(answer.body or b""):
                return record.body if record.queue_offset == queue_offset else None
    return None


def missing_on(server: Server, topic: str, wanted: dict[int, bytes]) -> int:
    """How many of these bodies, by queue offset, a broker does not serve, also after a while."""
    deadline = time.monotonic() + 5
    left = dict(wanted)
    while left and time.monotonic() < deadline:
        left = {
            offset: body for offset, body in left.items() if not _has(server, topic, offset, body)
        }
        time.sleep(0.2)
    return len(left)


def _has(server: Server, topic: str, queue_offset: int, body: bytes) -> bool:
    try:
        return serves(server, topic, queue_offset) == body
    except RmqHaError:  # what it serves there is no message
        return False


def fill(server: Server, topic: str, size: int) -> None:
    """Let the log grow by so many bytes at least, in messages of 64 KiB."""
    send(server, topic, size // 65000 + 1, body=bytes(65000))


# ------------------------------------------------------------ processes


@contextlib.contextmanager
def paused(server: Server) -> Iterator[None]:
    """SIGSTOP; SIGCONT at the end."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def cpu_seconds(server: Server, seconds: float) -> float:
    """Processor time that a broker takes in that many seconds."""
    process = psutil.Process(server.process.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return float(sum(process.cpu_times()[:2]) - before)


def ends_by_itself(server: Server, seconds: float) -> int | None:
    """The exit code of a broker that gives up; None if it goes on."""
    with contextlib.suppress(Exception):
        return server.process.wait(seconds)
    return None


def lines_with(text: str, pattern: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(pattern, line)]
