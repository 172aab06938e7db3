"""Real processes for interop tests and benchmarks: servers, ours and Java's, and the clients.

`../shared/peer` (or RMQ_HA_PEER) is the rig with the real RocketMQ 4.9.7; without it, or without
Java, the tests are skipped.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
PEER = Path(os.environ.get("RMQ_HA_PEER", REPO.parent / "shared" / "peer")) / "peer"
SMALL = PEER.parent / "conf"
# A killed broker reads its log again, on a machine that may be busy with everything else.
READY_S = 180.0
# Java in every place: shows that a test expects what RocketMQ does.
ALL_JAVA = bool(os.environ.get("RMQ_HA_INTEROP_ALL_JAVA"))


def missing() -> str | None:
    """Why the rig cannot run here, or None."""
    if not PEER.exists():
        return f"no RocketMQ peer rig at {PEER} (set RMQ_HA_PEER)"
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"no {tool} on this machine"
    done = subprocess.run([str(PEER), "classpath"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"`{PEER} install` has not run: {done.stderr.strip()}"


@functools.cache
def load_generator() -> str:
    """The program behind `peer load`, which takes 0.2 s of processor time less than the script."""
    spec = spec_from_loader("peer", SourceFileLoader("peer", str(PEER)))
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    return str(script.go_binary("rmqload", "load"))


def _bases() -> Iterator[int]:
    """
    Where to look for free ports: each worker of pytest-xdist in a slice of its own.

    Going round in it: what was given out just now and is not listened on yet is not given again.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    index = int(worker[2:]) if worker.startswith("gw") else os.getpid()
    first = 12000 + index % 8 * 2400
    return itertools.cycle(range(first, first + 2400, 8))


_BASES = _bases()


def free_ports(count: int = 4) -> int:
    """The first of `count` (at most 8) neighbouring ports that are all free on loopback."""
    for base in itertools.islice(_BASES, 300):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return base
    raise RuntimeError("no free ports")


@dataclass
class Server:
    """One running process of the cluster."""

    process: subprocess.Popen[str]
    address: str
    directory: Path
    java: bool
    output: Path
    namesrv: str | None = None

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def kill(self) -> None:
        """A crash."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def stop(self) -> int:
        """A clean shutdown; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


class Rig:
    """Starts servers and runs clients; everything it writes is below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers: list[Server] = []
        self.environment: dict[str, str] = {}  # what servers have beside ours from now on

    def ports(self, count: int = 4) -> int:
        """Neighbouring free ports; the first."""
        return free_ports(count)

    def close(self) -> None:
        for server in reversed(self.servers):
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait(20)

    # ------------------------------------------------------------ servers

    def namesrv(
        self, *, java: bool = False, name: str = "ns", jvm: Sequence[str] = (), **settings: Any
    ) -> str:
        """Start a name server; its address."""
        java = java or ALL_JAVA
        port = self.ports(1)
        directory = self.directory / name
        directory.mkdir(parents=True, exist_ok=True)
        if java:
            command = [str(PEER), "namesrv", "--port", str(port), "--dir", str(directory)]
            command += [f"--jvm={option}" for option in jvm]
            for key, value in settings.items():
                command += ["--set", f"{key}={value}"]
        else:
            conf = directory / "namesrv.properties"
            settings = {"listenPort": port, "kvConfigPath": f"{directory}/kv.json", **settings}
            conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            command = [*TWISTD, "rmqnamesrv", "--config", str(conf), "--ready"]
        self._start(command, f"127.0.0.1:{port}", directory, java=java)
        return f"127.0.0.1:{port}"

    def broker(
        self,
        conf: str,
        name: str,
        *,
        java: bool = False,
        namesrv: str | None = None,
        port: int | None = None,
        wait: bool = True,
        heap: str | None = None,
        jvm: Sequence[str] = (),
        twistd: Sequence[str] = (),
        **settings: Any,
    ) -> Server:
        """
        Start a broker from one of the rig's conf files; a second start reopens its store.

        :param conf: a name, or an absolute path.
        :param twistd: what to run ours with; twistd itself when empty.
        """
        java = java or ALL_JAVA
        directory = self.directory / name
        directory.mkdir(parents=True, exist_ok=True)
        port = port or self.ports(4) + 2
        # On a busy machine both refuse what waited 200 ms, or comes after a write of 1 s.
        patience = {"waitTimeMillsInSendQueue": 10000, "osPageCacheBusyTimeOutMills": 10000}
        settings = {"listenPort": port, **patience, **settings}
        if java:
            command = [str(PEER), "broker", "--conf", str(SMALL / conf), "--dir", str(directory)]
            if namesrv:
                command += ["--namesrv", namesrv]
            if heap:
                command += ["--heap", heap, "--gc", "g1"]
            command += [f"--jvm={option}" for option in jvm]
            for key, value in settings.items():
                command += ["--set", f"{key}={value}"]
        else:
            settings["storePathRootDir"] = directory / "store"
            settings["bindAddress"] = "127.0.0.1"
            settings["embeddedNamesrvPort"] = 0
            if namesrv:
                settings["namesrvAddr"] = namesrv
            lines = (SMALL / conf).read_text().splitlines()
            lines = [line for line in lines if line.partition("=")[0] not in settings]
            text = "\n".join([*lines, *(f"{key}={value}" for key, value in settings.items())])
            (directory / "broker.properties").write_text(text + "\n")
            command = [
                *(twistd or TWISTD),
                "rmqha",
                "--config",
                str(directory / "broker.properties"),
                "--ready",
            ]
        server = self._start(command, f"127.0.0.1:{port}", directory, java=java, wait=wait)
        server.namesrv = namesrv
        return server

    def _start(
        self, command: list[str], address: str, directory: Path, *, java: bool, wait: bool = True
    ) -> Server:
        output = directory / f"output-{len(self.servers)}.log"
        with output.open("w") as sink:
            process = subprocess.Popen(
                command,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=directory,
                text=True,
                env={**os.environ, **self.environment},
            )
        server = Server(process, address, directory, java, output)
        self.servers.append(server)
        if wait:
            self.until_ready(server)
        return server

    def until_ready(self, server: Server) -> None:
        """Wait for a server that was started without waiting."""
        ready = f"{server.process.args!r} ready"
        self.until(lambda: "READY {" in server.output.read_text(), READY_S, ready, server)

    def until(self, condition: Any, seconds: float, what: str, *servers: Server) -> None:
        """Wait for a condition; say what the servers printed when it does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            dead = [server for server in servers if server.process.poll() is not None]
            if dead or time.monotonic() > deadline:
                tails = "\n".join(server.output.read_text()[-3000:] for server in servers)
                raise AssertionError(f"{what}: not within {seconds} s\n{tails}")
            time.sleep(0.05)

    # ------------------------------------------------------------ clients

    def _client(self, arguments: Sequence[Any]) -> list[str]:
        first, *rest = map(str, arguments)
        return [load_generator(), *rest] if first == "load" else [str(PEER), first, *rest]

    def peer(self, *arguments: Any, check: bool = True, timeout: float = 90) -> list[Any]:
        """Run a client of the rig; its JSON lines, the last the summary."""
        done = subprocess.run(
            self._client(arguments),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"peer {' '.join(map(str, arguments))}: exit {done.returncode}\n"
                f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def mqadmin(self, *arguments: Any, check: bool = True, home: Path | None = None) -> str:
        """
        Run the Java admin tool; what it printed.

        :param home: has the keys that it signs with in `conf/tools.yml`.
        """
        done = subprocess.run(
            [str(PEER), "mqadmin", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=180,  # a JVM on a busy machine
            check=False,
            env={**os.environ, "ROCKETMQ_HOME": str(home)} if home else None,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"mqadmin {arguments}: {done.stdout}\n{done.stderr}")
        return done.stdout

    def info(self, server: Server) -> dict[str, str]:
        """The broker's runtime info."""
        return self.peer("load", "info", "--addr", server.address)[-1]["info"]

    def wait_same(self, behind: Server, ahead: Server, seconds: int = 60) -> None:
        """Until one broker's commit log is as long as the other's."""
        self.peer(
            "load",
            "wait",
            "--addr",
            behind.address,
            "--as",
            ahead.address,
            "--timeout",
            f"{seconds}s",
            timeout=seconds + 10,
        )

    def wait_sync(self, master: Server, topic: str = "warm", seconds: float = 30) -> None:
        """Until a SYNC_MASTER answers a send with SEND_OK."""

        def sent() -> bool:
            command = [
                "load",
                "send",
                "--addr",
                master.address,
                "--topic",
                topic,
                "--queues",
                4,
                "--count",
                1,
            ]
            done = subprocess.run(self._client(command), capture_output=True, check=False)
            return done.returncode == 0

        self.until(sent, seconds, "a first SEND_OK of the SYNC_MASTER", master)


TWISTD = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile="]


@contextlib.contextmanager
def rig_in(directory: Path) -> Iterator[Rig]:
    """A rig that is taken down at the end, whatever happened."""
    rig = Rig(directory)
    try:
        yield rig
    finally:
        rig.close()
