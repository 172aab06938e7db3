"""
A storm with slow lines and disks, so that messages and decisions are on the way when a broker
falls.

With lines and disks that answer within a millisecond there is hardly a moment in which one broker
has bytes that another one lacks, or in which no broker has heard of a controller's decision.
"""

from collections.abc import Callable

from rmq_ha.testing.network import WINDOW
from tests.sim_kit.storm import Storm


class SlowStorm(Storm):
    """A `Storm` with more stories, among them slow ones."""

    scenes = 0.3
    _is_last = False

    def _stories(self) -> tuple[Callable[[], None], ...]:
        slow = self._black_out_slowly, self._return_unheard, self._break_off
        return *super()._stories(), *slow

    def _black_out_slowly(self) -> None:
        """Let all brokers lose power, as `_black_out` does, while some of their disks are slow."""
        self._is_disturbed = True
        for node in self.brokers.nodes:
            if self._random.random() < 0.5:
                self._slow_down(node)
        self._black_out()

    def _return_unheard(self) -> None:
        """
        Let a slave come back. The master hears late that the slave is in sync again, and falls.
        """
        random, master = self._random, self.brokers.master()
        if master is None:
            return
        moment = self._miss_much(master, 0.3)
        for host in self.brokers.desk.hosts:
            self._network.slow(host.name, master.host.name, 1.0)
        for _ in range(8):
            self._later(moment + 4.0 * random.random(), self._burst, 5, 0.05)
        falls = moment + 1.0 + 3.0 * random.random()
        self._fall(master, falls, moment + 12.0, random.random() < 0.5)
        self._later(moment + 12.0, self._heal)

    def _break_off(self) -> None:
        """
        Let the master's frames break off at any byte: its lines get slow and are cut, and then the
        master falls.
        """
        random, master = self._random, self.brokers.master()
        if master is None:
            return
        self._is_disturbed = True
        here = master.host.name
        self._network.window = random.choice((100, 1000))
        moment = self._burst(10, 0.05)
        breaks = moment + random.choice((0.0, 0.2)) * random.random()
        for node in self.brokers.nodes:
            if node is not master:
                self._network.slow(here, node.host.name, random.choice((0.01, 0.2)))
                self._later(breaks, self._network.cut, here, node.host.name)
        falls = breaks + 0.05 * random.random()
        self._fall(master, falls, falls + random.choice((1.0, 8.0)), random.random() < 0.5)
        self._later(falls + 1.0, self._heal)
        self._is_last = random.random() < 0.3

    def _step(self) -> None:
        """
        Run a step, but none after the last story, so that no restart mends the faults that it
        caused.
        """
        if self._is_last:
            self.brokers.run(0.5)
            self._grew()
        else:
            super()._step()

    def _heal(self) -> None:
        super()._heal()
        self._network.window = WINDOW
