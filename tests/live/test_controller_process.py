"""`twistd rmqcontroller` as a process: three of them, one killed, and a clean stop."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from tests.live.live_ports import free_ports

TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "rmqcontroller"]
BASES = range(25560, 25640, 4)
NAMES = {"clusterName": "c", "brokerName": "b"}


class Controller:
    """One process of three."""

    def __init__(self, directory: Path, number: int, bases: list[int]) -> None:
        self.address = f"127.0.0.1:{bases[number]}"
        self.health_url = f"http://127.0.0.1:{bases[number] + 1}/healthz"
        peers = ";".join(f"n{i}-127.0.0.1:{base}" for i, base in enumerate(bases))
        self.directory = directory / f"n{number}"
        self.directory.mkdir()
        (self.directory / "controller.conf").write_text(
            f"controllerDLegerPeers={peers}\ncontrollerDLegerSelfId=n{number}\n"
            f"controllerStorePath={self.directory}/log\nmappedFileSize=1048576\n"
            f"bindAddress=127.0.0.1\nmetricsPort={bases[number] + 1}\n"
        )
        self.start()

    def start(self) -> None:
        with (self.directory / "out").open("a") as out:
            command = [*TWISTD, "--config", str(self.directory / "controller.conf"), "--ready"]
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def health(self) -> tuple[int, str]:
        """The status code and the line of /healthz; 0: nobody answers."""
        try:
            with urllib.request.urlopen(self.health_url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ask(self, code: int, ext: dict[str, str] | None = None) -> RemotingCommand:
        host, _, port = self.address.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.settimeout(30)
            connection.sendall(encode_frame(RemotingCommand(code, ext)))
            reader = FrameReader()
            while True:
                data = connection.recv(65536)
                assert data
                for frame in reader.receive_data(data):
                    return decode_frame(*frame)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Controller]]:
    bases = free_ports(3, BASES)
    found: list[Controller] = []
    try:
        for number in range(3):
            found.append(Controller(tmp_path, number, bases))
        yield found
    finally:
        for controller in found:
            if controller.process.poll() is None:
                controller.process.kill()
            controller.process.wait(30)


def until(is_so: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def leads(controller: Controller) -> bool:
    status, line = controller.health()
    return status == 200 and " leads in term " in line


def test_three_processes_outlive_one(three: list[Controller]) -> None:
    until(lambda: any(map(leads, three)), "a leader")
    leader = next(filter(leads, three))
    others = [controller for controller in three if controller is not leader]
    until(lambda: all(" follows " in item.health()[1] for item in others), "followers")
    taken = {**NAMES, "appliedBrokerId": "1", "registerCheckCode": "127.0.0.1:1;1"}
    assert others[0].ask(1013, taken).code == 2007
    assert leader.ask(1013, taken).code == 0

    leader.process.kill()
    leader.process.wait(30)
    until(lambda: any(map(leads, others)), "another leader")
    second = next(filter(leads, others))
    assert (second.ask(1005).ext or {})["controllerLeaderAddress"] == second.address
    assert (second.ask(1012, NAMES).ext or {})["nextBrokerId"] == "2"

    leader.start()
    until(lambda: " follows " in leader.health()[1], "the first one follows")
    for controller in three:
        controller.process.send_signal(signal.SIGTERM)
    assert [controller.process.wait(20) for controller in three] == [0, 0, 0]
