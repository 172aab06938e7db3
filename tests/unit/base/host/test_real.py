"""The host of a real process."""

import asyncio
import gc
import os
import socket
import threading
import time

import pytest
from twisted.internet.epollreactor import EPollReactor

from rmq_ha.base.host import process, surroundings
from rmq_ha.base.host.clock import make_steady
from rmq_ha.base.host.loop import LoopReactor
from rmq_ha.base.host.real import RealWorker, make_host, now_ms, physical_memory
from rmq_ha.base.seams import Host


def test_make_host():
    """All six seams, and a worker whose threads end with the reactor."""
    reactor = EPollReactor()
    assert make_host(reactor).clock is not reactor
    make_steady(reactor)
    host = make_host(reactor)
    assert isinstance(host, Host)
    assert host.clock is reactor
    assert abs(host.now_ms() - time.time() * 1000) < 5000
    assert host.disk.is_dir("/")
    results = []

    def work():
        return threading.current_thread().name

    def begin():
        host.worker.call(work).addBoth(results.append).addBoth(lambda _: reactor.stop())

    reactor.callLater(0, begin)
    before = threading.active_count()
    reactor.run(installSignalHandlers=False)
    assert "rmq-ha-worker" in results[0]
    assert threading.active_count() <= before


def test_the_machine():
    """The time, and a sensible amount of memory."""
    assert now_ms() > 1_600_000_000_000
    assert physical_memory() > 1 << 28


@pytest.mark.parametrize(("found", "processors"), [(7, 7), (None, 1)])
def test_a_machine_that_does_not_count_its_processors_has_one(monkeypatch, found, processors):
    monkeypatch.setattr(os, "cpu_count", lambda: found)
    assert make_host(EPollReactor()).processors == processors


def test_a_worker_that_was_stopped_begins_again():
    """As after a fork, or a client that is started once more."""
    reactor = EPollReactor()
    worker = RealWorker(reactor)
    for _ in range(2):
        done = []
        worker.call(threading.current_thread).addBoth(done.append)
        give_up = time.monotonic() + 20
        while not done:
            assert time.monotonic() < give_up
            reactor.iterate(0.01)
        worker.stop()
        assert done[0].name.startswith("PoolThread-rmq-ha-worker")


def test_a_reactor_in_somebodys_loop_leaves_it_as_it_was():
    """Its timers come, sockets and timers go with it, and the loop goes on."""

    async def main():
        loop = asyncio.get_running_loop()
        gc.collect()  # what other tests left would be closed meanwhile
        before = len(os.listdir("/proc/self/fd"))
        readers = dict(loop._selector.get_map())
        reactor = LoopReactor(loop)
        came, called, never = loop.create_future(), loop.create_future(), []
        reactor.callLater(0.001, came.set_result, "timer")
        threading.Timer(0.001, reactor.callFromThread, (called.set_result, "thread")).start()
        assert await asyncio.wait_for(asyncio.gather(came, called), 10) == ["timer", "thread"]
        reactor.callLater(0.01, never.append, "late")
        reactor.close()
        await asyncio.sleep(0.03)
        assert not never
        assert len(os.listdir("/proc/self/fd")) == before
        assert dict(loop._selector.get_map()) == readers

    asyncio.run(main())


def test_the_address_of_this_machine():
    """One that a socket can be bound to."""
    with socket.socket() as bound:
        bound.bind((process.local_address(), 0))


@pytest.mark.parametrize(
    ("found", "address"), [("10.1.2.3", "10.1.2.3"), ("0.0.0.0", "127.0.0.1"), (None, "127.0.0.1")]
)
def test_a_machine_without_a_network_has_its_loopback(monkeypatch, found, address):
    class Probe(socket.socket):
        def connect(self, peer):
            if found is None:
                raise OSError(101, "Network is unreachable")

        def getsockname(self):
            return found, 1234

    monkeypatch.setattr(process.socket, "socket", Probe)
    assert process.local_address() == address


def test_a_name_stands_for_its_ipv4_address_first(monkeypatch):
    """Whatever order the system tells them in; a name that nobody knows stands for nothing."""
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 0)),
    ]
    for order in (found, found[::-1]):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, order=order, **__: order)
        assert surroundings.address_of("both") == "10.1.2.3"
    monkeypatch.undo()
    assert surroundings.address_of("127.0.0.1") == "127.0.0.1"
    assert surroundings.address_of("a" * 64 + ".invalid") is None


def test_everybody_elses_work_goes_first():
    """Linux counts by thread, so that this one's ends with it."""
    levels = []

    def work():
        process.lower_priority()
        levels.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert levels == [min(19, os.getpriority(os.PRIO_PROCESS, 0) + 19)]
