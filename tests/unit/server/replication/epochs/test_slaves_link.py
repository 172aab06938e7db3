"""
When a slave's link connects, whom it tells, and what its end waits for.

Spec: controller.md, section 7.3.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs
from rmq_ha.server.replication.epochs.frames import Transfer, encode_report, encode_transfer
from rmq_ha.server.replication.epochs.link import ASK_TIMEOUT_MS, MENDED_SECONDS, EpochLink
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.shared_secrets import SharedSecrets
from tests.unit.server.replication.epochs.test_hazards_of_links import hello
from tests.unit.server.replication.ha_fakes import FakeNetwork, Wire
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import record_log

MASTER = "10.0.0.1:10911"
HA_ADDRESS = "10.0.0.1:10912"


class Log(MemoryLog):
    """One whose disk is as far as the test says."""

    flushed_offset = 0


class Slave:
    """A link, what it asked its master, and what it wanted done."""

    def __init__(self, log: MemoryLog, known: Epochs) -> None:
        self.log, self.epochs = log, known
        self.clock = Clock()
        self.network = FakeNetwork()
        self.settings = ReplicationSettings()
        self.asked: list[Deferred[RemotingCommand]] = []
        self.requests: list[tuple[str, int, int]] = []
        self.heartbeats: list[int] = []
        self.tasks: list[Cut | Remember] = []
        self.disk: list[Deferred[None]] = []
        self.told: list[int] = []
        self.strangers: list[str] = []
        self.cancelled: Any = None
        host = Host(
            clock=self.clock,  # type: ignore[arg-type]
            now_ms=lambda: 0,
            network=self.network,  # type: ignore[arg-type]
            disk=None,  # type: ignore[arg-type]
            worker=None,  # type: ignore[arg-type]
            random=Random(7),
        )
        configuration = BrokerConfiguration()
        secrets = SharedSecrets(configuration.ours, lambda path: b"")
        tls = HaTls({}, lambda path: b"", lambda: 0)
        connector = MasterConnector(host, configuration, tls, secrets)
        self.link = EpochLink(host, self, connector, MASTER, 1, self)  # type: ignore[arg-type]

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> Deferred[Any]:
        self.requests.append((address, command.code, timeout_ms))
        self.asked.append(Deferred(self.cancelled))
        return self.asked[-1]

    def comes_back(self) -> None:
        self.heartbeats.append(len(self.requests))

    def make_replica(self) -> EpochReplica:
        now = self.clock.seconds()
        return EpochReplica(2, self.log, self.epochs, 0, self.settings, now)

    def fulfil(self, task: Cut | Remember) -> Deferred[None]:
        self.tasks.append(task)
        self.disk.append(Deferred())
        return self.disk[-1]

    def confirmed(self, offset: int) -> None:
        self.told.append(offset)

    def trusts(self, address: str) -> bool:
        return address not in self.strangers

    # ------------------------------------------------------------ what tests do

    def answered(self, **ext: str) -> None:
        """The master says where it replicates, or nothing."""
        self.asked.pop().callback(RemotingCommand(0, ext=ext or None))

    def connected(self) -> Wire:
        """It connects, where the master has said."""
        self.answered(masterHaAddress=HA_ADDRESS)
        return self.network.attempts[-1].accept()

    def following(self) -> Wire:
        self.link.start()
        wire = self.connected()
        wire.send(hello(9000, (1, 0)))
        assert self.link.state == "following"
        return wire

    def refused(self) -> None:
        self.asked.pop().errback(RemotingTimeout("a test"))

    def pause(self) -> float:
        """Until the master is asked again."""
        before, count = self.clock.seconds(), len(self.requests)
        while len(self.requests) == count:
            assert self.clock.seconds() < before + 60.0
            self.clock.advance(0.01)
        return float(self.clock.seconds() - before)

    def is_quiet(self) -> bool:
        """Nothing is left that could do anything."""
        return not self.clock.getDelayedCalls()


def slave(*bodies: bytes) -> Slave:
    log, _ = record_log(list(bodies or (b"one",)))
    return Slave(log, Epochs([Epoch(1, 0)]))


def test_it_asks_the_master_where_it_replicates_and_is_alone_until_it_follows() -> None:
    it = slave()
    assert (it.link.state, it.link.statistics().alone_seconds, it.link.ha_address) == (
        "connecting",
        None,
        "",
    )
    it.link.start()
    assert it.requests == [(MASTER, RequestCode.EXCHANGE_BROKER_HA_INFO, ASK_TIMEOUT_MS)]
    it.clock.advance(2.0)
    wire = it.connected()
    assert it.network.attempts[0].address == ("10.0.0.1", 10912)
    assert (it.link.state, it.link.statistics().alone_seconds) == ("handshake", 2.0)
    assert it.link.ha_address == HA_ADDRESS
    wire.send(hello(9000, (1, 0)))
    assert (it.link.state, it.link.statistics().alone_seconds, it.told) == ("following", None, [0])
    wire.send(encode_transfer(Transfer(it.log.max_offset, Epoch(1, 0), 50)))
    assert it.told[-1] == 50
    wire.lose()
    it.clock.advance(0.05)
    assert it.link.state == "connecting"
    assert it.link.statistics().alone_seconds == pytest.approx(0.05)


def test_it_comes_back_soon_and_later_each_time_until_it_was_followed() -> None:
    """Nobody asks a master that is away more than each two seconds, and no two at once."""
    it = slave()
    it.link.start()
    pauses = []
    for number in range(40):
        if number % 2:
            it.refused()
        else:
            it.answered(masterHaAddress=HA_ADDRESS)
            it.network.attempts[-1].refuse()
        pauses.append(it.pause())
    assert 0.1 <= pauses[0] <= 0.31
    assert 0.15 <= pauses[1] <= 0.46
    assert all(pause == pytest.approx(2.0, abs=0.011) for pause in pauses[10:])
    wire = it.connected()
    wire.send(hello(9000, (1, 0)))
    for _ in range(3):
        wire.lose()
        assert 0.1 <= it.pause() <= 0.31
        wire = it.connected()
        wire.send(hello(9000, (1, 0)))


def test_a_master_that_does_not_say_where_it_replicates_is_asked_again() -> None:
    """Another one that only just was elected: it is not master yet."""
    it = slave()
    it.link.start()
    it.answered()
    assert it.network.attempts == []
    assert 0.1 <= it.pause() <= 0.31
    it.connected()


def test_a_master_that_replicates_at_an_address_that_is_not_trusted_is_a_fault() -> None:
    it = slave()
    it.strangers.append(HA_ADDRESS)
    it.link.start()
    it.answered(masterHaAddress=HA_ADDRESS)
    assert it.network.attempts == []
    assert f"replicates at {HA_ADDRESS}, which is not in haTrustedMasters" in it.link.fault
    it.strangers.clear()
    it.pause()
    it.connected().send(hello(9000, (1, 0)))
    assert it.link.fault == ""


def test_a_connection_that_is_over_before_anybody_has_it_is_made_again_once() -> None:
    it = slave()
    it.link.start()
    it.answered(masterHaAddress=HA_ADDRESS)
    attempt = it.network.attempts[-1]
    protocol: Any = attempt.factory.buildProtocol(None)  # type: ignore[arg-type]
    Wire(protocol).lose()
    attempt.deferred.callback(protocol)
    assert it.link.state == "connecting"
    assert 0.1 <= it.pause() <= 0.31
    assert len(it.clock.getDelayedCalls()) == 1, "the one that says for how long it is alone"
    it.connected().send(hello(9000, (1, 0)))
    assert it.link.state == "following"


def test_the_same_reason_is_said_once_until_the_master_was_followed() -> None:
    it = slave()
    with capturedLogs() as events:
        it.link.start()
        for _ in range(3):
            it.refused()
            it.pause()
        wire = it.connected()
        wire.send(hello(9000, (1, 0)))
        wire.lose()
        it.pause()
        it.refused()
    said = [str(formatEvent(event)) for event in events if event["log_level"] is LogLevel.warn]
    assert [line.split(": ", 1)[1].split(":")[0] for line in said] == [
        "cannot connect",
        "it closed the connection",
        "cannot connect",
    ]


def test_what_somebody_has_to_mend_is_a_fault_and_is_tried_each_five_seconds() -> None:
    it = slave(b"one", b"two")
    wire = it.following()
    wire.send(encode_transfer(Transfer(5, Epoch(1, 0), 0, b"x")))
    wire.lose()
    assert "log ends" in it.link.fault
    assert it.pause() == pytest.approx(MENDED_SECONDS, abs=0.011)
    assert it.link.fault
    it.connected().send(hello(9000, (1, 0)))
    assert it.link.fault == ""


def test_a_disk_that_refuses_the_masters_epoch_is_a_fault() -> None:
    it = slave()
    wire = it.following()
    wire.send(encode_transfer(Transfer(it.log.max_offset, Epoch(2, it.log.max_offset), 0, b"x")))
    (task,) = it.tasks
    assert isinstance(task, Remember)
    assert wire.producerState == "paused"
    it.disk.pop().errback(OSError(28, "No space left on device"))
    wire.lose()
    assert "No space left" in it.link.fault


def test_who_counts_what_is_on_the_disk_reports_when_it_is_there() -> None:
    log = Log(4096, 0, bytes(100))
    it = Slave(log, Epochs([Epoch(1, 0)]))
    it.settings.sync_flush = True
    it.link.flushed()
    wire = it.following()
    assert wire.take()[-16:] != encode_report(100)
    log.flushed_offset = 100
    it.link.flushed()
    assert wire.take() == encode_report(100)


# ------------------------------------------------------------ the end


def ended(it: Slave) -> list[None]:
    over: list[None] = []
    it.link.stop().addCallback(over.append)
    return over


@pytest.mark.parametrize("is_asked", [True, False])
def test_who_stops_while_it_waits_asks_and_connects_no_more(is_asked: bool) -> None:
    it = slave()
    it.link.start()
    if not is_asked:
        it.refused()
    assert ended(it) == [None]
    assert it.link.statistics().alone_seconds is None
    assert it.is_quiet()
    if is_asked:
        assert it.asked[0].called, "nobody waits for that answer any more"


def test_who_stops_while_it_connects_is_connected_with_nobody() -> None:
    it = slave()
    it.link.start()
    it.answered(masterHaAddress=HA_ADDRESS)
    attempt = it.network.attempts[-1]
    assert ended(it) == [None]
    assert attempt.deferred.called
    assert it.is_quiet()


def test_a_connection_that_stands_just_when_it_stops_is_closed() -> None:
    """What was begun cannot always be taken back."""
    it = slave()
    answer = RemotingCommand(0, ext={"masterHaAddress": HA_ADDRESS})
    it.cancelled = lambda asked: asked.callback(answer)
    it.link.start()
    ended(it)
    wire = it.network.attempts[-1].accept()
    assert wire.disconnecting
    wire.send(hello(9000, (1, 0)), encode_transfer(Transfer(it.log.max_offset, Epoch(1, 0), 9)))
    wire.lose()
    assert it.told == []
    assert it.is_quiet()


@pytest.mark.parametrize("task_first", [True, False])
def test_an_end_waits_for_the_connection_and_for_what_is_done_to_the_log(task_first: bool) -> None:
    it = slave()
    wire = it.following()
    wire.send(encode_transfer(Transfer(it.log.max_offset, Epoch(2, it.log.max_offset), 0, b"x")))
    end = it.log.max_offset
    over = ended(it)
    assert wire.disconnecting
    assert wire.producerState == "producing", "or it would not see that the other end is gone"
    steps = [lambda: it.disk.pop().callback(None), wire.lose]
    for step in steps if task_first else reversed(steps):
        assert over == []
        step()
    assert over == [None]
    assert it.log.max_offset == end
    assert it.is_quiet()


def test_an_end_says_nothing_of_what_was_lost_with_it() -> None:
    it = slave()
    wire = it.following()
    with capturedLogs() as events:
        over = ended(it)
        wire.lose()
    assert over == [None]
    assert events == []
    assert it.is_quiet()


def test_the_controllers_hear_of_a_slave_before_its_master_does() -> None:
    """At each connection: they refuse to have in sync a broker whose heartbeat has not come."""
    it = slave()
    wire = it.following()
    assert it.heartbeats == [0], "before the master is asked where it replicates"
    wire.lose()
    it.clock.advance(1.0)
    assert it.heartbeats == [0, 1]
