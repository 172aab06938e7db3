"""
Plants faults in log, queues and index of a store, many at a time, and no two in the same place.

Faults that make the log shorter or longer are planted first and all at once. They move the records
after them, and queues and index are made anew, so that only these faults are left.
"""

from collections.abc import Callable, Sequence
from random import Random

from rmq_ha.base.model.flags import BORN_HOST_V6, STORE_HOST_V6
from rmq_ha.base.store_format.commitlog import Record, body_crc
from tests.sim_kit.store_faults.image import QueueKey, StoreImage, hashes_of
from tests.sim_kit.store_faults.planted import REPLICA, Planted

_APART = 2
"""Number of records between two faults that are not changed."""

CODES: dict[tuple[str, str], tuple[str, ...]] = {
    ("loss", "cut"): ("RECORD_LOST",),
    ("loss", "gap"): ("RECORD_LOST",),
    ("loss", "zeroed"): ("LOG_DIFFERS",),
    ("loss", "queue"): ("CQ_OFFSET", "CQ_MISSING"),
    ("loss", "blank entry"): ("CQ_MISSING",),
    ("duplicate", "log"): ("RECORD_DUPLICATED",),
    ("duplicate", "queue"): ("CQ_OFFSET",),
    ("swapped", "log"): ("RECORD_MOVED",),
    ("swapped", "queue"): ("CQ_OFFSET",),
    ("flipped bit", "body"): ("LOG_DIFFERS",),
    ("flipped bit", "body, CRC fixed"): ("LOG_DIFFERS",),
    ("flipped bit", "header"): ("LOG_DIFFERS",),
    ("flipped bit", "properties"): ("LOG_DIFFERS",),
    ("flipped bit", "size"): ("LOG_DIFFERS",),
    ("flipped bit", "both sides"): ("BODY_CRC",),
    ("flipped bit", "queue entry"): (
        "CQ_OFFSET",
        "CQ_SIZE",
        "CQ_TAGS",
        "CQ_DELIVERY_TIME",
        "CQ_LEVELS_CHANGED",
    ),
    ("torn tail", "zeroed"): ("TORN_TAIL",),
    ("torn tail", "garbage"): ("TORN_TAIL",),
    ("index hole", "item"): ("INDEX_HOLE",),
    ("index hole", "left out"): ("INDEX_HOLE",),
    ("index hole", "slot"): ("INDEX_CHAIN",),
}
"""The codes with which `verify_replica` reports each kind and variant."""

AUDIT_CODES: dict[tuple[str, str], tuple[str, ...]] = {
    ("loss", "gap"): ("GAP",),
    ("duplicate", "log"): ("DUPLICATE",),
}
"""The codes with which `audit_messages` reports each kind and variant in a single store."""

_SHIFTING = ("cut", "gap", "log")
_HEADER = (
    ("flag", 16, 4),
    ("reconsumeTimes", 72, 4),
    ("bornTimestamp", 40, 8),
    ("storeTimestamp", 56, 8),
    ("queueId", 12, 4),
    ("queueOffset", 20, 8),
    ("commitLogOffset", 28, 8),
    ("preparedTransactionOffset", 76, 8),
)
"""Position and length of fields of a record with IPv4 hosts."""


class LogFaults:
    """
    Plants faults into one side of a pair.

    :param image: the store that gets the faults; it has none yet.
    :param other: the other side, for faults that both sides get.
    """

    def __init__(self, image: StoreImage, random: Random, other: StoreImage | None = None) -> None:
        self.image = image
        self._other = other
        self._random = random
        self._healthy = image.records()
        self._now = list(self._healthy)
        self._free = set(range(_APART, len(self._healthy) - _APART))
        self._queues: set[QueueKey] = set()

    def plant(self, kinds: Sequence[tuple[str, str]]) -> list[Planted]:
        """
        Plant one fault for each kind and variant (keys of `CODES`), in any order.

        :raises ValueError: the store has no room for so many.
        """
        planted: list[Planted] = []
        shifting = [pair for pair in kinds if pair[1] in _SHIFTING and pair[0] in _CUTS]
        planted += self._shift(shifting)
        torn = [pair for pair in kinds if pair[0] == "torn tail"]
        rest = [pair for pair in kinds if pair not in shifting and pair not in torn]
        # An item that is left out moves all behind it: before other faults of the index.
        for kind, variant in sorted(rest, key=lambda pair: pair[1] != "left out"):
            planted.append(_IN_PLACE[kind, variant](self, kind, variant))
        planted += [self._tear(kind, variant) for kind, variant in torn]
        return planted

    # Who is hit

    def _pick(self, fits: Callable[[Record], bool], neighbours: int = 0) -> int:
        """
        Return the number of a record that fits, and is far from all records that were changed.
        """
        fitting = [
            number
            for number in sorted(self._free)
            if fits(self._healthy[number].record)
            and all(number + step in self._free for step in range(neighbours + 1))
        ]
        if not fitting:
            raise ValueError("the store has no room for another fault of that kind")
        number = self._random.choice(fitting)
        self._free -= set(range(number - _APART, number + neighbours + _APART + 1))
        return number

    def _hit(self, kind: str, variant: str, number: int, field: str | None = None) -> Planted:
        offset, record = self._healthy[number]
        codes = CODES[kind, variant]
        return Planted(
            kind,
            variant,
            REPLICA,
            codes,
            record.topic,
            record.queue_id,
            record.queue_offset,
            None,
            offset,
            field,
        )

    # What moves the rest of the log

    def _shift(self, kinds: Sequence[tuple[str, str]]) -> list[Planted]:
        if not kinds:
            return []
        edits: dict[int, str] = {}
        planted = []
        for kind, variant in kinds:
            neighbours = 1 if kind == "swapped" else 0
            number = self._pick(_is_plain, neighbours)
            edits[number] = kind if variant != "gap" else "gap"
            planted.append(self._hit(kind, variant, number))
        rows = self._edited(edits)
        placed = self.image.lay_out([record for record, _ in rows])
        self.image.rebuild(placed)
        for (_, origin), entry in zip(rows, placed, strict=True):
            self._now[origin] = entry
        return planted

    def _edited(self, edits: dict[int, str]) -> list[tuple[Record, int]]:
        """Return the records of the changed log, each with its number in the healthy log."""
        rows: list[tuple[Record, int]] = []
        shift: dict[QueueKey, int] = {}
        number = 0
        while number < len(self._healthy):
            edit = edits.get(number)
            record = self._healthy[number].record
            key = record.topic, record.queue_id
            if edit == "swapped":
                first, second = _exchanged(record, self._healthy[number + 1].record)
                rows.append((_numbered(first, shift), number + 1))
                rows.append((_numbered(second, shift), number))
                number += 1
            elif edit == "loss":
                shift[key] = shift.get(key, 0) - 1
            elif edit == "duplicate":
                rows.append((_numbered(record, shift), number))
                shift[key] = shift.get(key, 0) + 1
                rows.append((_numbered(record, shift), number))
            elif edit != "gap":
                rows.append((_numbered(record, shift), number))
            number += 1
        return rows

    # What stays in its place

    def _zero(self, kind: str, variant: str) -> Planted:
        number = self._pick(lambda record: True)
        offset, record = self._now[number]
        self.image.write(offset, bytes(record.size))
        return self._hit(kind, variant, number)

    def _flip_body(self, kind: str, variant: str) -> Planted:
        number = self._pick(lambda record: len(record.body) > 0)
        offset, record = self._now[number]
        at = self._random.randrange(len(record.body))
        changed = self._flipped(record.body, at)
        body_at = record.size - _behind_body(record) - len(record.body)
        images = [self.image]
        if variant == "both sides" and self._other is not None:
            images.append(self._other)
        for image in images:
            image.write(offset + body_at, changed)
        if variant == "body, CRC fixed":
            self.image.write(offset + 8, body_crc(changed).to_bytes(4, "big"))
        return self._hit(kind, variant, number, "body")

    def _flip_header(self, kind: str, variant: str) -> Planted:
        number = self._pick(lambda record: _is_plain(record) and _is_v4(record))
        offset, _ = self._now[number]
        if variant == "size":
            field, at, length = "storeSize", 0, 4
        else:
            field, at, length = self._random.choice(_HEADER)
        stored = self._read(offset + at, length)
        self.image.write(offset + at, self._flipped(stored, self._random.randrange(length)))
        return self._hit(kind, variant, number, field)

    def _flip_properties(self, kind: str, variant: str) -> Planted:
        number = self._pick(lambda record: len(record.properties_string) > 8)
        offset, record = self._now[number]
        length = len(record.properties_string.encode())
        at = offset + record.size - length
        stored = self._read(at, length)
        self.image.write(at, self._flipped(stored, self._random.randrange(length)))
        return self._hit(kind, variant, number, "properties")

    def _queue_of(self, number: int) -> QueueKey:
        record = self._healthy[number].record
        return record.topic, record.queue_id

    def _pick_in_queue(self, neighbours: int) -> int:
        """
        Return the number of a record in a queue that has no other fault, with at least `neighbours`
        records after it.
        """
        rows: dict[QueueKey, list[int]] = {}
        for number, placed in enumerate(self._healthy):
            if placed.record.sys_flag & 4 == 0:
                rows.setdefault(self._queue_of(number), []).append(number)
        fitting = {
            self._healthy[number].offset
            for key, row in rows.items()
            if key not in self._queues
            for number in row[1 : -1 - neighbours]
        }
        number = self._pick(lambda record: record.physical_offset in fitting)
        key = self._queue_of(number)
        self._queues.add(key)
        return number

    def _harm_queue(self, kind: str, variant: str) -> Planted:
        number = self._pick_in_queue(1)
        queue = self.image.queues[self._queue_of(number)]
        at = self._now[number].record.queue_offset - queue.start
        units = [queue.unit(offset) for offset in range(queue.start, queue.end)]
        if variant == "blank entry":
            units[at] = (0, 0, 0)
        elif variant == "queue entry":
            offset, size, code = units[at]
            units[at] = self._random.choice(
                [(offset ^ 1, size, code), (offset, size ^ 2, code), (offset, size, code ^ 4)]
            )
        elif kind == "loss":
            del units[at]
        elif kind == "duplicate":
            units.insert(at, units[at - 1])
        else:
            units[at], units[at + 1] = units[at + 1], units[at]
        queue.replace(units)
        return self._hit(kind, variant, number)

    def _harm_index(self, kind: str, variant: str) -> Planted:
        number = self._pick(lambda record: bool(hashes_of(record)))
        offset, record = self._now[number]
        hashed = hashes_of(record)[0]
        for index in self.image.index:
            items = index.items()
            places = [at for at, item in enumerate(items) if item[:2] == (hashed, offset)]
            if not places or not 0 < places[0] < len(items) - 1:
                continue
            at = places[0]
            if variant == "item":
                index.put(at + 1, (hashed ^ 1, *items[at][1:]))
            elif variant == "slot":
                slot_at = 40 + hashed % index.slots * 4
                index.data[slot_at : slot_at + 4] = bytes(4)
            else:
                begin = index.header.begin_timestamp
                index.refill(
                    (item[0], item[1], begin + item[2] * 1000)
                    for at_item, item in enumerate(items)
                    if at_item != at
                )
            return self._hit(kind, variant, number)
        return self._harm_index(kind, variant)  # its keys are at a file's edge: another record

    def _tear(self, kind: str, variant: str) -> Planted:
        number = len(self._healthy) - 1
        offset, record = self._now[number]
        kept = record.size // 2
        lost = record.size - kept
        data = bytes(lost) if variant == "zeroed" else self._random.randbytes(lost)
        self.image.write(offset + kept, data)
        return self._hit(kind, variant, number)

    def _read(self, offset: int, length: int) -> bytes:
        at = offset - self.image.base
        return bytes(self.image.log[at : at + length])

    def _flipped(self, data: bytes, at: int) -> bytes:
        """Return the data with one bit of the byte at `at` changed."""
        changed = bytearray(data)
        changed[at] ^= 1 << self._random.randrange(7)
        return bytes(changed)


_CUTS = ("loss", "duplicate", "swapped")
_IN_PLACE: dict[tuple[str, str], Callable[[LogFaults, str, str], Planted]] = {
    ("loss", "zeroed"): LogFaults._zero,
    ("loss", "queue"): LogFaults._harm_queue,
    ("loss", "blank entry"): LogFaults._harm_queue,
    ("duplicate", "queue"): LogFaults._harm_queue,
    ("swapped", "queue"): LogFaults._harm_queue,
    ("flipped bit", "queue entry"): LogFaults._harm_queue,
    ("flipped bit", "body"): LogFaults._flip_body,
    ("flipped bit", "body, CRC fixed"): LogFaults._flip_body,
    ("flipped bit", "both sides"): LogFaults._flip_body,
    ("flipped bit", "header"): LogFaults._flip_header,
    ("flipped bit", "size"): LogFaults._flip_header,
    ("flipped bit", "properties"): LogFaults._flip_properties,
    ("index hole", "item"): LogFaults._harm_index,
    ("index hole", "left out"): LogFaults._harm_index,
    ("index hole", "slot"): LogFaults._harm_index,
}


def _is_plain(record: Record) -> bool:
    return record.sys_flag & 0xC == 0


def _is_v4(record: Record) -> bool:
    return not record.sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)


def _behind_body(record: Record) -> int:
    """Return the number of bytes of a record after its body."""
    return 3 + len(record.topic.encode()) + len(record.properties_string.encode())


def _numbered(record: Record, shift: dict[QueueKey, int]) -> Record:
    """Return the record with the queue offset that it gets in the changed log."""
    moved = shift.get((record.topic, record.queue_id), 0)
    return record._replace(queue_offset=record.queue_offset + moved)


def _exchanged(record: Record, other: Record) -> tuple[Record, Record]:
    """
    Return two neighbours in reverse order; if they are of one queue, they exchange their queue
    offsets.
    """
    if (record.topic, record.queue_id) != (other.topic, other.queue_id):
        return other, record
    return (
        other._replace(queue_offset=record.queue_offset),
        record._replace(queue_offset=other.queue_offset),
    )
