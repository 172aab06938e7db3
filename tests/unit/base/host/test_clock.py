"""Clocks beside reactors that count by the time of day."""

import asyncio
import threading
import time
from random import Random

import pytest
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.protocol import Factory
from twisted.internet.selectreactor import SelectReactor

from rmq_ha.base.host import clock as clock_module
from rmq_ha.base.host.clock import SteadyClock, boot_clock, is_steady, make_steady, steady_clock
from rmq_ha.base.host.real import make_host


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


def test_of_many_timers_most_of_which_are_cancelled_each_other_one_comes_in_time(by_hand):
    """The places of those that are gone are given back, and the others keep their order."""
    clock, came, random = by_hand.clock, [], Random(5)
    begin = by_hand.now
    timers = {}
    for due in random.sample(range(1, 1000), 400):
        timers[due] = clock.callLater(due, came.append, due)
    kept = set(random.sample(sorted(timers), 80))
    for due in random.sample(sorted(timers), 400):
        if due not in kept:
            timers[due].cancel()
    assert len(clock._heap) < 240
    while by_hand.rings_at is not None:
        by_hand.advance(by_hand.rings_at - by_hand.now)
        assert came == sorted(due for due in kept if begin + due <= by_hand.now)
    assert len(came) == 80


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
    late = reactor.callLater(60, came.append, "third")
    make_steady(reactor)
    make_steady(reactor)
    assert is_steady(reactor)
    moved.reset(60)
    late.reset(0.03)
    reactor.callLater(0.05, reactor.stop)
    reactor.run(installSignalHandlers=False)
    assert came == ["first", "second", "third"]


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


class ByHand:
    """A reactor, an alarm and a time that the test moves; the functions due are run in turns."""

    def __init__(self, monkeypatch):
        self.now, self.rings_at, self.turns = 100.0, None, []
        monkeypatch.setattr(clock_module, "monotonic", lambda: self.now)
        monkeypatch.setattr(clock_module, "_Alarm", self._made)
        self.clock = SteadyClock(self)

    def _made(self, ring):
        self._ring = ring
        return self

    def set(self, when):
        self.rings_at = when

    def end(self):
        self.rings_at = None

    def callFromThread(self, function):
        self.turns.append(function)

    def turn(self):
        turns, self.turns = self.turns, []
        for function in turns:
            function()

    def advance(self, seconds):
        """To this much later: at once, as after a reactor that was busy."""
        self.now += seconds
        if self.rings_at is not None and self.rings_at <= self.now:
            self.rings_at = None
            self._ring()
        self.turn()


@pytest.fixture
def by_hand(monkeypatch):
    return ByHand(monkeypatch)


def test_a_timer_comes_when_it_is_due_and_once(by_hand):
    """Neither before, nor a moment later, nor again; the last one takes the alarm with it."""
    clock, came = by_hand.clock, []
    timer = clock.callLater(2, came.append, "x")
    by_hand.advance(1.5)
    assert not came
    by_hand.advance(0.5)
    assert came == ["x"]
    assert not timer.active()
    assert clock._alarm is None
    by_hand.advance(60)
    assert came == ["x"]


def test_a_cancelled_timer_does_not_come(by_hand):
    """Its place comes up between those of others, which do."""
    clock, came = by_hand.clock, []
    for number, seconds in enumerate((1, 2, 3)):
        timer = clock.callLater(seconds, came.append, number)
        if number == 1:
            timer.cancel()
    for expected in ([0], [0], [0, 2]):
        by_hand.advance(1)
        assert came == expected
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize("step", [0.25, 20], ids=["in-time", "all-at-once"])
def test_a_timer_that_was_moved_comes_at_its_last_time(by_hand, step):
    """Whichever places it had before: to and fro, and by less than a second."""
    clock, came = by_hand.clock, []
    start = by_hand.now
    for name, moves in {
        "earlier": (10, 5),
        "later": (10, 12),
        "a-little": (10, 10.5),
        "to-and-fro": (10, 5, 11),
        "fro-and-to": (10, 12, 6),
    }.items():
        timer = clock.callLater(moves[0], lambda name: came.append((name, by_hand.now)), name)
        for seconds in moves[1:]:
            timer.reset(seconds)
    due = {"earlier": 5, "later": 12, "a-little": 10.5, "to-and-fro": 11, "fro-and-to": 6}
    while by_hand.now < start + 20:
        by_hand.advance(step)
    expected = {name: start + (seconds if step < 1 else 20) for name, seconds in due.items()}
    assert sorted(came) == sorted(expected.items())
    assert not clock.getDelayedCalls()


def test_what_is_to_come_at_once_comes_in_the_next_turn_each_time(by_hand):
    """Also what such a call arms, as time passes while it runs."""
    clock, came = by_hand.clock, []

    def again():
        by_hand.now += 1e-6
        came.append(len(came))
        clock.callLater(0, came.append, "last")

    clock.callLater(0, again)
    clock.callLater(0, int)
    assert len(by_hand.turns) == 1, "the reactor is woken once for all of them"
    assert not came
    by_hand.turn()
    assert came == [0]
    by_hand.now += 1e-6
    by_hand.turn()
    assert came == [0, "last"]


def test_an_alarm_never_holds_up_the_reactor():
    """Its thread waits for something else, and hears of thousands of earlier times."""
    goes_on, is_held = threading.Event(), threading.Event()
    alarm = clock_module._Alarm(lambda: (is_held.set(), goes_on.wait(10)))
    alarm.set(0)
    assert is_held.wait(10)
    for number in range(5000):
        alarm.set(-number)
    goes_on.set()
    alarm.end()


def test_an_alarm_rings_at_its_time_and_once(monkeypatch):
    """Also where it looks at that very moment; each time that is set is another one."""
    monkeypatch.setattr(clock_module, "monotonic", lambda: 100.0)
    rung = threading.Semaphore(0)
    alarm = clock_module._Alarm(rung.release)
    for when in (100.0, 99.0, 100.0):
        alarm.set(when)
        assert rung.acquire(timeout=10)
    alarm.set(100.9)
    assert not rung.acquire(timeout=0.05)
    alarm.end()


def test_an_alarm_that_has_ended_leaves_no_descriptor():
    of_others = alarms()
    alarm = clock_module._Alarm(print)
    (thread,) = alarms() - of_others
    alarm.end()
    thread.join(30)
    assert (alarm._pokes.fileno(), alarm._poked.fileno()) == (-1, -1)


def test_a_real_host_counts_the_time_for_which_it_is_suspended():
    """On Linux that clock is the other one and all suspensions; elsewhere it is the other one."""
    host = make_host(SelectReactor())
    before = time.monotonic()
    assert host.boot_clock is boot_clock
    assert before <= host.boot_seconds()
    if hasattr(time, "CLOCK_BOOTTIME"):
        asked = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert asked <= host.boot_seconds() < asked + 5
