"""A client program that is told what to do line by line and answers with JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.rig import PEER

HERE = Path(__file__).parent


def java_class_path(name: str, folder: Path, peer: Path = PEER) -> str:
    """
    Compile a program of `tests/interop/java` against RocketMQ 4.9.7.

    :param peer: the rig of another version.
    :returns: where it and the real classes are.
    """
    real = subprocess.run(
        [str(peer), "classpath"], capture_output=True, text=True, check=True
    ).stdout.strip()
    folder.mkdir(parents=True, exist_ok=True)
    source = HERE / "java" / f"{name}.java"
    quiet = ["-nowarn", "-proc:none", "-Xlint:none"]
    # One file is compiled before the second compiler of the JVM and its other collector are of use.
    quick = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
    subprocess.run(
        ["javac", *quick, *quiet, "-d", str(folder), "-cp", real, str(source)], check=True
    )
    return f"{folder}:{real}"


def compiled_java(name: str, folder: Path, peer: Path = PEER) -> list[str]:
    """
    Compile a client, as `java_class_path`.

    :returns: the command that runs it.
    """
    class_path = java_class_path(name, folder, peer)
    settings = [
        f"-Drocketmq.client.logRoot={folder}/logs",
        "-Drocketmq.client.rebalance.waitInterval=1000",
        # Broadcast consumers remember by client id how far they were; ids are the same each time.
        f"-Drocketmq.client.localOffsetStoreDir={folder}/offsets",
    ]
    return ["java", "-XX:+UseSerialGC", "-Xmx256m", *settings, "-cp", class_path, name]


def compiled_go(folder: Path, package: str = ".") -> list[str]:
    """
    Compile a program of `tests/interop/go` with the stock Go client.

    :param package: its folder there.
    :returns: the command that runs it.
    """
    program = folder / "features"
    subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), package],
        cwd=HERE / "go",
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    return [str(program)]


class Conversation:
    """
    One running program; every event that it told so far is in `events`.

    :param command: prints one JSON object a line, first of all {"event": "ready"}.
    """

    def __init__(self, command: list[str], errors: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._orders: list[str] = []
        self._errors = errors
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors.open("w"),
            cwd=errors.parent,
            env={**os.environ, "HOME": str(errors.parent)},  # where the Go client remembers
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def tell(self, line: str) -> None:
        """Give an order without waiting for its end."""
        self._orders.append(line)
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def do(self, line: str, seconds: float = 60) -> None:
        """Give an order and wait until it is carried out."""
        self.tell(line)
        assert self.done(line, seconds), f"{line}: not done within {seconds} s"

    def done(self, line: str, seconds: float) -> bool:
        """Whether all orders of this kind are carried out in time."""
        command = line.split()[0]
        wanted = sum(order.split()[0] == command for order in self._orders)
        return self.until(
            lambda: (
                sum(
                    item["event"] == "done" and item.get("command", command) == command
                    for item in list(self.events)
                )
                >= wanted
            ),
            seconds,
            line,
        )

    def count(self, event: str) -> int:
        """How often an event was told."""
        return sum(item["event"] == event for item in list(self.events))

    def bodies(self, event: str, by: str | None = None) -> list[str]:
        """The bodies of all events of a kind, of one consumer or of all, in their order."""
        return [
            item["body"]
            for item in list(self.events)
            if item["event"] == event and (by is None or item.get("by") == by)
        ]

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> bool:
        """Whether a condition became true in time; raises when the program has ended."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None:
                raise AssertionError(
                    f"{what}: the client ended\n{self._errors.read_text()[-3000:]}"
                )
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        """Let it shut down, or kill it."""
        if self._process.poll() is None:
            self.tell("quit")
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
