"""
Compares the queues of a converted store with those of the DLedger member that it was made from.

Spec: store.md, sections 3.1 to 3.6.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.ops.offline.conversion import ConversionState
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.queues import LogBounds, OfflineQueue

QueueKey = tuple[str, int]
_AT_ONCE = 1 << 16
_SIZE, _TAGS = range(8, 12), range(12, 20)
"""Bytes of a unit. Before them is the physical offset, which a conversion changes."""


class QueueDifferences(NamedTuple):
    """
    The queues that have to be changed.

    :ivar ends: queues of which the log has no message any more, and their ends.
    :ivar wrong: queues that differ, and the physical offset in the member's log of their first
        message; None: the member has no such queue, because its topic was deleted.
    """

    ends: dict[QueueKey, int]
    wrong: dict[QueueKey, int | None]


def compare_queues(
    source: StoreFiles, target: StoreFiles, state: ConversionState, low: int, *, with_tags: bool
) -> QueueDifferences:
    """
    Compare all queues, from where the last run compared them on, and note how far they are equal.

    The member's queues may lack the newest messages, since it dispatches later than it appends.

    :param low: physical offset where the member's log begins.
    :param with_tags: compare the hash codes of tags, too.
    """
    of_source = LogBounds(low, state.source_end)
    of_target = LogBounds(state.begin, state.end)
    known, made = set(source.topics_on_disk()), set(target.topics_on_disk())
    differences = QueueDifferences({}, {})
    columns = [*_SIZE, *(_TAGS if with_tags else ())]
    reached = -1
    for key in sorted(known):
        theirs = source.queue_within(*key, of_source)
        last = theirs.unit(theirs.max_offset - 1)
        if last is not None:
            reached = max(reached, last[0] + last[1])
        if theirs.min_offset >= theirs.max_offset:
            if theirs.max_offset and (
                key not in made
                or target.queue_within(*key, of_target).max_offset < theirs.max_offset
            ):
                differences.ends[key] = theirs.max_offset
            continue
        ours = target.queue_within(*key, of_target)
        name = f"{key[0]}@{key[1]}"
        if _is_equal(theirs, ours, state.compared.get(name, 0), columns):
            state.compared[name] = min(theirs.max_offset, ours.max_offset)
        else:
            first = theirs.unit(theirs.min_offset)
            differences.wrong[key] = None if first is None else first[0]
    if reached >= state.source_end:  # all that was converted is in the member's queues
        for key in sorted(made - known):
            if target.queue_within(*key, of_target).max_offset:
                differences.wrong[key] = None
    return differences


def _is_equal(theirs: OfflineQueue, ours: OfflineQueue, start: int, columns: list[int]) -> bool:
    """
    Return whether two queues have the same messages from `start` on, as far as both reach.
    """
    if ours.max_offset < theirs.max_offset:
        return False
    low = max(start, theirs.min_offset)
    if ours.min_offset > low:
        return False
    return all(
        their_units[column::UNIT_SIZE] == our_units[column::UNIT_SIZE]
        for their_units, our_units in _chunks(theirs, ours, low, theirs.max_offset)
        for column in columns
    )


def _chunks(
    theirs: OfflineQueue, ours: OfflineQueue, low: int, high: int
) -> Iterator[tuple[bytes, bytes]]:
    for at in range(low, high, _AT_ONCE):
        stop = min(at + _AT_ONCE, high)
        yield theirs.data(at, stop), ours.data(at, stop)
