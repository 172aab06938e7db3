"""The judge of `bench/pops.py`: compares what consumers saw with the promises of pops.

Spec: pop.md, section 14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pop_load import Delivery, PopBook
from timer_judge import Fault

HEAD = (
    "| brokers | kills | hand-overs | messages | handed out | out at a fault | lost "
    "| acknowledged, and again | early | late between faults, ms: p50 / p99 / max "
    "| later than promised, of those due | in the DLQ |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)
GRACE_MS = 3000
"""`popFailoverGrace`: so much longer a lease lasts for each new master."""
_PROMISED_MS = 2000
_CLOCK_MS = 5
_SHOWN = 8


@dataclass(frozen=True)
class PopVerdict:
    """
    What became of all messages.

    :ivar lost: messages whose send was acknowledged, but that no acknowledgement can have ended.
    :ivar again: messages that were handed out after an acknowledgement in time was confirmed.
    :ivar early: messages that were handed out before the lease before had ended.
    """

    kind: str
    row: str
    notes: tuple[str, ...]
    lost: tuple[int, ...]
    again: tuple[int, ...]
    early: tuple[int, ...]

    @property
    def is_broken(self) -> bool:
        """Whether a promise was broken. A busy machine is late, too, so lateness does not count."""
        return bool(self.lost or self.again or self.early)


def judge(
    kind: str, book: PopBook, faults: list[Fault], out: list[int], dead: set[int]
) -> PopVerdict:
    """
    Compare what the consumers saw with what is promised.

    :param out: how many messages were out at each fault.
    :param dead: numbers of the messages in the DLQ.
    """
    again, early = list[int](), set[int]()
    calm, over = [], []
    due = 0
    for number, items in book.deliveries.items():
        items = sorted(items, key=lambda item: item.popped)
        acked = min((item.acked for item in items if 0 < item.acked < item.due), default=0)
        if acked and any(item.popped > acked for item in items):
            again.append(number)
        for before, item in pairwise(items):
            if item.popped < before.due - _CLOCK_MS and before.is_sure:
                early.add(number)
            is_next = before.is_sure and item.reconsumed == before.reconsumed + 1
            if not is_next or (acked and item.popped > acked):
                continue
            due += 1
            late, is_calm = _lateness(before, item, faults)
            if is_calm:
                calm.append(late)
            elif late > _PROMISED_MS:
                over.append(late)
    over += [late for late in calm if late > _PROMISED_MS]
    lost = sorted(
        number
        for number in book.kept - dead
        if not any(item.acked or item.asks for item in book.deliveries.get(number, ()))
    )
    calm.sort()
    kills = sum(fault.is_kill for fault in faults)
    cells = [
        kind,
        kills,
        len(faults) - kills,
        f"{len(book.kept):,}",
        f"{sum(map(len, book.deliveries.values())):,}",
        f"{min(out, default=0):,} to {max(out, default=0):,}",
        len(lost),
        len(again),
        len(early),
        f"{_at(calm, 0.5)} / {_at(calm, 0.99)} / {_at(calm, 1)}",
        f"{len(over)} of {due:,}" + (f", at most {max(over) / 1000:.1f} s" if over else ""),
        len(dead),
    ]
    notes = [f"{kind}: answers {dict(sorted(book.codes.items()))}"]
    notes += [
        f"{kind}: {count} times {words}"
        for words, count in Counter(fault.words for fault in faults).most_common()
    ]
    notes += [f"{kind}: {text}" for text in _second_leases(book, again, faults)]
    for name, numbers in (("lost", lost), ("again", again), ("early", sorted(early))):
        for number in numbers[:_SHOWN]:
            story = _story(book.deliveries.get(number, []), faults)
            notes.append(f"{kind}: {name}: {number}: {story}")
    row = f"| {' | '.join(map(str, cells))} |"
    return PopVerdict(kind, row, tuple(notes), tuple(lost), tuple(again), tuple(sorted(early)))


def _lateness(before: Delivery, item: Delivery, faults: list[Fault]) -> tuple[int, bool]:
    """
    Return how late a message came again, ms, and whether no fault had to do with it.

    What a lease lived through makes it longer; and what is due while no broker serves is late.
    """
    allowed, is_calm = before.due, True
    for fault in faults:
        if before.popped <= fault.ended_ms and fault.began_ms <= allowed + _PROMISED_MS:
            is_calm = False
            allowed = max(allowed + GRACE_MS, int(fault.ended_ms) + GRACE_MS)
    return item.popped - (before.due if is_calm else allowed), is_calm


def _second_leases(book: PopBook, again: list[int], faults: list[Fault]) -> Iterator[str]:
    """Say after which fault messages came that were acknowledged before."""
    after = Counter[int]()
    for number in again:
        items = book.deliveries[number]
        acked = min(item.acked for item in items if 0 < item.acked < item.due)
        first = min(item.popped for item in items if item.popped > acked)
        after[sum(fault.began_ms <= first for fault in faults)] += 1
    for number, count in sorted(after.items()):
        words = faults[number - 1].words if number else "no fault"
        yield f"{count} acknowledged messages came after fault {number}: {words}"


def _story(items: list[Delivery], faults: list[Fault]) -> str:
    """Return what happened to a message, in ms since the first fault."""
    first = faults[0].began_ms if faults else 0
    return "; ".join(
        f"{item.receipt.kind} {item.receipt.queue_id} {item.receipt.offset} popped "
        f"{item.popped - first:.0f} due {item.due - first:.0f} "
        + (f"acked {item.acked - first:.0f}" if item.acked else f"asked {item.asks}")
        + ("" if item.is_sure else " unsure")
        for item in sorted(items, key=lambda item: item.popped)
    )


def _at(values: list[int], share: float) -> int | str:
    return values[min(len(values) - 1, int(len(values) * share))] if values else "-"
