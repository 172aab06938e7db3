"""Draws from the seed which faults happen in a simulation, and when."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from rmq_ha.testing.host import SimHost, World
from rmq_ha.testing.trace import FAULT

MASTER, SLAVE = "master", "slave"


class Fault(NamedTuple):
    """
    One fault.

    :ivar at: seconds after the plan's start.
    :ivar seconds: how long the fault lasts; some faults have no duration.
    :ivar machine: the role of the machine that the fault hits first. The machine that has this role
        is found when the fault happens.
    """

    at: float
    kind: str
    machine: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:.3f} s: {self.kind} {self.machine} {self.seconds:.2f} s"


KINDS = {
    "drop": 4,
    "half_open": 3,
    "partition": 3,
    "one_way": 3,
    "slow": 2,
    "kill": 3,
    "power": 4,
    "blackout": 2,
    "restart": 1,
    "disk_full": 1,
    "slow_disk": 2,
    "fail_over": 6,
    "clock": 2,
    "topic": 2,
    "damage": 2,
}
"""Every kind of fault, with its weight in the draw."""
SOAK_KINDS = {kind: weight for kind, weight in KINDS.items() if kind != "disk_full"}
"""
The kinds that `bench/soak.py` lets happen to real processes. A real disk is not filled:
tests/unit/server/store and tests/mistakes fill simulated disks.
"""
LOSES_TAIL = ("fail_over", "power", "blackout")
"""
After these faults messages may be missing that consumers have read, if they were neither
acknowledged nor synced.
"""

CLOCK_STEPS_MS = (-3_600_000, 3_600_000)


def plan_faults(random: Random, seconds: float, kinds: dict[str, int] | None = None) -> list[Fault]:
    """
    Draw the faults.

    :param seconds: all faults begin within this time.
    :param kinds: weights by kind; None: `KINDS`.
    """
    weights = KINDS if kinds is None else kinds
    names = list(weights)
    faults = []
    for _ in range(random.randint(1, 6) if names else 0):
        kind = random.choices(names, list(weights.values()))[0]
        machine = SLAVE if random.random() < 0.6 else MASTER
        lasting = random.choice((0.05, 0.5, 2.0, 5.0, 25.0)) * (0.5 + random.random())
        faults.append(Fault(random.random() * seconds, kind, machine, lasting))
    return sorted(faults)


class Victims(Protocol):
    """The machines that faults are done to."""

    world: World

    def machine(self, part: str) -> str:
        """Return the name of the machine that has a role at the moment."""

    def machines(self) -> list[str]:
        """Return the names of all machines."""

    def host(self, machine: str) -> SimHost:
        """Return a machine by its name."""

    def crash(self, machine: str, power: bool) -> None:
        """Stop a machine at once; harmless when it is down."""

    def restart(self, machine: str) -> None:
        """Start a machine again; harmless when it is up."""

    def stop_and_restart(self, machine: str) -> None:
        """Restart a machine in an orderly way, as an operator does."""

    def fail_over(self, seconds: float) -> None:
        """
        Make the slave the master; the old master returns as its slave after a number of seconds.
        """

    def make_again(self) -> None:
        """Delete a topic; the next put creates it again."""

    def damage(self, machine: str, seconds: float) -> None:
        """Stop a machine, damage its store, and start it after a number of seconds."""


class FaultPlan:
    """
    Makes the faults of a plan happen.

    :ivar done: the faults that happened so far.
    """

    def __init__(self, victims: Victims, faults: list[Fault]) -> None:
        self.done: list[Fault] = []
        self._victims = victims
        self._network = victims.world.network
        self._faults = faults
        self._over = False

    def start(self) -> None:
        """Put all faults on the clock."""
        now = self._clock_now()
        for fault in self._faults:
            self._victims.world.clock.call_at(now + fault.at, self._happen, fault)

    def finish(self) -> None:
        """End all faults: cut lines, slow lines, full disks and stopped machines work again."""
        self._over = True
        self._network.heal()
        for machine in self._victims.machines():
            self._fill(machine, False)
            self._slow_disk(machine, False)
            self._victims.restart(machine)

    def _clock_now(self) -> float:
        return self._victims.world.clock.seconds()

    def _happen(self, fault: Fault) -> None:
        if self._over:
            return
        self.done.append(fault)
        machine = self._victims.machine(fault.machine)
        self._victims.world.trace.add(
            FAULT, 0, self._clock_now(), 0, f"{fault.kind} {fault.machine} {machine}".encode()
        )
        getattr(self, "_do_" + fault.kind)(fault, machine)

    def _later(self, fault: Fault, function: Callable[..., None], *args: object) -> None:
        def undo() -> None:
            if not self._over:
                function(*args)

        self._victims.world.clock.call_at(self._clock_now() + fault.seconds, undo)

    def _others(self, machine: str) -> tuple[str, str]:
        """Return the host names of the machine that is hit and of the other one."""
        other = next(name for name in self._victims.machines() if name != machine)
        return self._victims.host(machine).name, self._victims.host(other).name

    def _do_drop(self, fault: Fault, machine: str) -> None:
        for end in self._network.connections_between(*self._others(machine)):
            self._network.drop(end)

    def _do_half_open(self, fault: Fault, machine: str) -> None:
        """
        Let the machine's ends of its connections vanish. The line is cut meanwhile, so that its
        kernel cannot reset the connections.
        """
        hit, other = self._others(machine)
        for end in self._network.connections_between(hit, other):
            self._network.half_open(end)
        self._network.cut(hit, other)
        self._later(fault, self._network.heal)

    def _do_partition(self, fault: Fault, machine: str) -> None:
        self._network.partition(*self._others(machine))
        self._later(fault, self._network.heal)

    def _do_one_way(self, fault: Fault, machine: str) -> None:
        self._network.cut(*self._others(machine))
        self._later(fault, self._network.heal)

    def _do_slow(self, fault: Fault, machine: str) -> None:
        self._network.slow(*self._others(machine), 0.5)
        self._later(fault, self._network.heal)

    def _do_kill(self, fault: Fault, machine: str) -> None:
        self._victims.crash(machine, False)
        self._later(fault, self._victims.restart, machine)

    def _do_power(self, fault: Fault, machine: str) -> None:
        self._victims.crash(machine, True)
        self._later(fault, self._victims.restart, machine)

    def _do_blackout(self, fault: Fault, machine: str) -> None:
        for name in self._victims.machines():
            self._victims.crash(name, True)
            self._later(fault, self._victims.restart, name)

    def _do_restart(self, fault: Fault, machine: str) -> None:
        self._victims.stop_and_restart(machine)

    def _do_fail_over(self, fault: Fault, machine: str) -> None:
        self._victims.fail_over(fault.seconds)

    def _do_topic(self, fault: Fault, machine: str) -> None:
        self._victims.make_again()

    def _do_damage(self, fault: Fault, machine: str) -> None:
        self._victims.damage(machine, fault.seconds)

    def _do_clock(self, fault: Fault, machine: str) -> None:
        """Set the wall clock of a machine; the monotonic clock is not changed."""
        step = CLOCK_STEPS_MS[int(fault.seconds * 1000) % 2]
        self._victims.host(machine).step_clock(step)

    def _do_disk_full(self, fault: Fault, machine: str) -> None:
        self._fill(machine, True)
        self._later(fault, self._fill, machine, False)

    def _fill(self, machine: str, full: bool) -> None:
        self._victims.host(machine).disk.is_full = full

    def _do_slow_disk(self, fault: Fault, machine: str) -> None:
        self._slow_disk(machine, True)
        self._later(fault, self._slow_disk, machine, False)

    def _slow_disk(self, machine: str, slow: bool) -> None:
        worker = self._victims.host(machine).worker
        worker.delay = (0.05, 1.5) if slow else worker.usual_delay
