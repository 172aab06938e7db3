"""A real pair with status ports: lag while the slave stands still, health, JSON lines."""

from __future__ import annotations

import json
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
from prometheus_client.parser import text_string_to_metric_families

from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import send_request
from tests.live.live_ports import free_ports

TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "rmqha", "--ready"]
COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
slaveTimeout=500
haSendHeartbeatInterval=1000
"""


BASES = range(24700, 24780, 4)


class Broker:
    """One process with a status port."""

    def __init__(self, directory: Path, port: int, metrics: int, settings: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.port, self.metrics = port, metrics
        text = f"{COMMON}listenPort={port}\nmetricsPort={metrics}\nstorePathRootDir=store\n"
        (directory / "b.properties").write_text(text + settings)
        self.start()

    def start(self) -> None:
        self.output = self.directory / f"output-{len(list(self.directory.iterdir()))}.log"
        with self.output.open("wb") as sink:
            command = [*TWISTD, "--config", "b.properties", "--log-format", "json"]
            self.process = subprocess.Popen(
                command, cwd=self.directory, stdout=sink, stderr=subprocess.STDOUT
            )

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while nobody listens."""
        url = f"http://127.0.0.1:{self.metrics}{path}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def value(self, name: str, **labels: str) -> float | None:
        """Of the sample with these labels; None without one."""
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return None

    def send(self) -> int:
        """Put one message; the answer's code."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            request = send_request("p", "TBW102", 0, b"x" * 100, "", 1)
            connection.sendall(encode_frame(request))
            reader = FrameReader()
            while True:
                data = connection.recv(65536)
                assert data, "the broker closed the connection"
                for frame in reader.receive_data(data):
                    return decode_frame(*frame).code

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, self.output.read_text()


def until(condition: Callable[[], object], what: str, *brokers: Broker) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            texts = "\n".join(broker.output.read_text()[-3000:] for broker in brokers)
            raise AssertionError(f"{what}\n{texts}")
        time.sleep(0.1)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    one, two, three = free_ports(3, BASES)
    namesrv = three + 2
    brokers = [
        Broker(
            tmp_path / "m",
            one + 2,
            three,
            f"brokerRole=SYNC_MASTER\nembeddedNamesrvPort={namesrv}\n",
        )
    ]
    try:
        until(lambda: brokers[0].get("/healthz")[0] == 200, "the master is ready", *brokers)
        settings = f"brokerRole=SLAVE\nbrokerId=1\nnamesrvAddr=127.0.0.1:{namesrv}\n"
        brokers.append(Broker(tmp_path / "s", two + 2, three + 1, settings))
        yield brokers[0], brokers[1]
    finally:
        for broker in brokers:
            broker.process.kill()
            broker.process.wait()


@pytest.mark.trials
def test_lag_health_and_log_of_a_pair(pair: tuple[Broker, Broker]) -> None:
    master, slave = pair
    assert "no slave is connected" in master.get("/healthz")[1]
    until(lambda: master.send() == 0, "a SEND_OK", master, slave)
    assert master.get("/healthz") == (200, "ready: SYNC_MASTER broker-a: 1 slaves\n")
    assert slave.get("/healthz")[1].startswith("ready: SLAVE broker-a: following 127.0.0.1:")
    assert master.value("rmqha_replication_lag_bytes") == 0
    assert master.value("rmqha_replication_lag_seconds") == 0

    slave.process.send_signal(signal.SIGSTOP)
    degraded = {"reason": "FLUSH_SLAVE_TIMEOUT"}
    before = master.value("rmqha_degraded_acks_total", **degraded) or 0
    assert master.send() == 12
    time.sleep(1)
    assert (master.value("rmqha_replication_lag_bytes") or 0) > 100
    first = master.value("rmqha_replication_lag_seconds") or 0
    assert first >= 1
    time.sleep(1.1)  # a scrape is kept for 0.5 s
    assert (master.value("rmqha_replication_lag_seconds") or 0) >= first + 0.4
    assert master.value("rmqha_degraded_acks_total", **degraded) == before + 1
    slave.process.send_signal(signal.SIGCONT)
    until(lambda: master.value("rmqha_replication_lag_seconds") == 0, "no lag", master, slave)
    assert master.value("rmqha_replication_lag_bytes") == 0

    slave.stop()
    assert master.send() == 11
    until(lambda: master.value("rmqha_replication_slaves") == 0, "the slave is gone", master)
    assert (master.value("rmqha_replication_unacknowledged_bytes") or 0) > 100
    slave.start()
    until(
        lambda: master.value("rmqha_replication_unacknowledged_bytes") == 0,
        "the slave has it all",
        master,
        slave,
    )
    until(lambda: slave.value("rmqha_slave_following") == 1, "the slave follows", master, slave)
    assert (master.value("rmqha_namesrv_brokers") or 0) >= 1
    assert (slave.value("process_open_fds") or 0) > 5
    _check_log(master)


def _check_log(master: Broker) -> None:
    """Every line but READY is an object that says who wrote it."""
    lines = master.output.read_text().splitlines()
    records = [json.loads(line) for line in lines if not line.startswith("READY ")]
    assert len(lines) == len(records) + 1
    assert {record["broker"] for record in records} == {"broker-a"}
    caught_up = [record for record in records if record.get("fields", {}).get("stage")]
    assert caught_up
    assert isinstance(caught_up[0]["fields"]["lag"], int)


def test_a_status_port_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    (base,) = free_ports(1, BASES)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base + 1))
        taken.listen()
        broker = Broker(tmp_path / "b", base + 2, base + 1, "embeddedNamesrvPort=0\n")
        assert broker.process.wait(30) == 1
    text = broker.output.read_text()
    assert f"cannot listen on port {base + 1} of 127.0.0.1 for metrics and health" in text
    assert "Traceback" not in text
