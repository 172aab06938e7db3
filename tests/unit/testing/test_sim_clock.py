"""Simulated time goes from event to event."""

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rmq_ha.testing import clock as sim
from rmq_ha.testing.clock import HostClock, SimClock, SimulationStuck


class SimClockTests(SynchronousTestCase):
    def setUp(self):
        self.clock = SimClock()
        self.host = HostClock(self.clock, 1)
        self.seen = []

    def note(self, name):
        self.seen.append((name, self.clock.seconds()))

    def test_interfaces(self):
        """A host's clock is an IReactorTime, its timers are IDelayedCalls."""
        verifyObject(IReactorTime, self.host)
        verifyObject(IDelayedCall, self.host.callLater(1, self.note, "x"))

    def test_jumps(self):
        """Time stands at each event and nowhere between."""
        self.host.callLater(1.5, self.note, "a")
        self.host.callLater(3600, self.note, "b")
        self.clock.run_for(4000)
        self.assertEqual(self.seen, [("a", 1.5), ("b", 3600.0)])
        self.assertEqual(self.clock.seconds(), 4000)

    def test_periodic(self):
        """A call that asks for the next one gets all its turns, unlike with `Clock.advance`."""

        def again():
            self.note("again")
            self.host.callLater(1, again)

        self.host.callLater(1, again)
        self.clock.run_for(5.5)
        self.assertEqual([time for _, time in self.seen], [1, 2, 3, 4, 5])

    def test_equal_times(self):
        """Events of one time come in the order in which they were asked for."""
        for name in "abc":
            self.host.callLater(1, self.note, name)
        self.clock.run_for(1)
        self.assertEqual([name for name, _ in self.seen], ["a", "b", "c"])

    def test_reset_and_delay(self):
        """`reset` counts from now, `delay` from the time planned."""
        first = self.host.callLater(10, self.note, "first")
        second = self.host.callLater(10, self.note, "second")
        self.clock.run_for(4)
        first.reset(1)
        second.delay(5)
        self.clock.run_for(3)
        second.delay(-7)
        self.clock.run_for(20)
        self.assertEqual(self.seen, [("first", 5.0), ("second", 8.0)])

    def test_reset_to_and_fro(self):
        """A timer that is moved often fires once, at the time it was moved to last."""
        timer = self.host.callLater(5, self.note, "x")
        for seconds in (3, 8, 2, 5):
            timer.reset(seconds)
        self.assertEqual(timer.getTime(), 5)
        self.clock.run_for(10)
        self.assertEqual(self.seen, [("x", 5.0)])

    def test_run_while(self):
        """`run_while` stops at the event that makes the condition false, or at the limit."""
        self.host.callLater(2, self.note, "x")
        self.assertTrue(self.clock.run_while(lambda: not self.seen, 10))
        self.assertEqual(self.clock.seconds(), 2)
        self.assertFalse(self.clock.run_while(lambda: True, 10))
        self.assertEqual(self.clock.seconds(), 12)

    def test_crash(self):
        """A crashed machine's timers never fire, neither old nor new ones."""
        self.host.callLater(1, self.note, "old")
        self.host.crash()
        self.host.callLater(1, self.note, "new")
        self.clock.run_for(5)
        self.assertEqual(self.seen, [])
        self.assertEqual(self.host.getDelayedCalls(), [])

    def test_raising(self):
        """What a timer raises is kept, and others go on."""

        def broken():
            raise ValueError("broken")

        self.host.callLater(1, broken)
        self.host.callLater(1, self.note, "x")
        self.clock.run_for(1)
        self.assertEqual(self.seen, [("x", 1.0)])
        self.assertEqual(len(self.clock.failures), 1)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_standing_still(self):
        """A loop without a delay is found, not run for ever."""
        self.patch(sim, "MAX_STEPS_AT_ONCE", 100)

        def spin():
            self.host.callLater(0, spin)

        spin()
        self.assertRaises(SimulationStuck, self.clock.run_for, 1)
