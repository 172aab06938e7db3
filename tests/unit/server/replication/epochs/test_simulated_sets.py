"""
Sets of three brokers under faults from a seed: both ends of the links, and the master's set.

What was acknowledged, and what could be read, is in the log of every later master; at the end
all logs are equal. The controller is a few lines that do as the specification says.

Spec: controller.md, chapters 7, 8 and 10.
"""

from __future__ import annotations

from random import Random

import pytest

from rmq_ha.base.errors import NothingInCommon, ReplicationError
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.replication.places import chain_to
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import extend

SETTINGS = ReplicationSettings(all_ack_in_sync_state_set=True, ha_transfer_batch_size=150)
IDS = (1, 2, 3)
STEPS = 1200


def whole(log: MemoryLog, end: int) -> int:
    """Where the last whole record before that place ends; a frame may be cut anywhere."""
    found = chain_to(log, 0, end) if end else None
    return 0 if found is None else found.end


class Broker:
    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.log = MemoryLog(1 << 16)
        self.epochs = Epochs()
        self.confirm_offset = 0
        self.state: SyncState | None = None
        self.is_up = True


class Link:
    """One connection; bytes on their way in both directions."""

    def __init__(self, master: Broker, slave: Broker, now: float) -> None:
        assert master.state is not None
        self.master, self.slave, self.state = master, slave, master.state
        self.feed = EpochFeed(master.log, master.state, SETTINGS, now)
        self.replica = EpochReplica(
            slave.id, slave.log, slave.epochs, slave.confirm_offset, SETTINGS, now
        )
        self.up = self.replica.connected(now)
        self.down = b""
        self.is_known = False


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.brokers = {each: Broker(each) for each in IDS}
        self.links: list[Link] = []
        self.epoch = 0
        self.known = SyncStateSet()
        self.master: int | None = None
        self.lost: SyncStateSet | None = None
        self.kept = self.read = b""
        self.puts = 0
        self.cuts = 0
        self.elect(self.random.choice(IDS))

    # ------------------------------------------------------------ controller

    def elect(self, broker_id: int) -> None:
        self.epoch += 1
        self.known = SyncStateSet((broker_id,), self.known.epoch + 1)
        self.master = broker_id
        broker = self.brokers[broker_id]
        self.drop(broker)
        del broker.log.data[whole(broker.log, broker.log.max_offset) :]  # hazard 12
        self.check(broker.log)
        broker.epochs = broker.epochs.led(self.epoch, broker.log.max_offset)
        broker.state = SyncState(
            broker_id, broker.log, broker.epochs, self.known, SETTINGS, self.now,
            broker.confirm_offset,
        )  # fmt: skip

    def best(self) -> int | None:
        able = [b for b in self.brokers.values() if b.is_up and b.id in self.known.members]
        able.sort(key=lambda b: (b.epochs.last_epoch, b.log.max_offset))
        return able[-1].id if able else None

    def check(self, log: MemoryLog) -> None:
        data = bytes(log.data)
        assert data.startswith(self.kept), "an acknowledged put is not in the new master's log"
        assert data.startswith(self.read), "what was read is not in the new master's log"

    # ------------------------------------------------------------ faults

    def drop(self, broker: Broker) -> None:
        for link in list(self.links):
            if broker in (link.master, link.slave):
                self.close(link)

    def close(self, link: Link) -> None:
        self.links.remove(link)
        self.settle(link)
        if link.is_known:
            link.state.closed(link.slave.id, link)

    def settle(self, link: Link) -> None:
        if link.slave.state is None:
            link.slave.epochs = link.replica.epochs
            link.slave.confirm_offset = link.replica.confirm_offset

    def kill(self, broker: Broker) -> None:
        self.drop(broker)
        if broker.state is not None:
            broker.confirm_offset = broker.state.confirm_offset
        broker.state, broker.is_up = None, False

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        self.now += self.random.random() * 0.3
        random = self.random.random()
        if random < 0.72:
            self.carry()
        elif random < 0.85:
            self.put()
        elif random < 0.93:
            self.decide()
        elif random < 0.97:
            self.connect()
        else:
            self.disturb()
        self.judge()

    def leader(self) -> Broker | None:
        broker = None if self.master is None else self.brokers[self.master]
        return broker if broker is not None and broker.is_up and broker.state else None

    def put(self) -> None:
        """At anybody who believes to lead: also at one who has been deposed and does not know."""
        leading = [b for b in self.brokers.values() if b.state is not None and b.is_up]
        if leading:
            broker = self.random.choice(leading)
            self.puts += 1
            extend(broker.log, [b"%d" % self.puts * self.random.randrange(1, 9)])
            broker.state.appended(self.now)

    def decide(self) -> None:
        """The master asks for its set; the answer may be lost, or the request."""
        for broker in self.brokers.values():
            if broker.state is None or not broker.is_up:
                continue
            wanted = broker.state.proposal(self.now)
            if wanted is None or self.random.random() < 0.1:
                continue
            if broker.id != self.master:
                continue
            are_up = all(self.brokers[each].is_up for each in wanted.members)
            if are_up and wanted.epoch == self.known.epoch:
                self.known = SyncStateSet(wanted.members, wanted.epoch + 1)
                if self.random.random() < 0.3:
                    continue
            before = broker.state.known
            broker.state.adopt(self.known)
            if broker.state.known is before:
                broker.state.refused(self.now)

    def connect(self) -> None:
        """Somebody follows the master as the controller has it; an old one steps down for it."""
        master = self.leader()
        slave = self.brokers[self.random.choice(IDS)]
        if master is None or slave is master or not slave.is_up:
            return
        if slave.state is not None:
            self.drop(slave)
            slave.confirm_offset, slave.state = slave.state.confirm_offset, None
        if self.random.random() < 0.7:
            for link in [each for each in self.links if each.slave is slave]:
                self.close(link)
        elif any(each.slave is slave for each in self.links):
            return
        self.links.append(Link(master, slave, self.now))

    def disturb(self) -> None:
        broker = self.brokers[self.random.choice(IDS)]
        kind = self.random.choice((0, 1, 1, 2, 2, 3, 3))
        if kind == 0 and self.links:
            self.close(self.random.choice(self.links))
        elif kind == 1 and broker.is_up:
            self.kill(broker)
        elif kind == 2:
            for each in self.brokers.values():
                each.is_up = True
        elif (chosen := self.best()) is not None and chosen != self.master:
            self.elect(chosen)
        if self.leader() is None and (chosen := self.best()) is not None:
            self.elect(chosen)

    def carry(self) -> None:
        if not self.links:
            return
        link = self.random.choice(self.links)
        try:
            self.exchange(link)
        except ReplicationError:
            if link in self.links:
                self.close(link)

    def exchange(self, link: Link) -> None:
        size = self.random.randrange(1, 400)
        if link.replica.task is not None:
            self.fulfil(link)
        elif self.random.random() < 0.5:
            data, link.up = link.up[:size], link.up[size:]
            for report in link.feed.receive_data(data, self.now):
                link.state.reported(link, report, self.now)
            if link.feed.slave is not None and not link.is_known:
                link.is_known = True
                stale = link.state.connected(link.slave.id, link, self.now)
                for other in [each for each in self.links if each is stale]:
                    self.close(other)
            frame = link.feed.next_frame(self.now)
            link.down += frame
        else:
            data, link.down = link.down[:size], link.down[size:]
            before = link.replica.confirm_offset
            link.up += link.replica.receive_data(data, self.now)
            assert link.replica.confirm_offset >= before
            self.settle(link)

    def fulfil(self, link: Link) -> None:
        task = link.replica.task
        if isinstance(task, Cut):
            self.cuts += 1
            del link.slave.log.data[task.end :]
        link.up += link.replica.done(self.now)
        self.settle(link)

    def judge(self) -> None:
        for broker in self.brokers.values():
            if broker.state is None or not broker.is_up:
                continue
            confirmed = broker.state.confirm_offset
            if confirmed > len(self.read):
                seen = bytes(broker.log.data[: whole(broker.log, confirmed)])
                assert seen.startswith(self.read) or self.read.startswith(seen)
                self.read = max(self.read, seen, key=len)
            end = broker.log.max_offset
            if broker.state.is_kept(end):
                self.kept = max(self.kept, bytes(broker.log.data[:end]), key=len)

    def heal(self) -> None:
        for broker in self.brokers.values():
            broker.is_up = True
        if self.leader() is None:
            chosen = self.best()
            assert chosen is not None
            self.elect(chosen)
        master = self.leader()
        assert master is not None
        self.drop(master)
        for slave in self.brokers.values():
            if slave is not master:
                self.drop(slave)
                if slave.state is not None:
                    slave.confirm_offset, slave.state = slave.state.confirm_offset, None
                self.links.append(Link(master, slave, self.now))
        for _ in range(4000):
            self.now += 0.01
            for link in list(self.links):
                try:
                    self.exchange(link)
                except NothingInCommon:
                    assert link.slave.epochs.entries[0].start == 0  # hazard 14: led from nothing
                    assert link.slave.epochs.entries[0] != master.epochs.entries[0]
                    self.close(link)
                    del self.brokers[link.slave.id]
            self.judge()
            if all(b.log.data == master.log.data for b in self.brokers.values()):
                break


@pytest.mark.parametrize("seed", range(60))
def test_nothing_acknowledged_or_read_is_lost(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.heal()
    assert len({bytes(b.log.data) for b in world.brokers.values()}) == 1


def test_the_worlds_see_what_they_are_for() -> None:
    """Elections, cuts, sets of more than one and acknowledged puts happen in them."""
    worlds = [World(seed) for seed in range(20)]
    for world in worlds:
        for _ in range(STEPS):
            world.step()
    assert sum(world.epoch for world in worlds) > 60
    assert sum(world.cuts for world in worlds) > 5
    assert sum(world.known.epoch - world.epoch for world in worlds) > 60
    assert sum(len(world.kept) > 2000 for world in worlds) > 15
    assert sum(world.puts for world in worlds) > 1000
