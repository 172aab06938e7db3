"""Three real processes that form a DLedger group: a leader is stopped, another one is killed."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.messages import (
    GroupMessage,
    HeartBeatRequest,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    VoteRequest,
)
from tests.live.live_ports import free_ports

TWISTD = [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile="]
COMMON = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-d
enableDLegerCommitLog=true
dLegerGroup=broker-d
flushDiskType=SYNC_FLUSH
mappedFileSizeCommitLog=1048576
maxHashSlotNum=1000
maxIndexNum=4000
storePathRootDir=store
"""


BASES = range(24500, 24680, 4)


def call(port: int, request: RemotingCommand, timeout: float = 20) -> RemotingCommand:
    """:raises OSError: no answer."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.sendall(encode_frame(request))
        reader = FrameReader()
        while True:
            data = connection.recv(1 << 16)
            if not data:
                raise OSError("closed")
            for frame in reader.receive_data(data):
                return decode_frame(*frame)


class Alone:
    """One member of three; the other two are names that nobody has."""

    def __init__(self, directory: Path) -> None:
        (base,) = free_ports(1, BASES)
        self.port = base + 1
        self._log = directory / "output.log"
        peers = f"n0-127.0.0.1:{self.port};n1-n1.invalid:1;n2-n2.invalid:1"
        own = f"listenPort={base + 2}\nnamesrvAddr=127.0.0.1:1\ndLegerSelfId=n0\n"
        (directory / "p.properties").write_text(f"{COMMON}{own}dLegerPeers={peers}\n")
        with self._log.open("ab") as sink:
            self.process = subprocess.Popen(
                [*TWISTD, "rmqha", "--config", "p.properties"],
                cwd=directory,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def ask(self, code: int, message: GroupMessage) -> RemotingCommand:
        return call(self.port, RemotingCommand(code, body=encode_body(message)))

    def status(self) -> MetadataResponse:
        request = MetadataRequest(group="broker-d", remote_id="n0", status=True)
        return decode_body(MetadataResponse, self.ask(DLedgerRequestCode.METADATA, request).body)

    def wait(self) -> None:
        deadline = time.monotonic() + 40
        while True:
            with contextlib.suppress(OSError, ProtocolViolation):
                self.status()
                return
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def output(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(20)


def test_a_stranger_leads_nobody(tmp_path: Path) -> None:
    """One heartbeat made the term what it said, three more made it the leader."""
    member = Alone(tmp_path)
    try:
        member.wait()
        before = member.status()
        said = {"group": "broker-d", "remote_id": "n0", "local_id": "n1", "leader_id": "n1"}
        for code, kind in (
            (DLedgerRequestCode.HEART_BEAT, HeartBeatRequest),
            (DLedgerRequestCode.VOTE, VoteRequest),
            (DLedgerRequestCode.PUSH, PushEntryRequest),
        ):
            for _ in range(3):
                answer = member.ask(code, kind(**said, term=1000))  # type: ignore[arg-type]
                assert b'"code":401' in (answer.body or b"")
        after = member.status()
        assert (after.leader_id, after.end_index) == (before.leader_id, before.end_index)
        assert (after.current_term or 0) < 1000
        assert "it says to be n1's, who is at no known address" in member.output()
        assert member.output().count("refused on the DLedger port") == 1
    finally:
        member.close()


class Group:
    """Three brokers and a name server."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        *self.bases, names = free_ports(4, BASES)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._names = names
        (directory / "ns").mkdir()
        self._run("ns", "rmqnamesrv", f"listenPort={names}\nkvConfigPath=kv.json\n")
        peers = ";".join(
            f"n{number}-127.0.0.1:{base + 1}" for number, base in enumerate(self.bases)
        )
        for number, base in enumerate(self.bases):
            name = f"n{number}"
            (directory / name).mkdir()
            own = (
                f"listenPort={base + 2}\nnamesrvAddr=127.0.0.1:{names}\n"
                f"dLegerPeers={peers}\ndLegerSelfId={name}\n"
            )
            self._run(name, "rmqha", COMMON + own)

    def _run(self, name: str, program: str, text: str) -> None:
        directory = self.directory / name
        (directory / "p.properties").write_text(text)
        with (directory / "output.log").open("ab") as sink:
            self.processes[name] = subprocess.Popen(
                [*TWISTD, program, "--config", "p.properties"],
                cwd=directory,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def again(self, name: str) -> None:
        self._run(name, "rmqha", (self.directory / name / "p.properties").read_text())

    def port(self, name: str) -> int:
        return self.bases[int(name[1:])] + 2

    def send(self, body: bytes, but: str = "") -> str | None:
        """Who took it; None: nobody."""
        for number in range(3):
            name = f"n{number}"
            if name == but or self.processes[name].poll() is not None:
                continue
            with contextlib.suppress(OSError):
                request = send_request("p", "TBW102", 0, body, "", 1)
                if call(self.port(name), request, 4).code == 0:
                    return name
        return None

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                tails = [
                    f"{path}: {path.read_text()[-1500:]}"
                    for path in self.directory.glob("*/output.log")
                ]
                raise AssertionError(f"no {what} within {seconds} s\n" + "\n".join(tails))
            time.sleep(0.1)

    def send_all(self, name: str, count: int, but: str = "", seconds: float = 30) -> list[bytes]:
        """Until each was answered SEND_OK; the first decides who leads."""
        bodies = [b"%b-%d" % (name.encode(), number) for number in range(count)]
        for body in bodies:
            self.until(lambda body=body: self.send(body, but) is not None, seconds, "leader")
        return bodies

    def leader(self) -> str:
        found: list[str] = []

        def is_led() -> bool:
            name = self.send(b"who")
            if name is not None:
                found.append(name)
            return bool(found)

        self.until(is_led, 30, "leader")
        return found[0]

    def bodies(self, name: str) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while True:
            answer = call(self.port(name), pull_request("c", "TBW102", 0, offset))
            if answer.code != 0:
                return found
            records = decode_records(answer.body or b"")
            found += [bytes(record.body) for record in records]
            offset = int((answer.ext or {})["nextBeginOffset"])

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(20)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.close()


@pytest.mark.trials
def test_what_was_acknowledged_is_on_all_whoever_falls(group: Group) -> None:
    """A stopped leader hands over first; of a killed one its followers hear 6 s later."""
    first = group.leader()
    sent = group.send_all("a", 30)
    process = group.processes[first]
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    sent += group.send_all("b", 1, but=first)
    assert time.monotonic() - began < 5.5  # without a hand-over 6 s
    assert process.wait(20) == 0
    group.again(first)
    sent += group.send_all("c", 20)
    second = group.leader()
    group.processes[second].kill()
    group.processes[second].wait(20)
    sent += group.send_all("d", 20)
    group.again(second)
    for name in ("n0", "n1", "n2"):

        def is_whole(name: str = name) -> bool:
            with contextlib.suppress(OSError):
                found = group.bodies(name)
                return [body for body in found if body != b"who"] == sent
            return False

        group.until(is_whole, 30, f"whole queue at {name}")
