"""
The steps of docs/upgrade.md, "From a pair to controller mode, and back": with real processes.

It takes more than a minute, so it runs only with RMQ_HA_UPGRADE=1; simulated it is always run:
`tests/unit/server/replication/epochs/test_from_a_classic_pair.py`.
"""

from __future__ import annotations

import os
import threading
import time

import pytest

from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.interop import test_controller
from tests.interop.pairs import QUICK, Pair
from tests.interop.rig import ALL_JAVA, Rig, Server
from tests.interop.test_controller import Sets, ask

TOPIC, GROUP = "Moved", "g-moved"
SECONDS = 90.0
FILES = ("brokerIdentity", "epochFileCheckpoint", "epochFileCheckpoint.bak")
SAFE_S = 0.5
"""What was committed that long before a kill the other one has: 0.1 s, and a busy machine."""


class Moved(Sets):
    """A controller of the pair's set."""

    broker_name = "broker-a"


class Move:
    """A pair, whoever sends to it, and what was acknowledged."""

    def __init__(self, rig: Rig, java: bool) -> None:
        self.rig = rig
        self.pair = Pair(rig, java, java)
        self.sets = Moved(rig)
        self.acked: list[str] = []
        self.commits: list[tuple[float, int]] = []
        self.tries = 0
        self.is_sending = True
        self._target = self.pair.master.address

    def both(self) -> tuple[Server, Server]:
        return self.pair.master, self.pair.slave

    def load(self) -> None:
        """Each try has a body of its own; what is refused goes to the other broker next."""
        while self.is_sending:
            try:
                taken = self._send()
            except (OSError, AssertionError):
                taken = False
            if not taken:
                others = [server.address for server in self.both()]
                self._target = others[self.tries % 2]
                time.sleep(0.02)

    def _send(self) -> bool:
        self.tries += 1
        body = f"<{self.tries:06d}>"
        answer = ask(self._target, send_request("p", TOPIC, 0, body.encode(), "", 1), 4.0)
        if answer.code != 0:
            return False
        self.acked.append(body)
        offset = int((answer.ext or {})["queueOffset"])
        names = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        commit = RemotingCommand(15, {**names, "commitOffset": str(offset)})
        if len(self.acked) % 10 == 0 and ask(self._target, commit, 4.0).code == 0:
            self.commits.append((time.monotonic(), offset))
        return True

    def more(self, count: int, what: str) -> None:
        """So many are acknowledged from now on."""
        wanted = len(self.acked) + count
        living = [server for server in self.both() if server.process.poll() is None]
        self.rig.until(lambda: len(self.acked) >= wanted, SECONDS, f"sends {what}", *living)

    def no_offset_went_back(self, server: Server, before: float) -> None:
        floor = max((offset for at, offset in self.commits if at < before - SAFE_S), default=0)
        names = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        answer = ask(server.address, RemotingCommand(14, names))
        assert answer.code == 0, answer.remark
        assert int((answer.ext or {})["offset"]) >= floor

    def start(self, server: Server, conf: str, **settings: object) -> Server:
        """Ours, on this store and port, from the file that the pair had."""
        port = int(server.address.rpartition(":")[2])
        pair = self.pair
        return self.rig.broker(
            conf, server.directory.name, namesrv=pair.namesrv, port=port, **QUICK, **settings
        )

    def controlled(self, server: Server, conf: str) -> Server:
        return self.start(
            server,
            conf,
            enableControllerMode="true",
            controllerAddr=self.sets.address,
            allAckInSyncStateSet="true",
        )

    def in_sync(self, count: int = 2) -> None:
        self.rig.until(lambda: len(self.sets.info()[1]) == count, SECONDS, "in sync", *self.both())

    def java5(self) -> Server:
        """A Java 5.3.3 with an empty store joins, and is in sync."""
        names = {"brokerName": "broker-a", "brokerClusterName": "PeerCluster"}
        fifth = test_controller.broker(
            self.rig, "fifth", "controller-b.conf", self.pair.namesrv, self.sets.address, **names
        )
        self.in_sync(3)
        self.more(100, "to all three")
        return fifth

    def log(self, server: Server) -> bytes:
        files = sorted((server.store / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


@pytest.mark.skipif(ALL_JAVA, reason="only ours moves without a copy")
@pytest.mark.skipif(test_controller.missing() is not None, reason="no RocketMQ 5.3.3")
@pytest.mark.skipif(
    not os.environ.get("RMQ_HA_UPGRADE"), reason="takes minutes: set RMQ_HA_UPGRADE=1"
)
@pytest.mark.parametrize("java", [False, True])
def test_a_pair_moves_to_controller_mode_and_back_under_load(rig: Rig, java: bool) -> None:
    move = Move(rig, java)
    pair = move.pair
    pair.wait_ok()
    sender = threading.Thread(target=move.load, daemon=True)
    sender.start()
    try:
        move.more(100, "to the pair")
        stopped = time.monotonic()
        assert pair.master.stop() in (0, 143)
        pair.master = move.controlled(pair.master, "master-sync.conf")
        move.more(100, "to the elected master alone")
        move.no_offset_went_back(pair.master, stopped)
        assert pair.slave.stop() in (0, 143)
        pair.slave = move.controlled(pair.slave, "slave.conf")
        move.in_sync()
        move.more(100, "to both")
        fifth = move.java5()
        killed = time.monotonic()
        pair.master.kill()
        move.more(100, "to the one that was elected")
        move.no_offset_went_back(pair.slave, killed)
        pair.master = move.controlled(pair.master, "master-sync.conf")
        move.in_sync(3)
        move.more(50, "to all again")
        assert fifth.stop() in (0, 143)
        move.in_sync()

        pair.master, pair.slave = pair.slave, pair.master
        assert pair.slave.stop() == 0
        stopped = time.monotonic()
        assert pair.master.stop() == 0
        for server in move.both():
            for name in FILES:
                (server.store / name).unlink(missing_ok=True)
        pair.master = move.start(pair.master, "master-sync.conf")
        pair.slave = move.start(pair.slave, "slave.conf")
        move.no_offset_went_back(pair.master, stopped)
        move.more(50, "to the pair again")
    finally:
        move.is_sending = False
        sender.join(30)
    pair.wait_same()
    assert [server.stop() for server in move.both()] == [0, 0]
    first, second = move.log(pair.master), move.log(pair.slave)
    assert first == second
    lost = [body for body in move.acked if first.count(body.encode()) != 1]
    assert not lost, f"{len(lost)} of {len(move.acked)}: {lost[:5]}"
    print(f"{len(move.acked)} acknowledged of {move.tries}, none lost")
