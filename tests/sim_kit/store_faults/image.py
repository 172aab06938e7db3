"""
Holds a small store in memory, to read it, to change it, and to write it again.

Spec: store.md, sections 1 to 5 and 12.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.properties import KEYS, UNIQ_KEY
from rmq_ha.base.store_format.commitlog import (
    BLANK_MAGIC,
    BLANK_SIZE,
    Record,
    code_of,
    decode_record,
    encode_blank,
    encode_record,
)
from rmq_ha.base.store_format.consumequeue import FILLER, UNIT, UNIT_SIZE
from rmq_ha.base.store_format.index import (
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    SLOT,
    SLOT_SIZE,
    IndexHeader,
    key_hash,
)
from rmq_ha.base.wire import fastjson

_ROLLBACK = 0xC
_NOT_FOR_CONSUMERS = 0x4
QueueKey = tuple[str, int]


@dataclass
class QueueImage:
    """
    A consume queue's bytes.

    :ivar start: logic offset of the first unit.
    """

    start: int
    data: bytearray
    file_size: int

    @property
    def end(self) -> int:
        """Return the queue offset that the next message gets."""
        count = len(self.data) // UNIT_SIZE
        while count and not self.unit(self.start + count - 1)[1]:
            count -= 1
        return self.start + count

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Return physical offset, size and tag code of a unit."""
        return UNIT.unpack_from(self.data, (queue_offset - self.start) * UNIT_SIZE)

    def put(self, queue_offset: int, unit: tuple[int, int, int]) -> None:
        """Overwrite a unit."""
        UNIT.pack_into(self.data, (queue_offset - self.start) * UNIT_SIZE, *unit)

    def replace(self, units: Sequence[tuple[int, int, int]]) -> None:
        """Replace all units; the start stays the same."""
        packed = b"".join(UNIT.pack(*unit) for unit in units)
        self.data = bytearray(packed + bytes(-len(packed) % self.file_size))


@dataclass
class IndexImage:
    """An index file's bytes."""

    name: str
    data: bytearray
    slots: int

    @property
    def header(self) -> IndexHeader:
        """Return the header, the first 40 bytes."""
        return IndexHeader.decode(bytes(self.data[:HEADER_SIZE]))

    def item_at(self, number: int) -> int:
        """Return the position of an item."""
        return HEADER_SIZE + self.slots * SLOT_SIZE + number * ITEM_SIZE

    def items(self) -> list[tuple[int, int, int, int]]:
        """Return hash, physical offset, seconds and previous item of item 1, 2, ..."""
        count = self.header.index_count
        return [ITEM.unpack_from(self.data, self.item_at(number)) for number in range(1, count)]

    def put(self, number: int, item: tuple[int, int, int, int]) -> None:
        """Overwrite an item."""
        ITEM.pack_into(self.data, self.item_at(number), *item)

    def refill(self, entries: Iterable[tuple[int, int, int]]) -> None:
        """Replace all items by these entries: hash, physical offset, store time in ms."""
        self.data[:] = bytes(len(self.data))
        header = IndexHeader()
        number, used = 1, 0
        for hashed, offset, time in entries:
            if number == 1:
                header = IndexHeader(time, time, offset, offset)
            slot_at = HEADER_SIZE + hashed % self.slots * SLOT_SIZE
            previous: int = SLOT.unpack_from(self.data, slot_at)[0]
            used += not previous
            seconds = max(0, (time - header.begin_timestamp) // 1000)
            self.put(number, (hashed, offset, seconds, previous))
            SLOT.pack_into(self.data, slot_at, number)
            number += 1
            header = header._replace(end_timestamp=time, end_physical_offset=offset)
        header = header._replace(hash_slot_count=used, index_count=number)
        self.data[:HEADER_SIZE] = header.encode()


class Placed(NamedTuple):
    """A record and the queue entry that it should have."""

    offset: int
    record: Record


@dataclass
class StoreImage:
    """
    The bytes of a store directory.

    :ivar base: physical offset of the first byte of `log`.
    :ivar delay_levels: ms of level 1, 2, ...; for queue entries of delayed messages.
    :ivar others: all other files by their path below the root.
    """

    base: int
    log: bytearray
    file_size: int
    queue_file_size: int
    delay_levels: list[int]
    queues: dict[QueueKey, QueueImage] = field(default_factory=dict)
    index: list[IndexImage] = field(default_factory=list)
    others: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path, index_slots: int, delay_levels: list[int]) -> Self:
        """
        Read all files of a store that has a log.

        :param index_slots: `maxHashSlotNum` with which it was written.
        """
        logs = sorted((root / "commitlog").iterdir())
        size = logs[0].stat().st_size
        image = cls(
            int(logs[0].name),
            bytearray(b"".join(path.read_bytes() for path in logs)),
            size,
            UNIT_SIZE,
            delay_levels,
        )
        for directory in sorted((root / "consumequeue").glob("*/*")):
            files = sorted(directory.iterdir())
            if files:
                image.queue_file_size = files[0].stat().st_size
                image.queues[directory.parent.name, int(directory.name)] = QueueImage(
                    int(files[0].name) // UNIT_SIZE,
                    bytearray(b"".join(path.read_bytes() for path in files)),
                    image.queue_file_size,
                )
        for path in sorted((root / "index").glob("*")):
            image.index.append(IndexImage(path.name, bytearray(path.read_bytes()), index_slots))
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and name.split("/")[0] not in ("commitlog", "consumequeue", "index"):
                image.others[name] = path.read_bytes()
        return image

    def save(self, root: Path) -> None:
        """Write all files of the image; other files below `root` stay."""
        files = dict(self.others)
        for at in range(0, len(self.log), self.file_size):
            files[f"commitlog/{self.base + at:020d}"] = bytes(self.log[at : at + self.file_size])
        for (topic, queue_id), queue in self.queues.items():
            for at in range(0, len(queue.data), queue.file_size):
                name = f"consumequeue/{topic}/{queue_id}/{queue.start * UNIT_SIZE + at:020d}"
                files[name] = bytes(queue.data[at : at + queue.file_size])
        for index in self.index:
            files[f"index/{index.name}"] = bytes(index.data)
        for name, data in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def copy(self) -> Self:
        """Return a copy that can be changed without changing this image."""
        return type(self)(
            self.base,
            bytearray(self.log),
            self.file_size,
            self.queue_file_size,
            self.delay_levels,
            {
                key: QueueImage(queue.start, bytearray(queue.data), queue.file_size)
                for key, queue in self.queues.items()
            },
            [IndexImage(index.name, bytearray(index.data), index.slots) for index in self.index],
            dict(self.others),
        )

    # Reading

    def records(self) -> list[Placed]:
        """Return all records up to the first place without a record."""
        placed: list[Placed] = []
        at = 0
        while at + BLANK_SIZE <= len(self.log):
            if int.from_bytes(self.log[at + 4 : at + 8], "big") == BLANK_MAGIC:
                at += self.file_size - at % self.file_size
                continue
            try:
                record = decode_record(bytes(self.log[at : at + self.file_size]))
            except CorruptRecord:
                break
            placed.append(Placed(self.base + at, record))
            at += record.size
        return placed

    def table(self, name: str) -> Any:
        """Return the content of a table in `config/`."""
        return fastjson.parse(self.others[f"config/{name}"], None)

    def put_table(self, name: str, value: Any) -> None:
        """Replace the content of a table in `config/`, and remove its backup."""
        self.others[f"config/{name}"] = fastjson.pretty(value)
        self.others.pop(f"config/{name}.bak", None)

    # Writing

    def write(self, offset: int, data: bytes) -> None:
        """Overwrite bytes of the log."""
        at = offset - self.base
        self.log[at : at + len(data)] = data

    def unit_of(self, placed: Placed) -> tuple[int, int, int]:
        """Return the queue entry that a record should have."""
        record = placed.record
        code = code_of(record.topic, record.properties, record.store_timestamp, self.delay_levels)
        return placed.offset, record.size, code or 0

    def lay_out(self, records: Iterable[Record]) -> list[Placed]:
        """
        Replace the log by these records, one after the other, and return them with their places.
        """
        log = bytearray()
        placed: list[Placed] = []
        for record in records:
            room = self.file_size - len(log) % self.file_size
            size = len(encode_record(record))
            if size + BLANK_SIZE > room:
                log += encode_blank(room) + bytes(room - BLANK_SIZE)
            offset = self.base + len(log)
            record = record._replace(physical_offset=offset, size=size)
            placed.append(Placed(offset, record))
            log += encode_record(record)
        files = max(len(self.log), -(-len(log) // self.file_size) * self.file_size)
        self.log = log + bytes(files - len(log))
        return placed

    def rebuild(self, placed: Sequence[Placed]) -> None:
        """
        Make queues and index from the records, as a broker that reads the log from its start does.
        """
        starts = {key: queue.start for key, queue in self.queues.items()}
        units: dict[QueueKey, list[bytes]] = {}
        for entry in placed:
            record = entry.record
            if record.sys_flag & _NOT_FOR_CONSUMERS:
                continue
            key = record.topic, record.queue_id
            row = units.setdefault(key, [])
            if not row:
                starts.setdefault(key, 0)
                row.extend([FILLER] * (record.queue_offset - starts[key]))
            row.append(UNIT.pack(*self.unit_of(entry)))
        self.queues = {}
        for key, row in units.items():
            packed = b"".join(row)
            size = self.queue_file_size
            data = bytearray(packed + bytes(-len(packed) % size))
            self.queues[key] = QueueImage(starts[key], data, size)
        self._rebuild_index(placed)

    def _rebuild_index(self, placed: Sequence[Placed]) -> None:
        if not self.index:
            return
        first = self.index[0]
        size, slots = len(first.data), first.slots
        room = (size - HEADER_SIZE - SLOT_SIZE * slots) // ITEM_SIZE - 1
        entries = [
            (hashed, entry.offset, entry.record.store_timestamp)
            for entry in placed
            for hashed in hashes_of(entry.record)
        ]
        names = [index.name for index in self.index]
        self.index = []
        for number, start in enumerate(range(0, len(entries), room)):
            name = names[number] if number < len(names) else f"{int(names[-1]) + number:017d}"
            index = IndexImage(name, bytearray(size), slots)
            index.refill(entries[start : start + room])
            self.index.append(index)


def hashes_of(record: Record) -> list[int]:
    """Return the hashes of the keys of a record, in the order of its index entries."""
    if record.sys_flag & _ROLLBACK == _ROLLBACK:
        return []
    properties = record.properties
    keys = [properties[UNIQ_KEY]] if UNIQ_KEY in properties else []
    keys += [key for key in properties.get(KEYS, "").split(" ") if key]
    return [key_hash(record.topic, key) for key in keys]
