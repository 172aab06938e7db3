"""A master and its slave, ours or Java's, and what must be true of their files."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rmq_ha.base.wire import fastjson
from rmq_ha.client.lookup.requests import send_request
from tests.interop.rig import Rig, Server
from tests.interop.wire import Load, Refused, Sent, Wire, log_end, what_is_wrong

MIXES = [
    ("java-slave-of-our-master", False, True),
    ("our-slave-of-java-master", True, False),
]
FILE_SIZE = 1 << 20
ADMIN = str(Path(sys.executable).with_name("rmqha-admin"))
# A Java slave reports first this long after connecting; a slave whose master was gone at the last
# registration copies no tables until the next; on a busy machine 3 s for a replica are not much.
QUICK = {
    "haSendHeartbeatInterval": 1000,
    "registerNameServerPeriod": 10000,
    "slaveTimeout": 8000,
}


class Visit:
    """What `rmqha-admin doctor` said, as it is typed."""

    def __init__(self, namesrv: str) -> None:
        words = [ADMIN, "doctor", "-n", namesrv, "--json", "--look-again", "0"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
        self.found: list[dict[str, str]] = json.loads(said.stdout)["findings"]

    def finds(self, code: str) -> bool:
        """The fault is named."""
        return any(item["code"] == code for item in self.found)

    @property
    def errors(self) -> set[str]:
        """Codes of that severity."""
        return {item["code"] for item in self.found if item["severity"] == "error"}


class Pair:
    """
    Two brokers of one name; either may be killed, restarted or given the other's role.

    :ivar of_ours: settings of our brokers from their next start on.
    """

    def __init__(self, rig: Rig, java_master: bool, java_slave: bool) -> None:
        self.rig = rig
        self.of_ours: dict[str, Any] = {}
        self.namesrv = rig.namesrv()
        self.master = self._start("m", "master-sync.conf", java_master)
        self.slave = self._start("s", "slave.conf", java_slave)

    def _start(self, name: str, conf: str, java: bool, port: int | None = None) -> Server:
        more = QUICK if java else {**QUICK, **self.of_ours}
        return self.rig.broker(conf, name, java=java, namesrv=self.namesrv, port=port, **more)

    def _again(self, server: Server, conf: str) -> Server:
        port = int(server.address.rpartition(":")[2])
        return self._start(server.directory.name, conf, server.java, port)

    def restart_master(self) -> None:
        self.master = self._again(self.master, "master-sync.conf")

    def restart_slave(self) -> None:
        self.slave = self._again(self.slave, "slave.conf")

    def swap(self) -> None:
        """Both are down: the slave comes back as the master, the master as the slave."""
        old_master = self.master
        self.master = self._again(self.slave, "master-sync.conf")
        self.slave = old_master
        self.restart_slave()

    def ensure(self) -> None:
        """Both run and replicate, whatever the last test left behind."""
        if self.master.process.poll() is not None:
            self.restart_master()
        if self.slave.process.poll() is not None:
            self.restart_slave()
        self.wait_ok()
        self.wait_same()

    def wait_ok(self, seconds: float = 60) -> None:
        """Until the master answers SEND_OK: its slave has what was sent."""

        def is_ok() -> bool:
            with contextlib.suppress(OSError), Wire(self.master.address, 10) as wire:
                (answer,) = wire.exchange([send_request("warm", "warm", 0, b"warm", "", 1)])
                return answer.code == 0
            return False

        self.rig.until(is_ok, seconds, "a SEND_OK of the master", self.master, self.slave)

    def wait_same(self, seconds: float = 60) -> int:
        """Until both logs are equally long; how long."""

        def is_same() -> bool:
            return 0 <= log_end(self.master.address) == log_end(self.slave.address)

        self.rig.until(is_same, seconds, "both logs equally long", self.master, self.slave)
        return log_end(self.master.address)

    def load(self, name: str, topic: str = "R", **options: Any) -> Load:
        with Wire(self.master.address) as wire:
            wire.create_topic(topic)
        return Load(self.master.address, topic, name, **options)

    def slave_config(self, name: str) -> Any:
        """One of the slave's JSON files; an empty table while there is none."""
        try:
            data = (self.slave.store / "config" / name).read_bytes()
        except FileNotFoundError:  # also for a moment whenever Java writes it
            return {"topicConfigTable": {}}
        return fastjson.parse(data)

    def wait_for_topic(self, topic: str) -> None:
        """Until the slave knows a topic; a Java slave asks every 10 s, and serves no other."""
        self.rig.until(
            lambda: topic in self.slave_config("topics.json")["topicConfigTable"],
            40,
            f"topic {topic}",
            self.slave,
        )

    def until_readable(
        self, server: Server, load: Load, wanted: list[Sent], seconds: float = 30
    ) -> None:
        """Until all these messages can be pulled, as they were sent."""
        wrong = [""]

        def is_readable() -> bool:
            wrong[0] = what_is_wrong(server.address, load, wanted)
            return not wrong[0]

        try:
            self.rig.until(is_readable, seconds, "all messages readable", server)
        except AssertionError as error:
            raise AssertionError(f"{wrong[0]}\n{error}") from error


def log_files(server: Server) -> dict[int, bytes]:
    """The commit-log files of a broker by their offset; every one whole, none missing."""
    folder = server.store / "commitlog"
    files = {int(path.name): path.read_bytes() for path in sorted(folder.iterdir())}
    assert {len(data) for data in files.values()} == {FILE_SIZE}
    assert list(files) == list(range(min(files), max(files) + 1, FILE_SIZE))
    return files


def assert_same_logs(one: Server, other: Server, end: int) -> int:
    """Byte-equal from the later beginning up to `end`; how many bytes were compared."""
    first, second = log_files(one), log_files(other)
    compared = 0
    for offset in sorted(first.keys() & second.keys()):
        size = min(FILE_SIZE, max(0, end - offset))
        assert first[offset][:size] == second[offset][:size], f"file {offset}"
        compared += size
    assert compared == end - max(min(first), min(second)), "the logs do not cover each other"
    return compared


def max_offsets(server: Server, topic: str, queues: int = 8) -> list[int]:
    """The end of each queue; empty while the broker cannot be asked."""
    try:
        with Wire(server.address) as wire:
            return [wire.max_offset(topic, queue_id) for queue_id in range(queues)]
    except (OSError, Refused):
        return []
