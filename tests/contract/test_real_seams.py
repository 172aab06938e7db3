"""The real seams keep the same contracts, on real files, threads and sockets (port 20500)."""

import time

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.protocol import Factory
from twisted.python import log

from rmq_ha.base.host.clock import make_steady, steady_clock
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.network import RealNetwork
from rmq_ha.base.host.real import RealWorker, make_host
from rmq_ha.base.host.turns import make_lean
from tests.sim_kit import contracts


class Reacting:
    """Waits by turning a reactor of its own, which is nobody's global one."""

    reactor: EPollReactor
    patience = 20

    def run_until(self, condition):
        end = time.monotonic() + self.patience
        while not condition():
            assert time.monotonic() < end, "never happened"
            self.reactor.iterate(0.01)

    def wait(self, deferred):
        results = []
        deferred.addBoth(results.append)
        self.run_until(lambda: results)
        if hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]

    def _make_reactor(self):
        self.reactor = EPollReactor()
        self.addCleanup(self._close_reactor)

    def _close_reactor(self):
        """What `run` would do at its end."""
        self.reactor.iterate(0)
        for selectable in self.reactor.removeAll():
            selectable.connectionLost(None)
        self.reactor._poller.close()
        for selectable in self.reactor._internalReaders:
            selectable.connectionLost(None)


class SteppedReactor(EPollReactor):
    """Counts by a time of day that somebody sets, as Twisted's reactors do."""

    ahead = 0.0

    def seconds(self):
        return time.time() + self.ahead


class ClockOfReactor(Reacting):
    def _make_stepped(self):
        self.reactor = SteppedReactor()
        self.addCleanup(self._close_reactor)
        return self.reactor

    def step_wall_clock(self, seconds):
        self.reactor.ahead += seconds

    def pass_time(self, clock, seconds):
        end = clock.seconds() + seconds
        self.run_until(lambda: clock.seconds() >= end)
        # A busy machine may not have let it turn at all, nor the thread of a clock beside it.
        self.run_until(lambda: all(it.getTime() > end for it in clock.getDelayedCalls()))


class OwnReactorTests(ClockOfReactor, contracts.ClockContract):
    """The reactor is ours: it counts by the monotonic clock itself."""

    def make_clock(self):
        make_steady(self._make_stepped())
        return steady_clock(self.reactor)

    def test_is_the_reactor(self):
        assert self.make_clock() is self.reactor


class OthersReactorTests(ClockOfReactor, contracts.ClockContract):
    """The reactor is an application's, and goes on as it was."""

    def make_clock(self):
        return steady_clock(self._make_stepped())

    def test_reactor_is_not_changed(self):
        self.make_clock()
        assert not vars(self.reactor).keys() & {"seconds", "callLater"}
        assert abs(self.reactor.seconds() - time.time()) < 5


class SoonOfReactor(Reacting):
    def make_host(self):
        self._make_reactor()
        self.failures = []
        log.addObserver(self._observe)
        self.addCleanup(log.removeObserver, self._observe)
        return make_host(self.reactor)

    def _observe(self, event):
        if event["isError"]:
            self.failures.append(event["failure"].type)

    def pass_turns(self, condition):
        self.run_until(condition)

    def take_failures(self):
        return self.failures


class LeanSoonTests(SoonOfReactor, contracts.SoonContract):
    """The reactor is ours, and its turns are lean."""

    def _make_reactor(self):
        super()._make_reactor()
        make_steady(self.reactor)
        assert make_lean(self.reactor)

    def test_no_timer(self):
        """A lean turn waits for nothing while a function is to be called, and sets no timer."""
        host, called = self.make_host(), []
        host.soon(lambda: called.append("called"))
        assert self.reactor.getDelayedCalls() == []
        self.reactor.doIteration(3600)
        assert called == ["called"]


class OwnSoonTests(SoonOfReactor, contracts.SoonContract):
    """The reactor is ours, and its turns are Twisted's."""

    def _make_reactor(self):
        super()._make_reactor()
        make_steady(self.reactor)


class OthersSoonTests(SoonOfReactor, contracts.SoonContract):
    """The reactor is an application's."""


class RealWorkerTests(Reacting, contracts.WorkerContract):
    def make_worker(self):
        self._make_reactor()
        worker = RealWorker(self.reactor)
        self.addCleanup(worker.stop)
        return worker


class RealDiskTests(contracts.DiskContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.path = str(tmp_path)

    def make_disk(self):
        return RealDisk()

    def make_root(self):
        return self.path


class RealNetworkTests(Reacting, contracts.NetworkContract):
    port = 20500

    def make_networks(self):
        self._make_reactor()
        pool = self.reactor.getThreadPool()  # which names are looked up in once a reactor runs
        pool.start()
        self.addCleanup(pool.stop)
        network = RealNetwork(self.reactor)
        return network, network, "127.0.0.1"

    def test_connect_by_name(self):
        """As well as by address."""
        endpoint = self.client_network.client("localhost", self.used_port, 2.0)
        connected = self.wait(endpoint.connect(Factory.forProtocol(contracts.Recorder)))
        self.run_until(lambda: len(self.accepted) == 2 and self.accepted[1].made)
        connected.transport.abortConnection()
        self.accepted[1].transport.abortConnection()
