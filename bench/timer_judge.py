"""The judge of `bench/timers.py`: compares what was sent and recalled with what the topic holds."""

from __future__ import annotations

import datetime
import os
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from timer_load import ACKNOWLEDGED, MAYBE_RECALLED, RECALLED, REFUSED, Book, Delivery

HEAD = (
    "| brokers | kills | hand-overs | messages | waiting | lost | twice | early "
    "| recalled, and came | late between faults, ms: p50 / p99 / max | late at worst, s |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)
_CALM_MS = 2000.0
_SHOWN = 12


class Fault(NamedTuple):
    """A kill or a hand-over: from when to when sends were not surely acknowledged, ms."""

    is_kill: bool
    began_ms: float
    ended_ms: float
    words: str

    def has(self, due_ms: int) -> bool:
        """Return whether a message that is due then may be late because of it."""
        return self.began_ms - _CALM_MS <= due_ms <= self.ended_ms + _CALM_MS


@dataclass(frozen=True)
class Verdict:
    """
    What became of all messages.

    :ivar lost: numbers of messages that were acknowledged, not recalled, and are not in the topic.
    :ivar twice: numbers of messages that are in the topic more than once.
    :ivar early: numbers of messages that were stored, or came to the reader, before they were due.
    :ivar undone: numbers of messages that came although their recall was acknowledged.
    """

    kind: str
    row: str
    notes: tuple[str, ...]
    lost: tuple[int, ...]
    twice: tuple[int, ...]
    early: tuple[int, ...]
    undone: tuple[int, ...]

    @property
    def is_broken(self) -> bool:
        """Whether a promise was broken."""
        return bool(self.lost or self.twice or self.early or self.undone)


def judge(
    kind: str, book: Book, found: list[Delivery], faults: list[Fault], waiting: int
) -> Verdict:
    """
    Compare the book of a load with all messages of the topic at the end.

    :param waiting: how many messages waited when the faults began.
    """
    counts = Counter(delivery.number for delivery in found)
    numbers = range(len(book.dues))
    lost = tuple(n for n in numbers if book.fates[n] == ACKNOWLEDGED and not counts[n])
    twice = tuple(sorted(n for n, count in counts.items() if count > 1))
    undone = tuple(n for n in numbers if book.fates[n] == RECALLED and counts[n])
    stored_early = {each.number for each in found if each.stored_ms < book.dues[each.number]}
    came_early = {n for n in numbers if 0 < book.came[n] < book.dues[n]}
    early = tuple(sorted(stored_early | came_early))
    calm, rough = [], [0]
    for n in numbers:
        if not book.came[n] or book.fates[n] == MAYBE_RECALLED:
            continue
        late = book.came[n] - book.dues[n]
        is_calm = not any(fault.has(book.dues[n]) for fault in faults)
        (calm if is_calm else rough).append(late)
    calm.sort()
    late = f"{_at(calm, 0.5)} / {_at(calm, 0.99)} / {_at(calm, 1)}"
    kills = sum(fault.is_kill for fault in faults)
    cells = [
        kind,
        kills,
        len(faults) - kills,
        f"{book.fates.count(ACKNOWLEDGED) + book.fates.count(RECALLED):,}",
        f"{waiting:,}",
        len(lost),
        _doubled(twice, counts),
        len(early),
        f"{len(undone)} of {book.fates.count(RECALLED):,}",
        late,
        f"{max(rough) / 1000:.1f}",
    ]
    notes = [
        f"{kind}: answers {dict(sorted(book.codes.items()))}, "
        f"{book.fates.count(REFUSED)} refused; "
        f"{sum(1 for n in numbers if book.fates[n] == REFUSED and counts[n])} of these are stored",
        *(f"{kind}: {count} times {words}" for words, count in _counted(faults)),
    ]
    for name, items in (("lost", lost), ("twice", twice), ("early", early), ("undone", undone)):
        if items:
            when = _when(items, book, faults)
            notes.append(f"{kind}: {name}, due (ms after the first fault): {when}")
    notes += [f"{kind}: {text}" for text in _second_copies(found, faults)]
    row = f"| {' | '.join(str(cell) for cell in cells)} |"
    return Verdict(kind, row, tuple(notes), lost, twice, early, undone)


def _second_copies(found: list[Delivery], faults: list[Fault]) -> Iterator[str]:
    """Say after which fault, by their store times, the second and later copies came."""
    seen, after = set[int](), Counter[int]()
    for delivery in sorted(found, key=lambda each: each.stored_ms):
        if delivery.number in seen:
            after[sum(fault.began_ms <= delivery.stored_ms for fault in faults)] += 1
        seen.add(delivery.number)
    for number, fault in enumerate(faults, 1):
        if after[number]:
            yield f"{after[number]} copies too many after fault {number}: {fault.words}"


def _doubled(twice: tuple[int, ...], counts: Counter[int]) -> str:
    if not twice:
        return "0"
    more = sum(counts[n] - 1 for n in twice)
    return f"{len(twice)} ({more} copies too many, at most {max(counts[n] for n in twice)} of one)"


def _at(values: list[int], share: float) -> int | str:
    return values[min(len(values) - 1, int(len(values) * share))] if values else "-"


def _counted(faults: list[Fault]) -> list[tuple[str, int]]:
    return Counter(fault.words for fault in faults).most_common()


def _when(items: tuple[int, ...], book: Book, faults: list[Fault]) -> str:
    first = faults[0].began_ms if faults else 0
    shown = [f"{n} at {book.dues[n] - first:.0f}" for n in items[:_SHOWN]]
    return ", ".join(shown) + (", ..." if len(items) > _SHOWN else "")


def machine() -> str:
    """Return a line about this run's machine."""
    return (
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} processors, Python "
        f"{platform.python_version()}, load average at the end {os.getloadavg()[0]:.1f}"
    )
