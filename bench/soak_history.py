"""What the clients of a soak were told and got, and what must be true of it at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

STREAMS = ("normal", "delayed", "txn")
BACK_S = 20.0
"""What a group committed in this time before a fail-over may be unknown to the other member."""
EXAMPLES = 4

Stored = tuple[int, int, str]
"""Queue id, queue offset and id of a message that can be read."""


class History:
    """
    Collects lines of `soak_load.py`; may be called from several threads, a line each.

    :ivar accepted: id to place in the log of what was answered SEND_OK.
    :ivar excused: accepted, and lost as the documentation says that it may be.
    :ivar skipped: stored at queue offsets where consumers had read another message before, in a
        tail that was lost: they do not look again, with RocketMQ neither.
    """

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.accepted: dict[str, int] = {}
        self.excused: set[str] = set()
        self.skipped: set[str] = set()
        self._read: dict[tuple[str, int, int], tuple[float, str]] = {}
        self._lost_tails: list[tuple[float, float]] = []
        self.consumed: dict[str, Counter[str]] = {stream: Counter() for stream in STREAMS}
        self.events: Counter[str] = Counter()

    def take(self, words: Sequence[str], now: float = 0.0) -> None:
        """
        One line, cut at its tabs.

        :param now: seconds, of the clock of `tail_was_lost`.
        """
        kind, *rest = words
        if kind == "A":
            self.attempts[rest[0]] += 1
        elif kind == "S":
            self.statuses[f"{rest[0].partition('-')[0]} {rest[1]}"] += 1
            if rest[1] == "SEND_OK":
                self.accepted[rest[0]] = int(rest[3])
        elif kind == "R":
            stream, id_, reconsumed, queue_id, offset = rest
            self.consumed[stream][id_] += 1
            if reconsumed == "0":
                self._read.setdefault((stream, int(queue_id), int(offset)), (now, id_))
        elif kind == "E":
            self.events[rest[0]] += 1

    def excuse_from(self, place: int) -> int:
        """A machine died that had not synced its log from here on, and goes on without it."""
        lost = {id_ for id_, where in list(self.accepted.items()) if where >= place}
        self.excused |= lost
        return len(lost)

    def tail_was_lost(self, began: float, ended: float) -> None:
        """What consumers read in this time may have been in a tail that is gone with its master."""
        self._lost_tails.append((began, ended))

    def look_for_skipped(self, stream: str, stored: Iterable[Stored]) -> None:
        """Which of the stored ones have an offset at which another one was read in such a tail."""
        for queue_id, offset, id_ in stored:
            when, was = self._read.get((stream, queue_id, offset), (0.0, id_))
            if was != id_ and any(began <= when <= ended for began, ended in self._lost_tails):
                self.skipped.add(id_)

    def must_be_there(self, stream: str) -> set[str]:
        """What was promised to consumers."""
        return {
            id_
            for id_ in list(self.accepted)
            if id_.startswith(stream) and not id_.endswith("rollback") and id_ not in self.excused
        }

    # ------------------------------------------------------------ verdicts

    def faults_of_store(self, stream: str, stored: Iterable[Stored], where: str) -> list[str]:
        """Lost, doubled, or offsets with holes, in what one member has of a stream."""
        stored = list(stored)
        counts = Counter(id_ for _, _, id_ in stored)
        faults = []
        lost = sorted(self.must_be_there(stream) - counts.keys())
        if lost:
            faults.append(f"{where}: {len(lost)} SEND_OK of {stream} are lost: {some(lost)}")
        most = (
            (lambda id_: 0 if id_.endswith("rollback") else 1)
            if stream == "txn"
            else (lambda id_: self.attempts[id_])
        )
        many = sorted(id_ for id_, count in counts.items() if count > most(id_))
        if many:
            what = "stored more often than sent" if stream != "txn" else "not ended exactly once"
            faults.append(f"{where}: {len(many)} of {stream} are {what}: {some(many)}")
        offsets: dict[int, list[int]] = defaultdict(list)
        for queue_id, offset, _ in stored:
            offsets[queue_id].append(offset)
        for queue_id, found in offsets.items():
            if found != list(range(found[0], found[0] + len(found))):
                faults.append(f"{where}: queue {queue_id} of {stream} has holes or repeats")
        return faults

    def faults_of_groups(self) -> list[str]:
        """What no consumer ever got."""
        faults = []
        for stream in STREAMS:
            promised = self.must_be_there(stream) - self.skipped
            missed = sorted(promised - self.consumed[stream].keys())
            if missed:
                faults.append(f"{len(missed)} SEND_OK of {stream} never consumed: {some(missed)}")
        unwanted = [id_ for id_ in self.consumed["txn"] if id_.endswith("rollback")]
        if unwanted:
            faults.append(f"{len(unwanted)} rolled back were consumed: {some(unwanted)}")
        return faults

    def table(self) -> list[str]:
        """Numbers of each stream."""
        lines = [
            "| stream | attempts | SEND_OK | excused | passed | other answers | consumed | again |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for stream in STREAMS:
            ok = [id_ for id_ in self.accepted if id_.startswith(stream)]
            others = ", ".join(
                f"{count} {name.partition(' ')[2]}"
                for name, count in sorted(self.statuses.items())
                if name.startswith(stream) and not name.endswith("SEND_OK")
            )
            tries = sum(count for id_, count in self.attempts.items() if id_.startswith(stream))
            consumed = self.consumed[stream]
            again = sum(consumed.values()) - len(consumed)
            excused = len([id_ for id_ in ok if id_ in self.excused])
            passed = len(self.skipped.intersection(ok) - self.consumed[stream].keys())
            lines.append(
                f"| {stream} | {tries} | {len(ok)} | {excused} | {passed} | {others or '-'} | "
                f"{len(consumed)} | {again} |"
            )
        return lines


class Progress:
    """What groups have committed, as the master of the day says."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        self.faults: list[str] = []

    def note(self, now: float, group: str, queue_id: int, offset: int) -> None:
        """
        Back by more than what came in the seconds before it was last seen is a fault, told once.

        What it went back from without fault is forgotten: the next look has nothing to add to it.
        """
        known = self._known[group, queue_id]
        before = known[-1][0] - BACK_S if known else now
        old = max((value for when, value in known if when < before), default=-1)
        if offset < old:
            self.faults.append(f"{group} went back in queue {queue_id} from {old} to {offset}")
        known[:] = [(when, value) for when, value in known[-600:] if value <= offset]
        known.append((now, offset))

    def forget(self) -> None:
        """A master lost the end of its log: groups may have to go back."""
        self._known.clear()


def some(ids: Sequence[str]) -> str:
    """A few of them."""
    more = ", ..." if len(ids) > EXAMPLES else ""
    return ", ".join(ids[:EXAMPLES]) + more
