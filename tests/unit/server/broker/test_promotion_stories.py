"""
Random stories of a pair: in the end one broker is the master, and it is the one promoted last.

A story lets brokers crash, stop and boot, each with its file as it is; name servers forget all or
cannot be reached; an operator promotes a slave of a master that is down, and demotes old masters.
"""

from __future__ import annotations

from random import Random

import pytest

from rmq_ha.base.model.status import BrokerRole
from tests.unit.server.broker.test_promotions import AmnesicCluster

MASTER, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
NAMES = ("a", "b")
STEPS = 14
ACTS = (
    "end",
    "end",
    "boot",
    "boot",
    "promote",
    "promote",
    "demote",
    "forget",
    "cut",
    "heal",
    "wait",
)
PAUSES_S = (0.1, 1, 5, 15, 40)
SETTLE_S = 75
SEEDS = [*range(8), 17, 19, 30, 55]
"""In 17, 19, 30 and 55 the promoted broker stood aside as long as the start times decided."""


class Story(AmnesicCluster):
    """
    One story of the brokers `a` and `b`.

    :ivar leader: the broker that the operator made the master last.
    :ivar history: the acts so far, for people.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(java=seed % 2 == 1)
        self.leader = "a"
        self.history: list[str] = []
        self._random = Random(seed)
        self._roles = {"a": MASTER, "b": SLAVE}
        self._stood_aside: set[str] = set()
        self._highest = 0
        for name in NAMES:
            self._boot(name)
        self.run(12)

    def tell(self) -> None:
        """
        Run the story to its end.

        :raises AssertionError: two brokers are masters at the end, or none, or the wrong one.
        """
        for _ in range(STEPS):
            act, name = self._random.choice(ACTS), self._random.choice(NAMES)
            self._do(act, name, NAMES[1 - NAMES.index(name)])
            self.run(self._random.choice(PAUSES_S))
            counts = [self.count(name) for name in self.brokers if self._leads(name)]
            self._highest = max([self._highest, *counts])
        self.world.network.heal()
        for name in self._random.sample(NAMES, 2):
            if name not in self.brokers:
                self._boot(name)
        self.run(SETTLE_S)
        masters = [name for name in NAMES if self._roles[name] is MASTER]
        assert [name for name in masters if self.accepts(name)] == [self.leader], self.history
        assert self.named() == self.address(self.leader), self.history

    def _do(self, act: str, name: str, other: str) -> None:
        runs = name in self.brokers
        if act == "end" and runs:
            self._end(name, self._random.choice(("stop", "kill", "power")))
        elif act == "boot" and not runs:
            self._boot(name)
        elif act == "promote" and runs and other not in self.brokers:
            self._promote(name)
        elif act == "demote" and self._roles[name] is MASTER and self._leads(other):
            if self.leader == other:
                self._restart(name, SLAVE)
        elif act == "forget":
            self._note("the name server restarts")
            self.restart_namesrv()
        elif act == "cut":
            self._note(f"{name} is cut off from the name server")
            self.world.network.partition(name, "ns")
        elif act == "heal":
            self._note("heal")
            self.world.network.heal()

    def _promote(self, name: str) -> None:
        """As `promote` does, which refuses a slave that did not follow the last master."""
        if self._roles[name] is SLAVE and self.count(name) >= self._highest:
            self._restart(name, MASTER)
            if self._leads(name):
                self.leader = name

    def _restart(self, name: str, role: BrokerRole) -> None:
        if name in self.brokers:
            self._end(name, "stop")
        self._stood_aside.discard(name)
        self._roles[name] = role
        self._boot(name)

    def _leads(self, name: str) -> bool:
        broker = self.brokers.get(name)
        return broker is not None and self._roles[name] is MASTER and not broker.standing.successor

    def _boot(self, name: str) -> None:
        self._note(f"boot {name}, {self._roles[name].name}")
        self.add(name, self._roles[name])
        if name in self._stood_aside and self._leads(name):
            self.leader = name  # as its log line says: it is started again while the other is down
        self._stood_aside.discard(name)

    def _end(self, name: str, how: str) -> None:
        self._note(f"{how} {name}")
        if self.brokers[name].standing.successor:
            self._stood_aside.add(name)
        if how == "stop":
            self.stop(name)
        else:
            self.crash(name, power=how == "power")

    def _note(self, act: str) -> None:
        self.history.append(f"{self.clock.seconds():.1f} s: {act}")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_broker_that_was_promoted_last_is_the_only_master_in_the_end(seed: int) -> None:
    Story(seed).tell()
