"""`rmq_ha.server.replication.classic.link`: a slave and its master."""

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail
from twisted.internet.tcp import Connection
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.server.replication.classic.frames import encode_frame, encode_report
from rmq_ha.server.replication.classic.greeting import encode_greeting, greet
from rmq_ha.server.replication.classic.link import TailOfStore
from rmq_ha.server.replication.classic.replica import ClassicReplica
from tests.unit.server.replication.ha_fakes import Station, Wire
from tests.unit.server.replication.record_logs import copy_of, extend, record_log

MASTER = "10.0.0.1:10912"
PEER = IPv4Address("TCP", "10.0.0.1", 10912)


class Socket(Connection):
    """Twisted's own transport, without a socket."""

    def __init__(self) -> None:
        self.written = b""

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Nothing to set."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Nothing to set."""

    def write(self, data: bytes) -> None:
        self.written += data


class LinkCase(SynchronousTestCase):
    address: str | None = MASTER

    def setUp(self) -> None:
        self.log, (*_, self.start) = record_log([b"a" * 60, b"b" * 60, b"c" * 60])
        self.end = self.log.max_offset
        self.station = Station(BrokerRole.SLAVE, self.log, ha_master_address=self.address).start()
        self.service = self.station.service
        self.clock = self.station.clock
        self.attempts = self.station.network.attempts

    def state(self) -> str:
        return str(self.service.statistics().master.state)

    def follow(self) -> Wire:
        """A master that accepts us and has what we have."""
        master = self.attempts[-1].accept()
        master.send(encode_frame(self.start, bytes(self.log.data[self.start :])))
        return master

    def assert_returns(self, at_least: float, at_most: float) -> None:
        """The next attempt comes within this time."""
        count = len(self.attempts)
        self.clock.advance(max(0.0, at_least - 0.001))
        self.assertEqual(len(self.attempts), count + (not at_least))
        self.clock.advance(at_most - at_least + 0.002)
        self.assertEqual(len(self.attempts), count + 1)


class ConnectingTests(LinkCase):
    def test_reports_at_once(self) -> None:
        """Our last record is asked for on connecting, and the address is the configured one."""
        self.assertEqual(self.attempts[0].address, ("10.0.0.1", 10912))
        greeting = greet(self.log, self.start)
        assert greeting is not None
        self.assertEqual(self.attempts[0].accept().take(), encode_greeting(greeting))
        self.assertEqual(self.state(), "connected")

    def test_follows(self) -> None:
        """What comes is appended and reported."""
        master = self.attempts[0].accept()
        master.clear()
        master.send(encode_frame(self.start, self.log.read(self.start, 9)))
        self.assertEqual((master.take(), self.state()), (b"", "comparing"))
        master.send(encode_frame(self.start + 9, self.log.read(self.start + 9, 4096) + b"abc"))
        self.assertEqual(master.take(), encode_report(self.end + 3))
        self.assertEqual(self.state(), "following")

    def test_refused(self) -> None:
        """A failed connect is repeated at once, then less and less often, up to five seconds."""
        self.attempts[0].refuse()
        self.assertEqual(self.state(), "unreachable")
        self.assert_returns(0.0, 0.0)
        for least in (0.4, 0.6, 0.9, 1.35, 2.0, 3.0, 4.0, 4.0):
            self.attempts[-1].refuse()
            self.assert_returns(least, min(5.0, least * 1.28))

    def test_closed_is_closed(self) -> None:
        """Who closes a connection that is lost already starts nothing."""
        master = self.follow()
        master.lose()
        before = len(self.clock.getDelayedCalls())
        master.end.close()
        self.assertEqual(len(self.clock.getDelayedCalls()), before)
        self.assertFalse(master.disconnecting)

    def test_refused_is_said_once(self) -> None:
        """Not for every attempt."""
        with capturedLogs() as events:
            for _ in range(5):
                self.attempts[-1].refuse()
                self.clock.advance(5.0)
        warnings = [item for item in events if item["log_level"] is LogLevel.warn]
        self.assertEqual(len(warnings), 1)

    def test_that_nobody_is_followed_for_long_is_said_with_the_reason(self) -> None:
        for is_refused, why in ((True, "was refused"), (False, "it says nothing")):
            station = Station(BrokerRole.SLAVE, self.log, ha_master_address=self.address).start()
            with capturedLogs() as events:
                if is_refused:
                    station.network.attempts[-1].refuse()
                station.clock.pump([1.0] * 61)
            told = [formatEvent(item) for item in events]
            alone = [line for line in told if "follows nobody" in line]
            self.assertEqual([why in line for line in alone], [True], told)

    def test_an_end_is_said_each_time(self) -> None:
        """Between two of the same kind all was well: the second one is news."""
        with capturedLogs() as events:
            for _ in range(2):
                self.follow().lose()
                self.clock.advance(0.3)
        warnings = [item for item in events if item["log_level"] is LogLevel.warn]
        self.assertEqual(len(warnings), 2)
        self.assertEqual(len({formatEvent(item) for item in warnings}), 1)

    def test_comes_back(self) -> None:
        """A master that worked and restarts is found soon, however long it was away before."""
        for _ in range(9):
            self.attempts[-1].refuse()
            self.clock.advance(5.0)
        self.follow().lose()
        self.assert_returns(0.05, 0.3)
        self.attempts[-1].refuse()
        self.assert_returns(0.0, 0.0)

    def test_what_is_told_of_a_master_that_is_gone_and_back(self) -> None:
        """For how long nobody is followed counts from the loss to the next frame."""
        master = self.follow()
        self.assertIsNone(self.service.statistics().master.alone_seconds)
        master.lose()
        told = self.service.statistics().master
        self.assertEqual((told.state, told.frames), ("disconnected", 0))
        self.clock.advance(0.6)
        self.assertAlmostEqual(self.service.statistics().master.alone_seconds, 0.6)
        self.follow()
        told = self.service.statistics().master
        self.assertEqual((told.state, told.frames), ("following", 1))
        self.assertIsNone(told.alone_seconds)

    def test_master_stops(self) -> None:
        """After the end of a connection that worked we are back soon."""
        self.follow().lose()
        self.assert_returns(0.05, 0.3)

    def test_master_refuses(self) -> None:
        """A master that closes without a frame has a reason: no tight loop."""
        self.attempts[0].accept().lose()
        self.assert_returns(1.0, 3.0)

    def test_nothing_here(self) -> None:
        """A log without a message that begins where the master's is not yet: nobody heals that."""
        self.follow().lose()
        del self.log.data[:]
        self.log.base = self.log.min_offset = 8192
        for _ in range(2):
            self.clock.advance(5.0)
            self.attempts[-1].accept().lose()
            self.assertEqual(self.state(), "diverged")
            fault = self.service.statistics().master.fault
            self.assertIn("it closed the connection, and sent nothing", fault)
            self.assertIn("holds no message and begins at 8192", fault)
            self.assertIn("Move commitlog", fault)
        self.clock.advance(5.0)
        self.attempts[-1].accept().send(encode_frame(8192))
        self.assertEqual(self.state(), "following")

    def test_impossible_beginning(self) -> None:
        """An empty log waits for a master whose offsets can be true (haFirstOffsetMax)."""
        self.follow().lose()
        del self.log.data[:]
        self.log.base, self.log.min_offset = 0, -1
        self.clock.advance(5.0)
        liar = self.attempts[-1].accept()
        liar.send(encode_frame(2**62))
        self.assertTrue(liar.disconnecting)
        self.assertEqual(self.log.max_offset, 0)
        liar.lose()
        self.clock.advance(5.0)
        self.attempts[-1].accept().send(encode_frame(8192))
        self.assertEqual(self.state(), "following")

    def test_diverged(self) -> None:
        """Another log is left, and tried again after a pause, as operators mend such things."""
        master = self.attempts[0].accept()
        for _ in range(2):  # one may say where the master's log begins
            master.send(encode_frame(self.end + 1))
        self.assertTrue(master.disconnecting)
        master.send(encode_frame(self.start, b"late"))
        self.assertEqual(self.log.max_offset, self.end)
        master.lose()
        self.assert_returns(1.0, 3.0)

    def test_disk(self) -> None:
        """When our disk refuses, the master is left for five seconds."""
        master = self.follow()

        def append_raw(physical_offset: int, data: bytes | memoryview) -> None:
            raise StoreError("disk full")

        self.log.append_raw = append_raw  # type: ignore[method-assign]
        master.send(encode_frame(self.end, b"x"))
        master.lose()
        self.assert_returns(5.0, 5.0)

    def test_large_reads(self) -> None:
        """A slave that catches up does so at half the speed with Twisted's chunks of 64 KiB."""
        line = Socket()
        self.attempts[0].factory.buildProtocol(PEER).makeConnection(line)
        self.assertEqual(line.bufferSize, ClassicReplica.read_size)

    def test_silent_master(self) -> None:
        """A master that sends nothing is left, though we report every five seconds."""
        master = self.follow()
        master.clear()
        self.station.pass_time(19.9)
        self.assertEqual(master.take(), encode_report(self.end) * 3)
        self.assertFalse(master.disconnecting)
        self.station.pass_time(0.3)
        self.assertTrue(master.disconnecting)
        self.clock.advance(1.0)
        self.assertTrue(master.aborted)

    def test_a_master_that_is_gone_was_heard_last(self) -> None:
        """Whoever decides about a fail-over wants to know for how long it is silent."""

        def silent_ms() -> object:
            return self.service.statistics().master.silent_ms

        self.assertIsNone(silent_ms())
        master = self.follow()
        self.clock.advance(2.0)
        self.assertEqual(silent_ms(), 2000)
        master.lose()
        self.clock.advance(3.0)
        self.attempts[-1].accept()  # says nothing
        self.assertEqual(silent_ms(), 5000)

    def test_unread_master(self) -> None:
        """What it sent while a turn of ours took long counts, though its time is over."""
        master = self.follow()
        self.clock.callLater(20, master.send, encode_frame(self.end))
        self.clock.advance(100)
        self.assertFalse(master.disconnecting)
        self.station.pass_time(20.3)
        self.assertTrue(master.disconnecting)

    def test_fixed(self) -> None:
        """A configured address is not changed by the name server."""
        self.service.set_master_address("10.0.0.9:10912")
        self.attempts[0].refuse()
        self.clock.advance(0)
        self.assertEqual(self.attempts[1].address, ("10.0.0.1", 10912))

    def test_stop(self) -> None:
        """Stopping closes the connection, and nothing comes back."""
        master = self.follow()
        done = self.service.stop()
        self.assertNoResult(done)
        self.assertTrue(master.disconnecting)
        master.lose()
        self.successResultOf(done)
        self.assertFalse(self.clock.getDelayedCalls())
        self.assertEqual(self.state(), "stopped")

    def test_stop_while_connecting(self) -> None:
        """An attempt under way is given up: else its connection would be made and left alone."""
        given_up: list[object] = []
        self.attempts[0].deferred.addErrback(given_up.append)
        self.successResultOf(self.service.stop())
        self.assertFalse(self.clock.getDelayedCalls())
        self.assertEqual(len(self.attempts), 1)
        self.assertTrue(self.attempts[0].deferred.called)

    def test_stop_while_waiting(self) -> None:
        """So is the next one."""
        self.attempts[0].refuse()
        self.successResultOf(self.service.stop())
        self.assertFalse(self.clock.getDelayedCalls())


class LearningTests(LinkCase):
    address = "short"

    def test_no_address(self) -> None:
        """Fewer than six characters are no address."""
        self.clock.advance(60)
        self.assertEqual(self.attempts, [])

    def test_learned(self) -> None:
        """An address that arrives is used at once (Java: at its next look, within 5 s)."""
        self.service.set_master_address(MASTER)
        self.clock.advance(0)
        self.assertEqual(self.attempts[0].address, ("10.0.0.1", 10912))

    def test_forgotten(self) -> None:
        """A master that left the route is still tried."""
        self.service.set_master_address(MASTER)
        self.clock.advance(0)
        self.service.set_master_address(None)
        self.service.set_master_address("nonsense")
        self.attempts[0].refuse()
        self.clock.advance(0)
        self.assertEqual(self.attempts[1].address, ("10.0.0.1", 10912))

    def test_changed(self) -> None:
        """Another address takes effect at the next reconnect."""
        self.service.set_master_address(MASTER)
        self.clock.advance(0)
        master = self.follow()
        self.service.set_master_address("10.0.0.2:20912")
        self.clock.advance(1)
        self.assertFalse(master.disconnecting)
        self.assertEqual(len(self.attempts), 1)
        master.lose()
        self.clock.advance(0.3)
        self.assertEqual(self.attempts[1].address, ("10.0.0.2", 20912))

    def test_changed_while_waiting(self) -> None:
        """While none is connected, at once."""
        self.service.set_master_address(MASTER)
        self.clock.advance(0)
        self.attempts[0].refuse()
        self.service.set_master_address("10.0.0.2:20912")
        self.clock.advance(0)
        self.assertEqual(self.attempts[1].address, ("10.0.0.2", 20912))
        self.clock.advance(10)
        self.assertEqual(len(self.attempts), 2)

    def test_changed_after_failures(self) -> None:
        """How often the old one failed says nothing of the new one: its first retry is at once."""
        self.service.set_master_address(MASTER)
        self.clock.advance(0)
        for _ in range(5):
            self.attempts[-1].refuse()
            self.clock.advance(5.0)
        self.service.set_master_address("10.0.0.2:20912")
        self.attempts[-1].refuse()
        self.assert_returns(0.0, 0.0)
        self.assertEqual(self.attempts[-1].address, ("10.0.0.2", 20912))


class DivergedTests(LinkCase):
    """The master has something else at the end of our log."""

    def setUp(self) -> None:
        super().setUp()
        self.master_log = copy_of(self.log)
        self.common = self.log.max_offset
        extend(self.log, [b"only here"], stamp=5)
        extend(self.master_log, [b"new master's", b"and more"], stamp=6)
        self.cuts: list[tuple[int, Deferred[None]]] = []
        self.unreadable: int | None = None
        self.service.attach_tail(TailOfStore(self.set_aside, lambda: self.unreadable))
        self.flushLoggedErrors()

    def set_aside(self, end: int, why: str) -> Deferred[None]:
        """What the store does, when the test lets it."""
        self.cuts.append((end, Deferred()))
        return self.cuts[-1][1]

    def meet(self) -> Wire:
        """Connect; the master sends all that it has from where we ask."""
        self.clock.advance(5.0)
        master = self.attempts[-1].accept()
        place = int.from_bytes(master.take()[:8], "big")
        master.send(encode_frame(place, bytes(self.master_log.data[place:])))
        return master

    def part(self) -> None:
        """The last record differs, so we go back once, and find where they part."""
        for _ in range(2):
            master = self.meet()
            self.assertTrue(master.disconnecting)
            master.lose()

    def test_set_aside(self) -> None:
        """It is set aside, and we are back at once and follow."""
        self.part()
        ((end, done),) = self.cuts
        self.assertEqual((end, self.state()), (self.common, "setting aside"))
        attempts = len(self.attempts)
        self.clock.advance(60)
        self.assertEqual(len(self.attempts), attempts)
        del self.log.data[end:]
        done.callback(None)
        self.meet()
        self.assertEqual(self.state(), "following")
        self.assertEqual(self.log.data, self.master_log.data)
        self.assertEqual(self.service.statistics().master.set_aside, 1)

    def test_comparing_begins_at_the_end_again(self) -> None:
        """However far back we looked before: what was found equal is not sent a second time."""
        own = bytes(self.master_log.data[self.common :])
        last = self.log.max_offset
        self.meet().lose()  # nothing in common so near the end
        self.master_log.data[self.common :] = self.log.data[self.common :]
        follower = self.meet()
        self.assertEqual((self.state(), self.log.max_offset), ("following", last))
        follower.lose()
        self.clock.advance(5.0)
        word = self.attempts[-1].accept().take()
        greeting = greet(self.log, self.common)
        assert greeting is not None
        self.assertEqual(word, encode_greeting(greeting))
        self.assertNotEqual(own, bytes(self.log.data[self.common :]))

    def test_our_slaves_begin_anew(self) -> None:
        """They were sent what is not ours any more."""
        slaves = [self.station.slave(self.log.max_offset, port=port) for port in (5000, 5001)]
        self.part()
        self.assertEqual([slave.disconnecting for slave in slaves], [False, False])
        self.cuts[0][1].callback(None)
        self.assertEqual([slave.disconnecting for slave in slaves], [True, True])

    def test_told_not_to(self) -> None:
        """haSetAsideDivergedTail=false: nothing is changed, and we say so."""
        self.station.configuration.ours.ha_set_aside_diverged_tail = False
        self.part()
        self.assertEqual((self.cuts, self.state()), ([], "diverged"))
        self.assertIn("haSetAsideDivergedTail", self.service.statistics().master.fault)
        self.meet()
        self.assertEqual(self.state(), "diverged")

    def test_stopped_is_no_fault(self) -> None:
        """Who looks at a link that was stopped is told so."""
        self.station.configuration.ours.ha_set_aside_diverged_tail = False
        self.part()
        self.assertEqual(self.state(), "diverged")
        self.successResultOf(self.service.stop())
        self.assertEqual(self.state(), "stopped")
        self.assertIsNone(self.service.statistics().master.fault)

    def test_fails(self) -> None:
        """A disk that refuses: out, loudly, and again in five seconds."""
        self.service.attach_tail(TailOfStore(lambda end, why: fail(StoreError("no room"))))
        with capturedLogs() as events:
            self.part()
        (error,) = [item for item in events if item["log_level"] is LogLevel.error]
        self.assertIn("no room", formatEvent(error))
        self.assertEqual(self.state(), "diverged")
        self.assertIn("no room", self.service.statistics().master.fault)
        self.assert_returns(5.0, 5.0)
        self.attempts[-1].refuse()
        self.successResultOf(self.service.stop())

    def test_stop_afterwards(self) -> None:
        """Nothing is waited for, whether it could be set aside or not."""
        self.part()
        self.cuts[0][1].callback(None)
        self.successResultOf(self.service.stop())

    def test_stop_meanwhile(self) -> None:
        """The store is not stopped under it."""
        self.part()
        done = self.service.stop()
        self.assertNoResult(done)
        self.cuts[0][1].callback(None)
        self.successResultOf(done)
        self.assertFalse(self.clock.getDelayedCalls())

    def test_stop_while_it_fails(self) -> None:
        """A stop that waited for ever would leave the store unclean."""
        self.part()
        done = self.service.stop()
        self.assertNoResult(done)
        self.cuts[0][1].errback(StoreError("no room"))
        self.successResultOf(done)
        self.assertEqual(self.state(), "stopped")
        self.assertFalse(self.clock.getDelayedCalls())

    def test_nothing_in_common(self) -> None:
        """Another broker's store is never cut; when it is put right, we follow."""
        own = self.master_log
        self.master_log, _ = record_log([b"another's"] * 9, stamp=9)
        self.part()
        self.assertEqual((self.cuts, self.state()), ([], "diverged"))
        fault = self.service.statistics().master.fault
        self.assertIn("another broker's store", fault)
        self.log.data[self.common :] = own.data[self.common :]
        self.master_log = own
        self.meet()
        self.assertEqual(self.state(), "following")
        self.assertIsNone(self.service.statistics().master.fault)

    def test_unreadable(self) -> None:
        """We leave at once, and fetch the place anew."""
        self.log.data[:] = self.master_log.data
        master = self.meet()
        self.assertEqual(self.state(), "following")
        self.log.data[self.start : self.start + 8] = bytes(8)
        self.unreadable = self.start
        self.service.appended()
        self.assertTrue(master.disconnecting)
        master.clear()
        master.lose()
        self.assertEqual(self.state(), "unreadable")
        self.assert_returns(0.05, 0.3)
        self.meet().lose()
        self.assertEqual(self.cuts[0][0], self.start)
        del self.log.data[self.start :]
        self.cuts[0][1].callback(None)
        self.meet()
        self.assertEqual(self.state(), "following")

    def test_unreadable_on_both(self) -> None:
        """Then it is the master's: nothing is acknowledged, and we say so."""
        self.log.data[:] = self.master_log.data
        self.log.data[self.start : self.start + 8] = bytes(8)
        self.master_log.data[:] = self.log.data
        self.unreadable = self.start
        for _ in range(3):
            master = self.meet()
            self.assertEqual(master.take(), b"")
            master.lose()
            self.assert_returns(5.0, 5.0)
        self.assertEqual((self.cuts, self.state()), ([], "unreadable"))
        self.assertIn("same bytes", self.service.statistics().master.fault)

    def test_damaged_master(self) -> None:
        """Our good copy stays."""
        self.log.data[:] = self.master_log.data
        self.master_log.data[-6] ^= 1
        self.part()
        self.assertEqual((self.cuts, self.state()), ([], "diverged"))
        self.assertIn("master's disk", self.service.statistics().master.fault)
