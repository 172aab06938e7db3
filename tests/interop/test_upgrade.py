"""
The steps of docs/upgrade.md: a pair of Java becomes ours, and Java's again, on the same stores.

It takes minutes, most of them waiting for Java, so it runs only with RMQ_HA_UPGRADE=1.
"""

from __future__ import annotations

import os

import pytest

from tests.interop.pairs import Pair, assert_same_logs, max_offsets
from tests.interop.rig import Rig
from tests.interop.wire import Load, Sent

pytestmark = pytest.mark.skipif(
    not os.environ.get("RMQ_HA_UPGRADE"), reason="takes minutes: set RMQ_HA_UPGRADE=1"
)


class Rehearsal:
    """A pair, and all that was acknowledged to those who sent to it."""

    def __init__(self, rig: Rig) -> None:
        self.pair = Pair(rig, java_master=True, java_slave=True)
        self.sent: list[tuple[Load, list[Sent]]] = []
        self.pair.wait_ok()

    def send(self, name: str) -> None:
        """Messages under load, until the slave has them."""
        pair = self.pair
        with pair.load(name) as load:
            pair.rig.until(lambda: len(load.accepted) > 200, 30, "SEND_OK", pair.master)
        self.sent.append((load, load.stored))
        pair.wait_same()

    def slave_becomes(self, java: bool) -> None:
        """Step 2: the other program opens the slave's store, and follows."""
        pair = self.pair
        before = max_offsets(pair.slave, "R")
        assert pair.slave.stop() in (0, 143)
        pair.slave.java = java
        pair.restart_slave()
        pair.wait_ok()
        pair.wait_same()
        assert max_offsets(pair.slave, "R") == before
        self.assert_all_is_there()

    def roles_change(self, java: bool) -> None:
        """Steps 3 and 4: the master ends in an orderly way, its slave leads, it comes back."""
        pair = self.pair
        end = pair.wait_same()
        before = max_offsets(pair.master, "R")
        assert pair.master.stop() in (0, 143)
        pair.slave.stop()
        pair.master.java = java
        pair.swap()
        pair.wait_ok()
        assert pair.wait_same() >= end
        assert max_offsets(pair.master, "R") == before
        self.assert_all_is_there()

    def assert_all_is_there(self) -> None:
        for server in (self.pair.master, self.pair.slave):
            for load, stored in self.sent:
                self.pair.until_readable(server, load, stored)


def test_a_java_pair_becomes_ours_and_javas_again(rig: Rig) -> None:
    rehearsal = Rehearsal(rig)
    rehearsal.send("java")
    for java in (False, True):
        rehearsal.slave_becomes(java)
        rehearsal.send(f"mixed-{java}")
        rehearsal.roles_change(java)
        pair = rehearsal.pair
        assert (pair.master.java, pair.slave.java) == (java, java)
        rehearsal.send(f"whole-{java}")
        assert_same_logs(pair.master, pair.slave, pair.wait_same())
