"""Where mistakes are made: a directory, ports, and real processes that end with it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from rmq_ha.base.host.ports import free_ports
from tests.mistakes.forks import ENTRIES, Forks

BIN = Path(sys.executable).parent
USUAL = {"namesrv": 9876, "second": 9877, "broker": 10911, "slave": 11011, "metrics": 5557}
"""What stands in the table for the ports of a run."""
SMALL = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
slaveTimeout=1000
haSendHeartbeatInterval=1000
haHousekeepingInterval=3000
"""
LONG_S = 90.0
STAMP = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* (?:\[[^]]*\] ?)?", re.MULTILINE)


class Running:
    """
    A process in the background.

    :param process: None for a fork.
    """

    def __init__(
        self, log: Path, process: subprocess.Popen[bytes] | None, forks: Forks, pid: int
    ) -> None:
        self._log, self._process, self._forks, self.pid = log, process, forks, pid

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def poll(self) -> int | None:
        return self._process.poll() if self._process else self._forks.poll(self.pid)

    def wait(self, seconds: float = LONG_S) -> int:
        """How it ended; whoever does not is killed."""
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.02)
        return code

    def until(self, words: str, seconds: float = LONG_S) -> str:
        """All that it said, once these words are there, or it ended, or time is up."""
        deadline = time.monotonic() + seconds
        while words not in self.said and time.monotonic() < deadline:
            if self.poll() is not None:
                break
            time.sleep(0.05)
        return self.said

    def tell(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def end(self, number: int = signal.SIGTERM) -> str:
        self.tell(signal.SIGCONT)
        self.tell(number)
        self.wait()
        return self.said


class Bench(ExitStack):
    """
    :ivar typed: the last command; what a mistake shows.
    """

    def __init__(self, directory: Path, forks: Forks) -> None:
        super().__init__()
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        base = free_ports(24)
        self.port = {
            "namesrv": base,
            "second": base + 1,
            "metrics": base + 2,
            "other": base + 3,
            "broker": base + 8,
            "slave": base + 16,
        }
        self.typed = ""
        self._runs = 0
        self._forks = forks

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def write(self, name: str, text: str) -> str:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def broker_file(
        self, settings: str = "", name: str = "b.properties", port: str = "broker"
    ) -> str:
        """A broker's properties file, in this directory; its store is called as it is."""
        store = name.partition(".")[0]
        own = f"{SMALL}listenPort={self.port[port]}\n"
        if "storePathRootDir" not in settings:
            own += f"storePathRootDir=store-{store}\n"
        if "namesrvAddr" not in settings and "embeddedNamesrvPort" not in settings:
            own += f"embeddedNamesrvPort={self.port['namesrv']}\n"
        return self.write(name, own + settings)

    def run(self, *command: str, stdin: str = "", environ: Mapping[str, str] | None = None) -> str:
        """Type it, and wait for its end: what it said, with its exit code at the end."""
        running = self.start(*command, stdin=stdin, environ=environ)
        code = running.wait()
        # Which maker of runs this machine has is no part of what was typed.
        said = [line for line in running.said.splitlines() if "# runs of messages" not in line]
        return "\n".join([*said, f"exit code {code}"])

    def start(
        self,
        *command: str,
        stdin: str = "",
        environ: Mapping[str, str] | None = None,
        files: int | None = None,
    ) -> Running:
        """
        Type it, and leave it running.

        :param files: so many may be open.
        """
        self.typed = shlex.join(command)
        self._runs += 1
        log = self.directory / f"output-{self._runs}.log"
        given = self.directory / "stdin"
        given.write_text(stdin)
        own = self._environ(environ)
        process = None
        if command[0] in ENTRIES and "LD_PRELOAD" not in own:
            pid = self._forks.start(
                list(command),
                cwd=str(self.directory),
                env=own,
                output=str(log),
                input=str(given),
                files=files,
            )
        else:
            with log.open("wb") as sink, given.open("rb") as source:
                process = subprocess.Popen(
                    self._program(command),
                    cwd=self.directory,
                    stdin=source,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=own,
                )
            pid = process.pid
        running = Running(log, process, self._forks, pid)
        self.callback(running.end, signal.SIGKILL)
        return running

    def serve(self, *command: str) -> Running:
        """The same, until it serves; it is not what the mistake is about."""
        typed = self.typed
        running = self.start(*command, "--ready")
        text = running.until("READY {")
        assert "READY {" in text, text
        self.typed = typed
        return running

    def broker(
        self, settings: str = "", name: str = "b.properties", port: str = "broker"
    ) -> Running:
        return self.serve("rmqha-broker", "-c", self.broker_file(settings, name, port))

    def admin(self, *arguments: str, port: str = "namesrv", **given: object) -> str:
        return self.run("rmqha-admin", *arguments, "-n", self.at(port), **given)  # type: ignore[arg-type]

    def at(self, port: str) -> str:
        return f"127.0.0.1:{self.port[port]}"

    def get(self, path: str) -> str:
        """Of the status port."""
        self.typed = f"curl http://{self.at('metrics')}{path}"
        try:
            with urllib.request.urlopen(f"http://{self.at('metrics')}{path}", timeout=5) as answer:
                return f"{answer.status} {answer.read().decode()}"
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        except OSError as error:
            return str(error)

    def until(self, look: Callable[[], str], words: str, seconds: float = LONG_S) -> str:
        """The first answer that has these words, or the last one."""
        deadline = time.monotonic() + seconds
        while words not in (text := look()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return text

    def plain(self, text: str) -> str:
        """Without what differs from run to run."""
        text = re.sub(r"\x1b\[[\d;]*m", "", text).replace(f"{self.directory}/", "")
        text = text.replace(str(self.directory), ".").replace(f"{BIN}/", "")
        for name, port in self.port.items():
            for away in (-2, 0, 1) if name in ("broker", "slave") else (0,):
                usual = USUAL.get(name, 12000) + away
                text = re.sub(rf"(?<![\d.]){port + away}(?!\d|\.\d)", str(usual), text)
        lines = STAMP.sub("", text).splitlines()
        return "\n".join(line for line in lines if not line.startswith(("serving:", "READY")))

    def _program(self, command: tuple[str, ...]) -> list[str]:
        own = BIN / command[0]
        return [str(own) if own.exists() else command[0], *command[1:]]

    def _environ(self, more: Mapping[str, str] | None) -> dict[str, str]:
        ours = {
            key: value
            for key, value in os.environ.items()
            if key != "NAMESRV_ADDR" and not key.startswith("RMQHA_")
        }
        return {
            **ours,
            "COLUMNS": "500",
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            **(more or {}),
        }
