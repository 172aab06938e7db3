"""The Java clients of a soak (`bench/java/Soak.java`), and the topics that they use."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from soak_rules import Judge

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.interop.rig import PEER

TOPICS = ("normal", "ordered", "delayed", "txn", "filtered", "retry")


def compiled(folder: Path) -> list[str]:
    """The command that runs the clients."""
    done = subprocess.run([str(PEER), "classpath"], capture_output=True, text=True, check=True)
    classpath = done.stdout.strip()
    source = Path(__file__).parent / "java" / "Soak.java"
    subprocess.run(["javac", "-d", str(folder), "-cp", classpath, str(source)], check=True)
    return [
        "java",
        "-Xmx384m",
        f"-Drocketmq.client.logRoot={folder}/logs",
        "-Drocketmq.client.rebalance.waitInterval=2000",
        "-cp",
        f"{folder}:{classpath}",
        "Soak",
    ]


class Clients:
    """The Java process; its lines go to the judge as they come."""

    def __init__(self, command: list[str], judge: Judge, log: Path) -> None:
        self._judge = judge
        self.events: Counter[str] = Counter()
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.rstrip("\n").split("\t")
            now = time.monotonic()
            if words[0] == "S":
                self._judge.sent(*words[1:4])
            elif words[0] == "R":
                self._judge.consumed(*words[1:8], now=now)
            elif words[0] == "E":
                self.events[words[1]] += 1
                if words[1].startswith(("join", "leave")):
                    self._judge.disturbed(now, words[1].split()[1])

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def wait_for(self, event: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.events[event]:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"the clients did not say {event!r}")
            time.sleep(0.1)
