"""A second process with a running master's name cannot start: the master stays in the routes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_ha.base.host.blocking import BlockingCalls
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.client.lookup.requests import route_request, send_request
from tests.live.live_ports import free_ports

BASES = range(25000, 25100, 4)
TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "rmqha", "--ready"]
COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
brokerId=0
brokerRole=ASYNC_MASTER
storePathRootDir=store
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
"""


class Master:
    """It runs, with a name server in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.base, self.spare = free_ports(2, BASES)
        self.namesrv = self.base + 1
        self.calls = BlockingCalls()
        self.process, self.output = self.run(
            "a", f"listenPort={self.base + 2}\nembeddedNamesrvPort={self.namesrv}\n"
        )
        deadline = time.monotonic() + 60
        while "READY {" not in self.output.read_text():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def run(self, name: str, settings: str) -> tuple[subprocess.Popen[bytes], Path]:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        (directory / "p").write_text(COMMON + settings)
        output = directory / "output.log"
        with output.open("wb") as sink:
            command = [*TWISTD, "--config", "p"]
            process = subprocess.Popen(command, cwd=directory, stdout=sink, stderr=sink)
        return process, output

    def second(self, name: str, port: int) -> str:
        """Start another one; what it says until it has failed."""
        process, output = self.run(
            name, f"listenPort={port}\nnamesrvAddr=127.0.0.1:{self.namesrv}\n"
        )
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None:
                self.must_be_found()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.02)
            assert process.returncode == 1
            for _ in range(25):  # the end of its connection takes its time
                self.must_be_found()
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
        return output.read_text()

    def must_be_found(self) -> None:
        """Clients are sent to it, and it takes what they send."""
        route = self.calls.invoke(f"127.0.0.1:{self.namesrv}", route_request(DEFAULT_TOPIC), 10_000)
        assert route.code == 0, route.remark
        assert f"127.0.0.1:{self.base + 2}".encode() in (route.body or b""), route.body

    def end(self) -> None:
        self.calls.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    running = Master(tmp_path_factory.mktemp("second"))
    try:
        running.must_be_found()
        yield running
        running.must_be_found()
        sent = send_request("p", DEFAULT_TOPIC, 0, b"x", "", 1)
        assert running.calls.invoke(f"127.0.0.1:{running.base + 2}", sent, 10_000).code == 0
        assert "is gone" not in running.output.read_text()
    finally:
        running.end()


def test_all_of_its_ports_are_taken(master: Master) -> None:
    """The same configuration, another directory."""
    text = master.second("same", master.base + 2)
    assert "cannot listen on port" in text


@pytest.mark.parametrize("taken", [0, -2, 1])
def test_one_of_its_ports_is_taken(master: Master, taken: int) -> None:
    """Its clients' port, the fast one, or that of replication; another address than the master."""
    port = master.spare + 2
    with socket.socket() as blocker:
        blocker.bind(("127.0.0.1", port + taken))
        blocker.listen()
        text = master.second(f"port{taken}", port)
    assert f"cannot listen on port {port + taken}" in text


def test_its_store_is_damaged(master: Master) -> None:
    """A file of another size, found when the topics are there already."""
    log = master.directory / "damaged/store/commitlog"
    log.mkdir(parents=True)
    (log / "00000000000000000000").write_bytes(b"?" * 5000)
    assert "cannot start" in master.second("damaged", master.spare + 2)
