"""The pair under faults: two members that change roles, a line between them, what both say."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak_proxy import Link

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.store.log.search import whole_records
from tests.interop.rig import REPO, Rig, Server
from tests.interop.wire import Refused, Wire

STEPPED = REPO / "tests" / "live" / "stepped.py"
TOPICS = ("own-normal", "own-delayed", "own-txn", "own-again", "own-probe")
QUEUES = 4
HEALED_S = 90.0
_AROUND = 1 << 16
SETTINGS: dict[str, Any] = {
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": 16 << 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "registerNameServerPeriod": 10_000,
    "haSendHeartbeatInterval": 1000,
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 2000,
    "transactionCheckMax": 30,
    "autoCreateTopicEnable": "false",
    "enablePropertyFilter": "true",
    "verifyLogAtStart": "true",
}
METRICS = {
    "rmqha_reactor_delayed_calls": "timers",
    "process_open_fds": "descriptors",
    "process_resident_memory_bytes": "memory",
}


class Member:
    """One machine of the pair, through all its lives."""

    def __init__(self, rig: Rig, name: str, namesrv: str, link: Link, flush: str) -> None:
        self.name, self._rig, self._namesrv, self._link = name, rig, namesrv, link
        base = rig.ports(6)
        self.port, self.metrics_port = base + 2, base + 5
        self.directory = rig.directory / name
        self.directory.mkdir()
        self._flush = flush
        self.role = ""
        self.server: Server
        self.born = 0.0
        self.samples: list[tuple[float, dict[str, float]]] = []
        self._stepped = [sys.executable, str(STEPPED), str(self.directory / "clock"), "twistd"]
        self.set_clock(0)

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def is_up(self) -> bool:
        return self.server.process.poll() is None

    def set_clock(self, seconds: int) -> None:
        """By so much this machine's wall clock is wrong."""
        new = self.directory / "new"
        new.write_text(str(seconds))
        new.replace(self.directory / "clock")

    def start(self, role: str, *, wait: bool = True) -> None:
        """Begin a life as `SYNC_MASTER` or `SLAVE`."""
        self.role = role
        conf = self.directory / "role.conf"
        lines = [f"brokerRole={role}", f"brokerId={0 if role != 'SLAVE' else 1}"]
        lines += [f"flushDiskType={self._flush}"]
        if role == "SLAVE":
            lines.append(f"haMasterAddress=127.0.0.1:{self._link.port}")
        conf.write_text("\n".join(lines) + "\n")
        self.server = self._rig.broker(
            str(conf),
            self.name,
            namesrv=self._namesrv,
            port=self.port,
            metricsPort=self.metrics_port,
            wait=wait,
            twistd=[*self._stepped, "-n", "--pidfile="],
            **SETTINGS,
        )
        self.born = time.monotonic()

    def kill(self) -> None:
        if self.is_up:
            self.server.process.send_signal(signal.SIGCONT)
            self.server.kill()

    def stop(self) -> None:
        if self.is_up:
            self.server.stop()

    def stand_still(self, does: bool) -> None:
        """Stop the process of this machine (SIGSTOP), or let it go on."""
        if self.is_up:
            self.server.process.send_signal(signal.SIGSTOP if does else signal.SIGCONT)

    # ------------------------------------------------------------ what it says

    def wire(self, timeout: float = 10) -> Wire:
        return Wire(f"127.0.0.1:{self.port}", timeout)

    def log_end(self) -> int:
        """-1 while it cannot be asked."""
        try:
            with self.wire(3) as wire:
                return wire.log_end()
        except (OSError, Refused, ValueError):
            return -1

    def _page(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.metrics_port}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode())
        except OSError:
            return ""

    def health(self) -> str:
        return self._page("healthz").strip() or "no answer"

    def scrape(self) -> None:
        """Remember figures of this life; the first seconds of one are warming up."""
        if not self.is_up or time.monotonic() < self.born + 20:
            return
        found = {}
        for line in self._page("metrics").splitlines():
            name, _, value = line.rpartition(" ")
            key = METRICS.get(name.partition("{")[0])
            if key is not None:
                with contextlib.suppress(ValueError):
                    found[key] = float(value)
        if found:
            self.samples.append((time.monotonic(), found))

    def outputs(self) -> list[Path]:
        return sorted(self.directory.glob("output-*.log"), key=lambda path: path.stat().st_mtime)

    def last_words(self, count: int = 4) -> str:
        """The ends of its newest log, without what is routine."""
        lines = self.outputs()[-1].read_text(errors="replace").splitlines()
        loud = [
            line for line in lines if re.search(r"\[(warn|error|critical)|#(warn|err|crit)", line)
        ]
        return "\n        ".join((loud or lines)[-count:])

    def said(self, pattern: str) -> bool:
        """Whether its newest log has this."""
        return bool(re.search(pattern, self.outputs()[-1].read_text(errors="replace")))

    def ends(self, stream: str) -> list[int]:
        """Where the queues of a stream end."""
        with self.wire(30) as wire:
            return [wire.max_offset(f"own-{stream}", queue_id) for queue_id in range(QUEUES)]

    def stored(self, stream: str, starts: Sequence[int] = ()) -> list[tuple[int, int, str]]:
        """
        Queue, offset and id of all that can be read.

        :param starts: queue offsets to begin at; where the queues begin when there are none.
        """
        topic = f"own-{stream}"
        with self.wire(30) as wire:
            starts = starts or [wire.min_offset(topic, number) for number in range(QUEUES)]
            return [
                (record.queue_id, record.queue_offset, record.body.decode(errors="replace"))
                for queue_id, start in enumerate(starts)
                for record in wire.pull_all(topic, queue_id, start)
            ]


class FaultyPair:
    """
    Master and slave, whoever is what today.

    :ivar notes: what happened that a person should know, and is no violation.
    """

    def __init__(self, rig: Rig, flush: str) -> None:
        self.rig, self.flush = rig, flush
        self.namesrv = rig.namesrv()
        self.link = Link()
        one, two = (Member(rig, name, self.namesrv, self.link, flush) for name in ("a", "b"))
        self.master, self.slave = one, two
        self.notes: list[str] = []
        self.aim()
        one.start("SYNC_MASTER")
        two.start("SLAVE")
        with one.wire() as wire:
            for topic in TOPICS:
                wire.create_topic(topic, QUEUES)
            for group in ("own-g-normal", "own-g-delayed", "own-g-txn"):
                wire.create_group(group)

    @property
    def members(self) -> tuple[Member, Member]:
        return self.master, self.slave

    def aim(self) -> None:
        """The line leads to the master of the day."""
        self.link.target = self.master.port + 1

    def swap(self) -> None:
        self.master, self.slave = self.slave, self.master
        self.aim()
        self.link.reset()

    def probe(self) -> int:
        """The code of one send to the master; -1 without an answer."""
        try:
            with self.master.wire(8) as wire:
                now_ms = int(time.time() * 1000)
                request = send_request("own-probe", "own-probe", 0, b"probe", "", now_ms)
                return int(wire.exchange([request])[0].code)
        except (OSError, Refused):
            return -1

    def heals(self, seconds: float = HEALED_S) -> str:
        """Wait until SEND_OK comes and the slave has all; empty, or what is wrong."""
        deadline = time.monotonic() + seconds
        code = end = -2
        while time.monotonic() < deadline:
            if not self.slave.is_up:
                return "the slave has left"
            if not self.master.is_up:
                return "the master has left"
            code = self.probe()
            if code == 0:
                end = self.master.log_end()
                if self._reaches(end, min(deadline, time.monotonic() + 10)):
                    return ""
            time.sleep(0.5)
        return (
            f"after {seconds:.0f} s: code {code}, the master's log ends at {end}, the slave's at "
            f"{self.slave.log_end()}"
        )

    def _reaches(self, end: int, deadline: float) -> bool:
        while end >= 0 and time.monotonic() < deadline:
            if self.slave.log_end() >= end:
                return True
            time.sleep(0.2)
        return False

    def seed_again(self) -> None:
        """What an operator does with a slave that refuses: an empty store, and the log anew."""
        self.slave.kill()
        shutil.rmtree(self.slave.store)
        self.slave.start("SLAVE")

    def revive(self, member: Member) -> None:
        """What an operator does with one that does not run: start it, in the end without files."""
        if self._starts(member):
            return
        if member is self.slave:
            self.seed_again()
            return
        for name in ("consumequeue", "index", "checkpoint"):
            path = member.store / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self._starts(member)

    def _starts(self, member: Member) -> bool:
        try:
            member.start(member.role)
        except AssertionError:
            member.kill()
        return member.is_up

    def delete_topic(self, topic: str) -> None:
        with self.master.wire() as wire:
            wire.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)

    def update(self, **settings: Any) -> None:
        """UPDATE_BROKER_CONFIG at the master."""
        body = "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
        with self.master.wire() as wire:
            wire.call(RequestCode.UPDATE_BROKER_CONFIG, body)

    def close(self) -> None:
        for member in self.members:
            member.kill()
        self.link.close()


def difference(one: Path, two: Path, end: int) -> int | None:
    """Where two commit logs differ below an end that both have; None when they do not."""
    size = 1 << 20
    starts = [
        min(int(path.name) for path in store.glob("commitlog/*[0-9]")) for store in (one, two)
    ]
    position = max(starts)
    while position < end:
        pieces = [_read(store, position, min(size, end - position)) for store in (one, two)]
        if pieces[0] != pieces[1]:
            first = next(
                number
                for number, (left, right) in enumerate(zip(*pieces, strict=False))
                if left != right
            )
            return position + first
        if not pieces[0]:
            return position
        position += len(pieces[0])
    return None


def is_unchecked(one: Path, two: Path, place: int) -> bool:
    """
    The logs differ there by one byte of a record, and no checksum of the format covers that byte.

    Nobody can see such damage in one log alone: the record is whole, with the right CRC, in both.
    """
    pieces = [_read(store, place, _AROUND) for store in (one, two)]
    if sum(left != right for left, right in zip(*pieces, strict=False)) != 1:
        return False
    return all(_is_in_whole_record(store, place) for store in (one, two))


def _is_in_whole_record(store: Path, place: int) -> bool:
    start = max(
        int(path.name) for path in store.glob("commitlog/*[0-9]") if int(path.name) <= place
    )

    def read(size: int, position: int) -> bytes:
        return _read(store, position, size)

    batches = whole_records(read, max(start, place - _AROUND), place + _AROUND, [])
    return any(row[2] <= place < row[2] + row[3] for rows in batches for row in rows)


def _read(store: Path, position: int, count: int) -> bytes:
    files = sorted((int(path.name), path) for path in store.glob("commitlog/*[0-9]"))
    start, path = max(item for item in files if item[0] <= position)
    with path.open("rb") as file:
        file.seek(position - start)
        return file.read(count)


def queue_files(store: Path) -> dict[str, bytes]:
    """The bytes of the queue files of the streams, by path, without the zeros at their ends."""
    return {
        str(path.relative_to(store)): path.read_bytes().rstrip(b"\0")
        for path in sorted(store.glob("consumequeue/own-*/*/*[0-9]"))
        if "own-again" not in path.parts
    }
