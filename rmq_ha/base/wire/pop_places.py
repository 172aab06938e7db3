"""Texts in the answer to a pop: which messages of which queues it has, and how often each came.

==================  ==================================================  ====================
field               entries, divided by `;`                             example
==================  ==================================================  ====================
startOffsetInfo     kind, queue, first offset                           0 1 0;0 0 0
msgOffsetInfo       kind, queue, offsets divided by `,`                 0 1 0,1,2;0 0 0,1,2
orderCountInfo      kind, `qo` queue `%` offset, count; and             0 qo0%2 2;0 0 1
                    kind, queue, least count
==================  ==================================================  ====================

Items of an entry are divided by a blank. "Kind" is a number of `TopicKind`, "count" is how often an
orderly pop handed the message out before. Spec: pop.md, section 2.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rmq_ha.base.errors import ProtocolViolation

QueueKey = tuple[int, int]
"""Kind of the topic and queue id, which together occur once in an answer."""


class PoppedOffsets(NamedTuple):
    """
    The messages of one queue in the answer to a pop.

    :ivar kind: a `TopicKind`.
    :ivar start: queue offset of the first message that was looked at; receipts name it.
    :ivar offsets: queue offsets of the messages, ascending.
    :ivar counts: for an orderly pop, how often each message was handed out before, in the order of
        `offsets`; empty for other pops.
    """

    kind: int
    queue_id: int
    start: int
    offsets: Sequence[int]
    counts: Sequence[int] = ()


def start_offset_info(queues: Iterable[PoppedOffsets]) -> str:
    return ";".join([f"{kind:d} {queue_id} {start}" for kind, queue_id, start, *_ in queues])


def msg_offset_info(queues: Iterable[PoppedOffsets]) -> str:
    return ";".join(
        [
            f"{kind:d} {queue_id} {','.join(map(str, offsets))}"
            for kind, queue_id, _, offsets, _ in queues
        ]
    )


def order_count_info(queues: Iterable[PoppedOffsets]) -> str:
    """
    Return the counts of an orderly pop. A message that was never handed out before has no entry of
    its own, but the least count of its queue is 0.
    """
    entries = []
    for kind, queue_id, _, offsets, counts in queues:
        entries += [
            f"{kind:d} qo{queue_id}%{offset} {count}"
            for offset, count in zip(offsets, counts, strict=True)
            if count > 0
        ]
        entries.append(f"{kind:d} {queue_id} {min(counts, default=0)}")
    return ";".join(entries)


def parse_start_offsets(text: str) -> dict[QueueKey, int]:
    """
    Read startOffsetInfo.

    :raises ProtocolViolation: an entry cannot be read, or comes twice.
    """
    return {key: _number(item) for key, item in _entries(text)}


def parse_msg_offsets(text: str) -> dict[QueueKey, list[int]]:
    """
    Read msgOffsetInfo.

    :raises ProtocolViolation: see `parse_start_offsets`.
    """
    return {key: [_number(part) for part in item.split(",")] for key, item in _entries(text)}


def parse_order_counts(text: str) -> Mapping[tuple[int, str], int]:
    """
    Read orderCountInfo: the counts by kind and by `queue`, or `qo` queue `%` offset.

    :raises ProtocolViolation: an entry cannot be read.
    """
    counts = {}
    for kind, name, count in _items(text):
        counts[_number(kind), name] = _number(count)
    return counts


def _entries(text: str) -> Iterable[tuple[QueueKey, str]]:
    seen: set[QueueKey] = set()
    for kind, queue_id, item in _items(text):
        key = _number(kind), _number(queue_id)
        if key in seen:
            raise ProtocolViolation(f"queue {key[1]} of kind {key[0]} comes twice in the answer")
        seen.add(key)
        yield key, item


def _items(text: str) -> Iterable[list[str]]:
    for entry in text.split(";") if text else ():
        items = entry.split(" ")
        if len(items) != 3:
            raise ProtocolViolation(f"an entry of {len(items)} items, where 3 belong")
        yield items


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ProtocolViolation(f"{text[:20]!r} is no offset, queue or count")
    return int(text)
