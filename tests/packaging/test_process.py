"""Servers as processes under the real twistd: exit codes, signals, the READY line."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TWISTD = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "-n", "--pidfile="]
PORT = 20010
NAMESRV = 20020

# A ServiceMaker around ServerService with a server that does what its option says.
FAKE_PLUGIN = """
from twisted.application.service import ServiceMaker
fake = ServiceMaker("fake", "fake_tap", "for a test", "fakeserver")
"""
FAKE_TAP = """
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python import usage

from rmq_ha.ops.app.process import ProcessEnd
from rmq_ha.ops.app.service import ServerService
from rmq_ha.base.errors import StoreLocked


class Options(usage.Options):
    optParameters = [["start", None, "ok", "How the start goes."]]


class Server:
    def __init__(self, reactor, how):
        self.reactor, self.how = reactor, how

    def start(self):
        if self.how == "locked":
            return fail(StoreLocked("/s is in use"))
        if self.how == "bug":
            return fail(ZeroDivisionError("oops"))
        return succeed(None)

    def stop(self):
        done = Deferred()
        self.reactor.callLater(0.2, lambda: (print("slow stop done"), done.callback(None)))
        return done

    def reload(self):
        return succeed(True)

    def ports(self):
        return []

    def facts(self):
        return {"how": self.how}

    def observe(self, event):
        pass


def makeService(options):
    from twisted.internet import reactor

    server = Server(reactor, options["start"])
    return ServerService(reactor, server, ProcessEnd(reactor), [], True)
"""


def environment(*paths: Path) -> dict[str, str]:
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*paths, ROOT]))}
    found.pop("NAMESRV_ADDR", None)
    return found


class Process:
    """One twistd; `ready` waits for its READY line."""

    def __init__(self, directory: Path, *arguments: str, paths: tuple[Path, ...] = ()) -> None:
        self.output = directory / f"output-{len(list(directory.iterdir()))}.log"
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                [*TWISTD, *arguments],
                cwd=directory,
                env=environment(*paths),
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.output.read_text()

    def ready(self) -> dict[str, object]:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.text().splitlines():
                if line.startswith("READY {"):
                    return dict(json.loads(line.removeprefix("READY ")))
            time.sleep(0.02)
        raise AssertionError(self.text())

    def end(self, number: int | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        try:
            return self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    plugins = tmp_path / "path" / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "fake_server.py").write_text(FAKE_PLUGIN)
    (tmp_path / "path" / "fake_tap.py").write_text(FAKE_TAP)
    return tmp_path / "path"


def test_a_failed_start_is_one_line_and_exit_code_1(tmp_path: Path, fake: Path) -> None:
    process = Process(tmp_path, "fakeserver", "--start", "locked", paths=(fake,))
    assert process.end() == 1, process.text()
    assert "cannot start: /s is in use" in process.text()
    assert "Traceback" not in process.text()
    assert "slow stop done" in process.text()


def test_a_mistake_of_ours_is_a_traceback_and_exit_code_1(tmp_path: Path, fake: Path) -> None:
    process = Process(tmp_path, "fakeserver", "--start", "bug", paths=(fake,))
    assert process.end() == 1
    assert "ZeroDivisionError: oops" in process.text()


def test_sigterm_waits_for_the_stop_and_is_exit_code_0(tmp_path: Path, fake: Path) -> None:
    process = Process(tmp_path, "fakeserver", paths=(fake,))
    facts = process.ready()
    assert facts == {"pid": process.process.pid, "how": "ok"}
    assert process.end(signal.SIGTERM) == 0, process.text()
    assert "slow stop done" in process.text()
    assert "stopped" in process.text()


def test_a_second_sigterm_does_not_hurry_the_stop(tmp_path: Path, fake: Path) -> None:
    process = Process(tmp_path, "fakeserver", paths=(fake,))
    process.ready()
    process.process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    assert process.end(signal.SIGTERM) == 0, process.text()
    assert "slow stop done" in process.text()
    assert "Traceback" not in process.text()


def test_a_bad_configuration_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "b.properties").write_text("\nlistenPort=x\n")
    process = Process(tmp_path, "rmqha", "--config", "b.properties")
    assert process.end() == 1
    assert process.text() == ("rmqha: b.properties:2: listenPort=x: must be a whole number\n")


BROKER = f"""\
listenPort={PORT}
bindAddress=127.0.0.1
storePathRootDir=./store
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
brokerName=broker-a
embeddedNamesrvPort={NAMESRV}
"""


def test_a_broker_alone_embeds_a_name_server_and_stops_at_sigterm(tmp_path: Path) -> None:
    (tmp_path / "b.properties").write_text(BROKER)
    process = Process(tmp_path, "rmqha", "--config", "b.properties", "--ready")
    facts = process.ready()
    assert facts["namesrvPort"] == NAMESRV
    for port in (PORT, PORT - 2, PORT + 1, NAMESRV):
        socket.create_connection(("127.0.0.1", port), 5).close()
    assert "without ACL or TLS" not in process.text()
    assert process.end(signal.SIGTERM) == 0, process.text()
    assert not (tmp_path / "store" / "abort").exists()


def test_a_port_in_use_says_which_and_what_for(tmp_path: Path) -> None:
    (tmp_path / "b.properties").write_text(BROKER)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", PORT))
        taken.listen()
        process = Process(tmp_path, "rmqha", "--config", "b.properties")
        assert process.end() == 1, process.text()
    assert (
        f"cannot listen on port {PORT} of 127.0.0.1 for clients (listenPort): "
        "it is in use by another process" in process.text()
    )
    assert "Traceback" not in process.text()


def test_a_locked_store_says_which_directory(tmp_path: Path) -> None:
    (tmp_path / "b.properties").write_text(BROKER)
    first = Process(tmp_path, "rmqha", "--config", "b.properties", "--ready")
    try:
        first.ready()
        second = Process(
            tmp_path,
            *("rmqha", "--config", "b.properties", "--set", f"listenPort={PORT + 20}"),
            *("--namesrvPort", str(NAMESRV + 20)),
        )
        assert second.end() == 1, second.text()
        assert str(tmp_path / "store") in second.text()
        assert "cannot start: " in second.text()
        assert "Traceback" not in second.text()
    finally:
        assert first.end(signal.SIGTERM) == 0, first.text()


def test_a_name_server_listens_and_stops(tmp_path: Path) -> None:
    process = Process(
        tmp_path,
        *("rmqnamesrv", "--listenPort", "0", "--set", "bindAddress=127.0.0.1", "--ready"),
        *("--set", f"kvConfigPath={tmp_path}/kv.json"),
    )
    port = process.ready()["listenPort"]
    assert isinstance(port, int)
    socket.create_connection(("127.0.0.1", port), 5).close()
    assert process.end(signal.SIGTERM) == 0, process.text()


def test_listening_for_everybody_is_said(tmp_path: Path) -> None:
    (tmp_path / "b.properties").write_text(BROKER.replace("bindAddress=127.0.0.1", ""))
    process = Process(tmp_path, "rmqha", "--config", "b.properties", "--ready")
    process.ready()
    assert process.text().count("listening on all addresses without ACL or TLS") == 1
    assert process.end(signal.SIGTERM) == 0
