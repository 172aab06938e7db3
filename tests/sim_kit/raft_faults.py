"""Draws from the seed which faults happen in a simulated DLedger group, and when."""

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
"""Every kind of fault, with its weight in the draw."""


class RaftFault(NamedTuple):
    """
    One fault.

    :ivar at: microseconds.
    :ivar pick: decides which machine the fault hits; it is the leader more often than another one.
    :ivar lasts: duration in microseconds; some faults have none.
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
    Draw the faults.

    :param busy: microseconds within which all faults begin.
    :param unit: a heartbeat interval in microseconds; the durations of faults are multiples of it.
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
    """The group that faults are done to."""

    random: Random
    count: int

    def leader_number(self) -> int | None:
        """Return the number of the machine that leads, or that led last."""


def victim(group: IGroup, pick: float) -> int:
    """
    Return the number of the machine to hit: half of the time the leader, otherwise any machine.
    """
    leader = group.leader_number()
    if leader is not None and pick < 0.5:
        return leader
    return int(pick * 7919) % group.count


def cuts(group: IGroup, kind: str, number: int) -> set[tuple[int, int]]:
    """
    Return the links that a partition cuts.

    :param number: number of the machine that the partition concerns.
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
