"""
Rows of records as a list of tuples.

The maker in Python (`pure.py`) returns them, and so does the code for messages that no maker takes.

Spec: store.md, sections 3.2, 4.2 and 4.3; remoting.md, section 4.2.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Any

from rmq_ha.base.model.java_hash import java_hash
from rmq_ha.base.model.message import Row
from rmq_ha.base.runs.face import AnswerTemplate, IndexNumbers, QueueKey, Rows, UnitRun
from rmq_ha.base.store_format.consumequeue import UNIT
from rmq_ha.base.store_format.index import (
    MAX_TIME_DIFFERENCE,
    ROLLBACK,
    Entry,
    index_file_size,
    index_keys,
    put_entries,
)

NOT_FOR_CONSUMERS = 0x4
"""Only prepared and rolled-back records have this bit of sysFlag."""
_WORDS = Struct(">ii")


class RowList(list[Row], Rows):
    """A list of rows; see `Rows`. `rows_of` or a maker sets the variables."""

    __slots__ = ("end", "names", "size", "start", "topics", "work")
    start: int
    end: int
    size: int
    work: int
    topics: Collection[str]
    names: Collection[QueueKey]

    def part(self, first: int, end: int) -> Rows:
        return rows_of(self[first:end])

    def units(self) -> list[UnitRun] | None:
        # A row holds place [2], size [3], tag code [4], queue offset [6] and sysFlag [9]. A queue
        # here holds: first queue offset, units, start, end, next queue offset. Where the queue
        # offsets of one queue have a gap, the rows go the general way, one after the other.
        queues: dict[QueueKey, list[Any]] = {}
        pack = UNIT.pack
        try:
            for row in self:
                if row[9] & NOT_FOR_CONSUMERS:
                    continue
                key, place, number = row[:2], row[2], row[6]
                unit, end = pack(place, row[3], row[4]), place + row[3]
                if key not in queues:
                    queues[key] = [number, [unit], place, end, number + 1]
                    continue
                queue = queues[key]
                if number != queue[4]:
                    return None
                queue[1].append(unit)
                queue[3], queue[4] = end, number + 1
        except error:  # a delivery time beyond 64 bits
            return None
        return [
            (key, first, b"".join(units), start, end)
            for key, (first, units, start, end, _) in queues.items()
        ]

    def index_put(
        self, buffer: Any, slots: int, room: int, header: IndexNumbers, reached: int
    ) -> IndexNumbers | None:
        entries: list[Entry] = []
        last, before = "", 0
        for topic, _, place, _, _, stamp, _, keys, uniq_key, sys_flag, _, _ in self:
            if place < reached or sys_flag & ROLLBACK == ROLLBACK:
                continue
            if topic != last:
                last, before = topic, java_hash(f"{topic}#")
            for key in index_keys(keys, uniq_key) if keys else (uniq_key,):
                if key:
                    value = java_hash(key, before)
                    value = value if value >= 0 else -value & MAX_TIME_DIFFERENCE
                    entries.append((value, place, stamp))
        count = len(entries)
        if count > room or index_file_size(slots, header[5] + count) > len(buffer):
            return None
        return put_entries(buffer, slots, header, entries) if entries else header

    def answers(self, opaques: Sequence[int | None], template: AnswerTemplate) -> bytes:
        form = _form(template)
        words, frames = _WORDS.pack, list[bytes]()
        for opaque, row in zip(opaques, self, strict=True):
            if opaque is None:
                continue
            header = form % (row[1], row[2], row[6], opaque)
            size = len(header)
            frames += (words(size + 4, size), header)
        return b"".join(frames)

    def counts(self) -> list[tuple[QueueKey, int, int]]:
        if len(self.names) == 1:
            (name,) = self.names
            return [(name, len(self), self.size)]
        counts: dict[QueueKey, tuple[int, int]] = {}
        for row in self:
            key = row[:2]
            if key in counts:
                count, size = counts[key]
                counts[key] = count + 1, size + row[3]
            else:
                counts[key] = 1, row[3]
        return [(key, *count) for key, count in counts.items()]


def rows_of(rows: Iterable[Row]) -> RowList:
    """Return the rows of these records."""
    made = RowList(rows)
    made.start = made[0][2] if made else 0
    made.end = made[-1][2] + made[-1][3] if made else 0
    made.size = sum([row[3] for row in made])
    made.work = sum([len(row[7]) for row in made])
    made.topics = {row[0] for row in made}
    made.names = {row[:2] for row in made}
    return made


NO_ROWS: Rows = rows_of(())
"""The rows of a stretch of the log that has no record."""


def joined(parts: Sequence[Rows]) -> RowList:
    """Return the rows of all parts, whichever maker made them."""
    made = RowList()
    made.size = made.work = 0
    topics, names = dict[str, None](), dict[QueueKey, None]()
    for part in parts:
        made += part
        made.size += part.size
        made.work += part.work
        for topic in part.topics:
            topics[topic] = None
        for name in part.names:
            names[name] = None
    made.start, made.end = parts[0].start, parts[-1].end
    made.topics, made.names = topics, names
    return made


@lru_cache(maxsize=64)
def _form(template: AnswerTemplate) -> bytes:
    """Return a template with a place for each of its numbers."""
    before, place, number, opaque, behind = [piece.replace(b"%", b"%%") for piece in template]
    return b"%b%%d%b%%016X%b%%d%b%%d%b" % (before, place, number, opaque, behind)
