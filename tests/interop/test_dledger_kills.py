"""
Mixed DLedger groups under load of a Java producer: leaders and followers die, stop and come back.

RMQ_HA_DLEDGER_KILLS=50 makes the long part: that many leader changes to each side in each group,
also in one with two members of ours.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.groups import GROUP, OK, Group, GroupLoad, Member
from tests.interop.rig import Rig

ROUNDS = int(os.environ.get("RMQ_HA_DLEDGER_KILLS", "0"))
# One fault after so many transfers: Java needs more than 6 s to notice that its leader is gone.
FAULT_EVERY = 5
SIDES = {True: "Java", False: "ours"}
ADMIN = "from rmq_ha.ops.admin.main import main; main()"
MIXES = [
    pytest.param((True, True, False), id="2-java-1-ours"),
    pytest.param(
        (True, False, False),
        id="1-java-2-ours",
        marks=pytest.mark.skipif(not ROUNDS, reason="takes minutes: set RMQ_HA_DLEDGER_KILLS=50"),
    ),
]


class Ordeal:
    """What is done to one group, and what it is counted as."""

    def __init__(self, group: Group, load: GroupLoad) -> None:
        self.group = group
        self.load = load
        self.random = random.Random(5)
        self.changes = {True: 0, False: 0}
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def led_by(self, leader: Member, what: str) -> None:
        self.changes[self.group.sides[leader.name]] += 1
        self.count(what)

    def side(self, leader: Member) -> str:
        return SIDES[self.group.sides[leader.name]]

    def hand_over(self, java: bool) -> None:
        """Leadership goes to a member of that side; a crash would have to find its way there."""
        leader = self.group.wait_leader()
        names = [
            name
            for name, is_java in self.group.sides.items()
            if is_java is java and name != leader.name
        ]
        if not names:
            return
        to = self.random.choice(names)
        for _ in range(20):
            code = self.group.transfer(to)
            if code == OK:
                break
            self.count(f"transfers refused with {code}")
            self.load.wait_progress(self.group, 1)
        after = self.group.wait_leader()
        if after.name != leader.name:
            self.led_by(after, "transfers")
        self.load.wait_progress(self.group)

    def kill_leader(self) -> None:
        leader = self.group.wait_leader()
        self.group.kill(leader.name)
        after = self.group.wait_leader(leader.name)
        self.led_by(after, f"kill -9 of a leader, {self.side(leader)}")
        self.group.restart(leader.name)
        self.load.wait_progress(self.group)

    def pause_leader(self) -> None:
        leader = self.group.wait_leader()
        self.group.pause(leader.name)
        after = self.group.wait_leader(leader.name)
        self.led_by(after, f"pause of a leader, {self.side(leader)}")
        self.load.wait_progress(self.group)
        self.group.resume(leader.name)
        self.load.wait_progress(self.group)

    def follower(self) -> str:
        leader = self.group.wait_leader()
        return self.random.choice([name for name in self.group.members if name != leader.name])

    def kill_follower(self) -> None:
        name = self.follower()
        self.group.kill(name)
        self.load.wait_progress(self.group, 50)
        self.group.restart(name)
        self.count("kill -9 of a follower")

    def pause_follower(self) -> None:
        name = self.follower()
        self.group.pause(name)
        self.load.wait_progress(self.group, 50)
        self.group.resume(name)
        self.load.wait_progress(self.group, 50)
        self.count("pause of a follower")

    def endure(self, rounds: int) -> None:
        """Until leadership came to each side that often."""
        faults = itertools.cycle(
            (self.kill_leader, self.pause_follower, self.pause_leader, self.kill_follower)
        )
        done = 0
        while min(self.changes.values()) < rounds:
            leader = self.group.wait_leader()
            self.hand_over(java=not self.group.sides[leader.name])
            done += 1
            if done % FAULT_EVERY == 0:
                next(faults)()
                print(done, self.counts, self.changes, len(self.load.stored), flush=True)

    def verify(self) -> None:
        """Everything that was acknowledged is there, at every member, and the files are equal."""
        self.load.stop()
        assert self.load.stored
        self.group.wait_leader()
        end = self.group.wait_same()
        self.check_status()
        self.load.until_readable(self.group)
        compared = self.group.assert_same_files(end)
        changes = {SIDES[java]: count for java, count in self.changes.items()}
        print(len(self.load.stored), "SEND_OK;", self.counts, "; leader changes to", changes)
        print("other answers:", self.load.failures, f"; {compared:,} bytes compared")

    def check_status(self) -> None:
        """`rmqha-admin dledger status` sees the same group, ours and Java's."""
        arguments = ["--json", "--group", GROUP, "--peers", self.group.peers]
        done = subprocess.run(
            [sys.executable, "-c", ADMIN, "dledger", "status", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        rows = {row["member"]: row for row in found["rows"]}
        assert rows[found["leader"]]["role"] == "LEADER"
        assert {row["leader"] for row in rows.values()} == {found["leader"]}
        assert len({(row["term"], row["begin"], row["end"]) for row in rows.values()}) == 1
        kinds = {name: row["kind"] for name, row in rows.items()}
        servers = {name: member.server.java for name, member in self.group.members.items()}
        assert kinds == {name: "Java" if java else "rmq-ha" for name, java in servers.items()}

    def change_hands(self) -> None:
        """All members stop; each store is opened by the other implementation."""
        self.group.stop()
        for name, java in dict(self.group.sides).items():
            self.group.start(name, java=not java, wait=False)
        for member in self.group.members.values():
            self.group.until_ready(member)
        self.group.wait_leader()


@pytest.mark.parametrize("java", MIXES)
def test_members_fall_and_rise_under_load(rig: Rig, tmp_path: Path, java: tuple[bool, ...]) -> None:
    """
    Every SEND_OK is readable at every member afterwards, and their files are the same; also
    after every store was opened by the other implementation.
    """
    group = Group(rig, java)
    group.wait_leader()
    with GroupLoad(group, tmp_path / "java") as load:
        ordeal = Ordeal(group, load)
        load.wait_progress(group, 100)
        if ROUNDS:
            ordeal.endure(ROUNDS)
        else:
            ordeal.hand_over(java=False)
            ordeal.kill_leader()
            ordeal.pause_follower()
        ordeal.verify()
    if ROUNDS:
        ordeal.change_hands()
        with GroupLoad(group, tmp_path / "java", earlier=load.stored) as more:
            after = Ordeal(group, more)
            more.wait_progress(group, 100)
            after.hand_over(java=not group.sides[group.wait_leader().name])
            after.verify()
