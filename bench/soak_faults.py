"""What happens to the pair of a soak: each fault by its name, with chance from a seed.

A fault leaves both members running; whether they heal is judged by whoever deals it. What it
returns is what went wrong already.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from soak_damage import damage, lose_tail
from soak_history import History, Progress
from soak_pair import FaultyPair, Member

from rmq_ha.client.lookup.requests import send_request
from tests.interop.wire import Refused

HOUR_S = 3600
_ANSWERED_LATE = 2000
"""Messages of a queue that may be stored before `remember` and answered behind it."""


class Scene(NamedTuple):
    """
    What faults work with.

    :ivar seen: ids of "normal" that both members had when their logs were last the same.
    :ivar starts: queue offsets from which on all others are found.
    """

    pair: FaultyPair
    history: History
    progress: Progress
    random: Random
    seen: set[str]
    starts: list[int]

    def remember(self) -> None:
        """Both members have everything just now: a promotion need not read that again."""
        ends = self.pair.master.ends("normal")
        self.seen.update(self.history.must_be_there("normal"))
        self.starts[:] = [max(0, end - _ANSWERED_LATE) for end in ends]


Fault = Callable[[Scene], list[str]]
FAULTS: dict[str, Fault] = {}
TAIL_ENDS = ("fail-over", "fail-over-in-order", "fail-over-of-a-lost-tail", "lost-tail")
"""After which what consumers have read may be gone: nobody had acknowledged it, or synced it."""


def fault(function: Fault) -> Fault:
    """One more kind."""
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def down(scene: Scene) -> None:
    time.sleep(scene.random.uniform(0.2, 4.0))


# ------------------------------------------------------------ processes


def _ends(scene: Scene, members: list[Member], *, killed: bool) -> list[str]:
    roles = [(member, member.role) for member in members]
    for member in members:
        member.kill() if killed else member.stop()
    down(scene)
    for member, role in roles:
        member.start(role)
    return []


@fault
def kill_master(scene: Scene) -> list[str]:
    return _ends(scene, [scene.pair.master], killed=True)


@fault
def kill_slave(scene: Scene) -> list[str]:
    return _ends(scene, [scene.pair.slave], killed=True)


@fault
def kill_both(scene: Scene) -> list[str]:
    return _ends(scene, [scene.pair.master, scene.pair.slave], killed=True)


@fault
def term_master(scene: Scene) -> list[str]:
    return _ends(scene, [scene.pair.master], killed=False)


@fault
def term_slave(scene: Scene) -> list[str]:
    return _ends(scene, [scene.pair.slave], killed=False)


@fault
def term_both(scene: Scene) -> list[str]:
    return _ends(scene, [scene.pair.slave, scene.pair.master], killed=False)


@fault
def stop_master(scene: Scene) -> list[str]:
    scene.pair.master.freeze(scene.random.uniform(2, 15))
    return []


@fault
def stop_slave(scene: Scene) -> list[str]:
    scene.pair.slave.freeze(scene.random.uniform(2, 15))
    return []


# ------------------------------------------------------------ the line


@fault
def link_black_hole(scene: Scene) -> list[str]:
    link = scene.pair.link
    link.is_black = True
    time.sleep(scene.random.uniform(2, 25))
    link.is_black = False
    return []


@fault
def link_delay(scene: Scene) -> list[str]:
    link = scene.pair.link
    link.delay = scene.random.uniform(0.05, 0.6)
    time.sleep(scene.random.uniform(3, 10))
    link.delay = 0
    return []


@fault
def link_reset(scene: Scene) -> list[str]:
    for _ in range(scene.random.randint(1, 10)):
        scene.pair.link.reset()
        time.sleep(scene.random.uniform(0.05, 1.0))
    return []


@fault
def link_cut(scene: Scene) -> list[str]:
    """In the middle of a frame, most likely."""
    for _ in range(scene.random.randint(1, 5)):
        scene.pair.link.budget = scene.random.randint(1, 40_000)
        time.sleep(scene.random.uniform(0.5, 3.0))
    scene.pair.link.budget = None
    return []


# ------------------------------------------------------------ changes of the master


def _promote(scene: Scene) -> list[str]:
    """The slave is restarted as master; what it must have is looked for at once."""
    pair = scene.pair
    pair.slave.stop()
    pair.swap()
    pair.master.start("SYNC_MASTER")
    return _promised(scene, pair.master)


def _promised(scene: Scene, member: Member) -> list[str]:
    wanted = scene.history.must_be_there("normal") - scene.seen
    time.sleep(1.0)
    stored = member.stored("normal", scene.starts)
    lost = sorted(wanted - {id_ for _, _, id_ in stored})
    if not lost:
        return []
    return [f"{member.name}, promoted: {len(lost)} SEND_OK are not readable: {', '.join(lost[:4])}"]


def _diverge(scene: Scene) -> None:
    """The master goes on for a moment with what no slave gets."""
    scene.pair.link.is_black = True
    time.sleep(scene.random.uniform(0.3, 2.0))


def _fails_over(scene: Scene, *, killed: bool) -> list[str]:
    pair = scene.pair
    old = pair.master
    old.kill() if killed else old.stop()
    pair.link.is_black = False
    faults = _promote(scene)
    down(scene)
    old.start("SLAVE")
    return faults


@fault
def fail_over(scene: Scene) -> list[str]:
    """The old master comes back as slave, with a tail that nobody else has."""
    _diverge(scene)
    return _fails_over(scene, killed=True)


@fault
def fail_over_in_order(scene: Scene) -> list[str]:
    return _fails_over(scene, killed=False)


@fault
def fail_over_of_a_lost_tail(scene: Scene) -> list[str]:
    """The machine of the master loses what it had not synced, and comes back as slave."""
    pair = scene.pair
    old = pair.master
    place = lose_tail(scene)
    faults = _promote(scene)
    pair.notes.append(f"{old.name} lost its log from {place} on, and came back as slave")
    old.start("SLAVE")
    return faults


@fault
def lost_tail(scene: Scene) -> list[str]:
    """The same machine goes on as master: with ASYNC_FLUSH it has lost what it acknowledged."""
    pair = scene.pair
    place = lose_tail(scene)
    count = scene.history.excuse_from(place)
    scene.progress.forget()
    pair.notes.append(
        f"{pair.master.name} lost its log from {place} on and went on as master: {count} SEND_OK "
        "of ASYNC_FLUSH are excused"
    )
    pair.master.start("SYNC_MASTER")
    return []


# ------------------------------------------------------------ clocks, topics


def _steps(scene: Scene, member: Member) -> list[str]:
    member.set_clock(scene.random.choice([-HOUR_S, HOUR_S]))
    time.sleep(scene.random.uniform(8, 20))
    code = scene.pair.probe()
    member.set_clock(0)
    return [] if code in (0, 11, 12) else [f"a send during the step of a clock got code {code}"]


@fault
def clock_of_master(scene: Scene) -> list[str]:
    return _steps(scene, scene.pair.master)


@fault
def clock_of_slave(scene: Scene) -> list[str]:
    return _steps(scene, scene.pair.slave)


@fault
def topic_again(scene: Scene) -> list[str]:
    """Deleted and created: both members have the new life, all of it, and nothing of the old."""
    pair = scene.pair
    _fill(pair, scene.random.randint(20, 60), "old")
    pair.delete_topic("own-again")
    time.sleep(scene.random.choice([0.5, 3.0, 12.0]))
    with pair.master.wire() as wire:
        wire.create_topic("own-again", 4)
    count = scene.random.randint(5, 19)
    _fill(pair, count, "new")
    wanted = [(0, number, f"new-{number}") for number in range(count)]
    deadline = time.monotonic() + 30
    while (found := _again(pair.slave)) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    return (
        [
            f"{member.name}: a topic made again has {len(_again(member))} messages, not {count}: "
            f"{_again(member)[:3]}"
            for member in pair.members
            if _again(member) != wanted
        ]
        if found != wanted or _again(pair.master) != wanted
        else []
    )


def _fill(pair: FaultyPair, count: int, life: str) -> None:
    """Until each is SEND_OK; none is sent twice."""
    with pair.master.wire() as wire:
        for number in range(count):
            body = f"{life}-{number}".encode()
            request = send_request("soak", "own-again", 0, body, "", int(time.time() * 1000))
            (answer,) = wire.exchange([request])
            if answer.code not in (0, 11, 12):
                raise Refused(answer)


def _again(member: Member) -> list[tuple[int, int, str]]:
    try:
        return member.stored("again")
    except (OSError, Refused):
        return []


# ------------------------------------------------------------ damage at rest


def _damaged(scene: Scene, member: Member, kinds: list[str]) -> list[str]:
    """
    A member that is down is damaged; it starts and heals, or says why it does not start.
    """
    pair, role = scene.pair, member.role
    killed = scene.random.random() < 0.5
    log_end = member.log_end()
    member.kill() if killed else member.stop()
    what = damage(scene.random, member.store, scene.random.choice(kinds), log_end)
    note = f"{what} of {member.name} ({role}, {'killed' if killed else 'stopped'})"
    member.start(role, wait=False)
    try:
        pair.rig.until_ready(member.server)
    except AssertionError:
        member.kill()
        reason = member.last_words(2)
        if not member.said("(?i)damage|size|unreadable|corrupt|missing|record|lost|log"):
            return [f"{note}: the start ended without a reason: {reason}"]
        if member is not pair.slave:
            return [f"{note}: the start is refused: {reason}"]
        pair.notes.append(f"{note}: refused, seeded again: {reason}")
        pair.seed_again()
        return []
    pair.notes.append(f"{note}: started")
    return []


@fault
def damaged_log_of_slave(scene: Scene) -> list[str]:
    return _damaged(scene, scene.pair.slave, ["log-bit", "log-zeros", "log-garbage"])


@fault
def damaged_queue_of_slave(scene: Scene) -> list[str]:
    kinds = ["queue-gone", "queue-zeros", "queue-short", "checkpoint", "index"]
    return _damaged(scene, scene.pair.slave, kinds)


@fault
def damaged_queue_of_master(scene: Scene) -> list[str]:
    """Only what can be made anew from the log."""
    kinds = ["queue-gone", "queue-zeros", "queue-short", "checkpoint", "index"]
    return _damaged(scene, scene.pair.master, kinds)


def queue_files(store: Path) -> dict[str, bytes]:
    """The queues of the streams, by path, without what is not written yet."""
    return {
        str(path.relative_to(store)): path.read_bytes().rstrip(b"\0")
        for path in sorted(store.glob("consumequeue/own-*/*/*[0-9]"))
        if "own-again" not in path.parts
    }
