"""The datagrams of sd_notify(3), on real sockets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from rmq_ha.ops.app.notify import notifier, unix_send


@pytest.mark.parametrize("is_abstract", [False, True])
def test_lines_arrive_at_the_socket_that_is_named(tmp_path: Path, is_abstract: bool) -> None:
    name = f"rmqha-{os.getpid()}-notify"
    path = f"@{name}" if is_abstract else str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if is_abstract else path)
        manager.settimeout(5)
        clock = Clock()
        asked = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "77"}
        told = notifier(clock, asked, 77, unix_send)  # type: ignore[arg-type]
        told.ready("serving")
        assert manager.recv(100) == b"READY=1\nSTATUS=serving"
        assert manager.recv(100) == b"WATCHDOG=1"
        clock.advance(14.9)
        clock.advance(0.1)
        assert manager.recv(100) == b"WATCHDOG=1"
        told.stopping()
        assert manager.recv(100) == b"STOPPING=1"
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 0),
        ({"NOTIFY_SOCKET": "relative"}, 0),
        ({"NOTIFY_SOCKET": "/n"}, 1),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "2000000"}, 2),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, 1),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, 1),
    ],
)
def test_only_who_asked_is_told(environ: dict[str, str], expected: int) -> None:
    sent: list[bytes] = []
    clock = Clock()
    told = notifier(clock, environ, 77, lambda path: sent.append)  # type: ignore[arg-type]
    told.ready("x")
    assert len(sent) == expected
    assert bool(clock.getDelayedCalls()) == (expected == 2)


def test_a_manager_that_is_gone_harms_nobody(tmp_path: Path) -> None:
    asked = {"NOTIFY_SOCKET": str(tmp_path / "nobody")}
    told = notifier(Clock(), asked, 77, unix_send)  # type: ignore[arg-type]
    told.ready("x")
    told.stopping()


def test_a_name_server_by_its_own_command_tells_its_manager(tmp_path: Path) -> None:
    """The whole way: `rmqha-namesrv`, READY, signs of life, SIGTERM, exit code 0."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        manager.settimeout(30)
        command = "from rmq_ha.ops.app.foreground import namesrv; namesrv()"
        settings = ["--set", "bindAddress=127.0.0.1", "--listenPort", "0"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", command, *settings],
                env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "200000"},
                cwd=tmp_path,
                stdout=log,
                stderr=log,
            )
        try:
            assert manager.recv(200).startswith(b"READY=1\nSTATUS=serving on port ")
            assert [manager.recv(100), manager.recv(100)] == [b"WATCHDOG=1"] * 2
            process.send_signal(signal.SIGTERM)
            while (said := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    assert b"rmqnamesrv: rmq-ha " in (tmp_path / "log").read_bytes()


@pytest.mark.parametrize("program", ["broker", "namesrv", "controller"])
def test_a_command_says_its_version(program: str) -> None:
    command = f"from rmq_ha.ops.app.foreground import {program}; {program}()"
    made = subprocess.run(
        [sys.executable, "-c", command, "--version"], capture_output=True, check=True, timeout=30
    )
    assert made.stdout.startswith(b"rmq-ha 0.")
