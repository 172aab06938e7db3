"""What goes wrong in a simulated DLedger group, and when: a plan drawn from the seed."""

from random import Random
from typing import NamedTuple, Protocol

KINDS = {
    "kill": 4,
    "power": 5,
    "blackout": 2,
    "isolate": 3,
    "half": 3,
    "ring": 2,
    "one_way": 3,
    "bridge": 1,
    "lossy": 3,
    "late": 2,
    "slow_disk": 3,
    "pause": 3,
    "disk_full": 1,
    "expire": 1,
    "transfer": 4,
}
"""Every kind of fault, and how often it comes compared with the others."""


class RaftFault(NamedTuple):
    """
    One thing that goes wrong.

    :ivar at: microseconds.
    :ivar pick: decides whom it hits; the leader more often than the others.
    :ivar lasts: microseconds, where it lasts.
    """

    at: int
    kind: str
    pick: float
    lasts: int

    def __str__(self) -> str:
        return f"{self.at / 1e6:.3f} s: {self.kind} {self.lasts / 1e6:.3f} s"


def plan_raft_faults(
    random: Random, busy: int, unit: int, kinds: dict[str, int] | None = None
) -> list[RaftFault]:
    """
    Draw what goes wrong.

    :param busy: all of it begins within so many microseconds.
    :param unit: a heartbeat interval in microseconds: what a short and a long time is.
    :param kinds: weights by kind; None: `KINDS`.
    """
    weights = KINDS if kinds is None else kinds
    names = list(weights)
    faults = []
    for _ in range(random.randint(3, 14)):
        kind = random.choices(names, list(weights.values()))[0]
        lasts = int(random.choice((0.02, 0.3, 1, 3.5, 5)) * (0.5 + random.random()) * unit)
        faults.append(RaftFault(random.randrange(busy), kind, random.random(), lasts))
    return sorted(faults)


class IGroup(Protocol):
    """What faults are done to."""

    random: Random
    count: int

    def leader_number(self) -> int | None:
        """The machine that leads, or was the last to."""


def victim(group: IGroup, pick: float) -> int:
    """The leader half of the time, else anybody."""
    leader = group.leader_number()
    if leader is not None and pick < 0.5:
        return leader
    return int(pick * 7919) % group.count


def cuts(group: IGroup, kind: str, number: int) -> set[tuple[int, int]]:
    """
    Which links a partition cuts.

    :param number: the machine that it is about.
    :returns: pairs of sender and receiver.
    """
    everybody = range(group.count)
    others = [n for n in everybody if n != number]
    if kind == "isolate":
        return {(number, n) for n in others} | {(n, number) for n in others}
    if kind == "half":
        side = {number, *group.random.sample(others, group.count // 2 - 1)}
        return {(a, b) for a in everybody for b in everybody if (a in side) != (b in side)}
    if kind == "ring":
        near = {(a, (a + step) % group.count) for a in everybody for step in (1, -1)}
        if group.count == 3:
            near -= {(number, others[0]), (others[0], number)}
        return {(a, b) for a in everybody for b in everybody if a != b} - near
    if kind == "bridge":  # two sides that only one member connects
        side = set(group.random.sample(others, len(others) // 2))
        return {(a, b) for a in others for b in others if (a in side) != (b in side)}
    if group.random.random() < 0.5:
        return {(number, n) for n in others}
    return {(n, number) for n in others}
