"""A DLedger group whose members are ours or Java's, its load, and what must be true of both."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode
from rmq_ha.server.dledger.messages import (
    GroupMessage,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.interop.conversation import compiled_java
from tests.interop.pairs import log_end
from tests.interop.rig import SMALL, Rig, Server
from tests.interop.wire import Refused, Wire

GROUP = "broker-d"
TOPIC = "Group"
FILE_SIZE = 1 << 20
QUEUES = 8
OK = 200
R = TypeVar("R", bound=GroupMessage)
# What waited 200 ms in the queue of a busy Java broker is refused otherwise.
QUICK = {"registerNameServerPeriod": 10000, "waitTimeMillsInSendQueue": 10000}


class Stored(NamedTuple):
    """A SEND_OK."""

    serial: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class Member(NamedTuple):
    """Where one member is; `server` runs, or ran, there."""

    name: str
    peer: str
    server: Server

    def ask(self, code: int, request: GroupMessage, kind: type[R], timeout: float = 30) -> R:
        """
        One request to the group's port.

        :raises OSError: no answer.
        """
        with Wire(self.peer, timeout) as wire:
            (answer,) = wire.exchange([RemotingCommand(code, None, encode_body(request))])
        return decode_body(kind, answer.body)

    def leader(self) -> str | None:
        """Whom this member takes for the leader; None also when it does not answer."""
        with contextlib.suppress(OSError):
            request = MetadataRequest(group=GROUP, remote_id=self.name)
            return self.ask(DLedgerRequestCode.METADATA, request, MetadataResponse, 1).leader_id
        return None

    def term(self, other: str) -> int:
        """The current term, from the refusal of a heartbeat of a term that never was."""
        request = HeartBeatRequest(
            group=GROUP, remote_id=self.name, local_id=other, leader_id=other, term=-1
        )
        return self.ask(DLedgerRequestCode.HEART_BEAT, request, HeartBeatResponse).term


class Group:
    """
    Three members; each may be killed, paused and started again, as ours or as Java's.

    :param java: of each member, whether it is Java's.
    :param conf: folder of `dledger-n0.conf` and so on.
    :param heap: of Java's.
    :ivar sides: the same, by name; where Java takes every place this still says whose it would be.
    """

    def __init__(
        self, rig: Rig, java: Sequence[bool], *, conf: Path = SMALL, heap: str | None = None
    ) -> None:
        self.rig = rig
        self._conf, self._heap = conf, heap
        self.namesrv = rig.namesrv()
        self._ports = [rig.ports(4) for _ in java]
        names = [f"n{number}" for number in range(len(java))]
        self.peers = ";".join(
            f"{name}-127.0.0.1:{port + 1}" for name, port in zip(names, self._ports, strict=True)
        )
        self.sides: dict[str, bool] = {}
        self.members: dict[str, Member] = {}
        self.paused: set[str] = set()
        for name, is_java in zip(names, java, strict=True):
            self._know_topic(name)
            self.start(name, java=is_java, wait=False)
        for member in self.members.values():
            self.until_ready(member)

    def until_ready(self, member: Member) -> None:
        """Three JVMs that start at the same time take long on a busy machine."""
        output = member.server.output
        self.rig.until(lambda: "READY {" in output.read_text(), 120, "ready", member.server)

    def start(self, name: str, *, java: bool, wait: bool = True) -> None:
        """Start a member, on the store that it had."""
        base = self._ports[int(name[1:])]
        self.sides[name] = java
        server = self.rig.broker(
            str(self._conf / f"dledger-{name}.conf"),
            name,
            java=java,
            namesrv=self.namesrv,
            port=base + 2,
            wait=wait,
            heap=self._heap,
            dLegerPeers=self.peers,
            **QUICK,
        )
        self.members[name] = Member(name, f"127.0.0.1:{base + 1}", server)

    def restart(self, name: str, java: bool | None = None) -> None:
        """Start a member that is down."""
        self.start(name, java=self.sides[name] if java is None else java)

    def kill(self, name: str) -> None:
        """kill -9."""
        self.members[name].server.kill()

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.members[name].server.process.send_signal(signal.SIGSTOP)
        self.paused.add(name)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.members[name].server.process.send_signal(signal.SIGCONT)
        self.paused.discard(name)

    def stop(self) -> None:
        """Stop all members cleanly."""
        for member in self.members.values():
            member.server.process.send_signal(signal.SIGTERM)
        for member in self.members.values():
            member.server.stop()

    @property
    def running(self) -> list[Member]:
        """Members that can answer."""
        return [
            member
            for name, member in self.members.items()
            if name not in self.paused and member.server.process.poll() is None
        ]

    @property
    def servers(self) -> list[Server]:
        return [member.server for member in self.members.values()]

    def leader(self) -> Member | None:
        """Who takes itself for the leader."""
        for member in self.running:
            if member.leader() == member.name:
                return member
        return None

    def is_serving(self, member: Member) -> bool:
        """It takes puts, and the group agrees."""
        with contextlib.suppress(OSError), Wire(member.server.address, 4) as wire:
            request = send_request("warm", "warm", 0, b"warm", "", 1)
            (answer,) = wire.exchange([request])
            return answer.code == 0
        return False

    def wait_leader(self, *others_than: str, seconds: float = 60) -> Member:
        """Until one leads and serves."""
        found: list[Member] = []

        def is_led() -> bool:
            leader = self.leader()
            if leader is None or leader.name in others_than or not self.is_serving(leader):
                return False
            found.append(leader)
            return True

        running = [member.server for member in self.running]
        self.rig.until(is_led, seconds, "a leader that serves", *running)
        return found[0]

    def transfer(self, to: str) -> int:
        """Hand leadership over; DLedger's code for what came of it, 0 when there was no answer."""
        leader = self.leader()
        if leader is None or leader.name == to:
            return 0
        with contextlib.suppress(OSError):
            request = LeadershipTransferRequest(
                group=GROUP,
                remote_id=leader.name,
                transfer_id=leader.name,
                transferee_id=to,
                term=leader.term(to),
            )
            code = DLedgerRequestCode.LEADERSHIP_TRANSFER
            return leader.ask(code, request, LeadershipTransferResponse, 10).code
        return 0

    def _know_topic(self, name: str) -> None:
        """From the start: a follower learns topics only every 10 s, and may lead before."""
        config = self.rig.directory / name / "store" / "config"
        config.mkdir(parents=True, exist_ok=True)
        topic = {
            "order": False,
            "perm": 6,
            "readQueueNums": QUEUES,
            "topicFilterType": "SINGLE_TAG",
            "topicName": TOPIC,
            "topicSysFlag": 0,
            "writeQueueNums": QUEUES,
        }
        table = {
            "dataVersion": {"counter": 1, "timestamp": 1},
            "topicConfigTable": {TOPIC: topic},
        }
        (config / "topics.json").write_text(json.dumps(table))

    def wait_same(self, seconds: float = 60) -> int:
        """Until all have committed as much; up to where."""
        ends: list[list[int]] = [[]]

        def is_same() -> bool:
            ends[0] = [log_end(server.address) for server in self.servers]
            return ends[0][0] > 0 and len(set(ends[0])) == 1

        self.rig.until(is_same, seconds, "all logs equally long", *self.servers)
        return ends[0][0]

    def assert_same_files(self, end: int) -> int:
        """Data and index are the same byte for byte up to `end`; how many bytes were compared."""
        datas = {name: data(self.members[name], end) for name in self.members}
        indexes = {name: index(self.members[name], end) for name in self.members}
        first, *rest = self.members
        for name in rest:
            assert len(datas[name]) == len(datas[first]) == end
            assert datas[name] == datas[first], f"data of {name} and {first} differ"
            assert indexes[name] == indexes[first], f"index of {name} and {first} differ"
        return len(datas) * end


def data(member: Member, end: int) -> bytes:
    """The ledger's bytes up to a position."""
    folder = member.server.store / f"dledger-{member.name}" / "data"
    files = sorted(folder.iterdir())
    assert [int(path.name) for path in files] == [FILE_SIZE * n for n in range(len(files))]
    return b"".join(path.read_bytes() for path in files)[:end]


def index(member: Member, end: int) -> bytes:
    """The index entries of what lies before a position."""
    folder = member.server.store / f"dledger-{member.name}" / "index"
    (path,) = sorted(folder.iterdir())
    found = []
    with path.open("rb") as file:
        while chunk := file.read(32):
            if chunk[:4] != b"\0\0\0\1" or int.from_bytes(chunk[4:12], "big") >= end:
                break
            found.append(chunk)
    assert found, path
    return b"".join(found)


class GroupLoad:
    """
    A Java producer that sends until it is stopped.

    :param earlier: what another load was answered; looked for, too.
    """

    def __init__(
        self, group: Group, folder: Path, *, rate: int = 200, earlier: Sequence[Stored] = ()
    ) -> None:
        self.stored: list[Stored] = list(earlier)
        self.failures = ""
        self.size = 500
        command = compiled_java("GroupLoad", folder)
        arguments = [group.namesrv, TOPIC, f"load{len(earlier)}", str(rate), str(self.size)]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TZ": "UTC"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> GroupLoad:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, _, rest = line.strip().partition(" ")
            if kind == "failures":
                self.failures = rest
            elif kind == "ok":
                serial, queue_id, queue_offset, message_id = rest.split()
                self.stored.append(
                    Stored(serial, int(queue_id), int(queue_offset), int(message_id[16:], 16))
                )

    def wait_progress(self, group: Group, count: int = 20, seconds: float = 60) -> None:
        """Until this many more were answered SEND_OK."""
        wanted = len(self.stored) + count
        group.rig.until(
            lambda: len(self.stored) >= wanted or self.process.poll() is not None,
            seconds,
            f"{count} more SEND_OK (failures {self.failures})",
            *[member.server for member in group.running],
        )
        assert self.process.poll() is None, "the load ended"

    def stop(self) -> None:
        """Send nothing more; returns when all answers are there."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(40)
        self._reader.join(10)

    def missing(self, address: str) -> str:
        """Pull the whole topic from a member; empty if every SEND_OK is as it was sent."""
        wanted = {(one.queue_id, one.queue_offset): one for one in self.stored}
        assert len(wanted) == len(self.stored), "two messages were given one offset"
        try:
            with Wire(address) as wire:
                for queue_id in range(QUEUES):
                    records = wire.pull_all(TOPIC, queue_id)
                    numbers = [record.queue_offset for record in records]
                    if numbers != list(range(len(records))):
                        return f"queue {queue_id} has holes: {numbers[:20]}"
                    for record in records:
                        one = wanted.pop((queue_id, record.queue_offset), None)
                        if one is None:
                            continue
                        text = one.serial + ":" + one.serial * (self.size // len(one.serial))
                        if record.body != text[: self.size].encode():
                            return f"{one} has the body {record.body[:40]!r}"
                        if record.physical_offset != one.physical_offset:
                            return f"{one} is at {record.physical_offset}"
        except (OSError, Refused) as error:
            return repr(error)
        return f"{len(wanted)} missing: {list(wanted.values())[:3]}" if wanted else ""

    def until_readable(self, group: Group, seconds: float = 60) -> None:
        """Until every member serves all that was answered SEND_OK."""
        for member in group.members.values():
            wrong = [""]

            def is_readable(member: Member = member, wrong: list[str] = wrong) -> bool:
                wrong[0] = self.missing(member.server.address)
                return not wrong[0]

            try:
                group.rig.until(is_readable, seconds, "all readable", member.server)
            except AssertionError as error:
                raise AssertionError(f"{member.name}: {wrong[0]}\n{error}") from error
