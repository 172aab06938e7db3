"""
Pairs in controller mode, ours and Java 5.3.3's mixed: processes that freeze, lines that are cut.

One pair of ours, with one fault of each kind, always runs. `RMQ_HA_CONTROLLER_FAULTS` says how many
of each kind all eight combinations get, and `RMQ_HA_CONTROLLER_KINDS` which kinds. Where Java is in
the pair, what is lost is printed, and is Java's (docs/controller-tested.md has the table); where
both are ours, nothing may be.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.interop.lines import Line, Lines
from tests.interop.rig import Rig
from tests.interop.test_controller import ask, pytestmark  # noqa: F401
from tests.interop.test_controller_pairs import ALL, FAULTS, ROLE_S, SET_S, Pair

STOPS = ("stop master", "stop slave", "stop controller")
CUTS = tuple(
    f"cut {line} {direction}"
    for line in ("controller", "brokers", "all")
    for direction in ("there", "back", "both")
)
KINDS = (*STOPS, *CUTS, "diverged")
TOPIC, GROUP = "Failover", "readers"
GRACE_S = 0.1


class FaultyPair(Pair):
    """
    Two brokers and a controller on addresses of their own, with a line between any two of them.

    :ivar complaints: what was not as it has to be, by kind.
    :ivar trouble: since when something is wrong; None: nothing is.
    """

    def __init__(self, rig: Rig, combination: tuple[str, str, str], timeout_ms: int) -> None:
        self.hosts = {"a": "127.0.0.2", "b": "127.0.0.3"}
        self.timeout_ms = timeout_ms
        self.complaints: Counter[str] = Counter()
        self.notes: list[str] = []
        self.trouble: float | None = None
        self.commits: list[tuple[float, int]] = [(0.0, 0)]
        self.queue_offset = -1
        self.leads: str | None = None
        self.lines: dict[str, list[Line]] = {}
        super().__init__(rig, *combination)

    def boot(self, name: str) -> None:
        """As `Pair.boot`; the first time, the lines to it come into being."""
        host, port, controller = self.hosts[name], self.port(name), self.sets.address
        _, _, desk = controller.rpartition(":")
        if name not in self.lines:
            self.lines[name] = [
                Line(f"{host}:{desk}", controller, controller),
                Line(f"{host}:{port}", f"127.0.0.1:{port}"),
                Line(f"{host}:{port + 1}", f"127.0.0.1:{port + 1}"),
                Line(f"{host}:{port - 2}", f"127.0.0.1:{port - 2}"),
            ]
            Lines(self.lines[name])
        self.settings = {
            "brokerIP1": host,
            "brokerIP2": host,
            "controllerHeartBeatTimeoutMills": self.timeout_ms,
        }
        self.controller_of[name] = f"{host}:{desk}"
        super().boot(name)

    def master(self) -> str:
        """Who leads, as the controller says."""
        _, _, port = (self.sets.master or "").rpartition(":")
        return next((name for name, known in self.ports.items() if str(known) == port), "")

    def direct(self) -> str | None:
        """Where clients reach whom the controller names, whatever lines are cut."""
        name = self.master()
        return f"127.0.0.1:{self.ports[name]}" if name else None

    def send(self) -> bool:
        """One message, and one more offset of a group, to whoever leads."""
        self.tries += 1
        body = f"<{self.tries:06d}>"
        try:
            address = self.direct()
            if address is None:
                return False
            if address != self.leads:
                self._look_at_offset(address)
            answer = ask(address, send_request("p", TOPIC, 0, body.encode(), "", 1), 4.0)
            if answer.code != 0:
                return False
            self.acked.append(body)
            offset = int((answer.ext or {})["queueOffset"])
            if offset <= self.queue_offset:
                self._complain("queue offset went back", f"{offset} after {self.queue_offset}")
            self.queue_offset = offset
            commit = self._offset_request(RequestCode.UPDATE_CONSUMER_OFFSET)
            (commit.ext or {})["commitOffset"] = str(len(self.acked))
            if ask(address, commit, 4.0).code == 0:
                self.commits.append((time.monotonic(), len(self.acked)))
        except (OSError, AssertionError):
            return False
        return True

    @staticmethod
    def _offset_request(code: int) -> RemotingCommand:
        return RemotingCommand(code, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"})

    def _look_at_offset(self, address: str) -> None:
        """Another one leads: it knows what was committed 0.1 s before something went wrong."""
        # Java takes no commit of a group that it does not know, and knows one by its pulls.
        ask(address, pull_request(GROUP, TOPIC, 0, 0), 4.0)
        answer = ask(address, self._offset_request(RequestCode.QUERY_CONSUMER_OFFSET), 4.0)
        known = int((answer.ext or {}).get("offset", 0)) if answer.code == 0 else 0
        limit = (self.trouble or time.monotonic()) - GRACE_S
        wanted = [item for item in self.commits if item[0] <= limit][-1]
        if known < wanted[1]:
            since = next(when for when, number in self.commits if number > known)
            self._complain("offset went back", f"{known} after {wanted[1]}, {limit - since:.1f} s")
        self.leads = address

    def _complain(self, kind: str, text: str) -> None:
        self.complaints[kind] += 1
        self.notes.append(f"{kind}: {text}")

    # ------------------------------------------------------------ faults

    def hurt(self, kind: str, seconds: float) -> None:
        """Do it, wait until it is over and both are in sync again."""
        self.trouble = time.monotonic()
        what, *how = kind.split()
        master = self.master()
        slave = "b" if master == "a" else "a"
        if what == "stop":
            servers = {"controller": self.sets.server}
            servers |= {"master": self.servers[master], "slave": self.servers[slave]}
            process = servers[how[0]].process
            process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            process.send_signal(signal.SIGCONT)
        elif what == "cut":
            self._cut(master, slave, how[0], how[1], seconds)
        else:
            self._diverge(master, slave)
        before = len(self.acked)
        self.in_sync()
        self.rig.until(
            lambda: len(self.acked) > before + 5, ROLE_S, "messages", *self.servers.values()
        )
        # Not before: whoever asks the new leader first may do so when the fault is over already.
        self.trouble = None

    def _cut(self, master: str, slave: str, line: str, direction: str, seconds: float) -> None:
        """`there`: what the master says does not arrive; `back`: nothing reaches the master."""
        own, other = self.lines[master], self.lines[slave]
        cut: list[tuple[Line, str]] = []
        if line in ("controller", "all"):
            cut += [(own[0], "there"), (own[0], "back"), (own[1], "back"), (own[1], "there")]
        if line in ("brokers", "all"):
            cut += [(own[2], "back"), (own[2], "there")]
            cut += [(other[2], "there"), (other[2], "back")]
        leaves = {(own[0], "there"), (own[1], "back"), (own[2], "back"), (other[2], "there")}
        chosen = [
            each
            for each in cut
            if direction == "both" or (each in leaves) == (direction == "there")
        ]
        for each, way in chosen:
            setattr(each, f"is_cut_{way}", True)
        time.sleep(seconds)
        for each, way in chosen:
            setattr(each, f"is_cut_{way}", False)

    def _diverge(self, master: str, slave: str) -> None:
        """The master appends what nobody else gets, and dies."""
        lines = self.lines[master][2], self.lines[slave][2]
        for line in lines:
            line.is_cut_there = line.is_cut_back = True
        time.sleep(1.0)
        self.servers[master].kill()
        for line in lines:
            line.is_cut_there = line.is_cut_back = False
        self.rig.until(lambda: self.master() == slave, ROLE_S, "an election", self.sets.server)
        before = len(self.acked)
        self.rig.until(lambda: len(self.acked) > before + 5, ROLE_S, "messages", self.sets.server)
        self.boot(master)

    # ------------------------------------------------------------ the end

    def readable(self) -> list[str]:
        """All that the master lets be read, in order."""
        address, offset, found = self.direct() or "", 0, []
        while True:
            answer = ask(address, pull_request(GROUP, TOPIC, 0, offset), 10.0)
            if answer.code != 0 or not answer.body:
                return found
            body, position = answer.body, 0
            while position < len(body):
                size = int.from_bytes(body[position : position + 4], "big")
                found.append(decode_record(body[position : position + size]).body.decode())
                position += size
            offset = int((answer.ext or {})["nextBeginOffset"])

    def judge(self) -> None:
        """Every acknowledged message can be read once, in order, and both logs are equal."""
        self.rig.until(self.send, ROLE_S, "a last message", *self.servers.values())
        last = self.acked[-1]
        self.rig.until(
            lambda: all(last.encode() in self.log(name) for name in self.kinds), SET_S, "both logs"
        )
        self.rig.until(lambda: last in self.readable()[-3:], SET_S, "it can be read")
        count = Counter(found := self.readable())
        for body in self.acked:
            if count[body] != 1:
                self._complain("lost" if not count[body] else "twice", body)
        if [body for body in found if body in set(self.acked)] != self.acked:
            self._complain("order", "not as it was sent")
        if self.log("a") != self.log("b"):
            self._complain("logs differ", "")


def run(
    rig: Rig, combination: tuple[str, str, str], faults: Iterator[tuple[str, float]], timeout: int
) -> FaultyPair:
    pair = FaultyPair(rig, combination, timeout)
    pair.in_sync()
    sender = threading.Thread(target=pair.load)
    sender.start()
    try:
        for kind, seconds in faults:
            before = len(pair.acked)
            rig.until(lambda: len(pair.acked) > before + 20, ROLE_S, "messages", pair.sets.server)  # noqa: B023
            pair.hurt(kind, seconds)
            found = dict(pair.complaints)
            print(f"{time.strftime('%X')} {combination} {kind} {seconds:.1f} s {found}", flush=True)
    finally:
        pair.is_sending = False
        sender.join()
    pair.judge()
    print(
        f"{combination}: {len(pair.acked)} acknowledged; {dict(pair.complaints)} {pair.notes[:9]}"
    )
    return pair


def drawn(kinds: tuple[str, ...], times: int, seed: str) -> Iterator[tuple[str, float]]:
    """Each kind so often, 5 to 40 s long, short ones more often."""
    random = Random(seed)
    for _ in range(times):
        for kind in kinds:
            yield kind, 5.0 * 8.0 ** (random.random() ** 2)


def test_a_pair_of_ours_outlives_a_frozen_master_and_a_line_that_is_cut(rig: Rig) -> None:
    faults = [("stop master", 5.0), ("cut all both", 5.0)]
    pair = run(rig, ("ours", "ours", "ours"), iter(faults), 3000)
    assert not pair.complaints, pair.notes


@pytest.mark.skipif(not FAULTS, reason="RMQ_HA_CONTROLLER_FAULTS says how many of each kind")
@pytest.mark.parametrize("combination", ALL, ids=["-".join(each) for each in ALL])
def test_many_faults_lose_nothing(rig: Rig, combination: tuple[str, str, str]) -> None:
    chosen = os.environ.get("RMQ_HA_CONTROLLER_KINDS")
    kinds = tuple(chosen.split(",")) if chosen else KINDS
    pair = run(rig, combination, drawn(kinds, FAULTS, repr(combination)), 6000)
    if "java" not in combination[:2]:
        assert not pair.complaints, pair.notes
