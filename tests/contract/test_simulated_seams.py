"""The simulated seams keep the contracts."""

from random import Random

from rmq_ha.testing.clock import SimClock
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.host import EPOCH_MS, World
from rmq_ha.testing.worker import SimWorker
from tests.sim_kit import contracts


class Driven:
    """Waits by letting simulated time pass."""

    clock: SimClock

    def wait(self, deferred):
        results = []
        deferred.addBoth(results.append)
        self.clock.run_while(lambda: not results, 30)
        assert results, "never fired"
        if hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]

    def run_until(self, condition):
        assert self.clock.run_while(lambda: not condition(), 30)


class SimClockTests(contracts.ClockContract):
    def make_clock(self):
        self.world = World(1)
        self.host = self.world.add("a")
        return self.host.seams.clock

    def pass_time(self, clock, seconds):
        self.world.clock.run_for(seconds)

    def step_wall_clock(self, seconds):
        before = self.host.seams.now_ms()
        self.host.step_clock(int(seconds * 1000))
        assert self.host.seams.now_ms() == before + seconds * 1000


class SimSoonTests(contracts.SoonContract):
    def make_host(self):
        self.world = World(1)
        return self.world.add("a").seams

    def pass_turns(self, condition):
        assert self.world.clock.run_while(lambda: not condition(), 1)

    def take_failures(self):
        return [failure.type for failure in self.world.clock.failures]

    def test_crash(self):
        """What a crashed machine wanted to do is never done."""
        host, called = self.make_host(), []
        host.soon(lambda: called.append("called"))
        self.world.hosts["a"].crash()
        self.world.clock.run_for(1)
        assert called == []


class SimWorkerTests(Driven, contracts.WorkerContract):
    def make_worker(self):
        self.clock = SimClock()
        return SimWorker(self.clock, Random(1))


class SimDiskTests(contracts.DiskContract):
    def make_disk(self):
        return SimDisk(Random(1), lambda: EPOCH_MS)

    def make_root(self):
        self.disk.make_dirs("/store")
        return "/store"


class SimNetworkTests(Driven, contracts.NetworkContract):
    known_name = "server"

    def make_networks(self):
        world = World(1)
        self.clock = world.clock
        server, client = world.add("server"), world.add("client")
        return server.network, client.network, server.ip
