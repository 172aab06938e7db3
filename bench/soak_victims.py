"""A pair of real processes as victims of the simulator's faults (`tests/sim_kit/faults.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from sched import scheduler
from types import SimpleNamespace
from typing import Any

from soak_history import History
from soak_pair import FaultyPair, Member

from rmq_ha.client.lookup.requests import send_request
from tests.interop.wire import Refused
from tests.sim_kit.damage import LOG, spoil
from tests.sim_kit.faults import MASTER, Fault, FaultPlan, plan_faults
from tests.sim_kit.promises import CommittedOffsets

_NEVER_MS = 600_000
_ANSWERED_LATE = 2000
"""So many messages of a queue may be stored before `remember` and answered after it."""


class RealClock:
    """The machine's monotonic clock, in seconds; `run` makes the calls that were put on it."""

    def __init__(self) -> None:
        self._queue = scheduler(time.monotonic, time.sleep)

    def seconds(self) -> float:
        return time.monotonic()

    def call_at(self, moment: float, function: Callable[..., object], *arguments: Any) -> None:
        self._queue.enterabs(moment, 0, function, arguments)

    def run(self) -> None:
        """Make the calls, each at its moment, until none is left."""
        self._queue.run()


class LineNetwork:
    """The one line between a slave and its master, with the calls of the simulated network."""

    def __init__(self, link: Any) -> None:
        self._link = link

    def connections_between(self, one: str, other: str) -> list[Any]:
        return [self._link]

    def drop(self, link: Any) -> None:
        link.reset()

    def half_open(self, link: Any) -> None:
        link.is_black = True

    def cut(self, one: str, other: str) -> None:
        self._link.is_black = True

    partition = cut

    def slow(self, one: str, other: str, seconds: float) -> None:
        self._link.delay = seconds

    def heal(self) -> None:
        self._link.is_black, self._link.delay = False, 0.0


class StuckDisk:
    """A disk that is slow to the simulator stops the whole process here."""

    usual_delay = (0.0, 0.0)

    def __init__(self, member: Member) -> None:
        self._member = member

    @property
    def delay(self) -> tuple[float, float]:
        return self.usual_delay

    @delay.setter
    def delay(self, seconds: tuple[float, float]) -> None:
        self._member.stand_still(seconds != self.usual_delay)


class StoreFiles:
    """
    The files of a store that nobody has open, with the calls that `spoil` makes.

    :ivar boot: counted by `spoil` for simulated disks.
    """

    def __init__(self, without: str) -> None:
        self.boot = 0
        self._without = without

    def paths(self, prefix: str) -> list[str]:
        place = Path(prefix)
        if place.name == self._without:
            return []
        files = [place] if place.is_file() else sorted(place.rglob("*[0-9]"))
        return [str(path) for path in files if path.is_file() and "own-again" not in path.parts]

    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def damage(self, path: str, data: bytes | None) -> None:
        Path(path).unlink() if data is None else Path(path).write_bytes(data)


class RealVictims:
    """
    Lets one fault after the other happen to a pair; implements the simulator's `Victims`.

    :ivar found: what went wrong in the fault of the moment.
    """

    def __init__(
        self, pair: FaultyPair, history: History, offsets: CommittedOffsets, random: Random
    ) -> None:
        self.found: list[str] = []
        self._pair, self._history, self._offsets = pair, history, offsets
        self._random = random
        self._clock = RealClock()
        self.world: Any = SimpleNamespace(
            clock=self._clock,
            network=LineNetwork(pair.link),
            trace=SimpleNamespace(add=lambda *event: None),
        )
        self._hosts = {
            member.name: SimpleNamespace(
                name=member.name,
                disk=SimpleNamespace(is_full=False),
                worker=StuckDisk(member),
                step_clock=lambda ms, member=member: member.set_clock(ms // 1000),
            )
            for member in pair.members
        }
        self._seen: set[str] = set()
        self._starts: list[int] = []

    def draw(self, kinds: dict[str, int]) -> Fault:
        """Draw one fault by the weights of these kinds."""
        return plan_faults(self._random, 1.0, kinds)[0]

    def suffer(self, fault: Fault) -> list[str]:
        """
        Let a fault happen, to its end.

        :returns: what went wrong, a text each.
        """
        self.found = []
        plan = FaultPlan(self, [fault])
        plan.start()
        self._clock.run()
        plan.finish()
        if fault.kind == "clock":
            time.sleep(self._random.uniform(8, 20))
            self._after_step()
        return self.found

    def remember(self) -> None:
        """Both members have everything just now: a promotion need not read that again."""
        ends = self._pair.master.ends("normal")
        self._seen.update(self._history.promises["normal"].owed())
        self._starts = [max(0, end - _ANSWERED_LATE) for end in ends]

    # Victims

    def machine(self, part: str) -> str:
        return (self._pair.master if part == MASTER else self._pair.slave).name

    def machines(self) -> list[str]:
        return [member.name for member in self._pair.members]

    def host(self, machine: str) -> Any:
        return self._hosts[machine]

    def _member(self, machine: str) -> Member:
        return next(member for member in self._pair.members if member.name == machine)

    def crash(self, machine: str, power: bool) -> None:
        member = self._member(machine)
        if not member.is_up:
            return
        if power and self._pair.flush == "ASYNC_FLUSH" and member is self._pair.master:
            place = self._lose_tail(member)
            count = self._history.excuse_from(place)
            self._offsets.forget()
            self._pair.notes.append(
                f"{machine} lost its log from {place} on and goes on as the master: {count} "
                "SEND_OK of ASYNC_FLUSH are excused"
            )
        else:
            member.kill()

    def restart(self, machine: str) -> None:
        member = self._member(machine)
        if not member.is_up:
            member.start(member.role)

    def stop_and_restart(self, machine: str) -> None:
        self._member(machine).stop()
        self.restart(machine)

    def fail_over(self, seconds: float) -> None:
        """The old master comes back as slave, half of the times with a tail that nobody has."""
        pair, old = self._pair, self._pair.master
        pair.link.is_black = self._random.random() < 0.5
        time.sleep(self._random.uniform(0.3, 2.0))
        old.kill()
        pair.link.is_black = False
        pair.slave.stop()
        pair.swap()
        pair.master.start("SYNC_MASTER")
        old.role = "SLAVE"
        self._check_promised(pair.master)
        time.sleep(min(seconds, 10.0))
        old.start("SLAVE")

    def make_again(self) -> None:
        """Both members have the new life of the topic, all of it, and nothing of the old one."""
        pair = self._pair
        self._fill(self._random.randint(20, 60), "old")
        pair.delete_topic("own-again")
        time.sleep(self._random.choice([0.5, 3.0, 12.0]))
        with pair.master.wire() as wire:
            wire.create_topic("own-again", 4)
        count = self._random.randint(5, 19)
        self._fill(count, "new")
        wanted = [(0, number, f"new-{number}") for number in range(count)]
        deadline = time.monotonic() + 30
        while _messages_made_again(pair.slave) != wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        for member in pair.members:
            stored = _messages_made_again(member)
            if stored != wanted:
                self.found.append(
                    f"{member.name}: a topic made again has {len(stored)} messages, not {count}"
                )

    def damage(self, machine: str, seconds: float) -> None:
        """It starts and heals, or says why it does not start."""
        pair, member = self._pair, self._member(machine)
        member.kill() if self._random.random() < 0.5 else member.stop()
        # What a master's log has lost is lost: only what can be made anew from it is spoilt.
        files = StoreFiles(LOG if member is pair.master else "")
        note = None
        while note is None:
            note = spoil(files, str(member.store), self._random)
        time.sleep(min(seconds, 10.0))
        member.start(member.role, wait=False)
        try:
            pair.rig.until_ready(member.server)
        except AssertionError:
            member.kill()
            reason = member.last_words(2)
            if not member.said("(?i)damage|size|unreadable|corrupt|missing|record|lost|log"):
                self.found.append(f"{note}: the start ended without a reason: {reason}")
            elif member is not pair.slave:
                self.found.append(f"{note}: the start is refused: {reason}")
            else:
                pair.notes.append(f"{note}: refused, seeded again: {reason}")
                pair.seed_again()
        else:
            pair.notes.append(f"{note}: started")

    # What they do

    def _check_promised(self, member: Member) -> None:
        """Judge the messages that a promoted slave can serve at once."""
        promises = self._history.promises["normal"]
        owed = promises.owed() - self._seen
        time.sleep(1.0)
        present = {id_ for _, _, id_ in member.stored("normal", self._starts)}
        where = f"{member.name}, promoted"
        breaches = promises.breaches(present, where, owed=owed, most=lambda id_: 1)
        self.found += [str(breach) for breach in breaches]

    def _lose_tail(self, master: Member) -> int:
        """
        Take the power from the master's machine: what was not synced is gone.

        Its flushes are put off first, so that what comes then is surely not on the disk; the slave
        has it.

        :returns: where its log ends now.
        """
        self._pair.update(
            flushIntervalCommitLog=_NEVER_MS,
            flushCommitLogThoroughInterval=_NEVER_MS,
            flushIntervalConsumeQueue=_NEVER_MS,
            flushConsumeQueueThoroughInterval=_NEVER_MS,
        )
        time.sleep(2.0)  # timers that run already end
        place = master.log_end()
        time.sleep(self._random.uniform(0.5, 3.0))
        master.kill()
        for path in master.store.glob("commitlog/*[0-9]"):
            start, size = int(path.name), path.stat().st_size
            if start + size > place:
                with path.open("r+b") as file:  # zeros, and no large file of a sparse one
                    file.truncate(max(place - start, 0))
                    file.truncate(size)
        time.sleep(1.0)  # what clients were answered is on its way to the history
        return place

    def _after_step(self) -> None:
        code = self._pair.probe()
        for member in self._pair.members:
            member.set_clock(0)
        if code not in (0, 11, 12):
            self.found.append(f"a send after the step of a clock got code {code}")

    def _fill(self, count: int, life: str) -> None:
        """Send so many messages to the topic, each once; an answer other than stored is raised."""
        with self._pair.master.wire() as wire:
            for number in range(count):
                body = f"{life}-{number}".encode()
                request = send_request("soak", "own-again", 0, body, "", int(time.time() * 1000))
                (answer,) = wire.exchange([request])
                if answer.code not in (0, 11, 12):
                    raise Refused(answer)


def _messages_made_again(member: Member) -> list[tuple[int, int, str]]:
    try:
        return member.stored("again")
    except (OSError, Refused):
        return []
