"""
Groups of whole brokers under crashes, lost power, partitions and orderly restarts, from a seed.

RMQ_HA_DLEDGER_SEEDS=200-400 runs those seeds instead of the few that a CI run takes.
"""

import os
from typing import Any

import pytest

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.command import RemotingCommand
from tests.sim_kit.group import BrokerGroup, GroupNode
from tests.sim_kit.promises import Promises

FIRST, LAST = map(int, os.environ.get("RMQ_HA_DLEDGER_SEEDS", "1-4").split("-"))
CHAOS_S = 60.0
SENDS_A_SECOND = 20


class Chaos:
    """
    One group, its faults, and what its producer was told.

    :ivar promises: what its producer sent and was answered, by body.
    """

    def __init__(self, seed: int) -> None:
        self.random = random = BrokerGroup(seed).world.random("chaos")
        self.flush = random.choice((FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH))
        batch = random.choice((0, 0, 700, 262144))
        size = random.choice((3, 3, 5))

        def change(configuration: Any) -> None:
            configuration.store.flush_disk_type = self.flush
            configuration.ours.dledger_push_batch_size = batch
            configuration.store.enable_batch_push = batch == 0 and size == 5

        self.group = BrokerGroup(seed, size, change).start()
        self.promises = Promises()
        self.is_sending = True
        self._send_on()

    def _send_on(self) -> None:
        if not self.is_sending:
            return
        group = self.group
        group.world.clock.call_at(
            group.now + self.random.expovariate(SENDS_A_SECOND), self._send_on
        )
        up = [member for member in group.members if member.state == "running"]
        target = group.master() or (self.random.choice(up) if up else None)
        if target is None:
            return
        number = len(self.promises.attempts) + 1
        text = f"{number:06}" + "x" * self.random.choice((0, 10, 300, 3000))
        self.promises.sent(text)
        asked = group.ask(target, group.message(text.encode()))
        asked.addCallbacks(self._answered, self._failed, callbackArgs=(text,))

    def _answered(self, answer: RemotingCommand, text: str) -> None:
        if answer.code == 0:
            self.promises.acknowledged(text)

    def _failed(self, failure: Any) -> None:
        failure.trap(RemotingError)

    def disturb(self) -> None:
        """One fault; with ASYNC_FLUSH never power, which may take a quorum's page caches."""
        group, random = self.group, self.random
        fault = random.choice(("kill", "kill", "power", "part", "one-way", "stop", "nothing"))
        up = [member for member in group.members if member.state == "running"]
        master = group.master()
        victim = (
            master if master is not None and random.random() < 0.5 else random.choice(up or [None])
        )
        if victim is None:
            return
        if fault in ("kill", "power"):
            is_power = fault == "power" and self.flush is FlushDiskType.SYNC_FLUSH
            group.kill(victim, power=is_power)
            self._boot_later(victim)
        elif fault == "stop":
            victim.stop().addCallback(lambda _: self._boot_later(victim))
        elif fault in ("part", "one-way"):
            others = [member for member in group.members if member is not victim]
            for other in random.sample(others, random.randint(1, len(others))):
                if fault == "part":
                    group.world.network.partition(victim.host.name, other.host.name)
                else:
                    group.world.network.cut(victim.host.name, other.host.name)
            group.world.clock.call_at(group.now + random.uniform(1, 15), group.world.network.heal)

    def _boot_later(self, member: GroupNode) -> None:
        at = self.group.now + self.random.uniform(0.2, 12)
        self.group.world.clock.call_at(at, self._boot, member)

    def _boot(self, member: GroupNode) -> None:
        if member.state == "down":
            self.group.boot(member)

    def run(self) -> None:
        group = self.group
        until = group.now + CHAOS_S
        while group.now < until:
            group.run(self.random.uniform(0.5, 7))
            self.disturb()
        group.world.network.heal()
        group.run(16)
        group.wait_until(lambda: all(member.state == "running" for member in group.members), 30)
        group.wait_for_master()
        self.is_sending = False
        group.run(20)

    def verify(self) -> None:
        group = self.group
        assert group.findings.violations == []
        assert group.world.clock.failures == []
        assert len({group.ledger_bytes(member) for member in group.members}) == 1
        for member in group.members:
            present = [body.decode() for body in group.bodies(member)]
            assert self.promises.breaches(present, member.host.name) == []
            assert numbers(member) == list(range(len(numbers(member))))


def numbers(member: GroupNode) -> list[int]:
    """The queue offsets that stand in the records, in the order of the queue."""
    found: list[int] = []
    offset = 0
    while result := member.store.get_message("g", "TBW102", 0, offset, 32, None):
        if not result.messages:
            break
        found += [decode_record(record).queue_offset for record in result.messages]
        offset = result.next_begin_offset
    return found


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_what_was_acknowledged_is_on_every_member_in_the_end(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.run()
    chaos.verify()
    assert chaos.promises.places
