"""A simulated machine: the parts of a `rmq_ha.base.seams.Host`, and how the machine crashes."""

from random import Random

from rmq_ha.base.seams import Host
from rmq_ha.testing.clock import HostClock, SimClock
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.network import HostNetwork, SimNetwork
from rmq_ha.testing.trace import CRASHED, Trace
from rmq_ha.testing.worker import SimWorker

EPOCH_MS = 1_700_000_000_000


class World:
    """
    One clock, one network and any number of machines, all of it from one seed.

    :param seed: equal seeds give equal runs.
    :param subnet: first three parts of the machines' addresses; with 127.0.0 all of them count as
        one machine.
    """

    def __init__(self, seed: int, trace: Trace | None = None, subnet: str = "127.0.0") -> None:
        self.seed = seed
        self.subnet = subnet
        self.trace = trace or Trace()
        self.clock = SimClock(self.trace)
        self.network = SimNetwork(self.clock, self.random("network"))
        self.hosts: dict[str, SimHost] = {}

    def random(self, name: str) -> Random:
        """Return a component's own source of random numbers, which no other component uses."""
        return Random(f"{self.seed}/{name}")

    def add(self, name: str, skew_ms: int = 0) -> "SimHost":
        """
        Add a machine, which runs from now on.

        :param skew_ms: how many ms its wall clock is ahead of the simulation's.
        """
        host = SimHost(self, name, len(self.hosts) + 1, skew_ms)
        self.hosts[name] = host
        return host


class SimHost:
    """
    A machine of a `World`.

    :ivar seams: the `rmq_ha.base.seams.Host` of this boot.
    :ivar disk: the machine's disk, which survives crashes.
    :ivar skew_ms: how far its wall clock is ahead of the simulation's.
    """

    def __init__(self, world: World, name: str, index: int, skew_ms: int) -> None:
        self.name = name
        self.index = index
        self.ip = f"{world.subnet}.{index}"
        self.skew_ms = skew_ms
        self.boots = 0
        self.is_running = False
        self._world = world
        self.disk = SimDisk(world.random(f"{name}/disk"), self.now_ms, world.trace, index)
        self.restart()

    def now_ms(self) -> int:
        """This machine's wall clock, ms since the epoch."""
        return EPOCH_MS + self.skew_ms + int(self._world.clock.seconds() * 1000)

    def step_clock(self, ms: int) -> None:
        """
        Set the wall clock forward or back; timers are not affected, because they run on the
        monotonic clock.

        :param ms: how far forward, in ms; negative: back.
        """
        self.skew_ms += ms

    def restart(self) -> Host:
        """Boot again on the same disk, and return a new `Host` without memory."""
        if self.is_running:
            raise RuntimeError(f"{self.name} is running")
        self.boots += 1
        self.is_running = True
        boot = f"{self.name}/{self.boots}"
        clock = self._world.clock
        self.clock = HostClock(clock, self.index)
        self.network: HostNetwork = self._world.network.attach(self.name, self.ip, self.index)
        self.worker = SimWorker(clock, self._world.random(f"{boot}/worker"), self.index)
        self.seams = Host(
            clock=self.clock,
            now_ms=self.now_ms,
            network=self.network,
            disk=self.disk,
            worker=self.worker,
            random=self._world.random(f"{boot}/host"),
        )
        return self.seams

    def crash(self, *, power: bool = False, silent: bool | None = None) -> int:
        """
        Stop at once: timers, connections and memory are gone.

        :param power: the whole machine loses power, and bytes that were not synced may be lost;
            otherwise only the process ends.
        :param silent: peers are not told; None: the value of `power`.
        :returns: number of disk sectors that lost their latest content.
        """
        if not self.is_running:
            raise RuntimeError(f"{self.name} is not running")
        self.is_running = False
        self._world.trace.add(CRASHED, self.index, self._world.clock.seconds(), int(power))
        self.clock.crash()
        self.worker.crash()
        self.network.crash(power if silent is None else silent)
        self.disk = self.disk.crash(power=power)
        return self.disk.lost_sectors
