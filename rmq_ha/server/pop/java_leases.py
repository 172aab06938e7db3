"""Turns what RocketMQ 5.3.3 recorded of its pops into leases of the POP journal.

Spec: pop.md, sections 4, 5 and 13.6.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from rmq_ha.base.errors import StoreError
from rmq_ha.server.pop.entries import ImageEntry, ImageRun
from rmq_ha.server.pop.java_records import JavaAck, JavaCheckpoint, JavaOrder, JavaQueue
from rmq_ha.server.pop.leases import MOST_SPAN, QueueLeases

_MOST_GAP = 1000
_MOST_RUNS = 200_000
"""A journal record with the image of one queue has to be smaller than a message may be."""
_NAME_OF_GAPS = 1


class JavaPopsRefusal(StoreError):
    """The store has pops of a Java broker that this broker cannot take over."""


class JavaLease(NamedTuple):
    """
    The last time that a message was handed out.

    :ivar due_ms: when the message comes again; 0 if it is acknowledged.
    """

    pop_ms: int
    due_ms: int


class JavaHeld(NamedTuple):
    """
    What a group holds of a queue.

    :ivar leases: by queue offset. Messages whose pops RocketMQ has settled are not in it.
    :ivar spans: the parts of the queue that were handed out, as first offset and the offset behind
        the last one; ascending, and not adjacent.
    :ivar order: the last orderly pop; None without one.
    """

    leases: dict[int, JavaLease]
    spans: list[tuple[int, int]]
    order: JavaOrder | None = None


class JavaPops:
    """Collects checkpoints, acknowledgements and orderly pops in any order, and joins them."""

    def __init__(self) -> None:
        self._checkpoints: dict[JavaQueue, list[JavaCheckpoint]] = {}
        self._acks: dict[JavaQueue, set[tuple[int, int, int]]] = {}
        self._orders: dict[JavaQueue, JavaOrder] = {}

    def add(self, record: JavaCheckpoint | JavaAck | JavaOrder) -> None:
        """Take a record; one that was taken before changes nothing."""
        if isinstance(record, JavaCheckpoint):
            self._checkpoints.setdefault(record.queue, []).append(record)
        elif isinstance(record, JavaAck):
            acks = self._acks.setdefault(record.queue, set())
            acks.update((record.pop_ms, record.start, offset) for offset in record.offsets)
        else:
            self._orders[record.queue] = record

    @property
    def queues(self) -> list[JavaQueue]:
        """The queues of which something was handed out, in order."""
        return sorted({*self._checkpoints, *self._orders})

    def held(self, queue: JavaQueue) -> JavaHeld:
        """
        Join the records of one queue.

        An acknowledgement belongs to the checkpoint with its time and its start offset. If a
        message was handed out several times, or its invisible time was changed, the last one
        counts.
        """
        leases: dict[int, JavaLease] = {}
        spans: list[tuple[int, int]] = []
        acks = self._acks.get(queue, set())
        late = {(pop_ms, offset) for pop_ms, _, offset in acks}
        for record in sorted(self._checkpoints.get(queue, ()), key=lambda item: item.pop_ms):
            pop_ms, start = record.pop_ms, record.start
            spans.append((start, 1 + max(record.offsets, default=start - 1)))
            for offset in record.offsets:
                is_acked = offset in record.acked or (pop_ms, start, offset) in acks
                is_acked = is_acked or (record.is_again and (pop_ms, offset) in late)
                due_ms = 0 if is_acked else max(1, record.due_ms)
                known = leases.get(offset)
                if known is not None and known.pop_ms == pop_ms:
                    due_ms = max(due_ms, known.due_ms) if due_ms and known.due_ms else 0
                leases[offset] = JavaLease(pop_ms, due_ms)
        order = self._orders.get(queue)
        if order is not None:
            spans.append((order.start, order.end))
            for offset, due_ms in zip(order.offsets, order.dues, strict=True):
                known = leases.get(offset)
                if known is None or known.pop_ms <= order.pop_ms:
                    leases[offset] = JavaLease(order.pop_ms, max(1, due_ms))
        return JavaHeld(leases, list(_merge_spans(spans)), order)

    def __len__(self) -> int:
        """Return the number of messages that are not acknowledged."""
        return sum(
            1 for queue in self.queues for lease in self.held(queue).leases.values() if lease.due_ms
        )


def _merge_spans(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    begin = end = -1
    for first, last in sorted(spans):
        if first > end:
            if begin < end:
                yield begin, end
            begin = first
        end = max(end, last)
    if begin < end:
        yield begin, end


def image_of_java(
    name: int,
    queue: JavaQueue,
    held: JavaHeld,
    offset: int,
    before: QueueLeases | None,
    least_pop_ms: int,
    now_ms: int,
) -> ImageEntry:
    """
    Return the entry that gives a queue the leases of a Java broker.

    Messages below the group's offset were handed out. So were those of the checkpoints: the offset
    is written every 5 s only, so after a crash it is too low. A pop passes messages that its filter
    does not want without a checkpoint. If the passed part may be such a part, because it is short,
    its messages come again at once. A longer one is that of a reset: the group goes on before it.

    :param offset: the group's offset; -1 if it has none.
    :param before: the leases of the queue as this broker knew them before; None without any. They
        count from the place on that the Java broker had not reached.
    :param least_pop_ms: new leases get greater names than this one.
    :raises JavaPopsRefusal: so many messages are out that no record of the journal can have them.
    """
    least_pop_ms = max(least_pop_ms, 0 if before is None else before.last_pop_ms)
    if before is not None and offset < before.committed:
        before = None
    if offset < 0:
        offset = held.spans[0][0] if held.spans else 0
    end = offset
    gaps: set[int] = set()
    for first, last in held.spans:
        if first > end + _MOST_GAP:
            break
        gaps.update(range(end, first))
        end = max(end, last)
    if before is not None:
        end = max(end, before.next)
        gaps = {gap for gap in gaps if gap >= before.next}
    out: dict[int, tuple[int, int]] = dict.fromkeys(gaps, (_NAME_OF_GAPS, now_ms))
    if before is not None:
        out.update({at: (pop_ms, due) for at, pop_ms, due in before.leases(offset)})
    for at, lease in held.leases.items():
        if at < end:
            out.pop(at, None)
            if lease.due_ms:
                out[at] = lease
    committed = min([offset, *out])
    runs = _runs(queue, committed, end, out)
    order = held.order
    is_orderly = order is not None and any(at in out for at in order.offsets)
    last_pop_ms = max([least_pop_ms, *(lease.pop_ms for lease in held.leases.values())])
    return ImageEntry(
        name,
        queue.queue_id,
        queue.group,
        queue.topic,
        committed,
        last_pop_ms,
        is_orderly,
        order.pop_ms if order is not None and is_orderly else 0,
        order.attempt_id if order is not None and is_orderly else "",
        (),
        {at: n for at, n in order.counts.items() if at in out} if order and is_orderly else {},
        (),
        committed,
        runs,
    )


def _runs(
    queue: JavaQueue, committed: int, end: int, out: dict[int, tuple[int, int]]
) -> list[ImageRun]:
    most = end - committed
    runs: list[ImageRun] = []
    if most <= MOST_SPAN:
        places = (out.get(at, (0, 0)) for at in range(committed, end))
        runs = [ImageRun(sum(1 for _ in same), *lease) for lease, same in groupby(places)]
    if most > MOST_SPAN or len(runs) > _MOST_RUNS:
        raise JavaPopsRefusal(
            f"too many messages of queue {queue.queue_id} of {queue.topic} are out with "
            f"{queue.group} to be taken over. Let the Java broker open the store again, until its "
            "consumers have acknowledged the messages"
        )
    return runs
