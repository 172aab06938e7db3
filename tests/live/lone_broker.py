"""A master with its name server in a process of its own, and what honest clients do with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from rmq_ha.base.host.blocking import BlockingCalls
from tests.live.live_ports import free_ports

TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", "rmqha", "--ready"]
SETTINGS = (
    "bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nbrokerName=broker-a\nstorePathRootDir=store\n"
    "maxHashSlotNum=1000\nmaxIndexNum=4000\n"
)


class LoneBroker:
    """
    It runs as soon as it is made.

    :param bases: of ports, as for `free_ports`.
    :param settings: lines of its configuration besides the ports.
    :param in_child: done in the process before it becomes the broker.
    :ivar ready: what it said when it was: `haListenPort` and so on.
    """

    def __init__(
        self,
        directory: Path,
        bases: range,
        settings: str = "",
        in_child: Callable[[], None] | None = None,
    ) -> None:
        base, spare = free_ports(2, bases)
        self.port, self.namesrv, self.metrics = base + 2, base + 1, spare
        self.store = directory / "store"
        (directory / "p").write_text(
            f"{SETTINGS}listenPort={self.port}\nembeddedNamesrvPort={self.namesrv}\n"
            f"metricsPort={self.metrics}\n{settings}"
        )
        self.output = directory / "output.log"
        self.calls = BlockingCalls()
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [*TWISTD, "--config", "p"],
                cwd=directory,
                stdout=sink,
                stderr=sink,
                preexec_fn=in_child,
            )
        deadline = time.monotonic() + 60
        while "READY {" not in self.output.read_text():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ready = next(line for line in self.output.read_text().splitlines() if "READY {" in line)
        self.ready: dict[str, Any] = json.loads(ready[ready.index("{") :])

    def metric(self, name: str) -> dict[str, float]:
        """By the value of the label `reason`, or by nothing."""
        url = f"http://127.0.0.1:{self.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=30) as response:
            text = response.read().decode()
        return {
            sample.labels.get("reason", ""): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }

    def memory(self) -> float:
        """Of its process, MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def end(self) -> int:
        """A clean stop; its exit code."""
        self.calls.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
