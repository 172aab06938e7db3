"""Both ends of a connection on simulated machines. Spec: controller.md, chapter 7."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Factory

from rmq_ha.base.errors import NothingInCommon, StoreError
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed, Report
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.replication.protocol import FeedProtocol, ReplicaProtocol
from rmq_ha.testing.host import World
from tests.sim_kit.controlled import until, wait
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import copy_of, extend, record_log

PORT = 10912
SETTINGS = ReplicationSettings(all_ack_in_sync_state_set=True)


class Link:
    """A master of id 1 and a slave of id 2, which connects once."""

    def __init__(self, log: MemoryLog, slave: MemoryLog) -> None:
        self.world = World(3, subnet="10.0.0")
        self.hosts = [self.world.add(name) for name in ("master", "slave")]
        self.log, self.slave_log = log, slave
        self.epochs = Epochs()
        self.confirm_offset = 0
        known = SyncStateSet((1,), 1)
        self.state = SyncState(1, log, Epochs([Epoch(1, 0)]), known, SETTINGS, self.now)
        self.feeds: list[FeedProtocol[EpochFeed]] = []
        self.why: list[str] = []
        self.lost_because: list[Any] = []
        self.tasks: list[Cut | Remember] = []
        self.disk: Deferred[None] | None = None
        self.refusal: Exception | None = None
        server = Factory()
        server.buildProtocol = lambda _: self.feed()  # type: ignore[method-assign]
        wait(self.world, self.hosts[0].seams.network.server(PORT).listen(server))
        self.connect()

    @property
    def now(self) -> float:
        return float(self.world.clock.seconds())

    def feed(self) -> FeedProtocol[EpochFeed]:
        feed = EpochFeed(self.log, self.state, SETTINGS, self.now)
        self.feeds.append(FeedProtocol(feed, self, self.hosts[0].seams.clock, lambda: None))
        return self.feeds[-1]

    def connect(self) -> None:
        replica = EpochReplica(
            2, self.slave_log, self.epochs, self.confirm_offset, SETTINGS, self.now
        )
        self.replica = ReplicaProtocol(replica, self, self.hosts[1].seams.clock)
        client = Factory()
        client.buildProtocol = lambda _: self.replica  # type: ignore[method-assign]
        wait(self.world, self.hosts[1].seams.network.client(self.hosts[0].ip, PORT).connect(client))

    # ------------------------------------------------------------ what the ends tell

    def slave_connected(self, connection: FeedProtocol[EpochFeed]) -> None:
        """It has said nothing yet."""

    def slave_introduced(self, connection: FeedProtocol[EpochFeed]) -> None:
        stale = self.state.connected(connection.feed.broker_id or 0, connection, self.now)
        if isinstance(stale, FeedProtocol):
            stale.close("it came anew")

    def slave_reported(
        self, connection: FeedProtocol[EpochFeed], reports: list[Report], now: float
    ) -> None:
        for report in reports:
            self.state.reported(connection, report, now)

    def slave_left(
        self, connection: FeedProtocol[EpochFeed], error: Exception | None, why: str
    ) -> None:
        self.why.append(why)
        self.state.closed(2, connection)

    def stepped(self, connection: ReplicaProtocol[EpochReplica]) -> None:
        """Take the confirm offset, and hold the connection during a task, as `EpochLink` does."""
        replica = connection.replica
        if replica.is_following:
            self.confirm_offset = replica.confirm_offset
        task = replica.task
        if task is not None and not connection.is_held:
            connection.hold(lambda: self.fulfil(task), replica.done)

    def fulfil(self, task: Cut | Remember) -> Deferred[None]:
        self.tasks.append(task)
        if self.refusal is not None:
            return fail(self.refusal)
        if isinstance(task, Cut):
            del self.slave_log.data[task.end :]
        if self.disk is not None:
            return self.disk
        return succeed(None)

    def lost(
        self, connection: ReplicaProtocol[EpochReplica], error: Exception | None, why: str
    ) -> None:
        self.epochs = connection.replica.epochs
        self.lost_because.append(error)

    # ------------------------------------------------------------ what tests do

    def put(self, *bodies: bytes) -> int:
        extend(self.log, list(bodies))
        self.state.appended(self.now)
        for feed in self.feeds:
            feed.push()
        return self.log.max_offset

    def in_sync(self) -> None:
        until(self.world, lambda: self.slave_log.max_offset == self.log.max_offset, 2.0)
        until(self.world, lambda: self.state.acked(2) == self.log.max_offset, 2.0)


def test_a_slave_gets_the_log_and_joins_at_once() -> None:
    """Java's needs more than five seconds."""
    log, _ = record_log([b"one", b"two"], start=0)
    link = Link(log, MemoryLog())
    began = link.now
    link.in_sync()
    assert link.now - began < 1.0
    assert link.state.proposal(link.now) == SyncStateSet((1, 2), 1)
    link.state.adopt(SyncStateSet((1, 2), 2))
    end = link.put(b"three", b"x" * 3000)
    assert not link.state.is_kept(end)
    link.in_sync()
    assert link.state.is_kept(end)
    assert bytes(link.slave_log.data) == bytes(link.log.data)


def diverged(log: MemoryLog, slave: MemoryLog, end: int) -> Link:
    """The master led epoch 4 from there on; not connected yet."""
    link = Link(log, MemoryLog())
    link.replica.close()
    link.world.clock.run_for(2.0)
    link.tasks.clear()
    link.lost_because.clear()
    link.slave_log, link.epochs = slave, Epochs([Epoch(1, 0)])
    link.state.epochs = Epochs([Epoch(1, 0), Epoch(4, end)])
    return link


def test_hazard_11_nothing_moves_while_a_cut_is_made() -> None:
    common, _ = record_log([b"one", b"two"])
    log, slave = copy_of(common), copy_of(common)
    extend(slave, [b"lost"])
    extend(log, [b"kept", b"too"])
    link = diverged(log, slave, common.max_offset)
    link.disk = Deferred()
    link.connect()
    until(link.world, lambda: bool(link.tasks), 1.0)
    link.world.clock.run_for(30.0)
    assert link.state.acked(2) is None
    assert slave.max_offset == common.max_offset
    link.disk.callback(None)
    link.disk = None
    link.world.clock.run_for(0.1)
    assert link.tasks[0] == Cut(common.max_offset, Epochs([Epoch(1, 0)]))


def test_a_diverged_slave_is_cut_and_goes_on() -> None:
    common, _ = record_log([b"one", b"two"])
    log, slave = copy_of(common), copy_of(common)
    extend(slave, [b"lost", b"for ever"])
    extend(log, [b"kept"])
    link = diverged(log, slave, common.max_offset)
    link.connect()
    link.in_sync()
    assert bytes(slave.data) == bytes(log.data)
    assert [type(task) for task in link.tasks] == [Cut, Remember]


def test_a_disk_that_refuses_ends_the_connection() -> None:
    common, _ = record_log([b"one"])
    log, slave = copy_of(common), copy_of(common)
    extend(slave, [b"lost"])
    link = diverged(log, slave, common.max_offset)
    link.refusal = OSError(28, "No space left on device")
    link.connect()
    until(link.world, lambda: bool(link.lost_because), 3.0)
    assert isinstance(link.lost_because[0], StoreError)


def test_hazard_14_nothing_in_common_is_told_to_the_owner() -> None:
    log, _ = record_log([b"one"])
    slave, _ = record_log([b"other"])
    link = diverged(log, slave, log.max_offset)
    link.epochs = Epochs([Epoch(2, 0)])
    link.confirm_offset = slave.max_offset
    link.connect()
    until(link.world, lambda: bool(link.lost_because), 3.0)
    assert isinstance(link.lost_because[0], NothingInCommon)


def test_hazard_7_a_second_connection_of_a_broker_ends_the_first() -> None:
    log, _ = record_log([b"one"])
    link = Link(log, MemoryLog())
    link.in_sync()
    first = link.feeds[0]
    link.epochs = link.replica.replica.epochs
    link.connect()
    until(link.world, lambda: link.why == ["it came anew"], 1.0)
    link.in_sync()
    assert link.feeds[1] is not first


def test_an_idle_connection_lives_and_a_silent_one_does_not() -> None:
    log, _ = record_log([b"one"])
    link = Link(log, MemoryLog())
    link.in_sync()
    link.world.clock.run_for(60.0)
    assert not link.why
    link.hosts[1].crash(silent=True)
    until(link.world, lambda: bool(link.why), 26.0)
    assert link.state.acked(2) is None
