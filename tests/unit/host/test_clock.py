"""Clocks beside reactors that count by the time of day."""

import asyncio
import threading
import time

import pytest
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.protocol import Factory
from twisted.internet.selectreactor import SelectReactor

from rmq_ha.host.clock import SteadyClock, is_steady, make_steady, steady_clock
from rmq_ha.host.real import make_host


def wall_clock_of(reactor):
    """Let it be set by this list's number."""
    ahead = [0.0]
    reactor.seconds = lambda: time.time() + ahead[0]
    return ahead


def alarms():
    return {item for item in threading.enumerate() if item.name == "rmq-ha-alarm"}


def make_asyncio():
    return AsyncioSelectorReactor(asyncio.new_event_loop())


@pytest.mark.parametrize("make", [EPollReactor, SelectReactor, make_asyncio])
@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_sleeping_reactor_is_woken(make, step):
    """Its own timers are hours away, and ours comes when it is due."""
    reactor = make()
    ahead = wall_clock_of(reactor)
    own = reactor.callLater(7200, print)
    guard = threading.Timer(10, reactor.callFromThread, (reactor.stop,))
    guard.start()
    clock = steady_clock(reactor)
    came = []

    def due():
        came.append(clock.seconds())
        reactor.stop()

    def set_clock():
        ahead[0] = step
        clock.callLater(0.05, due)

    clock.callLater(0, set_clock)
    before = clock.seconds()
    reactor.run(installSignalHandlers=False)
    guard.cancel()
    own.cancel()
    assert len(came) == 1
    assert 0.05 <= came[0] - before < 4
    assert not clock.getDelayedCalls()


def test_the_thread_is_there_only_while_timers_are():
    """A client that has stopped leaves none."""
    clock = steady_clock(EPollReactor())
    of_others = alarms()
    timers = [clock.callLater(60, print) for _ in range(3)]
    (alarm,) = alarms() - of_others
    for timer in timers:
        timer.cancel()
    alarm.join(30)
    assert not alarm.is_alive()


def test_timers_that_are_put_off_again_and_again_take_no_memory():
    """As those of a connection that is never idle."""
    clock = SteadyClock(EPollReactor())
    kept = clock.callLater(60, print)
    for _ in range(1000):
        clock.callLater(30, print).cancel()
        kept.reset(60)
    assert len(clock._heap) < 100
    kept.cancel()


def test_a_timer_that_raises_stops_nobody():
    """As in any reactor."""
    reactor = EPollReactor()
    clock = steady_clock(reactor)
    clock.callLater(0, lambda: 1 / 0)
    clock.callLater(0.001, reactor.stop)
    reactor.run(installSignalHandlers=False)


def test_timers_of_a_reactor_that_becomes_steady_keep_their_time():
    """What was armed before, cancelled timers among it, comes in its order."""
    reactor = EPollReactor()
    came = []
    reactor.callLater(0.0, came.append, "cancelled").cancel()
    reactor.callLater(0.02, came.append, "second")
    reactor.callLater(0.01, came.append, "first")
    moved = reactor.callLater(0.0, came.append, "never")
    make_steady(reactor)
    make_steady(reactor)
    assert is_steady(reactor)
    moved.reset(60)
    reactor.callLater(0.05, reactor.stop)
    reactor.run(installSignalHandlers=False)
    assert came == ["first", "second"]


def test_a_host_gives_its_clock_to_connection_attempts():
    """A connect that nobody answers ends in time although the clock was set back."""
    reactor = EPollReactor()
    host = make_host(reactor)
    ahead = wall_clock_of(reactor)
    failed = []
    # An address of TEST-NET-1 never answers; a machine without a route refuses at once.
    began = time.monotonic()
    host.network.client("192.0.2.1", 9, timeout=0.2).connect(Factory()).addErrback(
        failed.append
    ).addBoth(lambda _: reactor.stop())
    host.clock.callLater(0.01, ahead.__setitem__, 0, -3600.0)
    guard = host.clock.callLater(5, reactor.stop)
    reactor.run(installSignalHandlers=False)
    if guard.active():
        guard.cancel()
    assert failed
    assert time.monotonic() - began < 4
