"""Brokers of ours for the tests with Spark: a name server, a master and its slave."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.settings import ClientConfig

TWISTD = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]
BROKER = """\
brokerClusterName=C
brokerName=broker-a
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
bindAddress=127.0.0.1
storePathRootDir=store
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=5000
maxIndexNum=20000
slaveReadEnable=true
transactionTimeOut=2000
transactionCheckInterval=2000
waitTimeMillsInSendQueue=10000
osPageCacheBusyTimeOutMills=10000
messageDelayLevel=1s 2s
"""
_FIRST, _LAST = 21400, 21496


def free_bases(count: int) -> list[int]:
    """Each the first of four neighbouring ports that are free on loopback."""
    found: list[int] = []
    start = os.getpid() * 12
    for turn in range(start, start + _LAST - _FIRST, 4):
        base = _FIRST + turn % (_LAST - _FIRST)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + 4):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(base)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")


class Server:
    """One process; it may be killed and started again."""

    def __init__(self, directory: Path, kind: str, port: int, settings: str) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{port}"
        self._kind = kind
        self._conf = f"{settings}\nlistenPort={port}\n"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def begin(self) -> None:
        """Start it, and do not wait."""
        self.directory.mkdir(exist_ok=True)
        (self.directory / "conf").write_text(self._conf)
        command = [*TWISTD, self._kind, "--config", "conf", "--ready"]
        with (self.directory / "output.log").open("wb") as sink:
            self._process = subprocess.Popen(command, cwd=self.directory, stdout=sink, stderr=sink)

    def start(self) -> None:
        if self._process is None:
            self.begin()
        process, output = self._process, self.directory / "output.log"
        assert process is not None
        until(
            lambda: "READY {" in output.read_text() or process.poll() is not None,
            60,
            f"{self.directory.name} ready",
        )
        assert process.poll() is None, output.read_text()

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


class Cluster:
    """`broker-a` of the cluster `C`."""

    def __init__(self, directory: Path, *, slave: bool) -> None:
        ports = free_bases(3)
        self.namesrv = f"127.0.0.1:{ports[0]}"
        known = f"{BROKER}namesrvAddr={self.namesrv}\n"
        role = "brokerRole=SYNC_MASTER" if slave else "brokerRole=ASYNC_MASTER"
        self._names = Server(directory / "ns", "rmqnamesrv", ports[0], "bindAddress=127.0.0.1")
        self.master = Server(directory / "master", "rmqha", ports[1] + 2, f"{known}{role}")
        self.slave = Server(
            directory / "slave", "rmqha", ports[2] + 2, f"{known}brokerRole=SLAVE\nbrokerId=1"
        )
        self._all = [self._names, self.master, self.slave][: 3 if slave else 2]

    def start(self) -> None:
        """Until messages can be sent, and are replicated."""
        for server in self._all:
            server.begin()
        for server in self._all:
            server.start()
        with self.client() as client:
            until(lambda: self._is_complete(client), 30, "all brokers registered")

    def _is_complete(self, client: BlockingClient) -> bool:
        broker = client.cluster().brokers.get("broker-a")
        return broker is not None and len(broker.addresses) == len(self._all) - 1

    def create(self, topic: str) -> None:
        """A topic of four queues; the name server knows it at once."""
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        with self.client() as client:
            request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
            client.call(self.master.address, request, 10_000)

    def close(self) -> None:
        for server in reversed(self._all):
            server.kill()

    def client(self) -> BlockingClient:
        return BlockingClient(
            ClientConfig(namesrv_addr=self.namesrv, poll_name_server_interval_ms=500)
        )


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


@contextlib.contextmanager
def cluster_in(directory: Path, *, slave: bool = True) -> Iterator[Cluster]:
    """A cluster that is taken down at the end."""
    made = Cluster(directory, slave=slave)
    try:
        made.start()
        yield made
    finally:
        made.close()
