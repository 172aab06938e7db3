"""`rmq_ha.server.replication.classic.service`: the master's side and the waiting puts."""

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.testing import StringTransport
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rmq_ha.base.errors import ConfigurationError, StoreError
from rmq_ha.base.model.status import BrokerRole, PutMessageStatus
from rmq_ha.server.replication.classic.feed import ASYNC_SECONDS
from rmq_ha.server.replication.classic.frames import encode_frame
from rmq_ha.server.replication.classic.greeting import encode_greeting, greet
from rmq_ha.server.replication.protocol import SPEAKS_TLS, prepare
from rmq_ha.server.replication.statistics import ReplicationStatistics, SlaveStatistics
from tests.unit.server.replication.ha_fakes import Station
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import extend, record_log

OK = PutMessageStatus.PUT_OK
TIMEOUT = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NOT_AVAILABLE = PutMessageStatus.SLAVE_NOT_AVAILABLE


class ServiceCase(SynchronousTestCase):
    role = BrokerRole.SYNC_MASTER

    def setUp(self) -> None:
        self.log = MemoryLog(4096, 0, bytes(444))
        self.station = Station(self.role, self.log).start()
        self.service = self.station.service
        self.clock = self.station.clock

    def put(self, size: int = 10) -> Deferred[PutMessageStatus]:
        """A put that has to wait."""
        start = self.log.max_offset
        waiter = self.service.wait_replicated(self.log.put(bytes(size)), start)
        assert isinstance(waiter, Deferred), waiter
        self.service.appended()
        return waiter

    def put_now(self, size: int = 10) -> PutMessageStatus:
        """A put that needs not wait."""
        start = self.log.max_offset
        status = self.service.wait_replicated(self.log.put(bytes(size)), start)
        assert isinstance(status, PutMessageStatus), status
        self.service.appended()
        return status


class ListeningTests(ServiceCase):
    def test_port(self) -> None:
        """It listens beside the client port, on every interface."""
        (listener,) = self.station.network.listeners
        self.assertEqual((listener.port, listener.interface), (10912, ""))
        self.assertEqual(self.service.listener.port, 10912)

    def test_free_port(self) -> None:
        """Port 0 stays 0, and bindAddress is respected."""
        station = Station(BrokerRole.SLAVE, self.log)
        station.configuration.server.listen_port = 0
        station.configuration.ours.bind_address = "127.0.0.1"
        station.start()
        (listener,) = station.network.listeners
        self.assertEqual((listener.port, listener.interface), (0, "127.0.0.1"))


class StatusTests(ServiceCase):
    """Spec: ha.md, section 7.2."""

    def test_no_slave(self) -> None:
        """Without a connection a put is stored and SLAVE_NOT_AVAILABLE at once."""
        self.assertIs(self.put_now(), NOT_AVAILABLE)

    def test_silent_connection(self) -> None:
        """A connection that has not reported is no slave (Java: FLUSH_SLAVE_TIMEOUT)."""
        self.station.slave()
        self.assertIs(self.put_now(), NOT_AVAILABLE)

    def test_acknowledged(self) -> None:
        """The put fires when a slave has all of it, not a byte less."""
        slave = self.station.slave(444)
        put = self.put(10)
        self.assertEqual(slave.take(), encode_frame(444, bytes(10)))
        slave.report(453)
        self.assertNoResult(put)
        slave.report(454)
        self.assertIs(self.successResultOf(put), OK)

    def test_who_waits_has_it_sent(self) -> None:
        """Without a word of the store: a put that waits is not left to the next turn."""
        slave = self.station.slave(444)
        waiter = self.service.wait_replicated(self.log.put(bytes(10)), 444)
        self.assertEqual(slave.take(), encode_frame(444, bytes(10)))
        slave.report(454)
        assert isinstance(waiter, Deferred)
        self.assertIs(self.successResultOf(waiter), OK)

    def test_timeout(self) -> None:
        """Each put has its own deadline, slaveTimeout after it began (Java: up to 1 s later)."""
        self.station.slave(444)
        puts = []
        for _ in range(5):
            puts.append((self.clock.seconds(), self.put()))
            self.clock.advance(0.25)
        for began, put in puts:
            self.clock.advance(began + 3.0 - self.clock.seconds() - 0.001)
            self.assertNoResult(put)
            self.clock.advance(0.002)
            self.assertIs(self.successResultOf(put), TIMEOUT)
        self.assertEqual(self.service.statistics().waiting, 0)

    def test_one_timer(self) -> None:
        """However many puts wait."""
        self.station.slave(444)
        before = len(self.clock.getDelayedCalls())
        for _ in range(50):
            self.put()
        self.assertLessEqual(len(self.clock.getDelayedCalls()), before + 1)

    def test_late(self) -> None:
        """An acknowledgement after the deadline changes nothing, and the next put is fine."""
        slave = self.station.slave(444)
        put = self.put()
        self.clock.advance(3.1)
        self.assertIs(self.successResultOf(put), TIMEOUT)
        slave.report(454)
        put = self.put()
        slave.report(464)
        self.assertIs(self.successResultOf(put), OK)

    def test_fall_behind(self) -> None:
        """A slave that is haSlaveFallbehindMax behind does not count."""
        self.station.configuration.store.ha_slave_fallbehind_max = 20
        self.station.slave(444)
        self.put(19)
        self.assertIs(self.put_now(1), NOT_AVAILABLE)

    def test_a_far_slave_does_not_hide_a_near_one(self) -> None:
        """One of two is too far behind: the other is still waited for."""
        self.station.configuration.store.ha_slave_fallbehind_max = 20
        self.station.slave(400, port=5001)
        near = self.station.slave(444)
        put = self.put(10)
        near.report(454)
        self.assertIs(self.successResultOf(put), OK)

    def test_any_slave(self) -> None:
        """One of two suffices, as with Java."""
        first, second = self.station.slave(444), self.station.slave(400, port=5001)
        put = self.put(10)
        second.report(444)
        self.assertNoResult(put)
        first.report(454)
        self.assertIs(self.successResultOf(put), OK)

    def test_lost_slave(self) -> None:
        """A slave that leaves does not shorten the wait; the next put finds none."""
        slave = self.station.slave(444)
        put = self.put()
        slave.lose()
        self.assertNoResult(put)
        self.assertIs(self.put_now(), NOT_AVAILABLE)
        self.clock.advance(3.0)
        self.assertIs(self.successResultOf(put), TIMEOUT)

    def test_reconnected_slave(self) -> None:
        """
        What a slave reports when it comes back completes nothing, as it may have begun at a later
        file. What it was sent then does.
        """
        self.station.slave(444).lose()
        self.station.slave(444)
        put = self.put()
        again = self.station.slave(454, port=5001)
        again.report(454)
        later = self.put()
        again.report(464)
        self.assertNoResult(put)
        self.assertIs(self.successResultOf(later), OK)
        self.assertFalse(self.service.is_replicated(444, 454))
        self.assertTrue(self.service.is_replicated(454, 464))

    def test_reconnected_slave_of_ours(self) -> None:
        """What it proves to hold completes what still waits, as far down as the proof goes."""
        self.station.slave(444)
        put = self.put(1000)
        greeting = greet(self.log, 1444)
        assert greeting is not None
        self.assertEqual(greeting.window, 1024)
        self.assertEqual(self.service.statistics().verified, 0)
        older = self.service.wait_replicated(444, 419)
        assert isinstance(older, Deferred)
        self.station.slave(port=5001).send(encode_greeting(greeting))
        self.assertIs(self.successResultOf(put), OK)
        self.assertNoResult(older)
        found = self.service.statistics()
        self.assertEqual((found.verified, found.different), (1, 0))

    def test_a_slave_of_ours_with_another_log(self) -> None:
        """It is counted and said, and vouches for nothing."""
        other = MemoryLog(4096, 0, b"x" * 444)
        greeting = greet(other, 400)
        assert greeting is not None
        slave = self.station.slave()
        with capturedLogs() as events:
            slave.send(encode_greeting(greeting))
        (warning,) = [item for item in events if item["log_level"] is LogLevel.warn]
        self.assertIn("differs from this broker's below 400", formatEvent(warning))
        found = self.service.statistics()
        self.assertEqual((found.verified, found.different), (0, 1))
        self.assertEqual(found.replicated_offset, 0)

    def test_who_says_nothing(self) -> None:
        """Of whom nothing is known, nothing is told."""
        self.station.slave()
        (slave,) = self.service.statistics().slaves
        self.assertEqual((slave.requested, slave.acked, slave.lag), (None, 0, 444))

    def test_strangers(self) -> None:
        """Whoever claims to hold the log acknowledges nothing (five did, and got four SEND_OK)."""
        self.station.slave(444)
        put = self.put()
        for number in range(5):
            self.station.slave(454, port=5001 + number)
        self.clock.advance(2.9)
        self.assertNoResult(put)
        self.clock.advance(0.2)
        self.assertIs(self.successResultOf(put), TIMEOUT)
        self.assertFalse(self.service.is_replicated(444, 454))

    def test_only_allowed_hosts_are_slaves(self) -> None:
        """Nobody else gets a byte, keeps a put waiting or acknowledges one (haAllowedSlaves)."""
        log = MemoryLog(4096, 0, bytes(444))
        allowed = {"ha_allowed_slaves": "10.0.0.2, 10.1.0.0/16"}
        station = Station(self.role, log, ours=allowed).start()
        (listener,) = station.network.listeners
        with capturedLogs() as events:
            for _ in range(100):
                met = listener.factory.buildProtocol(IPv4Address("TCP", "10.0.0.66", 5000))
                self.assertIsNone(met)
        (event,) = events
        self.assertIn("10.0.0.66 refused on the replication port", formatEvent(event))
        self.assertEqual(station.service.statistics().refused, 100)
        self.assertEqual(station.service.statistics().slaves, [])
        self.assertIs(station.service.wait_replicated(log.put(b"x"), 444), NOT_AVAILABLE)
        for peer in ("10.0.0.2", "10.1.2.3"):
            self.assertEqual(station.slave(444, peer).take(), encode_frame(444, b"x"))

    def test_an_idle_slave_is_available(self) -> None:
        """It has shown nothing yet, but puts wait for it."""
        slave = self.station.slave(444)
        self.assertEqual(self.service.replicated_offset(), 0)
        put = self.put()
        slave.report(454)
        self.assertIs(self.successResultOf(put), OK)
        self.assertEqual(self.service.replicated_offset(), 454)

    def test_watermark_falls(self) -> None:
        """It knows live connections only."""
        self.station.slave(100, port=5001).report(110)
        slave = self.station.slave(400)
        slave.report(444)
        self.assertEqual(self.service.replicated_offset(), 444)
        slave.lose()
        self.assertEqual(self.service.replicated_offset(), 110)

    def test_other_roles(self) -> None:
        """Only a synchronous master waits, and the role is asked at each put."""
        for role in (BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE):
            self.station.configuration.store.broker_role = role
            self.assertIs(self.put_now(), OK)

    def test_stranded_slave(self) -> None:
        """A slave whose bytes are deleted here does not count."""
        log = MemoryLog(4096, 4096, bytes(100))
        station = Station(BrokerRole.SYNC_MASTER, log).start()
        with capturedLogs() as events:
            slave = station.slave(444)
        self.assertEqual([item["log_level"] for item in events][-1], LogLevel.error)
        self.assertIs(station.service.wait_replicated(log.put(b"x"), 0), NOT_AVAILABLE)
        self.assertFalse(slave.disconnecting)
        (entry,) = station.service.statistics().slaves
        self.assertEqual(entry.stage, "stranded")
        with capturedLogs() as events:
            station.slave(445)
        self.assertNotIn(LogLevel.error, [item["log_level"] for item in events], "said once")
        self.assertEqual(station.service.replicated_offset(), 0)


class RefusalTests(ServiceCase):
    """Spec: ha.md, section 14.2: what Java believes and we do not."""

    def test_ahead(self) -> None:
        """A slave ahead of us is refused and no put is answered SEND_OK because of it."""
        slave = self.station.slave(365557)
        self.assertIs(self.put_now(), NOT_AVAILABLE)
        self.clock.advance(1.0)
        self.assertTrue(slave.disconnecting)
        self.assertEqual(slave.take(), b"")
        self.assertIs(self.put_now(), NOT_AVAILABLE)
        self.assertEqual(self.service.replicated_offset(), 0)

    def test_ahead_once(self) -> None:
        """Though our log outgrows it: its end is not ours. Until it comes with less."""
        self.station.slave(500)
        self.clock.advance(1.0)
        self.assertEqual(self.service.statistics().refused_ahead, ["10.0.0.2"])
        self.put_now(1000)
        for first in (500, 600, 445):
            self.assertTrue(self.station.slave(first).disconnecting)
            self.assertIs(self.put_now(), NOT_AVAILABLE)
        self.assertFalse(self.station.slave(500, peer="10.0.0.3").disconnecting)
        self.assertFalse(self.station.slave(444).disconnecting)
        self.assertEqual(self.service.statistics().refused_ahead, [])
        self.assertFalse(self.station.slave(500).disconnecting)

    def test_ahead_beside_a_good_one(self) -> None:
        """A slave on the same machine that never was ahead proves nothing of the other one."""
        good = self.station.slave(444)
        self.station.slave(500)
        self.clock.advance(1.0)
        put = self.put(1000)
        good.report(1444)
        self.assertIs(self.successResultOf(put), OK)
        self.assertEqual(self.service.statistics().refused_ahead, ["10.0.0.2"])
        self.assertTrue(self.station.slave(500).disconnecting)

    def test_ahead_beside_one_that_proves_what_it_has(self) -> None:
        """Nor does one of ours that came while the other was refused."""
        log, starts = record_log([b"a" * 60] * 9)
        station = Station(self.role, log).start()
        station.slave(log.max_offset + 100)
        station.clock.advance(1.0)
        self.assertEqual(station.service.statistics().refused_ahead, ["10.0.0.2"])
        greeting = greet(log, starts[-1])
        assert greeting is not None
        ours = station.slave()
        ours.send(encode_greeting(greeting))
        ours.report(log.max_offset)
        self.assertFalse(ours.disconnecting)
        self.assertEqual(station.service.statistics().refused_ahead, ["10.0.0.2"])

    def test_nothing_counts_as_within_a_record_twice(self) -> None:
        """A slave that came with nothing was sent nothing: its first word lies at a beginning."""
        log, starts = record_log([b"a" * 60, b"b" * 60])
        station = Station(self.role, log).start()
        one = station.slave(starts[1] + 7)
        for offset in (starts[1] + 8, starts[1] + 9):
            one.report(offset)
        self.assertEqual(station.service.statistics().within_record, 1)

    def test_within_a_record(self) -> None:
        """Said and counted if it may be another log: not at a record's end, nor what we sent."""
        log, starts = record_log([b"a" * 60, b"b" * 60, b"c" * 60])
        station = Station(self.role, log).start()

        def counted() -> int:
            return int(station.service.statistics().within_record)

        for boundary in (0, 1, *starts, log.max_offset):
            station.slave(boundary or None, peer="10.0.0.9").lose()
        self.assertEqual(counted(), 0)
        with capturedLogs() as events:
            slave = station.slave(starts[1] + 7)
        self.assertEqual(counted(), 1)
        (warning,) = [item for item in events if item["log_level"] is LogLevel.warn]
        self.assertIn("in the middle of a record", formatEvent(warning))
        self.assertFalse(slave.disconnecting)
        slave.report(starts[2] + 9)
        self.assertEqual(counted(), 1)
        slave.lose()
        station.slave(starts[2] + 9)
        self.assertEqual(counted(), 1)
        other = station.slave(starts[2] + 9, peer="10.0.0.3")
        self.assertEqual(counted(), 2)
        other.lose()
        (start,) = extend(log, [b"d" * 60])
        station.slave(start + 9, peer="10.0.0.3")
        self.assertEqual(counted(), 3)

    def test_told_once(self) -> None:
        """Each machine's complaint, though others complain in between."""
        with capturedLogs() as events:
            for _ in range(3):
                for peer in ("10.0.0.2", "10.0.0.3", "10.0.0.4"):
                    self.station.slave(-5, peer=peer)
        warnings = [item for item in events if item["log_level"] is LogLevel.warn]
        self.assertEqual(len(warnings), 3)

    def test_who_left(self) -> None:
        """A slave that goes is worth a line, a stranger that said nothing is not."""
        slave, stranger = self.station.slave(444), self.station.slave(peer="10.0.0.9")
        for wire, level in ((slave, LogLevel.info), (stranger, LogLevel.debug)):
            with capturedLogs() as events:
                wire.lose()
            self.assertEqual(next(item["log_level"] for item in events), level)

    def test_negative(self) -> None:
        """So is a negative first report."""
        self.assertTrue(self.station.slave(-5).disconnecting)

    def test_speaks_tls(self) -> None:
        """It is told what is wrong, and not that its log is ahead, whatever its words would be."""
        hello = b"\x16\x03\x01\x00\x0b\x01\x00\x00"
        for last in (bytes(7), bytes([255] * 8), b"\x7f" * 8):
            station = Station(BrokerRole.SYNC_MASTER, self.log).start()
            with capturedLogs() as events:
                slave = station.slave()
                slave.send(hello + last)
            self.assertTrue(slave.disconnecting)
            self.assertIn(SPEAKS_TLS, formatEvent(events[-1]))
            self.assertEqual(station.service.statistics().refused_ahead, [])

    def test_speaks_no_tls(self) -> None:
        """Whatever a later word begins with; a first one that is no report is said to be none."""
        slave = self.station.slave(444)
        for wire in (slave, self.station.slave()):
            with capturedLogs() as events:
                wire.send(b"\xff" * 8 if wire is not slave else b"\x16\x03" * 4)
            self.assertTrue(wire.disconnecting)
            self.assertNotIn("TLS", formatEvent(events[-1]))

    def test_forged(self) -> None:
        """An acknowledgement above what was sent on this connection completes nothing."""
        slave = self.station.slave(444)
        slave.end.feed.pause()
        put = self.put(10)
        slave.report(454)
        self.assertTrue(slave.disconnecting)
        self.assertNoResult(put)
        self.assertEqual(self.service.statistics().slaves, [])

    def test_deaf(self) -> None:
        """A refused peer that does not close is cut off, and not heard any more."""
        slave = self.station.slave(365557)
        slave.report(444)
        self.assertEqual(slave.take(), b"")
        self.clock.advance(1.0)
        self.assertTrue(slave.aborted)
        self.assertFalse(self.clock.getDelayedCalls())

    def test_silent(self) -> None:
        """A half-open connection is found after haHousekeepingInterval without a report."""
        slave = self.station.slave(444)
        self.station.pass_time(19.9)
        self.assertFalse(slave.disconnecting)
        self.assertEqual(slave.take(), encode_frame(444) * 3)
        self.station.pass_time(0.3)
        self.assertTrue(slave.disconnecting)

    def test_never_a_word(self) -> None:
        """One that connects and says nothing at all has as long, and no longer."""
        slave = self.station.slave()
        self.station.pass_time(19.9)
        self.assertFalse(slave.disconnecting)
        self.station.pass_time(0.3)
        self.assertTrue(slave.disconnecting)

    def test_too_many(self) -> None:
        """A flood of one machine keeps nobody out, and costs a put no more than a few frames."""
        old = self.station.slave(444)
        flood = [
            self.station.slave(0 if port % 2 else None, "10.6.6.6", 6000 + port)
            for port in range(1500)
        ]
        new = self.station.slave(444, "10.0.0.3")
        self.assertFalse(old.disconnecting)
        self.assertFalse(new.disconnecting)
        left = [wire for wire in flood if not wire.disconnecting]
        self.assertEqual(len(left), 30)
        found = self.service.statistics()
        self.assertEqual((len(found.slaves), found.turned_away), (32, 1470))
        for wire in (old, new, *flood):
            wire.take()
        self.station.put(bytes(10))
        frame = encode_frame(444, bytes(10))
        self.assertEqual((old.take(), new.take()), (frame, frame))
        self.assertLessEqual(sum(bool(wire.take()) for wire in flood), 30)

    def test_a_word_in_pieces_keeps_nobody(self) -> None:
        """Who never says a whole report is silent, however often he says a byte of one."""
        slave = self.station.slave()
        for _ in range(5):
            self.station.pass_time(3.5)
            slave.send(b"\x00")
        self.station.pass_time(3.0)
        self.assertTrue(slave.disconnecting)

    def test_closed_once(self) -> None:
        """Who is closed for two reasons leaves once, for the first."""
        slave, other = self.station.slave(444), self.station.slave(444, port=5001)
        with capturedLogs() as events:
            slave.end.close("the first reason")
            slave.end.close("another")
        self.assertEqual(len(events), 1)
        self.assertIn("the first reason", formatEvent(events[0]))
        (told,) = self.service.statistics().slaves
        self.assertEqual(told.address, other.end.peer)
        self.clock.advance(1.0)
        self.assertTrue(slave.aborted)

    def test_unread(self) -> None:
        """What a slave said while a turn of ours took long counts, though its time is over."""
        slave = self.station.slave(444)
        self.clock.callLater(20, slave.report, 444)
        self.clock.advance(100)
        self.assertFalse(slave.disconnecting)
        self.station.pass_time(20.3)
        self.assertTrue(slave.disconnecting)

    def test_a_byte_now_and_then(self) -> None:
        """It kept a connection for ever that never reported."""
        for first in (None, 444):
            slave = self.station.slave(first)
            for _ in range(5):
                self.station.pass_time(4.1)
                slave.send(b"\0")
            self.assertTrue(slave.disconnecting)

    def test_reporting(self) -> None:
        """A slave that reports stays."""
        slave = self.station.slave(444)
        for _ in range(10):
            self.station.pass_time(5)
            slave.report(444)
        self.assertFalse(slave.disconnecting)

    def test_unreadable_log(self) -> None:
        """A disk error ends the connection, not the appending turn."""
        slave = self.station.slave(444)

        def read(physical_offset: int, limit: int) -> bytes:
            raise StoreError("cannot read")

        self.log.read = read  # type: ignore[method-assign]
        self.put()
        self.assertTrue(slave.disconnecting)
        self.assertEqual(len(self.flushLoggedErrors(StoreError)), 1)

    def test_unreadable_below_a_greeting(self) -> None:
        """Nor is a slave fed whose log cannot be compared with ours."""
        greeting = greet(self.log, 400)
        assert greeting is not None

        def read(physical_offset: int, limit: int) -> bytes:
            raise StoreError("cannot read")

        slave = self.station.slave()
        self.log.read = read  # type: ignore[method-assign]
        slave.send(encode_greeting(greeting))
        self.assertTrue(slave.disconnecting)
        self.assertEqual(self.service.statistics().slaves, [])
        self.assertEqual(len(self.flushLoggedErrors(StoreError)), 1)


class FlowTests(ServiceCase):
    role = BrokerRole.ASYNC_MASTER

    def test_pushed_at_once(self) -> None:
        """What was appended leaves at the end of the turn (Java: within 100 ms)."""
        slaves = [self.station.slave(444), self.station.slave(444, port=5001)]
        self.station.put(b"abc")
        self.assertEqual([s.take() for s in slaves], [encode_frame(444, b"abc")] * 2)

    def test_turns(self) -> None:
        """A long way to catch up is made in several turns, and others live in between."""
        self.station.configuration.ours.ha_transfer_batch_max = 0
        self.station.configuration.store.ha_transfer_batch_size = 32
        slave = self.station.slave(1)
        self.assertEqual(len(slave.take()), 4 * (32 + 12))
        self.clock.advance(0)
        self.assertEqual(slave.end.feed.sent, 444)

    def test_back_pressure(self) -> None:
        """A slow slave slows only itself; nothing is buffered for it."""
        slow, fast = self.station.slave(444), self.station.slave(444, port=5001)
        self.assertTrue(slow.streaming)
        slow.producer.pauseProducing()
        for count in range(5):
            self.station.put(b"x")
            self.clock.advance(ASYNC_SECONDS)
            fast.report(445 + count)
        self.assertEqual(slow.take(), b"")
        self.assertEqual(fast.end.feed.sent, 449)
        slow.producer.resumeProducing()
        self.assertEqual(slow.take(), encode_frame(444, b"xxxxx"))

    def test_statistics(self) -> None:
        """Connections with their lag."""
        slave = self.station.slave(400)
        slave.report(420)
        self.assertEqual(
            self.service.statistics(),
            ReplicationStatistics(
                waiting=0,
                replicated_offset=420,
                verified=0,
                different=0,
                within_record=1,
                refused=0,
                refused_ahead=[],
                turned_away=0,
                unacknowledged=24,
                unacknowledged_seconds=0.0,
                slaves=[
                    SlaveStatistics(
                        address="10.0.0.2:5000",
                        stage="catching up",
                        requested=400,
                        acked=420,
                        lag=24,
                        lag_seconds=0.0,
                    )
                ],
                master=None,
            ),
        )
        slave.report(444)
        self.assertEqual(self.service.statistics().slaves[0].stage, "caught up")

    def test_each_stage_is_told_once(self) -> None:
        """A slave reports many times a second: its operator reads of what changed."""
        with capturedLogs() as events:
            slave = self.station.slave(400)
            for offset in (410, 420, 444, 444):
                slave.report(offset)
            self.station.put(b"x")
            slave.report(444)
            slave.report(445)
        told = [formatEvent(item) for item in events if item["log_level"] is LogLevel.info]
        self.assertEqual(
            [text.partition("10.0.0.2:5000 ")[2] for text in told],
            [
                "catching up: it holds 400, 44 bytes behind",
                "caught up: it holds 444, 0 bytes behind",
            ],
        )

    def test_an_empty_slave_has_acknowledged_nothing(self) -> None:
        self.station.slave(0)
        end = self.station.log.max_offset
        self.assertEqual(self.service.statistics().unacknowledged, end)

    def test_lag_in_seconds(self) -> None:
        """Since when a slave lacks the first byte that it lacks; what is gone lags on."""
        self.assertIsNone(self.service.statistics().unacknowledged)
        self.assertIsNone(self.service.statistics().unacknowledged_seconds)
        slave = self.station.slave(444)
        self.clock.advance(10)
        self.assertEqual(self.service.statistics().slaves[0].lag_seconds, 0.0)
        self.station.put(b"x" * 10)
        self.clock.advance(2)
        self.station.put(b"y" * 10)
        self.clock.advance(1)
        self.assertEqual(self.service.statistics().slaves[0].lag_seconds, 3.0)
        slave.report(454)
        self.assertEqual(self.service.statistics().slaves[0].lag_seconds, 1.0)
        slave.lose()
        self.clock.advance(5)
        found = self.service.statistics()
        self.assertEqual(found.slaves, [])
        self.assertEqual((found.unacknowledged, found.unacknowledged_seconds), (10, 6.0))
        self.station.slave(464)
        found = self.service.statistics()
        self.assertEqual((found.unacknowledged, found.unacknowledged_seconds), (0, 0.0))

    def test_chained(self) -> None:
        """A slave feeds further slaves."""
        station = Station(BrokerRole.SLAVE, self.log).start()
        slave = station.slave(444)
        self.log.append_raw(444, b"abc")
        station.service.appended()
        self.assertEqual(slave.take(), encode_frame(444, b"abc"))


class StopTests(ServiceCase):
    def stop(self) -> Deferred[None]:
        return self.service.stop()

    def test_idle(self) -> None:
        """With nothing open it is done at once; twice is harmless."""
        self.successResultOf(self.stop())
        self.assertFalse(self.station.network.listeners[0].is_open)
        self.successResultOf(self.stop())
        self.assertFalse(self.clock.getDelayedCalls())

    def test_connections(self) -> None:
        """It waits until every connection is closed."""
        slaves = [self.station.slave(444, port=port) for port in (5000, 5001)]
        done = self.stop()
        for slave in slaves:
            self.assertTrue(slave.disconnecting)
            self.assertIsNone(slave.producer)  # while there is one, a transport does not close
            self.assertNoResult(done)
            slave.lose()
        self.successResultOf(done)
        self.assertFalse(self.clock.getDelayedCalls())

    def test_port(self) -> None:
        """A stop is not over while the port is open: who starts next may need it."""
        closed: Deferred[None] = Deferred()
        self.station.network.listeners[0].stopListening = (  # type: ignore[method-assign]
            lambda: closed  # type: ignore[assignment,return-value]
        )
        done = self.service.stop()
        self.assertNoResult(done)
        closed.callback(None)
        self.successResultOf(done)

    def test_waiting(self) -> None:
        """Slaves get the time to take what they lack, but not for ever; then every put fires."""
        slave = self.station.slave(444)
        put = self.put()
        done = self.stop()
        self.clock.advance(2.9)
        self.assertNoResult(put)
        self.assertNoResult(done)
        self.clock.advance(0.2)
        self.assertIs(self.successResultOf(put), TIMEOUT)
        self.assertTrue(slave.disconnecting)
        self.clock.advance(1.0)
        self.assertTrue(slave.aborted)
        self.successResultOf(done)
        self.assertFalse(self.clock.getDelayedCalls())

    def test_nobody_left_to_wait_for(self) -> None:
        """A put whose slave is gone ends with the stop, not at its deadline."""
        slave = self.station.slave(444)
        put = self.put()
        slave.lose()
        done = self.stop()
        self.assertIs(self.successResultOf(put), TIMEOUT)
        self.successResultOf(done)
        self.assertFalse(self.clock.getDelayedCalls())

    def test_caught_up(self) -> None:
        """A slave that takes the tail lets the stop go on at once."""
        slave = self.station.slave(444)
        put = self.put()
        done = self.stop()
        slave.report(454)
        self.assertIs(self.successResultOf(put), OK)
        self.assertTrue(slave.disconnecting)
        slave.lose()
        self.successResultOf(done)

    def test_lagging_slave_leaves(self) -> None:
        """So does one that goes away."""
        slave = self.station.slave(400)
        done = self.stop()
        slave.lose()
        self.successResultOf(done)


def test_a_fixed_address_that_is_none_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="haMasterAddress"):
        Station(BrokerRole.SLAVE, MemoryLog(), ha_master_address="master")


def test_a_master_ignores_the_master_address() -> None:
    station = Station(BrokerRole.ASYNC_MASTER, MemoryLog(), ha_master_address="master").start()
    station.service.set_master_address("10.0.0.1:10912")
    assert not station.network.attempts


@implementer(ITCPTransport)
class Line(StringTransport):
    """A transport that says what was asked of its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.options: dict[str, bool] = {}

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.options["no delay"] = enabled

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.options["keep alive"] = enabled


def test_small_frames_leave_at_once_and_the_kernel_looks_for_the_peer() -> None:
    station = Station(BrokerRole.SYNC_MASTER, MemoryLog()).start()
    feed = station.network.listeners[0].factory.buildProtocol(IPv4Address("TCP", "10.0.0.2", 5000))
    line = Line()
    feed.makeConnection(line)
    assert line.options == {"no delay": True, "keep alive": True}
    prepare(StringTransport())  # what is no TCP is left alone
