"""A master and its slave as processes, ours or Java's; either may be killed and come back."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.settings import ClientConfig

TWISTD = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
PEER = (
    Path(os.environ.get("RMQ_HA_PEER", Path(__file__).resolve().parents[3] / "shared" / "peer"))
    / "peer"
)
BROKER = {
    "brokerClusterName": "C",
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "slaveReadEnable": "true",
    "flushConsumerOffsetInterval": 1000,
    "registerNameServerPeriod": 10000,
    "haSendHeartbeatInterval": 1000,
    "waitTimeMillsInSendQueue": 10000,
    "osPageCacheBusyTimeOutMills": 10000,
}
_PORTS = range(21500, 21596, 4)
_TURN = os.getpid() % len(_PORTS)
_BASES = itertools.cycle([*_PORTS[_TURN:], *_PORTS[:_TURN]])


def no_java() -> str:
    """Why Java's brokers cannot run here; empty: they can."""
    if not PEER.exists():
        return f"no RocketMQ peer rig at {PEER} (set RMQ_HA_PEER)"
    return "" if shutil.which("java") else "no java on this machine"


def free_base() -> int:
    """The first of four neighbouring ports that are free on loopback."""
    for base in itertools.islice(_BASES, 24):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + 4):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return base
    raise RuntimeError("no free ports")


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)


class Broker:
    """One broker; a second start reopens its store."""

    def __init__(self, directory: Path, namesrv: str, *, java: bool) -> None:
        self.directory = directory
        self.store = directory / "store"
        self.port = free_base() + 2
        self.address = f"127.0.0.1:{self.port}"
        self.is_java = java
        self._namesrv = namesrv
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0

    def begin(self, role: str) -> None:
        """Start it, and do not wait."""
        self.directory.mkdir(exist_ok=True)
        settings = {
            **BROKER,
            "brokerRole": role,
            "brokerId": int(role == "SLAVE"),
            "listenPort": self.port,
            "namesrvAddr": self._namesrv,
        }
        conf = self.directory / "broker.conf"
        if self.is_java:
            conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            command = [str(PEER), "broker", "--conf", str(conf), "--dir", str(self.directory)]
            command += ["--namesrv", self._namesrv, "--set", f"listenPort={self.port}"]
        else:
            settings |= {"storePathRootDir": self.store, "bindAddress": "127.0.0.1"}
            settings["embeddedNamesrvPort"] = 0
            conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            command = [*TWISTD, "rmqha", "--config", str(conf), "--ready"]
        self._count += 1
        with self._output.open("wb") as sink:
            self._process = subprocess.Popen(
                command, cwd=self.directory, stdout=sink, stderr=subprocess.STDOUT
            )

    @property
    def _output(self) -> Path:
        return self.directory / f"output-{self._count}.log"

    def wait(self) -> None:
        process = self._process
        assert process is not None
        until(
            lambda: b"READY {" in self._output.read_bytes() or process.poll() is not None,
            60,
            f"{self.directory.name} ready",
        )
        assert process.poll() is None, self._output.read_text()[-3000:]

    def kill(self) -> None:
        """A crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """A clean shutdown."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(30)


class Pair:
    """
    A name server and `broker-a`: a master and a slave, which may change roles.

    :ivar topic_numbers: numbers for topics that no other test of this pair uses.
    """

    def __init__(
        self,
        directory: Path,
        *,
        java: bool = False,
        role: str = "SYNC_MASTER",
    ) -> None:
        self.topic_numbers = itertools.count()
        self._role = role
        self.namesrv = f"127.0.0.1:{free_base()}"
        self._directory = directory
        self._names: subprocess.Popen[bytes] | None = None
        self.master = Broker(directory / "a", self.namesrv, java=java)
        self.slave = Broker(directory / "b", self.namesrv, java=java)

    def start(self) -> None:
        """Until messages are replicated."""
        conf = self._directory / "namesrv.conf"
        port = self.namesrv.rpartition(":")[2]
        conf.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
        with (self._directory / "namesrv.log").open("wb") as sink:
            self._names = subprocess.Popen(
                [*TWISTD, "rmqnamesrv", "--config", str(conf), "--ready"],
                cwd=self._directory,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        log = self._directory / "namesrv.log"
        until(lambda: b"READY {" in log.read_bytes(), 60, "name server ready")
        self.start_brokers()

    def start_brokers(self) -> None:
        """Both, with the roles that they have now."""
        self.master.begin(self._role)
        self.master.wait()
        self.slave.begin("SLAVE")
        self.slave.wait()
        self.wait_registered()

    def wait_registered(self) -> None:
        with self.client() as client:
            until(lambda: self._ids(client) == [0, 1], 40, "both brokers registered")

    def _ids(self, client: BlockingClient) -> list[int]:
        broker = client.cluster().brokers.get("broker-a")
        return sorted(broker.addresses) if broker is not None else []

    def wait_same(self, seconds: float = 40) -> None:
        """Until both logs are equally long."""
        until(
            lambda: 0 <= self.log_end(self.master) == self.log_end(self.slave),
            seconds,
            "both logs equally long",
        )

    def log_end(self, broker: Broker) -> int:
        from rmq_ha.base.wire.bodies import decode_kv_table

        try:
            with self.client() as client:
                answer = client.call(
                    broker.address, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
                )
        except RemotingError:
            return -1
        return int(decode_kv_table(answer.body or b"{}")["commitLogMaxOffset"])

    def restart_master(self) -> None:
        self.master.begin(self._role)
        self.master.wait()

    def swap(self) -> None:
        """Both are down: the slave comes back as the master, the master as its slave."""
        self.master, self.slave = self.slave, self.master
        self.start_brokers()

    def client(self, **more: int) -> BlockingClient:
        settings = {"poll_name_server_interval_ms": 300, "mq_client_api_timeout_ms": 10_000, **more}
        return BlockingClient(ClientConfig(namesrv_addr=self.namesrv, **settings))

    def close(self) -> None:
        self.slave.kill()
        self.master.kill()
        if self._names is not None:
            self._names.kill()
            self._names.wait(20)


@contextlib.contextmanager
def pair_in(directory: Path, *, java: bool = False, role: str = "SYNC_MASTER") -> Iterator[Pair]:
    """A pair that is taken down at the end."""
    made = Pair(directory, java=java, role=role)
    try:
        made.start()
        yield made
    finally:
        made.close()
