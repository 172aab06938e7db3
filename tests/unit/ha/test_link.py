"""`rmq_ha.ha.link`: a slave and its master."""

from ha_fakes import Station, Wire
from memory_log import MemoryLog
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.errors import StoreError
from rmq_ha.ha.frames import encode_frame, encode_report
from rmq_ha.model.status import BrokerRole

MASTER = "10.0.0.1:10912"


class LinkCase(SynchronousTestCase):
    address: str | None = MASTER

    def setUp(self) -> None:
        self.log = MemoryLog(4096, 0, bytes(444))
        self.station = Station(BrokerRole.SLAVE, self.log, ha_master_address=self.address).start()
        self.service = self.station.service
        self.clock = self.station.clock
        self.attempts = self.station.network.attempts

    def state(self) -> str:
        return str(self.service.statistics()["master"]["state"])

    def follow(self) -> Wire:
        """A master that accepts us and sends a heartbeat."""
        master = self.attempts[-1].accept()
        master.send(encode_frame(self.log.max_offset))
        return master

    def assert_returns(self, at_least: float, at_most: float) -> None:
        """The next attempt comes within this time."""
        count = len(self.attempts)
        self.clock.advance(at_least - 0.001)
        self.assertEqual(len(self.attempts), count)
        self.clock.advance(at_most - at_least + 0.002)
        self.assertEqual(len(self.attempts), count + 1)


class ConnectingTests(LinkCase):
    def test_reports_at_once(self) -> None:
        """Our end is reported on connecting, and the address is the configured one."""
        self.assertEqual(self.attempts[0].address, ("10.0.0.1", 10912))
        self.assertEqual(self.attempts[0].accept().take(), encode_report(444))
        self.assertEqual(self.state(), "connected")

    def test_follows(self) -> None:
        """What comes is appended and reported."""
        master = self.attempts[0].accept()
        master.clear()
        master.send(encode_frame(444, b"abc"))
        self.assertEqual(master.take(), encode_report(447))
        self.assertEqual(self.state(), "following")

    def test_refused(self) -> None:
        """A failed connect is repeated after five seconds."""
        self.attempts[0].refuse()
        self.assertEqual(self.state(), "unreachable")
        self.assert_returns(5.0, 5.0)
        self.attempts[1].refuse()
        self.assert_returns(5.0, 5.0)

    def test_master_stops(self) -> None:
        """After the end of a connection that worked we are back soon."""
        self.follow().lose()
        self.assert_returns(0.05, 0.3)

    def test_master_refuses(self) -> None:
        """A master that closes without a frame has a reason: no tight loop."""
        self.attempts[0].accept().lose()
        self.assert_returns(1.0, 3.0)

    def test_diverged(self) -> None:
        """Another log is left, and tried again after a pause, as operators mend such things."""
        master = self.attempts[0].accept()
        master.send(encode_frame(445))
        self.assertTrue(master.disconnecting)
        master.send(encode_frame(444, b"late"))
        self.assertEqual(self.log.max_offset, 444)
        master.lose()
        self.assert_returns(1.0, 3.0)

    def test_disk(self) -> None:
        """When our disk refuses, the master is left for five seconds."""
        master = self.follow()

        def append_raw(physical_offset: int, data: bytes) -> None:
            raise StoreError("disk full")

        self.log.append_raw = append_raw  # type: ignore[method-assign]
        master.send(encode_frame(444, b"x"))
        master.lose()
        self.assert_returns(5.0, 5.0)

    def test_silent_master(self) -> None:
        """A master that sends nothing is left, though we report every five seconds."""
        master = self.follow()
        master.clear()
        self.station.pass_time(19.9)
        self.assertEqual(master.take(), encode_report(444) * 3)
        self.assertFalse(master.disconnecting)
        self.station.pass_time(0.3)
        self.assertTrue(master.disconnecting)
        self.clock.advance(1.0)
        self.assertTrue(master.aborted)

    def test_fixed(self) -> None:
        """A configured address is not changed by the name server."""
        self.service.set_master_address("10.0.0.9:10912")
        self.attempts[0].refuse()
        self.clock.advance(5.0)
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
        """An attempt under way is given up."""
        self.successResultOf(self.service.stop())
        self.assertFalse(self.clock.getDelayedCalls())

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
        self.clock.advance(5.0)
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
