"""Decides which messages of a queue a pop gets.

Spec: pop.md, sections 3 and 5.
"""

from collections.abc import Callable, Set
from struct import Struct
from typing import NamedTuple

from rmq_ha.base.model.message import GetMessageResult
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.server.pop.face import PopPart, PopQueue, PopWish
from rmq_ha.server.pop.leases import MOST_SPAN, QueueLeases

MOST_OUT = 100_000
"""Most messages of one queue that may be out with a group, whatever the configuration says."""
_QUEUE_OFFSET = Struct(">q")
_QUEUE_OFFSET_AT = 20
_TOO_FAR = MOST_SPAN // 2
_LOOKS = 3

Read = Callable[[int, int], GetMessageResult]
"""Takes a queue offset and a number; returns at most so many messages from there on that the
filter wants."""


class QueueLook(NamedTuple):
    """
    The messages that a pop finds in one queue, and the reason if it finds none.

    :ivar part: the messages to hand out; None if there are none.
    :ivar end: the queue offset behind the last message that was looked at.
    :ivar rest: number of messages from there to the end of the queue.
    :ivar skips: whether only messages were found that the filter does not want, up to `end`.
    :ivar reset_to: the offset at which the group has to go on, because the queue ends before the
        place that the group had reached; None if the group goes on where it is.
    :ivar gone: offsets of messages that are out, but not in the log any more.
    :ivar is_full: whether so many messages of the queue are out that no more may be.
    :ivar is_again: whether the pop repeats the last orderly attempt, and gets its messages.
    """

    part: PopPart | None = None
    end: int = 0
    rest: int = 0
    skips: bool = False
    reset_to: int | None = None
    gone: tuple[int, ...] = ()
    is_full: bool = False
    is_again: bool = False


def look(
    leases: QueueLeases, queue: PopQueue, most: int, read: Read, threshold: int, end: int
) -> QueueLook:
    """
    Look for messages that were never handed out, behind those that are out.

    :param most: most messages to find.
    :param threshold: most messages of the queue that may be out with the group.
    :param end: the queue offset behind the last message of the queue.
    :raises StoreError: the disk refuses.
    """
    start = leases.next
    rest = max(0, end - start)
    if not rest and start <= end:
        return QueueLook(end=start)
    room = min(threshold, MOST_OUT) - leases.out
    if room <= 0 or (leases.out and start - leases.committed > _TOO_FAR):
        return QueueLook(end=start, rest=rest, is_full=True)
    most = min(most, room)
    if most <= 0:
        return QueueLook(end=start, rest=rest)
    begin = start
    # A read may only pass deleted or unwanted messages; then look again behind them, a few times.
    for _ in range(_LOOKS):
        result = read(start, most)
        rest = max(0, result.max_offset - result.next_begin_offset)
        if result.messages:
            offsets = [_offset_of(record) for record in result.messages]
            part = PopPart(queue.topic, queue.queue_id, start, offsets, result.messages, {})
            return QueueLook(part, result.next_begin_offset, rest)
        if result.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY:
            return QueueLook(end=start, reset_to=result.max_offset)
        if result.next_begin_offset <= start:
            break
        start = result.next_begin_offset
        if result.status in (
            GetMessageStatus.NO_MATCHED_MESSAGE,
            GetMessageStatus.MESSAGE_WAS_REMOVING,
        ):
            break
    return QueueLook(end=start, rest=rest, skips=start > begin)


def look_in_order(
    leases: QueueLeases,
    queue: PopQueue,
    wish: PopWish,
    most: int,
    read: Read,
    read_one: Callable[[int], bytes | None],
    visible: Set[int],
    end: int,
) -> QueueLook:
    """
    Look for the next messages of an orderly pop.

    If the client repeats its last attempt, it gets the messages of that attempt. If not, nothing is
    found while a message is out and not visible yet. Then the messages that are out come first.

    :param read_one: returns the record at a queue offset; None if the log lacks it.
    :param visible: offsets of messages that are out, and whose leases have ended.
    :param end: the queue offset behind the last message of the queue.
    :raises StoreError: the disk refuses.
    """
    # First the messages that are out: those of the repeated attempt, or all if each is visible.
    is_again = leases.is_orderly and wish.attempt_id == leases.attempt_id != ""
    held = [(offset, pop_ms) for offset, pop_ms, _ in leases.leases()]
    out = [offset for offset, pop_ms in held if is_again and pop_ms == leases.batch_pop_ms]
    if not out:
        is_again, out = False, [offset for offset, _ in held]
    if not is_again and any(offset not in visible for offset in out):
        return QueueLook(end=leases.next)
    start = leases.committed
    offsets, records, gone = list[int](), list[bytes](), list[int]()
    for offset in out if is_again else out[:most]:
        record = read_one(offset)
        if record is None:
            gone.append(offset)
        else:
            offsets.append(offset)
            records.append(record)
    # Then messages that were never handed out, unless an attempt is repeated.
    seen = QueueLook(end=leases.next, rest=max(0, end - leases.next))
    if not is_again and len(out) <= len(offsets) + len(gone) and most > len(offsets):
        seen = look(leases, queue, most - len(offsets), read, MOST_OUT, end)
    if seen.part is not None:
        offsets += seen.part.offsets
        records += seen.part.records
    if not offsets:
        return seen._replace(gone=tuple(gone))
    counts = {
        offset: count for offset in offsets if (count := _count_of(leases, offset, is_again)) > 0
    }
    part = PopPart(queue.topic, queue.queue_id, start, offsets, records, counts)
    return QueueLook(
        part, max(seen.end, leases.next), seen.rest, gone=tuple(gone), is_again=is_again
    )


def _count_of(leases: QueueLeases, offset: int, is_again: bool) -> int:
    """Return how often a message was handed out before; repeated attempts do not count."""
    count = leases.counts.get(offset, 0)
    return count if is_again or leases.lease(offset) is None else count + 1


def _offset_of(record: bytes) -> int:
    number: int = _QUEUE_OFFSET.unpack_from(record, _QUEUE_OFFSET_AT)[0]
    return number
