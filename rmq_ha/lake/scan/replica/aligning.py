"""
Aligns two logs whose records no longer stand in the same places, and finds lost, doubled and moved
records.

Records are identified by their content without the offsets in them. So a log from which a record
was removed can be aligned with the log that still has it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

LOOK_AHEAD = 256
"""How many records are searched first for a place from which both logs continue alike."""
_FARTHEST = 1 << 16
"""How many records are searched at most for such a place."""
_IN_STEP = 16
"""How many equal records in equal places show that both logs are in step again."""
_SURE = 2
"""How many equal records in a row are no coincidence."""


class Item(NamedTuple):
    """A record of one log, as it is compared; `identity` is a hash of its content."""

    offset: int
    size: int
    identity: bytes


class Change(StrEnum):
    """A kind of difference between the logs. The value is the code of its finding."""

    LOST = "RECORD_LOST"
    EXTRA = "RECORD_EXTRA"
    DUPLICATED = "RECORD_DUPLICATED"
    MOVED = "RECORD_MOVED"
    CHANGED = "LOG_DIFFERS"


class Step(NamedTuple):
    """
    One difference between the logs.

    :ivar master: the master's record; for `DUPLICATED` the record that was doubled; None for
        `EXTRA`.
    """

    change: Change
    master: Item | None
    slave: Item | None


class Alignment(NamedTuple):
    """
    The result of aligning two logs.

    :ivar end: physical offset of the master up to which they were aligned.
    :ivar in_step: whether from there on records stand in the same places again.
    """

    steps: list[Step]
    end: int
    in_step: bool
    complete: bool


def identity_of(record: bytes | memoryview) -> bytes:
    """Return a hash of a record's bytes without its queue offset and physical offset."""
    view = memoryview(record)
    digest = blake2b(view[:20], digest_size=16)
    digest.update(view[36:])
    return digest.digest()


def align(
    master: Iterator[Item],
    slave: Iterator[Item],
    most: int,
    past: Iterable[Item] = (),
    *,
    is_last: bool = True,
) -> Alignment:
    """
    Align two logs, from shortly before the place where they begin to differ.

    :param past: the master's records before that place, to recognise doubled ones.
    :param is_last: the logs end with these records. Records that only one log has at its end are
        then no change, because the other log ends there.
    """
    return _Aligning(master, slave, most, past, is_last).run()


class _Aligning:
    """Walks along both logs, 0 the master's and 1 the slave's, and reads ahead on each."""

    def __init__(
        self,
        master: Iterator[Item],
        slave: Iterator[Item],
        most: int,
        past: Iterable[Item],
        is_last: bool,
    ) -> None:
        self._sources = (master, slave)
        self._is_last = is_last
        self._ahead: tuple[deque[Item], deque[Item]] = (deque(), deque())
        self._most = most
        self._past: dict[bytes, Item] = {}
        self._steps: list[Step] = []
        self._end = 0
        for item in past:
            self._pass(item)

    def run(self) -> Alignment:
        """Align until both logs are in step, one ends, or the limit of changes is reached."""
        equal = 0
        while True:
            left, right = self._fill(0, 1), self._fill(1, 1)
            if not (left and right) and (self._is_last or not (left or right)):
                return self._result(False)
            if left and right and left[0].identity == right[0].identity:
                master, slave = left[0], right[0]
                self._pass(left.popleft())
                right.popleft()
                equal = equal + 1 if master.offset == slave.offset else 0
                if equal >= _IN_STEP and self._steps:
                    return self._result(True)
                continue
            equal = 0
            if len(self._steps) >= self._most:
                return self._result(False, complete=False)
            self._part()

    def _fill(self, side: int, count: int) -> deque[Item]:
        """Read ahead on a side until `count` records wait or it ends; return all that wait."""
        ahead = self._ahead[side]
        if len(ahead) < count:
            ahead.extend(islice(self._sources[side], count - len(ahead)))
        return ahead

    def _pass(self, item: Item) -> None:
        """Note a master's record, so that a later copy counts as doubled; forget old ones."""
        self._past[item.identity] = item
        if len(self._past) > 2 * LOOK_AHEAD:
            for identity in list(islice(self._past, LOOK_AHEAD)):
                del self._past[identity]
        self._end = item.offset + item.size

    def _part(self) -> None:
        """Find where both logs continue alike, and note the changes before that."""
        count, common = LOOK_AHEAD, None
        while common is None and count <= _FARTHEST:
            left, right = self._fill(0, count), self._fill(1, count)
            common = _next_common(list(left), list(right))
            count = count * 16 if max(len(left), len(right)) == count else _FARTHEST + 1
        skipped, extra = common or (min(LOOK_AHEAD, len(left)), min(LOOK_AHEAD, len(right)))
        lost = [left.popleft() for _ in range(skipped)]
        new = [right.popleft() for _ in range(extra)]
        self._explain(lost, new)
        for item in lost:
            self._pass(item)

    def _explain(self, lost: list[Item], new: list[Item]) -> None:
        """Note the changes at one place, by the records of master and slave there."""
        arrived = {item.identity: item for item in new}
        left = {item.identity for item in lost}
        for item in lost:
            if item.identity in arrived:
                self._add(Change.MOVED, item, arrived[item.identity])
        gone = [item for item in lost if item.identity not in arrived]
        come = [item for item in new if item.identity not in left]
        if len(gone) == len(come):  # as many on both sides: records were changed in place
            for master, slave in zip(gone, come, strict=True):
                self._add(Change.CHANGED, master, slave)
            return
        for item in gone:
            self._add(Change.LOST, item, None)
        for item in come:
            self._add_new(item)

    def _add(self, change: Change, master: Item | None, slave: Item | None) -> None:
        self._steps.append(Step(change, master, slave))

    def _add_new(self, item: Item) -> None:
        """Note a record that only the slave has: doubled if the master had it before."""
        original = self._past.get(item.identity)
        if original is None:
            self._add(Change.EXTRA, None, item)
        else:
            self._add(Change.DUPLICATED, original, item)

    def _result(self, in_step: bool, complete: bool = True) -> Alignment:
        return Alignment(_find_moves(self._steps), self._end, in_step, complete)


def _next_common(left: Sequence[Item], right: Sequence[Item]) -> tuple[int, int] | None:
    """
    Return how many records of each log come before the next place from which both continue alike.

    Of several places the one is chosen before which the fewest records lie. None: there is no
    place.
    """
    places: dict[bytes, int] = {}
    for number, item in enumerate(right):
        places.setdefault(item.identity, number)
    best: tuple[int, int] | None = None
    for number, item in enumerate(left):
        if best is not None and number >= sum(best):
            break
        place = places.get(item.identity)
        if place is None or (best is not None and number + place >= sum(best)):
            continue
        if _go_on(left, number, right, place):
            best = number, place
    return best


def _go_on(left: Sequence[Item], at: int, right: Sequence[Item], other: int) -> bool:
    """Return whether the next `_SURE` records, or all up to an end, are equal."""
    pairs = zip(left[at : at + _SURE], right[other : other + _SURE], strict=False)
    return all(a.identity == b.identity for a, b in pairs)


def _find_moves(steps: list[Step]) -> list[Step]:
    """Turn pairs of a lost and a new record with equal content into moved records."""
    lost = {
        step.master.identity: step
        for step in steps
        if step.change is Change.LOST and step.master is not None
    }
    with_moves: list[Step] = []
    gone: set[bytes] = set()
    for step in steps:
        slave = step.slave
        if step.change in (Change.EXTRA, Change.DUPLICATED) and slave is not None:
            source = lost.get(slave.identity)
            if source is not None and slave.identity not in gone:
                gone.add(slave.identity)
                with_moves.append(Step(Change.MOVED, source.master, slave))
                continue
        with_moves.append(step)
    return [
        step
        for step in with_moves
        if not (
            step.change is Change.LOST and step.master is not None and step.master.identity in gone
        )
    ]
