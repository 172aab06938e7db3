"""
A storm whose stories last: what is on its way is so for long enough that it matters when all ends.

Lines and disks that answer within a millisecond leave no moment in which one broker has what
another one lacks, or a controller has decided what nobody has heard yet.
"""

from collections.abc import Callable

from rmq_ha.testing.network import WINDOW
from tests.sim_kit.storm import Storm


class SlowStorm(Storm):
    """As `Storm`, with more stories, and slow ones among them."""

    scenes = 0.3
    _is_last = False

    def _stories(self) -> tuple[Callable[[], None], ...]:
        slow = self._black_out_slowly, self._return_unheard, self._break_off
        return *super()._stories(), *slow

    def _black_out_slowly(self) -> None:
        """As `_black_out`, on disks some of which are slow, until somebody heals them."""
        self._is_disturbed = True
        for node in self.brokers.nodes:
            if self._random.random() < 0.5:
                self._slow_down(node)
        self._black_out()

    def _return_unheard(self) -> None:
        """Who follows comes back; who leads hears late that it is in sync again, and falls."""
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
        """What who leads sends breaks off somewhere: lines are thin, are cut, and it falls."""
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
        """Nothing after the last story, so that no restart mends what it left behind."""
        if self._is_last:
            self.brokers.run(0.5)
            self._grew()
        else:
            super()._step()

    def _heal(self) -> None:
        super()._heal()
        self._network.window = WINDOW
