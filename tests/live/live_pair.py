"""A store with its process, and what is asked of it over its ports."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import pull_request, send_request

TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "rmqha", "--ready"]
COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
slaveTimeout=1000
haSendHeartbeatInterval=1000
storePathRootDir=store
"""
TOPIC = "TBW102"


class Sent(NamedTuple):
    """A send and how it was answered."""

    body: bytes
    code: int
    queue_offset: int


class Broker:
    """A store, and the process that has it open, in this part or that."""

    def __init__(self, directory: Path, base: int, metrics: int) -> None:
        self.directory = directory
        directory.mkdir()
        self.port, self.metrics, self.namesrv = base + 2, metrics, base + 1
        self.process: subprocess.Popen[bytes] | None = None
        self.runs = 0

    def start(self, settings: str) -> None:
        self.runs += 1
        text = f"{COMMON}listenPort={self.port}\nmetricsPort={self.metrics}\n"
        (self.directory / "b.properties").write_text(text + settings)
        with (self.directory / f"output-{self.runs}.log").open("wb") as sink:
            self.process = subprocess.Popen(
                [*TWISTD, "--config", "b.properties"],
                cwd=self.directory,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def lead(self, more: str = "") -> None:
        self.start(f"brokerRole=SYNC_MASTER\nembeddedNamesrvPort={self.namesrv}\n{more}")
        self.until(lambda: self.health()[0] == 200, "a master")

    def follow(self, master: Broker, more: str = "") -> None:
        address = f"127.0.0.1:{master.port + 1}"
        self.start(f"brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress={address}\n{more}")

    def kill(self, how: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)

    def output(self) -> str:
        return (self.directory / f"output-{self.runs}.log").read_text()

    def until(self, condition: Callable[[], object], what: str, seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n{self.output()[-4000:]}"
            time.sleep(0.05)

    def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.metrics}{path}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def health(self) -> tuple[int, str]:
        return self.get("/healthz")

    def value(self, name: str) -> float | None:
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == name:
                    return sample.value
        return None

    def exchange(self, requests: list[RemotingCommand]) -> list[RemotingCommand]:
        answers: list[RemotingCommand] = []
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            reader = FrameReader()
            for request in requests:
                connection.sendall(encode_frame(request))
                count = len(answers)
                while len(answers) == count:
                    data = connection.recv(1 << 18)
                    assert data, "the broker closed the connection"
                    answers += [decode_frame(*frame) for frame in reader.receive_data(data)]
        return answers

    def send(self, name: str, count: int) -> list[Sent]:
        """Messages for queue 0, one after the other."""
        bodies = [f"{name}-{number:04d}".encode().ljust(300, b".") for number in range(count)]
        answers = self.exchange([send_request("p", TOPIC, 0, body, "", 1) for body in bodies])
        return [
            Sent(body, answer.code, int((answer.ext or {})["queueOffset"]))
            for body, answer in zip(bodies, answers, strict=True)
        ]

    def until_ok(self) -> int:
        """How many messages it took until the slave was there."""
        codes: list[int] = []

        def is_ok() -> bool:
            codes.append(self.send("warm", 1)[0].code)
            return codes[-1] == 0

        self.until(is_ok, "a SEND_OK", 30)
        return len(codes)

    def lacks(self, wanted: list[Sent]) -> list[Sent]:
        """Which of them cannot be read here, at their place and with their body."""
        found: dict[int, bytes] = {}
        start = 0
        while True:
            (answer,) = self.exchange([pull_request("g", TOPIC, 0, start)])
            if answer.code:
                break
            for record in decode_records(answer.body or b""):
                found[record.queue_offset] = record.body
            start = int((answer.ext or {})["nextBeginOffset"])
        return [sent for sent in wanted if found.get(sent.queue_offset) != sent.body]

    def set_aside(self) -> list[dict[str, object]]:
        folder = self.directory / "store" / "setaside"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*/about.json"))]
