"""Periodic."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.timing.periodic import Periodic


class PeriodicTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.runs: list[float] = []

    def record(self) -> None:
        self.runs.append(self.clock.seconds())

    def test_first_and_every(self) -> None:
        """The first run has its own delay; the others follow at a fixed rate."""
        Periodic(self.clock, "t", self.record, every=10, first=3).start()
        self.clock.pump([1.0] * 25)
        self.assertEqual(self.runs, [3.0, 13.0, 23.0])

    def test_without_first(self) -> None:
        """The first run comes after one period by default."""
        Periodic(self.clock, "t", self.record, every=2).start()
        self.clock.pump([1.0] * 5)
        self.assertEqual(self.runs, [2.0, 4.0])

    def test_no_overlap(self) -> None:
        """A run that waits delays the next one; missed runs are not made up for."""
        waiting: list[Deferred[None]] = []

        def slow() -> Deferred[None]:
            self.record()
            waiting.append(Deferred())
            return waiting[-1]

        periodic = Periodic(self.clock, "t", slow, every=1)
        periodic.start()
        self.clock.pump([0.5] * 7)
        self.assertEqual(self.runs, [1.0])
        self.assertTrue(periodic.is_running)
        waiting[0].callback(None)
        self.clock.pump([0.5])
        self.assertEqual(self.runs, [1.0, 4.0])

    def test_survives_failures(self) -> None:
        """A failing function is logged and runs again."""

        def fail() -> None:
            self.record()
            raise RuntimeError("on purpose")

        periodic = Periodic(self.clock, "t", fail, every=1)
        periodic.start()
        self.clock.pump([1.0] * 3)
        self.assertEqual(self.runs, [1.0, 2.0, 3.0])
        self.assertEqual(periodic.failures, 3)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 3)

    def test_stop(self) -> None:
        """After stop nothing runs and no timer is left; stop waits for the run under way."""
        run: Deferred[None] = Deferred()
        periodic = Periodic(self.clock, "t", lambda: run, every=1)
        periodic.start()
        self.clock.advance(1)
        stopped = periodic.stop()
        self.assertNoResult(stopped)
        run.callback(None)
        self.assertIsNone(self.successResultOf(stopped))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_before_a_run(self) -> None:
        """Stop between two runs fires at once."""
        periodic = Periodic(self.clock, "t", self.record, every=1)
        periodic.start()
        periodic.start()
        self.successResultOf(periodic.stop())
        self.clock.advance(5)
        self.assertEqual(self.runs, [])

    def test_period_of_nothing(self) -> None:
        """A period of 0 would be a busy loop: refused."""
        with pytest.raises(ValueError, match="more than 0"):
            Periodic(self.clock, "t", self.record, every=0)
