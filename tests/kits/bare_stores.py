"""
Stores as Java's broker leaves them, written with `struct` and `json` alone.

Nothing of rmq_ha is imported, so that a fault of the readers cannot hide in the writer.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

START_MS = 1_700_000_000_000
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The delay of each level in seconds."""
UNIT = 20
ENTRY = 48
"""Bytes before each record in the log of a DLedger."""
TERM_TOPIC = "RMQ_SYS_DLEDGER_TERM"
SLOTS, ITEMS = 64, 4000


class Message(NamedTuple):
    """
    A message to be stored.

    :ivar stored: when it is stored, in ms after `START_MS`.
    :ivar born: when it was born, in ms after `START_MS`; -1: when it is stored.
    :ivar level: delay level; 0: it is not delayed.
    """

    topic: str
    queue_id: int = 0
    body: bytes = b"body"
    key: str = ""
    uniq: str = ""
    tags: str = ""
    stored: int = 0
    born: int = -1
    sys_flag: int = 0
    level: int = 0
    reconsumed: int = 0
    more: tuple[tuple[str, str], ...] = ()


class Placed(NamedTuple):
    """A message with its place in the log and in its queue."""

    at: int
    size: int
    queue_offset: int
    message: Message


@dataclass
class BareStore:
    """
    A store in memory, which `save` writes.

    :ivar is_ledger: whether the log is that of a member of a DLedger group, `n0`.
    """

    log_size: int = 16384
    queue_units: int = 100
    is_ledger: bool = False
    placed: list[Placed] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    groups: list[str] = field(default_factory=lambda: ["CG"])
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    delays: dict[int, int] = field(default_factory=dict)
    end: int = 0
    _entries: int = 0
    _log: bytearray = field(default_factory=bytearray)
    _ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, message: Message, queue_offset: int = -1) -> Placed:
        """
        Append a message.

        :param queue_offset: -1: the next one of its queue.
        """
        queue = message.topic, message.queue_id
        number = self._ends.get(queue, 0) if queue_offset < 0 else queue_offset
        placed = self._append(message, number)
        self.placed.append(placed)
        if not message.sys_flag & 4:  # prepared and rolled back messages have no entry
            self._ends[queue] = number + 1
        self.topics[message.topic] = max(self.topics.get(message.topic, 1), message.queue_id + 1)
        return placed

    def begin_term(self) -> None:
        """Append the entry with which the leader of a DLedger group begins a term."""
        self._append(Message(TERM_TOPIC, body=b"term 1", sys_flag=0xC), 0)

    def _append(self, message: Message, queue_offset: int) -> Placed:
        before = ENTRY if self.is_ledger else 0
        size = len(record(message, queue_offset, 0))
        room = self.log_size - self.end % self.log_size
        if before + size + 8 > room:
            blank = (0xFFFFFFFF, room) if self.is_ledger else (room, 0xCBD43194)
            self._log += struct.pack(">II", *blank).ljust(room, b"\0")
            self.end += room
        at = self.end + before
        if self.is_ledger:
            head = (1, before + size, self._entries, 1, self.end, 0, 0, 0, size)
            self._log += struct.pack(">iiqqqiiii", *head)
            self._entries += 1
        self._log += record(message, queue_offset, at)
        self.end = at + size
        return Placed(at, size, queue_offset, message)

    def consumed(self, group: str = "CG", *, behind: int = 0) -> None:
        """
        Set the offsets of a group as if it had consumed all messages of ordinary topics, except the
        last `behind` of each queue.
        """
        for (topic, queue_id), end in self._ends.items():
            if topic != SCHEDULE:
                row = self.offsets.setdefault(f"{topic}@{group}", {})
                row[queue_id] = max(0, end - behind)

    def save(self, root: Path) -> Path:
        """Write the log, queues, index and tables below a directory, and return it."""
        log = log_folder(root, is_ledger=self.is_ledger)
        log.mkdir(parents=True)
        for base in range(0, max(1, len(self._log)), self.log_size):
            data = bytes(self._log[base : base + self.log_size]).ljust(self.log_size, b"\0")
            (log / f"{base:020}").write_bytes(data)
        for (topic, queue_id), units in self._queues().items():
            folder = root / "consumequeue" / topic / str(queue_id)
            folder.mkdir(parents=True)
            size = self.queue_units * UNIT
            for base in range(0, len(units), size):
                data = bytes(units[base : base + size]).ljust(size, b"\0")
                (folder / f"{base:020}").write_bytes(data)
        self._save_index(root)
        newest = max((one.message.stored for one in self.placed), default=0) + START_MS
        times = struct.pack(">3q", newest, newest, newest)
        (root / "checkpoint").write_bytes(times.ljust(4096, b"\0"))
        self._save_tables(root / "config")
        return root

    def _queues(self) -> dict[tuple[str, int], bytearray]:
        queues: dict[tuple[str, int], bytearray] = {}
        for at, size, number, message in self.placed:
            if message.sys_flag & 4:
                continue
            units = queues.setdefault((message.topic, message.queue_id), bytearray())
            if len(units) < (number + 1) * UNIT:
                units += bytes((number + 1) * UNIT - len(units))
            struct.pack_into(">qiq", units, number * UNIT, at, size, tags_code(message))
        return queues

    def _save_index(self, root: Path) -> None:
        keys = [
            (abs(java_hash(f"{one.message.topic}#{word}")), one)
            for one in self.placed
            if one.message.sys_flag & 0xC != 0xC
            for word in (one.message.uniq, *one.message.key.split())
            if word
        ]
        if not keys:
            return
        slots, items = [0] * SLOTS, bytearray(UNIT * ITEMS)
        first, last = keys[0][1], keys[-1][1]
        for number, (key, one) in enumerate(keys, 1):
            seconds = (one.message.stored - first.message.stored) // 1000
            before = slots[key % SLOTS]
            struct.pack_into(">iqii", items, number * UNIT, key, one.at, seconds, before)
            slots[key % SLOTS] = number
        used = sum(1 for number in slots if number)
        times = [START_MS + one.message.stored for one in (first, last)]
        head = struct.pack(">4q2i", *times, first.at, last.at, used, len(keys) + 1)
        (root / "index").mkdir()
        data = head + struct.pack(f">{SLOTS}i", *slots) + items
        (root / "index" / "20231114221320000").write_bytes(data)

    def _save_tables(self, config: Path) -> None:
        topics = {
            name: {
                "order": False, "perm": 6, "readQueueNums": count, "topicFilterType": "SINGLE_TAG",
                "topicName": name, "topicSysFlag": 0, "writeQueueNums": count,
            }
            for name, count in self.topics.items()
        }  # fmt: skip
        groups = {
            name: {
                "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True,
                "consumeFromMinEnable": True, "groupName": name,
                "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1,
                "whichBrokerWhenConsumeSlowly": 1,
            }
            for name in self.groups
        }  # fmt: skip
        version = {"counter": 3, "timestamp": START_MS}
        put_table(config, "topics", {"dataVersion": version, "topicConfigTable": topics})
        put_table(
            config, "subscriptionGroup", {"dataVersion": version, "subscriptionGroupTable": groups}
        )
        put_table(config, "consumerOffset", {"offsetTable": self.offsets})
        put_table(config, "delayOffset", {"offsetTable": self.delays})


def log_folder(root: Path, *, is_ledger: bool = False) -> Path:
    """Return the directory of the log's files."""
    return root / "dledger-n0" / "data" if is_ledger else root / "commitlog"


def put_table(config: Path, name: str, table: dict[str, Any]) -> None:
    """Write a table and its `.bak`."""
    config.mkdir(exist_ok=True)
    for path in (config / f"{name}.json", config / f"{name}.json.bak"):
        path.write_text(json.dumps(table))


def record(message: Message, queue_offset: int, at: int) -> bytes:
    """Return the bytes of a record."""
    told = {"UNIQ_KEY": message.uniq, "KEYS": message.key, "TAGS": message.tags}
    if message.level:
        told["DELAY"] = str(message.level)
    pairs = [*((name, text) for name, text in told.items() if text), *message.more]
    properties = "".join(f"{name}\1{text}\2" for name, text in pairs).encode()
    topic = message.topic.encode()
    host = bytes((10, 0, 0, 1)) + struct.pack(">i", 10911)
    born = message.stored if message.born < 0 else message.born
    tail = struct.pack(">i", len(message.body)) + message.body
    tail += bytes((len(topic),)) + topic + struct.pack(">h", len(properties)) + properties
    return (
        struct.pack(
            ">iIIiiqqiq",
            84 + len(tail), 0xDAA320A7, zlib.crc32(message.body) & 0x7FFFFFFF, message.queue_id, 0,
            queue_offset, at, message.sys_flag, START_MS + born,
        )
        + host
        + struct.pack(">q", START_MS + message.stored)
        + host
        + struct.pack(">iq", message.reconsumed, 0)
        + tail
    )  # fmt: skip


def java_hash(text: str) -> int:
    """Return the hash that `String.hashCode` of Java returns for a text."""
    code = 0
    for char in text:
        code = (31 * code + ord(char)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def tags_code(message: Message) -> int:
    """
    Return the last number of a queue entry: the hash of the tags, or the time at which a delayed
    message is due.
    """
    if message.topic == SCHEDULE and message.level:
        return START_MS + message.stored + 1000 * LEVELS[message.level - 1]
    return java_hash(message.tags) if message.tags else 0


def delayed(message: Message, level: int) -> Message:
    """Return the copy of a message that waits in the schedule topic."""
    real = (("REAL_TOPIC", message.topic), ("REAL_QID", str(message.queue_id)))
    return message._replace(
        topic=SCHEDULE, queue_id=level - 1, level=level, more=(*message.more, *real)
    )


def ordinary(count: int, topics: int = 2, queues: int = 2, step: int = 40) -> Iterator[Message]:
    """Yield messages with keys and tags, stored `step` ms after each other."""
    for number in range(count):
        yield Message(
            f"Topic{number % topics}",
            number // topics % queues,
            b"message %d " % number * (1 + number % 7),
            f"key{number} also{number % 5}",
            f"7F000001{number:024X}",
            f"Tag{number % 3}",
            number * step,
        )


def store_of(messages: Iterable[Message], **given: Any) -> BareStore:
    """Return a store with these messages, all of them consumed."""
    store = BareStore(**given)
    if store.is_ledger:
        store.begin_term()
    for message in messages:
        store.add(message)
    store.consumed()
    return store


# Patches of files


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Turn one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def overwrite(path: Path, at: int, patch: bytes) -> None:
    """Put other bytes into a file."""
    data = bytearray(path.read_bytes())
    data[at : at + len(patch)] = patch
    path.write_bytes(data)


def patch_log(
    root: Path, at: int, patch: bytes, log_size: int = 16384, *, is_ledger: bool = False
) -> None:
    """Put other bytes into the log, at a physical offset."""
    base = at // log_size * log_size
    overwrite(log_folder(root, is_ledger=is_ledger) / f"{base:020}", at - base, patch)
