"""The rules of a soak: told what was sent and what was consumed, they say what is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

REDELIVERY_S = 30.0
"""How long after a disturbance a message may come again: a rebalance, and who held it gives up."""
UNCOMMITTED_S = 8.0
"""What clients consumed in this time before a disturbance may not be committed yet (every 5 s)."""
STORED_TWICE_PER_KILL = 50
GROUPS = {
    "normal": ("g-normal",),
    "ordered": ("g-ordered",),
    "delayed": ("g-delayed",),
    "txn": ("g-txn",),
    "filtered": ("g-tags", "g-sql"),
    "retry": ("g-retry",),
}
EXAMPLES = 5


def is_wanted(group: str, message_id: str) -> bool:
    """Whether a group must get this message, by what its id says."""
    parts = message_id.split("-")
    if group == "g-txn":
        return parts[2] in ("commit", "check")
    if group == "g-tags":
        return parts[2] in ("A", "C")
    if group == "g-sql":
        return int(parts[3]) > 5
    return True


@dataclass
class GroupCount:
    """
    One group's deliveries.

    :ivar places: message id to queue and offset of its first delivery; -1 when first seen as retry.
    """

    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    deliveries: int = 0
    given_back: int = 0
    retried: int = 0
    again: int = 0
    unexplained: list[str] = field(default_factory=list)
    stored_twice: list[str] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)
    bursts: Counter[int] = field(default_factory=Counter)


class Judge:
    """
    Collects what the clients say and what was done to them.

    Its methods may be called from two threads: each takes one line.

    :param rate: messages a second of each stream.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._statuses: dict[str, Counter[str]] = defaultdict(Counter)
        self._promised: dict[str, set[str]] = defaultdict(set)
        self._groups = {name: GroupCount() for names in GROUPS.values() for name in names}
        self._disturbances: list[tuple[float, str]] = []
        self._master_kills = 0
        self._last_of_shard: dict[str, int] = {}
        self._disorder: list[str] = []

    def sent(self, stream: str, message_id: str, status: str) -> None:
        """A send was answered."""
        self._statuses[stream][status] += 1
        if status == "SEND_OK":
            self._promised[stream].add(message_id)

    def disturbed(self, now: float, stream: str, is_master: bool = False) -> None:
        """A member of this stream's group came or went; `all`: a broker was killed or is back."""
        self._disturbances.append((now, stream))
        self._master_kills += is_master

    def consumed(
        self,
        stream: str,
        group: str,
        message_id: str,
        reconsume: str,
        queue: str,
        offset: str,
        how: str,
        *,
        now: float,
    ) -> None:
        """A message was delivered."""
        count = self._groups[group]
        count.deliveries += 1
        if not is_wanted(group, message_id):
            count.unwanted.append(message_id)
        if how == "again":
            count.given_back += 1
        else:
            count.done.add(message_id)
        if int(reconsume):
            count.retried += 1
            return
        place = (int(queue), int(offset))
        first = count.places.setdefault(message_id, place)
        if first is not place:
            self._came_again(count, stream, message_id, first != place, now)
        elif stream == "ordered":
            self._in_order(message_id)

    def _came_again(
        self, count: GroupCount, stream: str, message_id: str, elsewhere: bool, now: float
    ) -> None:
        if elsewhere:
            count.stored_twice.append(message_id)
            return
        count.again += 1
        for number in range(len(self._disturbances) - 1, -1, -1):
            when, whose = self._disturbances[number]
            if now - when > REDELIVERY_S:
                break
            if whose in (stream, "all"):
                count.bursts[number] += 1
                return
        count.unexplained.append(message_id)

    def _in_order(self, message_id: str) -> None:
        _, serial, shard = message_id.split("-")
        if int(serial) < self._last_of_shard.get(shard, -1):
            self._disorder.append(message_id)
        self._last_of_shard[shard] = max(int(serial), self._last_of_shard.get(shard, -1))

    def missing(self, stream: str, group: str) -> list[str]:
        """Promised, wanted by the group, and not consumed."""
        lacking = self._promised[stream].copy() - self._groups[group].done
        return sorted(item for item in lacking if is_wanted(group, item))

    def missing_count(self) -> int:
        """Of all groups."""
        return sum(
            len(self.missing(stream, group))
            for stream, groups in GROUPS.items()
            for group in groups
        )

    def faults(self) -> list[str]:
        """Every rule that is violated, for people."""
        faults = []
        for stream, groups in GROUPS.items():
            if not self._promised[stream]:
                faults.append(f"{stream}: no send was answered SEND_OK")
            for group in groups:
                faults += self._faults_of(stream, group)
        if self._disorder:
            faults.append(f"ordered: out of order: {_some(self._disorder)}")
        return faults

    def _faults_of(self, stream: str, group: str) -> list[str]:
        count = self._groups[group]
        limit = int(self._rate * UNCOMMITTED_S) + 64
        faults = [
            f"{group}: {len(found)} {what}: {_some(found)}"
            for what, found in (
                ("lost", self.missing(stream, group)),
                ("consumed that must not be", count.unwanted),
                ("redelivered without a reason", count.unexplained),
            )
            if found
        ]
        if len(count.stored_twice) > STORED_TWICE_PER_KILL * self._master_kills:
            faults.append(
                f"{group}: {len(count.stored_twice)} stored twice: {_some(count.stored_twice)}"
            )
        burst = max(count.bursts.values(), default=0)
        if burst > limit:
            faults.append(f"{group}: {burst} redelivered after one disturbance; {limit} may be")
        return faults

    def table(self) -> list[str]:
        """Markdown."""
        lines = [
            "| stream | sent | SEND_OK | other answers | group | consumed | lost | given back "
            "| redelivered | most at once | unexplained | stored twice | unwanted |",
            "|---|" + "---:|" * 2 + "---|---|" + "---:|" * 8,
        ]
        for stream, groups in GROUPS.items():
            statuses = self._statuses[stream]
            others = ", ".join(
                f"{name} {number}" for name, number in statuses.items() if name != "SEND_OK"
            )
            for group in groups:
                count = self._groups[group]
                cells = [
                    stream,
                    f"{statuses.total():,}",
                    f"{statuses['SEND_OK']:,}",
                    others or "-",
                    group,
                    f"{len(count.done):,}",
                    len(self.missing(stream, group)),
                    count.given_back,
                    count.again,
                    max(count.bursts.values(), default=0),
                    len(count.unexplained),
                    len(count.stored_twice),
                    len(count.unwanted),
                ]
                lines.append("| " + " | ".join(map(str, cells)) + " |")
        return lines


def _some(found: list[str]) -> str:
    return ", ".join(found[:EXAMPLES]) + (" ..." if len(found) > EXAMPLES else "")
