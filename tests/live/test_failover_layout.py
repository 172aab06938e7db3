"""
A pair that elects its master, as `rmqha-admin init --failover` lays it out: five processes.

Two controllers are in the pair's name servers; one machine goes with all that is on it.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.replication.epochs.frames import SlaveHandshake, encode_slave_handshake
from tests.live.live_ports import free_ports
from tests.live.test_controller_process import until
from tests.unit.base.tls.material import Files

BIN = Path(sys.executable).parent
BASES = range(25640, 25760, 4)
SECONDS = 60.0


def ask(address: str, request: RemotingCommand) -> RemotingCommand:
    """One request over a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.settimeout(10)
        connection.sendall(encode_frame(request))
        reader = FrameReader()
        while True:
            data = connection.recv(65536)
            if not data:
                raise ConnectionResetError(address)
            for frame in reader.receive_data(data):
                return decode_frame(*frame)


class Process:
    """One server, from its file."""

    def __init__(self, command: str, conf: Path, metrics: int) -> None:
        self.name = conf.stem
        self.health_url = f"http://127.0.0.1:{metrics}/healthz"
        self._command = [str(BIN / command), "-c", str(conf), "--ready"]
        self._conf = conf
        self.begin()

    def begin(self) -> None:
        with self._conf.with_suffix(".out").open("a") as out:
            self.process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT, cwd=self._conf.parent
            )

    def health(self) -> tuple[int, str]:
        """Status and line; 0: nobody answers."""
        try:
            with urllib.request.urlopen(self.health_url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)


class Layout:
    """What `init` wrote, on ports that are free, and what runs of it."""

    def __init__(self, directory: Path, of_brokers: str = "") -> None:
        """:param of_brokers: lines for the files of both brokers."""
        done = subprocess.run(
            [str(BIN / "rmqha-admin"), "init", str(directory), "--failover", "--json"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        bases = free_ports(6, BASES)
        ports = {10911: bases[0] + 2, 11011: bases[1] + 2}
        for wanted, base in ((9876, bases[2]), (9878, bases[3])):
            ports |= {wanted + number: base + number for number in range(4 if wanted > 9876 else 2)}
        for number, status in enumerate((5557, 5558, 5559, 5567, 5568)):
            ports[status] = bases[4 + number // 4] + number % 4
        self.servers: dict[str, Process] = {}
        for row in json.loads(done.stdout)["rows"]:
            program, _, path = row["command"].split()
            conf = Path(path)
            text = re.sub(
                r"\b\d{4,5}\b", lambda m: str(ports.get(int(m[0]), m[0])), conf.read_text()
            )
            text += "mappedFileSize=1048576\n" if "DLeger" in text else ""
            conf.write_text(text + (of_brokers if conf.stem.startswith("broker") else ""))
            metrics = re.search(r"^metricsPort=(\d+)$", text, re.M)
            assert metrics
            self.servers[conf.stem] = Process(program, conf, int(metrics[1]))
        self.brokers = {
            name: f"127.0.0.1:{bases[int(name[-1]) - 1] + 2}" for name in ("broker-1", "broker-2")
        }
        self.name_servers = [f"127.0.0.1:{bases[2] + number}" for number in range(2)]
        self.controllers = [f"127.0.0.1:{bases[3] + number}" for number in range(3)]

    def sends(self, name: str) -> bool:
        """A message is acknowledged."""
        request = send_request("p", "TBW102", 0, b"body", "", 1)
        try:
            return ask(self.brokers[name], request).code == 0
        except OSError:
            return False

    def master(self) -> str | None:
        """Who takes messages."""
        return next(filter(self.sends, self.brokers), None)

    def in_sync(self) -> list[int]:
        """As the controllers' leader says; nothing while none answers."""
        for address in self.controllers:
            try:
                answer = ask(address, RemotingCommand(1004, {"brokerName": "broker-a"}))
            except OSError:
                continue
            if answer.code == 0:
                found: list[int] = json.loads(answer.body or b"{}")["syncStateSet"]
                return found
        return []


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    made = Layout(tmp_path / "cluster")
    try:
        yield made
    finally:
        for server in made.servers.values():
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait(30)


def test_one_machine_goes_with_its_broker_name_server_and_controller(layout: Layout) -> None:
    until(lambda: len(layout.in_sync()) == 2, "both in sync", SECONDS)
    until(lambda: layout.master() is not None, "a master", SECONDS)
    for server in layout.servers.values():
        until(lambda server=server: server.health()[0] == 200, server.name, SECONDS)
    said = layout.servers["namesrv-1"].health()[1]
    assert re.search(r"brokers are registered; controller: n0 (leads|follows n\d) in term", said)

    first = layout.master()
    assert first is not None
    machine, second = first[-1], "broker-2" if first == "broker-1" else "broker-1"
    gone = [layout.servers[name] for name in (first, f"namesrv-{machine}")]
    for server in gone:
        server.end(signal.SIGKILL)
    until(lambda: layout.sends(second), "the other one takes messages", SECONDS)
    left = layout.name_servers[2 - int(machine)]
    # The broker may take messages a moment before it is registered.
    address = f'"{layout.brokers[second]}"'.encode()

    def is_routed() -> bool:
        return address in (ask(left, RemotingCommand(105, {"topic": "TBW102"})).body or b"")

    until(is_routed, "the name server names the other one", SECONDS)

    for server in gone:
        server.begin()
    until(lambda: len(layout.in_sync()) == 2, "both in sync again", SECONDS)
    assert layout.master() == second
    for server in gone:  # who is still on the way up does not end in order yet
        until(lambda server=server: server.health()[0] == 200, server.name, SECONDS)
    assert [server.end(signal.SIGTERM) for server in layout.servers.values()] == [0] * 5


def plain(address: tuple[str, int], said: bytes) -> bytes:
    """What a stranger without TLS hears on a replication port."""
    with socket.create_connection(address, 5) as connection:
        connection.settimeout(5)
        connection.sendall(said)
        try:
            return connection.recv(4096)
        except OSError:
            return b""


def stranger_by_tls(address: tuple[str, int]) -> bytes:
    """The same of one that speaks TLS and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, 5) as connection,
            context.wrap_socket(connection) as wrapped,
        ):
            wrapped.settimeout(5)
            wrapped.sendall(b"\0" * 8)
            return wrapped.recv(4096)
    except OSError:
        return b""


def test_the_replication_port_of_a_set_is_closed_to_strangers(tmp_path: Path) -> None:
    """TLS with certificates and the secret: the pair replicates and fails over, nobody else may."""
    files = Files()
    options = files.put_pair("tls.ha", "127.0.0.1") | files.put_root("tls.ha")
    files.on_disk(tmp_path)
    options = {key: f"{tmp_path}{path}" for key, path in options.items()}
    options |= {"tls.ha.mode": "enforcing", "tls.ha.enable": "true"}
    options |= {"tls.ha.allowedNames": "127.0.0.1", "haSecretRequired": "true"}
    options |= {"haSecret": "the secret of this set"}
    lines = "".join(f"{key}={value}\n" for key, value in options.items())
    layout = Layout(tmp_path / "cluster", lines)
    try:
        until(lambda: len(layout.in_sync()) == 2, "both in sync", SECONDS)
        until(lambda: layout.master() is not None, "a master", SECONDS)
        first = layout.master()
        assert first is not None
        host, _, port = layout.brokers[first].rpartition(":")
        replication = (host, int(port) + 1)
        assert plain(replication, encode_slave_handshake(SlaveHandshake(9))) == b""
        assert stranger_by_tls(replication) == b""
        second = "broker-2" if first == "broker-1" else "broker-1"
        layout.servers[first].end(signal.SIGKILL)
        until(lambda: layout.sends(second), "the other one takes messages", SECONDS)
        layout.servers[first].begin()
        until(lambda: len(layout.in_sync()) == 2, "both in sync again", SECONDS)
    finally:
        for server in layout.servers.values():
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait(30)


def test_one_process_is_name_server_controller_and_broker(tmp_path: Path) -> None:
    base, more = free_ports(2, BASES)
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "enableControllerMode=true\nenableControllerInNamesrv=true\n"
        f"controllerDLegerPeers=n0-127.0.0.1:{more}\ncontrollerStorePath={tmp_path}/controller\n"
        f"mappedFileSize=1048576\nbindAddress=127.0.0.1\nbrokerName=broker-a\n"
        f"listenPort={base + 2}\nembeddedNamesrvPort={more + 1}\nmetricsPort={more + 2}\n"
        f"storePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=1048576\n"
    )
    server = Process("rmqha-broker", conf, more + 2)
    try:
        until(lambda: server.health()[0] == 200, "a broker that leads", SECONDS)
        assert "controller: n0 leads in term 0; 1 brokers of 1 sets" in server.health()[1]
        sent = ask(f"127.0.0.1:{base + 2}", send_request("p", "TBW102", 0, b"body", "", 1))
        assert sent.code == 0, sent.remark
        assert f'"controllerPort": {more}' in conf.with_suffix(".out").read_text()
        assert server.end(signal.SIGTERM) == 0
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(30)
