"""Simulated machines: their parts, their deaths, and the digest of a run."""

import pytest

from rmq_ha.base.seams import Host
from rmq_ha.testing.host import EPOCH_MS, World
from rmq_ha.testing.trace import NOTE, Trace
from rmq_ha.testing.worker import THREADS
from tests.sim_kit.faults import KINDS, FaultPlan, plan_faults


def test_seams():
    """A machine offers a whole `Host`; its wall clock may be off, its timers are not."""
    world = World(1)
    host = world.add("a", skew_ms=500)
    assert isinstance(host.seams, Host)
    world.clock.run_for(2)
    assert host.seams.now_ms() == EPOCH_MS + 2500
    assert host.seams.clock.seconds() == 2


def test_chance_depends_on_seed_and_name_only():
    """Each component has its own source of chance, the same in every run."""
    one, two, other = World(1), World(1), World(2)
    two.random("somebody else").random()
    draws = [world.add("a").seams.random.random() for world in (one, two, other)]
    assert draws[0] == draws[1] != draws[2]
    assert one.add("b").seams.random.random() != draws[0]


def test_crash_takes_everything_but_the_disk():
    """Timers and worker calls of a crashed machine never come; its disk is there again."""
    world = World(1)
    host = world.add("a")
    came = []
    host.seams.clock.callLater(1, came.append, "timer")
    host.seams.worker.call(came.append, "call")
    host.seams.disk.replace("/file", b"kept")
    old = host.seams
    host.crash(power=True)
    old.worker.call(came.append, "late call")
    world.clock.run_for(10)
    assert came == []
    assert host.restart().disk.read_bytes("/file") == b"kept"
    with pytest.raises(RuntimeError):
        host.restart()


def test_worker_runs_a_few_at_a_time():
    """As many calls as there are threads run side by side; results may come in any order."""
    world = World(3)
    worker = world.add("a").seams.worker
    order = []
    for number in range(40):
        worker.call(lambda n=number: n).addCallback(order.append)
    world.clock.run_for(1)
    assert sorted(order) == list(range(40))
    assert order != sorted(order)
    assert max(abs(place - number) for place, number in enumerate(order)) <= 4 * THREADS


def test_digest_tells_runs_apart():
    """Any difference in what happened changes the digest."""

    def digest(*events):
        trace = Trace()
        for event in events:
            trace.add(*event)
        return trace.digest

    base = digest((NOTE, 1, 0.5, 7, b"x"))
    assert base == digest((NOTE, 1, 0.5, 7, b"x"))
    others = [(NOTE, 2, 0.5, 7, b"x"), (NOTE, 1, 0.6, 7, b"x"), (NOTE, 1, 0.5, 7, b"y")]
    assert base not in [digest(event) for event in others]
    assert base != digest((NOTE, 1, 0.5, 7, b"x"), (NOTE, 1, 0.5, 7, b"x"))


def test_trace_as_text():
    """A trace may be read by a person, too."""
    lines = []
    Trace(lines.append).add(NOTE, 3, 1.25, 7, b"hello")
    assert lines == ["    1.250000 host 3 note 7 b'hello'"]


def test_every_kind_of_fault_can_happen():
    """The plan has a way to do whatever it may draw."""
    for kind in KINDS:
        assert callable(getattr(FaultPlan, "_do_" + kind))


def test_plans_come_from_the_seed():
    """The same source of chance gives the same plan, in order of time."""
    plans = [plan_faults(World(seed).random("faults"), 10) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert plans[0] == sorted(plans[0])
    assert plan_faults(World(1).random("faults"), 10, {}) == []
