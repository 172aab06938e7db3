"""Turns entries of the POP journal into the body of a journal record, and back.

A body is a version byte, a base time, and the entries: each with its kind, its length and its
values. A time is stored as its distance from the base time, an offset as its distance from the one
before. So an acknowledgement takes about seven bytes.

Spec: pop.md, section 13.3.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.server.pop.entries import (
    AckEntry,
    ChangeEntry,
    DropEntry,
    Entry,
    ImageEntry,
    ImageRun,
    ImagesEntry,
    MoveEntry,
    MoveReason,
    NameEntry,
    NumbersEntry,
    PopEntry,
    ResetEntry,
    SkipEntry,
)
from rmq_ha.server.pop.varints import NumberReader, put_number, put_signed, put_text

VERSION = 1
_MOST_OFFSET = 1 << 60
_ORDERLY, _AGAIN = 1, 2


class UnknownEntry(CorruptRecord):
    """A newer broker wrote the record. This broker cannot know the leases, and must not pop."""


# Each writer appends the values of an entry, and each reader returns the entry. `base` is the base
# time of the record.


def _put_offsets(out: bytearray, offsets: Sequence[int]) -> None:
    put_number(out, len(offsets))
    before = 0
    for offset in offsets:
        put_number(out, offset - before)
        before = offset


def _offsets(source: NumberReader) -> list[int]:
    offsets, offset = list[int](), 0
    for _ in range(source.count()):
        offset += source.number()
        offsets.append(offset)
    if offset >= _MOST_OFFSET:
        raise CorruptRecord(f"the queue offset {offset} is too great")
    return offsets


def _put_name(out: bytearray, entry: NameEntry, base: int) -> None:
    put_number(out, entry.name)
    put_text(out, entry.group)
    put_text(out, entry.topic)


def _name(source: NumberReader, base: int) -> NameEntry:
    return NameEntry(source.number(), source.text(), source.text())


def _put_pop(out: bytearray, entry: PopEntry, base: int) -> None:
    put_number(out, entry.name)
    put_number(out, entry.queue_id)
    put_number(out, entry.start)
    put_number(out, entry.end - entry.start)
    _put_offsets(out, [offset - entry.start for offset in entry.offsets])
    put_signed(out, entry.pop_ms - base)
    put_number(out, entry.invisible_ms)
    put_number(out, _ORDERLY * entry.is_orderly | _AGAIN * entry.is_again)
    if entry.is_orderly:
        put_text(out, entry.attempt_id)


def _pop(source: NumberReader, base: int) -> PopEntry:
    name, queue_id, start = source.number(), source.number(), source.number()
    end = start + source.number()
    offsets = [start + offset for offset in _offsets(source)]
    pop_ms, invisible_ms, flags = base + source.signed(), source.number(), source.number()
    is_orderly = bool(flags & _ORDERLY)
    attempt = source.text() if is_orderly else ""
    again = bool(flags & _AGAIN)
    return PopEntry(
        name, queue_id, start, end, offsets, pop_ms, invisible_ms, is_orderly, again, attempt
    )


def _put_ack(out: bytearray, entry: AckEntry, base: int) -> None:
    put_number(out, entry.name)
    put_number(out, entry.queue_id)
    put_signed(out, base - entry.pop_ms)
    _put_offsets(out, entry.offsets)


def _ack(source: NumberReader, base: int) -> AckEntry:
    name, queue_id, pop_ms = source.number(), source.number(), base - source.signed()
    return AckEntry(name, queue_id, pop_ms, _offsets(source))


def _put_change(out: bytearray, entry: ChangeEntry, base: int) -> None:
    put_number(out, entry.name)
    put_number(out, entry.queue_id)
    put_number(out, entry.offset)
    put_signed(out, base - entry.old_pop_ms)
    put_signed(out, base - entry.pop_ms)
    put_signed(out, entry.due_ms - base)


def _change(source: NumberReader, base: int) -> ChangeEntry:
    name, queue_id, offset = source.number(), source.number(), source.number()
    old, new = base - source.signed(), base - source.signed()
    return ChangeEntry(name, queue_id, offset, old, new, base + source.signed())


def _put_move(out: bytearray, entry: MoveEntry, base: int) -> None:
    put_number(out, entry.name)
    put_number(out, entry.queue_id)
    put_number(out, entry.reason)
    _put_offsets(out, [offset for offset, _ in entry.leases])
    for _, pop_ms in entry.leases:
        put_signed(out, base - pop_ms)


def _move(source: NumberReader, base: int) -> MoveEntry:
    name, queue_id, number = source.number(), source.number(), source.number()
    try:
        reason = MoveReason(number)
    except ValueError as error:
        raise UnknownEntry(f"a message was moved for the unknown reason {number}") from error
    leases = [(offset, base - source.signed()) for offset in _offsets(source)]
    return MoveEntry(name, queue_id, reason, leases)


def _put_skip(out: bytearray, entry: SkipEntry, base: int) -> None:
    for number in (entry.name, entry.queue_id, entry.start, entry.end - entry.start):
        put_number(out, number)


def _skip(source: NumberReader, base: int) -> SkipEntry:
    name, queue_id, start = source.number(), source.number(), source.number()
    return SkipEntry(name, queue_id, start, start + source.number())


def _put_reset(out: bytearray, entry: ResetEntry, base: int) -> None:
    for number in entry:
        put_number(out, number)


def _reset(source: NumberReader, base: int) -> ResetEntry:
    return ResetEntry(source.number(), source.number(), source.number())


def _put_drop(out: bytearray, entry: DropEntry, base: int) -> None:
    put_number(out, entry.name)


def _drop(source: NumberReader, base: int) -> DropEntry:
    return DropEntry(source.number())


def _put_image(out: bytearray, entry: ImageEntry, base: int) -> None:
    put_number(out, entry.name)
    put_number(out, entry.queue_id)
    put_text(out, entry.group)
    put_text(out, entry.topic)
    put_number(out, entry.committed)
    put_number(out, entry.last_pop_ms)
    put_number(out, int(entry.is_orderly))
    put_number(out, entry.batch_pop_ms)
    put_text(out, entry.attempt_id)
    put_number(out, len(entry.earlier))
    for pop_ms in entry.earlier:
        put_number(out, pop_ms)
    put_number(out, len(entry.counts))
    for offset, count in sorted(entry.counts.items()):
        put_number(out, offset)
        put_number(out, count)
    _put_offsets(out, entry.moved)
    put_number(out, entry.moved_floor)
    put_number(out, len(entry.runs))
    for run in entry.runs:
        _put_run(out, run, entry.last_pop_ms)


def _put_run(out: bytearray, run: ImageRun, last_pop_ms: int) -> None:
    put_number(out, run.length)
    put_number(out, 1 if run.due_ms else 0)
    if run.due_ms:
        put_signed(out, last_pop_ms - run.pop_ms)
        put_signed(out, run.due_ms - run.pop_ms)


def _run(source: NumberReader, last_pop_ms: int) -> ImageRun:
    count, is_out = source.number(), source.number()
    if not is_out:
        return ImageRun(count, 0, 0)
    pop_ms = last_pop_ms - source.signed()
    return ImageRun(count, pop_ms, pop_ms + source.signed())


def _image(source: NumberReader, base: int) -> ImageEntry:
    name, queue_id, group, topic = source.number(), source.number(), source.text(), source.text()
    committed, last, is_orderly = source.number(), source.number(), bool(source.number())
    batch, attempt = source.number(), source.text()
    earlier = [source.number() for _ in range(source.count())]
    counts = {source.number(): source.number() for _ in range(source.count())}
    moved, floor = _offsets(source), source.number()
    runs = [_run(source, last) for _ in range(source.count())]
    return ImageEntry(
        name,
        queue_id,
        group,
        topic,
        committed,
        last,
        is_orderly,
        batch,
        attempt,
        earlier,
        counts,
        moved,
        floor,
        runs,
    )


def _put_numbers(out: bytearray, entry: NumbersEntry, base: int) -> None:
    put_number(out, entry.next_name)
    put_number(out, entry.least_pop_ms)
    if entry.java_end or entry.java_born_ms:
        put_number(out, entry.java_end)
        put_number(out, entry.java_born_ms)


def _numbers(source: NumberReader, base: int) -> NumbersEntry:
    next_name, least_pop_ms = source.number(), source.number()
    if source.is_over:
        return NumbersEntry(next_name, least_pop_ms)
    return NumbersEntry(next_name, least_pop_ms, source.number(), source.number())


def _put_images(out: bytearray, entry: ImagesEntry, base: int) -> None:
    put_number(out, entry.begin)


def _images(source: NumberReader, base: int) -> ImagesEntry:
    return ImagesEntry(source.number())


_Writer = Callable[[bytearray, "Entry", int], None]
_Reader = Callable[[NumberReader, int], "Entry"]

_KINDS: tuple[tuple[type, int, Any, Any], ...] = (
    (NameEntry, 1, _put_name, _name),
    (PopEntry, 2, _put_pop, _pop),
    (AckEntry, 3, _put_ack, _ack),
    (ChangeEntry, 4, _put_change, _change),
    (MoveEntry, 5, _put_move, _move),
    (SkipEntry, 6, _put_skip, _skip),
    (ResetEntry, 7, _put_reset, _reset),
    (DropEntry, 8, _put_drop, _drop),
    (ImageEntry, 9, _put_image, _image),
    (NumbersEntry, 10, _put_numbers, _numbers),
    (ImagesEntry, 11, _put_images, _images),
)
_WRITERS: dict[type, tuple[int, _Writer]] = {kind: (number, put) for kind, number, put, _ in _KINDS}
_READERS: dict[int, _Reader] = {number: read for _, number, _, read in _KINDS}


def put_entry(out: bytearray, entry: Entry, base_ms: int) -> None:
    """
    Append one entry with its kind and its length.

    :param base_ms: the base time of the record.
    """
    number, put = _WRITERS[type(entry)]
    values = bytearray()
    put(values, entry, base_ms)
    out.append(number)
    put_number(out, len(values))
    out += values


def take_entry(source: NumberReader, base_ms: int) -> Entry:
    """
    Read one entry that `put_entry` wrote.

    :raises UnknownEntry: a newer broker wrote the entry, so its kind or version is unknown.
    :raises CorruptRecord: the bytes are damaged.
    """
    kind = source.number()
    read = _READERS.get(kind)
    if read is None:
        raise UnknownEntry(f"a record of the POP journal has an entry of the unknown kind {kind}")
    part = source.part()
    entry = read(part, base_ms)
    if not part.is_over:
        raise CorruptRecord(f"an entry of kind {kind} has bytes too many")
    return entry


def encode_entries(entries: Iterable[Entry], base_ms: int) -> bytes:
    """
    Return the body of a journal record.

    :param base_ms: the base time. The nearer it is to the times of the entries, the fewer bytes
        they take.
    """
    out = bytearray((VERSION,))
    put_number(out, base_ms)
    for entry in entries:
        put_entry(out, entry, base_ms)
    return bytes(out)


def decode_entries(body: bytes) -> list[Entry]:
    """
    Read the body of a journal record.

    :raises UnknownEntry: a newer broker wrote the entry, so its kind or version is unknown.
    :raises CorruptRecord: the bytes are damaged.
    """
    if body[:1] != bytes((VERSION,)):
        version = body[0] if body else "missing"
        raise UnknownEntry(
            f"the version of a record of the POP journal is {version}, not {VERSION}"
        )
    source = NumberReader(body, 1)
    base_ms = source.number()
    entries: list[Entry] = []
    while not source.is_over:
        entries.append(take_entry(source, base_ms))
    return entries
