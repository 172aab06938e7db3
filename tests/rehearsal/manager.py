"""What systemd does for a service of `Type=notify`, where it cannot run: enough for a rehearsal."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

WATCHDOG_S = 20.0
READY_S = 180.0
SYSTEMCTL = """\
import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
link.sendall(" ".join(sys.argv[1:]).encode())
link.shutdown(socket.SHUT_WR)
answer = link.makefile().read()
print(answer, end="")
raise SystemExit(0 if answer == "" else 1)
"""


class Failed(Exception):
    """A unit did not do what was asked of it."""


class Unit:
    """
    One service.

    :ivar command: `ExecStart`.
    :ivar lives: signs of life that its watchdog got.
    """

    def __init__(self, manager: Manager, name: str, command: list[str]) -> None:
        self.name, self.command = name, command
        self.environ: dict[str, str] = {}
        self.lives = 0
        self.said: list[str] = []
        self._manager = manager
        self._process: subprocess.Popen[bytes] | None = None
        self.log = manager.directory / f"{name}.log"

    def start(self) -> None:
        """:raises Failed: it ends, or is not ready in time."""
        path = str(self._manager.directory / f"{self.name}.notify")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        told.bind(path)
        self.said = []
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(
                self.command,
                cwd=self._manager.directory,
                env={
                    **self._manager.environ,
                    **self.environ,
                    "NOTIFY_SOCKET": path,
                    "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6)),
                },
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        threading.Thread(target=self._listen, args=(told, self._process), daemon=True).start()
        deadline = time.monotonic() + READY_S
        while "READY=1" not in self.said:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self.name} is not ready:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.02)

    def _listen(self, told: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """A watchdog that hears nothing ends the service, as systemd does."""
        told.settimeout(WATCHDOG_S)
        with told:
            while process.poll() is None:
                try:
                    lines = told.recv(4096).decode().split("\n")
                except TimeoutError:
                    if "READY=1" in self.said and process.poll() is None:
                        process.send_signal(signal.SIGABRT)
                    continue
                self.said += lines
                self.lives += "WATCHDOG=1" in lines

    def stop(self) -> None:
        """:raises Failed: it does not end in an orderly way, or does not say that it stops."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        if process.wait(READY_S):
            raise Failed(f"{self.name} ended with {process.returncode}")
        self._process = None

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def reload(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)


class Manager:
    """
    Units, and a `systemctl` on the PATH that is obeyed.

    :ivar environ: of all services and commands.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.units: dict[str, Unit] = {}
        address = str(directory / "manager")
        (directory / "bin").mkdir()
        tool = directory / "bin" / "systemctl"
        tool.write_text(f"#!{sys.executable} -SE\n{SYSTEMCTL.format(address=address)}")
        tool.chmod(0o755)
        own = Path(sys.executable).parent
        inherited = {
            key: value
            for key, value in os.environ.items()
            if key != "NAMESRV_ADDR" and not key.startswith(("RMQHA_", "PYTEST"))
        }
        self.environ = {
            **inherited,
            "PATH": f"{directory / 'bin'}:{own}:{os.environ['PATH']}",
            "HOME": str(directory),
            "COLUMNS": "300",
        }
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(address)
        self._server.listen()
        threading.Thread(target=self._obey, daemon=True).start()

    def add(self, name: str, *command: str) -> Unit:
        unit = self.units[name] = Unit(self, name, list(command))
        return unit

    def _obey(self) -> None:
        while True:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            with link:
                what, name = link.makefile().read().split()
                answer = ""
                try:
                    unit = self.units[name]
                    if what in ("stop", "restart"):
                        unit.stop()
                    if what in ("start", "restart"):
                        unit.start()
                    if what == "reload":
                        unit.reload()
                except (Failed, KeyError) as error:
                    answer = f"{error}\n"
                link.sendall(answer.encode())

    def close(self) -> None:
        for unit in self.units.values():
            unit.kill()
        self._server.close()
