"""`rmqha-admin doctor` and `--check --live` as they are typed, at a process that has little."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.lone_broker import LoneBroker

BASES = range(25760, 25840, 4)
BIN = Path(sys.executable).parent
FEW = 128


def few_files() -> None:
    """As `LimitNOFILE=128`."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneBroker]:
    """It may have 128 open files, of which 64 are for connections."""
    made = LoneBroker(tmp_path_factory.mktemp("broker"), BASES, in_child=few_files)
    yield made
    made.end()


class Typed:
    """What a command said."""

    def __init__(self, *words: str, cwd: Path, **more: Any) -> None:
        self._process = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]], cwd=cwd, stdout=subprocess.PIPE, **more
        )

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def finds(self, code: str) -> str:
        """:returns: what it said of it."""
        found = [item["text"] for item in self.findings if item["code"] == code]
        assert found, self.findings
        return "\n".join(found)

    @property
    def findings(self) -> list[dict[str, str]]:
        if not hasattr(self, "_told"):
            out, _ = self._process.communicate(timeout=60)
            self._told = json.loads(out)
        return list(self._told["findings"])

    @property
    def errors(self) -> set[str]:
        return {item["code"] for item in self.findings if item["severity"] == "error"}


def connected(stack: ExitStack, broker: LoneBroker, source: str, count: int) -> None:
    for _ in range(count):
        there = ("127.0.0.1", broker.port)
        stack.enter_context(socket.create_connection(there, 30, source_address=(source, 0)))


def test_a_process_that_has_too_little(broker: LoneBroker) -> None:
    """Few files, nearly no places for connections, refused ones, and a thread that stood still."""
    namesrv = f"127.0.0.1:{broker.namesrv}"
    doctor = ("rmqha-admin", "doctor", "-n", namesrv, "--json", "--look-again", "1.5")
    with ExitStack() as stack:
        connected(stack, broker, "127.0.0.2", 32)
        connected(stack, broker, "127.0.0.3", 22)
        broker.process.send_signal(signal.SIGSTOP)
        time.sleep(2.0)  # this is the fault: it stands still for so long
        broker.process.send_signal(signal.SIGCONT)
        said = Typed(*doctor, cwd=broker.store.parent)
        while not said.is_over:
            with socket.socket() as more:
                more.bind(("127.0.0.2", 0))
                more.connect(("127.0.0.1", broker.port))
                more.settimeout(30)
                assert more.recv(1) == b""
            time.sleep(0.1)
        assert f"it may open {FEW} files" in said.finds("few-files")
        assert "of 64 places for connections" in said.finds("running-out")
        assert "(maxConnectionsPerIp)" in said.finds("connections-refused")
        assert "everything waited" in said.finds("reactor-late")
        assert said.errors == set()


def test_a_second_start_with_the_same_file(broker: LoneBroker) -> None:
    """Nothing is started to see that it would fail."""
    said = subprocess.run(
        [str(BIN / "rmqha-broker"), "-c", "p", "--check", "--live"],
        cwd=broker.store.parent,
        preexec_fn=few_files,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode == 1, said.stderr
    for code in ("port-taken", "store-open", "few-files"):
        assert f" {code} " in said.stdout or f"{code}:" in said.stdout, said.stdout
    assert f"may open {FEW} files" in " ".join(said.stdout.split())
