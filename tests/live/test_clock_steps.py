"""The wall clock of a machine is set by an hour: none of its processes minds.

Two machines at the same time, as most of the test is waiting for timers: one, set back, has name
server and broker in processes of their own, the other one, set forward, a pair with the name server
inside the master.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmq_ha.base.host.blocking import BlockingCalls
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import route_request, send_request
from tests.live.live_ports import free_ports

BASES = range(24800, 24900, 4)
STEPPED = [sys.executable, str(Path(__file__).with_name("stepped.py"))]
CLIENT = str(Path(__file__).with_name("stepped_client.py"))
TOPIC, GROUP = "clock", "watchers"
LONG_ENOUGH_S = 12.0  # a period of registration and of each look for what has expired
COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
storePathRootDir=store
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
registerNameServerPeriod=10000
"""


class Machine:
    """Processes with one wall clock."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []
        self.outputs: list[Path] = []
        self.calls = BlockingCalls()
        self.ages: list[float] = []
        self.set_clock(0)

    def set_clock(self, seconds: int) -> None:
        """By so much it is wrong from now on."""
        new = self.directory / "new"
        new.write_text(str(seconds))
        new.replace(self.directory / "offset")

    def run(self, name: str, plugin: str, settings: str) -> Path:
        """Start a server, and wait until it serves."""
        directory = self.directory / name
        directory.mkdir()
        (directory / "p").write_text(settings)
        more = ["twistd", "-n", "--pidfile=", plugin, "--ready", "--config", "p"]
        self.start(directory, more)
        return directory

    def start(self, directory: Path, command: list[str]) -> Path:
        """Start a process, and wait until it says READY; where it says it."""
        output = directory / f"output-{len(self.processes)}.log"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [*STEPPED, str(self.directory / "offset"), *command],
                cwd=directory,
                stdout=sink,
                stderr=sink,
            )
        self.processes.append(process)
        self.outputs.append(output)
        deadline = time.monotonic() + 60
        while "READY {" not in output.read_text():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)
        return output

    def ask(self, port: int, request: RemotingCommand) -> RemotingCommand:
        return self.calls.invoke(f"127.0.0.1:{port}", request, 10_000)

    def look(self, broker: int, namesrv: int, metrics: int) -> None:
        """Clients find the broker and send to it; note how old its registration is."""
        sent = self.ask(broker, send_request("p", TOPIC, 0, b"x", "", 1))
        assert sent.code == 0, self.text()
        route = self.ask(namesrv, route_request(TOPIC))
        assert route.code == 0, f"{route.remark}\n{self.text()}"
        assert f"127.0.0.1:{broker}".encode() in route.body, self.text()
        url = f"http://127.0.0.1:{metrics}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            for family in text_string_to_metric_families(answer.read().decode()):
                if family.name == "rmqha_namesrv_registration_age_seconds":
                    self.ages += [
                        sample.value
                        for sample in family.samples
                        if sample.labels["address"] == f"127.0.0.1:{broker}"
                    ]

    def text(self) -> str:
        return "\n".join(item.read_text()[-3000:] for item in self.outputs)

    def end(self) -> None:
        self.calls.close()
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    both = Machine(tmp_path / "back"), Machine(tmp_path / "forward")
    try:
        yield both
    finally:
        for machine in both:
            machine.end()


def test_an_hour_back_and_an_hour_forward(machines: tuple[Machine, Machine]) -> None:
    back, forward = machines
    alone, names, master, slave = free_ports(4, BASES)
    back.run(
        "n",
        "rmqnamesrv",
        f"listenPort={names}\nbindAddress=127.0.0.1\nmetricsPort={names + 1}\n",
    )
    store = back.run(
        "b", "rmqha", f"{COMMON}listenPort={alone + 2}\nnamesrvAddr=127.0.0.1:{names}\n"
    )
    forward.run(
        "m",
        "rmqha",
        f"{COMMON}listenPort={master + 2}\nembeddedNamesrvPort={names + 2}\n"
        f"metricsPort={names + 3}\nbrokerRole=SYNC_MASTER\nbrokerId=0\n",
    )
    forward.run(
        "s",
        "rmqha",
        f"{COMMON}listenPort={slave + 2}\nnamesrvAddr=127.0.0.1:{names + 2}\n"
        "brokerRole=SLAVE\nbrokerId=1\n",
    )
    looks = [
        (back, (alone + 2, names, names + 1)),
        (forward, (master + 2, names + 2, names + 3)),
    ]
    _until_all_is_well(looks)
    client = back.start(store, [CLIENT, f"127.0.0.1:{names}", TOPIC, GROUP])
    idle = [socket.create_connection(("127.0.0.1", where[0]), 30) for _, where in looks]
    commit = {"consumerGroup": "other", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
    request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext=commit)
    assert back.ask(alone + 2, request).code == 0

    back.set_clock(-3600)
    forward.set_clock(3600)
    deadline = time.monotonic() + LONG_ENOUGH_S
    while time.monotonic() < deadline:
        for machine, where in looks:
            machine.look(*where)
        time.sleep(0.5)

    for machine, _ in looks:
        assert all(0 <= age < 12 for age in machine.ages), machine.ages
        assert min(machine.ages[-4:]) < max(machine.ages), f"no registration: {machine.ages}"
        text = machine.text()
        assert "is gone" not in text
        assert "dropped" not in text
        assert "Traceback" not in text
    assert f'"{TOPIC}@other":{{0:1' in (store / "store/config/consumerOffset.json").read_text()
    assert client.read_text().count("consumed") >= 20
    assert client.read_text().count("tick") >= 20
    for connection in idle:
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.close()


def _until_all_is_well(looks: list[tuple[Machine, tuple[int, int, int]]]) -> None:
    """Slaves follow, and topics are registered."""
    deadline = time.monotonic() + 60
    for machine, where in looks:
        while True:
            try:
                machine.look(*where)
                break
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        machine.ages.clear()
