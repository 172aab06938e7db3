"""
The life of pods: `conf/kubernetes/rmqha.yaml` with processes in place of containers.

    python -m tests.rehearsal.pods           some minutes; --short: the steps that CI plays

Each pod has a loopback address of its own, another one after each restart, and a volume that stays.
The shell line of the container starts the server, with the properties of the config map. In place
of Kubernetes this program resolves names, asks the probes, and restarts pods as a StatefulSet does:
the highest number first, each only when the one before is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import yaml

from tests.rehearsal import pod_process

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "conf" / "kubernetes" / "rmqha.yaml"
PORTS = {10909: 32109, 10911: 32111, 10912: 32112, 9876: 32176, 9878: 32178}
PORTS |= {5557: 32157, 5558: 32158}
TOPIC = "Pods"
STREAMS = 4
PAUSE_S = 0.02
PROBE_S, HANGS_AFTER = 1.0, 6


class Failed(Exception):
    """Something did not hold."""


def until(is_so: Any, what: str, seconds: float = 120.0) -> float:
    """Wait; seconds that it took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise Failed(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - began


def _name_of(pod: str) -> str:
    return f"{pod}.{pod.rpartition('-')[0]}.default.svc"


class Cluster:
    """The manifest's objects, and the folder in which they live."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        text = re.sub(
            r"\b\d{4,5}\b", lambda m: str(PORTS.get(int(m[0]), m[0])), MANIFEST.read_text()
        )
        self.objects = [item for item in yaml.safe_load_all(text) if item]
        self.names = directory / "names"
        self.names.write_text("")
        self._addresses = (f"127.0.32.{number}" for number in count(10))
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}
        self.programs = directory / "bin"
        self.programs.mkdir()
        for name in ("rmqha-broker", "rmqha-namesrv"):
            real, program = Path(sys.executable).parent / name, self.programs / name
            program.write_text(
                f'#!/bin/sh\nexec {sys.executable} {pod_process.__file__} {real} "$@"\n'
            )
            program.chmod(0o755)

    def config_of(self, name: str) -> dict[str, str]:
        (found,) = (
            item["data"]
            for item in self.objects
            if item["kind"] == "ConfigMap" and item["metadata"]["name"] == name
        )
        return dict(found)

    def address_for(self, name: str) -> str:
        """Give a pod a new address, and its name, too."""
        with self._lock:
            self._known[f"{name}.{name.rpartition('-')[0]}.default.svc"] = address = next(
                self._addresses
            )
            self._write()
        return address

    def forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(_name_of(name), None)
            self._write()

    def _write(self) -> None:
        new = self.names.with_suffix(".new")
        new.write_text("".join(f"{name} {address}\n" for name, address in self._known.items()))
        new.replace(self.names)


class Pod:
    """One pod: its volume stays, its address does not."""

    def __init__(self, cluster: Cluster, owner: dict[str, Any], number: int) -> None:
        spec = owner["spec"]["template"]["spec"]
        self.name, self.number = f"{owner['metadata']['name']}-{number}", number
        self.least_ready_s = float(owner["spec"].get("minReadySeconds", 0))
        self.grace_s = float(spec["terminationGracePeriodSeconds"])
        (self._container,) = spec["containers"]
        self._cluster = cluster
        self._config = cluster.config_of(owner["metadata"]["name"])
        self.directory = cluster.directory / self.name
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self._probe = threading.Thread(target=self._watch, daemon=True)
        self.silent, self.worst = 0, 0
        self._ports = {item["name"]: item["containerPort"] for item in self._container["ports"]}
        for folder in ("data", "config", "run", "secret"):
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
        self.slow = self.directory / "slow"

    def start(self) -> None:
        """A new pod."""
        self.address = self._cluster.address_for(self.name)
        self.start_container()
        if not self._probe.is_alive():
            self._probe.start()

    def start_container(self) -> None:
        """The address stays, as after a crash."""
        here = str(self.directory)
        lines = (
            f"\nbindAddress={self.address}\nmetricsAddress={self.address}\nlistenPort={self.port}\n"
        )
        lines += (
            "mappedFileSizeCommitLog=16777216\n" if self.is_broker else "mappedFileSize=1048576\n"
        )
        for name, text in self._config.items():
            text = text.replace("10.0.0.0/8", "127.0.32.0/24")
            text = re.sub(r"^listenPort=.*\n", "", text, flags=re.M)
            path = self.directory / "config" / name
            path.write_text(text.replace("/var/lib/rmqha", f"{here}/data") + lines)
        script = (
            self._container["command"][2]
            .replace("/etc/rmqha", here)
            .replace("/run/rmqha", f"{here}/run")
        )
        environ = {**os.environ, "PATH": f"{self._cluster.programs}:{os.environ['PATH']}"}
        environ |= {"POD_NAMES": str(self._cluster.names), "POD_SLOW": str(self.slow)}
        environ |= {"POD_IP": self.address, "ORDINAL": str(self.number), "PYTHONPATH": str(ROOT)}
        with (self.directory / "log").open("ab") as sink:
            self._process = subprocess.Popen(
                ["/bin/sh", "-euc", script], stdout=sink, stderr=sink, cwd=here, env=environ
            )
        self.silent = 0

    @property
    def is_broker(self) -> bool:
        return "broker" in self._ports

    @property
    def port(self) -> int:
        return int(self._ports["broker" if self.is_broker else "namesrv"])

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _ask(self, probe: str) -> tuple[bool, str]:
        try:
            url = f"http://{self.address}:{self._ports['status']}{probe}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return True, answer.read().decode()
        except urllib.error.HTTPError as error:
            return False, error.read().decode()
        except OSError as error:
            return False, str(error)

    def is_ready(self) -> bool:
        return self._ask(self._path_of("readinessProbe"))[0]

    def _path_of(self, probe: str) -> str:
        return str(self._container[probe]["httpGet"]["path"])

    def leads(self) -> bool:
        return ": leads; in sync" in self._ask("/healthz")[1]

    def _watch(self) -> None:
        """The liveness probe, more often than Kubernetes asks it."""
        known = None
        while True:
            time.sleep(PROBE_S)
            process = self._process
            lives = self._ask(self._path_of("livenessProbe"))[0]
            if lives:
                known = process  # before its first answer, the startup probe would ask
            is_silent = not lives and process is known is self._process and self.runs
            self.silent = self.silent + 1 if is_silent else 0
            self.worst = max(self.worst, self.silent)

    def delete(self) -> float:
        """SIGTERM, the time of grace, SIGKILL; seconds until it ended."""
        assert self._process is not None
        began = time.monotonic()
        self._process.terminate()
        try:
            code = self._process.wait(self.grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise Failed(f"{self.name} did not end within its time of grace") from None
        self._cluster.forget(self.name)
        if code:
            raise Failed(f"{self.name} ended with {code}: {self.directory / 'log'}")
        return time.monotonic() - began

    def signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)
        if which == signal.SIGKILL:
            self._process.wait()

    def end(self) -> None:
        if self.runs:
            self.signal(signal.SIGKILL)


class Load(threading.Thread):
    """
    Streams of messages, each to one queue, one after the other, until it is over.

    :ivar kept: by stream, the numbers that were answered SEND_OK.
    :ivar failures: sends that the client gave up; each is sent again.
    :ivar longest_s: seconds from the first try of a message to its SEND_OK.
    """

    def __init__(self, name_servers: str) -> None:
        super().__init__(daemon=True)
        self.kept: list[list[int]] = [[] for _ in range(STREAMS)]
        self.failures: Counter[str] = Counter()
        self.longest_s = 0.0
        self.over = False
        self.sets: tuple[str, ...] = ("broker-a",)
        self._name_servers = name_servers

    def run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        from rmq_ha.client.aio import connect

        async with connect(self._name_servers) as client:
            producer = await client.producer()
            await asyncio.gather(*(self._stream(producer, number) for number in range(STREAMS)))

    async def _stream(self, producer: Any, stream: int) -> None:
        from rmq_ha.client import Message, MessageQueue

        queue = MessageQueue(TOPIC, self.sets[0], stream)
        for number in count():
            if self.over:
                return
            began, is_kept = time.monotonic(), False
            while not is_kept and not self.over:
                try:
                    sent = await producer.send(
                        Message(TOPIC, b"%d %d" % (stream, number)), queue=queue
                    )
                    is_kept = sent.send_status.name == "SEND_OK"
                except Exception as error:
                    self.failures[f"{type(error).__name__}: {error}"[:100]] += 1
                    await asyncio.sleep(0.1)
            if is_kept:
                self.kept[stream].append(number)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
            await asyncio.sleep(PAUSE_S)

    def total(self) -> int:
        return sum(map(len, self.kept))

    def so_many_more(self, more: int, seconds: float = 120.0) -> None:
        wanted = self.total() + more
        until(lambda: self.total() >= wanted, f"{wanted} sends: {dict(self.failures)}", seconds)


class Play:
    """The steps. Each prints what it took."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory)
        sets = [item for item in self.cluster.objects if item["kind"] == "StatefulSet"]
        self.pods = [
            Pod(self.cluster, item, number)
            for item in sets
            for number in range(item["spec"]["replicas"])
        ]
        self.brokers = [pod for pod in self.pods if pod.is_broker]
        self.controllers = [pod for pod in self.pods if not pod.is_broker]
        broker = self.cluster.config_of("rmqha-broker-a")["broker.properties"]
        (self.name_servers,) = re.findall(r"^namesrvAddr=(.*)$", broker, re.M)
        pod_process.names(str(self.cluster.names))  # before Twisted is imported
        self.load = Load(self.name_servers)
        self.lost: Pod | None = None

    def __enter__(self) -> Play:
        return self

    def __exit__(self, *_: object) -> None:
        self.load.over = True
        for pod in self.pods:
            pod.end()

    def step(self, what: str, do: Any) -> None:
        failed, kept = sum(self.load.failures.values()), self.load.total()
        self.load.longest_s = 0.0
        began = time.monotonic()
        said = do()
        if self.load.is_alive():
            self.load.so_many_more(100)
        took, more = time.monotonic() - began, self.load.total() - kept
        failed = sum(self.load.failures.values()) - failed
        line = f"{what}: {took:.1f} s; {more} sends acknowledged, {failed} failed, "
        line += f"longest {self.load.longest_s:.1f} s"
        print(f"{line}; {said}" if said else line, flush=True)

    def ready(self, pods: list[Pod]) -> None:
        until(lambda: all(pod.is_ready() for pod in pods), f"{[pod.name for pod in pods]} ready")

    def install(self) -> None:
        """All at once, as with podManagementPolicy: Parallel."""
        for pod in self.pods:
            pod.start()
        self.ready(self.pods)

    def topic(self) -> None:
        from rmq_ha.client import BlockingClient

        wanted = [str(Path(sys.executable).parent / "rmqha-admin"), "topic", "create", TOPIC]
        address = f"{self.controllers[0].address}:{self.controllers[0].port}"
        wanted += ["--queues", str(STREAMS), "-n", address]
        subprocess.run(
            wanted, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        with BlockingClient(self.name_servers) as client:
            until(lambda: len(client.publish_queues(TOPIC)) >= STREAMS, "a route", 40)
        self.load.start()

    def master(self) -> Pod:
        until(lambda: any(pod.leads() for pod in self.brokers), "a master")
        return next(pod for pod in self.brokers if pod.leads())

    def roll(self, pods: list[Pod]) -> str:
        """As a StatefulSet does: from the highest number down."""
        took = []
        for pod in reversed(pods):
            before = pod.address
            took.append(f"{pod.name} ended in {pod.delete():.1f} s")
            pod.start()
            assert pod.address != before
            self.ready([pod])
            time.sleep(pod.least_ready_s)
        return ", ".join(took)

    def container_dies(self) -> str:
        pod = self.master()
        pod.signal(signal.SIGKILL)
        pod.start_container()
        self.ready(self.brokers)
        return f"{pod.name} was the master, {self.master().name} is"

    def node_is_lost(self) -> str:
        """Its processes stand still, then they are gone; the pod comes back at another address."""
        pod = self.lost = self.master()
        pod.signal(signal.SIGSTOP)
        other = next(item for item in self.brokers if item is not pod)
        took = until(other.leads, "another master", 60)
        pod.end()
        self.cluster.forget(pod.name)
        pod.start()
        self.ready(self.brokers)
        return f"another one led after {took:.1f} s"

    def slow(self, is_master: bool, ms: int = 100, seconds: float = 20.0) -> str:
        master = self.master()
        pod = next(item for item in self.brokers if (item is master) is is_master)
        pod.slow.write_text(str(ms))
        time.sleep(seconds)
        pod.slow.unlink()
        self.ready(self.brokers)
        text = f"{ms} ms for each write of {pod.name} for {seconds:.0f} s"
        return f"{text}, the master is {self.master().name}"

    def judge(self) -> str:
        """
        Compare what was acknowledged with what can be read.

        :raises Failed: a message is missing, or a queue is out of order.
        """
        from tests.interop.wire import Wire

        self.load.over = True
        self.load.join(60)
        self.ready(self.brokers)
        master = self.master()
        missing = twice = disordered = 0
        with Wire(f"{master.address}:{master.port}") as wire:
            for stream, kept in enumerate(self.load.kept):
                bodies = [record.body.split() for record in wire.pull_all(TOPIC, stream)]
                found = [int(number) for _, number in bodies]
                first = list(dict.fromkeys(found))
                missing += len(set(kept) - set(found))
                twice += len(found) - len(first)
                disordered += sum(a > b for a, b in pairwise(first))
        silent = max(pod.worst for pod in self.pods if pod is not self.lost)
        said = f"{self.load.total()} acknowledged, {missing} missing, {twice} stored twice, "
        said += f"{disordered} out of order"
        if missing or disordered:
            raise Failed(said)
        return f"{said}; at most {silent} probes of /livez in a row had no answer"


def play(directory: Path, *, is_short: bool) -> None:
    """:raises Failed: something did not hold."""
    with Play(directory) as it:
        it.step("all pods start at once", it.install)
        it.step("a topic, and producers", it.topic)
        it.step("rolling restart of the brokers", lambda: it.roll(it.brokers))
        if not is_short:
            it.step(
                "rolling restart of name servers and controllers", lambda: it.roll(it.controllers)
            )
            it.step("the master's container is killed", it.container_dies)
            it.step("the master's node is lost", it.node_is_lost)
            it.step("the slave's disk is slow", lambda: it.slow(False))
            it.step("the master's disk is slow", lambda: it.slow(True))
            it.step("rolling restart of the brokers again", lambda: it.roll(it.brokers))
        if any(pod.worst >= HANGS_AFTER for pod in it.pods if pod is not it.lost):
            raise Failed("a liveness probe would have killed a pod")
        print(it.judge(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("--short", action="store_true", help="a start and a rolling restart")
    parser.add_argument(
        "--keep", type=Path, help="an empty folder for stores and logs, which stays"
    )
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        play(options.keep.resolve(), is_short=options.short)
        return
    with tempfile.TemporaryDirectory(prefix="rmqha-pods-") as directory:
        play(Path(directory), is_short=options.short)


if __name__ == "__main__":
    main()
