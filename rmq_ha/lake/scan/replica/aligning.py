"""
Two logs whose records no longer stand in the same places: which are lost, doubled, or moved.

Records are known by their content without the places that they say they are at, so that a log
from which one was taken out can be laid beside the one that still has it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

LOOK_AHEAD = 256
"""Records that are looked at first for a place from which both logs go on alike."""
_FARTHEST = 1 << 16
"""Records after which there is none."""
_IN_STEP = 16
"""Equal records in equal places after which both logs are in step again."""
_SURE = 2
"""Equal records in a row that are no chance."""


class Item(NamedTuple):
    """
    A record of one log.

    :ivar identity: of its content.
    """

    offset: int
    size: int
    identity: bytes


class Change(StrEnum):
    """What became of records of the master."""

    LOST = "RECORD_LOST"
    EXTRA = "RECORD_EXTRA"
    DUPLICATED = "RECORD_DUPLICATED"
    MOVED = "RECORD_MOVED"
    CHANGED = "LOG_DIFFERS"


class Step(NamedTuple):
    """
    One of them.

    :ivar master: its record there; of `DUPLICATED` the one that was doubled; None for `EXTRA`.
    :ivar slave: None for `LOST`.
    """

    change: Change
    master: Item | None
    slave: Item | None


class Alignment(NamedTuple):
    """
    The result of laying two logs beside each other.

    :ivar end: physical offset of the master up to which they were.
    :ivar in_step: from there on records stand in the same places again.
    :ivar complete: False: there were more changes than wanted.
    """

    steps: list[Step]
    end: int
    in_step: bool
    complete: bool


def identity_of(record: bytes | memoryview) -> bytes:
    """Of a record's bytes, whatever queue offset and physical offset they say."""
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
    Lay two logs beside each other, from shortly before the place where they begin to differ.

    :param most: changes after which it ends.
    :param past: what the master has before that, to know what was doubled.
    :param is_last: what only one log has at its end is no change: the other one ends there.
    """
    return _Aligning(master, slave, most, past, is_last).run()


class _Aligning:
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
        """Until both logs are in step, one ends, or there are enough changes."""
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
        ahead = self._ahead[side]
        if len(ahead) < count:
            ahead.extend(islice(self._sources[side], count - len(ahead)))
        return ahead

    def _pass(self, item: Item) -> None:
        self._past[item.identity] = item
        if len(self._past) > 2 * LOOK_AHEAD:
            for identity in list(islice(self._past, LOOK_AHEAD)):
                del self._past[identity]
        self._end = item.offset + item.size

    def _part(self) -> None:
        """Find where both go on alike, and say what is between."""
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
        arrived = {item.identity: item for item in new}
        left = {item.identity for item in lost}
        for item in lost:
            if item.identity in arrived:
                self._add(Change.MOVED, item, arrived[item.identity])
        gone = [item for item in lost if item.identity not in arrived]
        come = [item for item in new if item.identity not in left]
        if len(gone) == len(come):  # as many on both sides: they were changed where they stood
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
        original = self._past.get(item.identity)
        if original is None:
            self._add(Change.EXTRA, None, item)
        else:
            self._add(Change.DUPLICATED, original, item)

    def _result(self, in_step: bool, complete: bool = True) -> Alignment:
        return Alignment(_moved(self._steps), self._end, in_step, complete)


def _next_common(left: Sequence[Item], right: Sequence[Item]) -> tuple[int, int] | None:
    """How many of each are before the next place from which both go on alike."""
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
    pairs = zip(left[at : at + _SURE], right[other : other + _SURE], strict=False)
    return all(a.identity == b.identity for a, b in pairs)


def _moved(steps: list[Step]) -> list[Step]:
    """A record that is lost in one place and new in another one has moved."""
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
