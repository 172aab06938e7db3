"""The files in which brokers of RocketMQ 5 keep their timer messages: timer log, wheel, checkpoint.

A unit of the timer log stands for one message, and the units of a second form a chain. The wheel
has a slot for each second, which leads to the last unit of the chain. All times are in ms, and
slots are a second wide (`timerPrecisionMs` is 1000).

Spec: timer.md, section 8.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from rmq_ha.base.model.java_hash import java_hash

PRECISION_MS = 1000
WHEEL_SLOTS = 2 * 7 * 24 * 3600
SLOT_SIZE = 32
UNIT_SIZE = 52
CHECKPOINT_SIZE = 4096
_UNIT = Struct(">iqiqiqiiq")
_SLOT = Struct(">qqqii")
_BLANK = Struct(">iqi")
_CHECKPOINT = Struct(">7q")
_BLANK_MAGIC = -875286124
_PLAIN, _ROLL = 1, 2
_WINDOW_MS = 172_800 * PRECISION_MS
"""
A message that is due later than in this time waits in a nearer slot, after which Java stores it
again. This is the default of Java's `timerRollWindowSlot`.
"""
_OLDEST_MS = 6 * 24 * 3_600_000
"""
Age of the oldest slot that gets a waiting message. A start of Java reads the slots of the last 7
days, so it reads this one, too.
"""


class WaitingRecord(NamedTuple):
    """
    A record of the timer topic.

    :ivar out_ms: its TIMER_OUT_MS.
    :ivar place: its physical offset.
    :ivar size: size of the record, in bytes.
    :ivar topic: the topic to which the message goes when it is due.
    """

    out_ms: int
    place: int
    size: int
    topic: str


@dataclass(frozen=True)
class JavaTimerFiles:
    """
    The content of the files.

    :ivar log: the bytes of each file of the timer log, by its first position.
    :ivar slots: the slots of the wheel, by their place in its file, in bytes.
    :ivar checkpoint: the bytes of the checkpoint.
    """

    log: dict[int, bytes] = field(default_factory=dict)
    slots: dict[int, bytes] = field(default_factory=dict)
    checkpoint: bytes = b""


class _Chains:
    """
    The timer log, and the chain of each slot.

    :param write_ms: the time that each unit names as the time of its writing, ms since the epoch.
    :ivar files: the bytes of each file of the timer log, by its first position.
    :ivar slots: positions of the first and last unit, and number of units, by number of the slot.
    :ivar end: position at which the next unit begins.
    """

    def __init__(self, file_size: int, write_ms: int) -> None:
        self._file_size = file_size
        self._write_ms = write_ms
        self.files: dict[int, bytearray] = {}
        self.slots: dict[int, tuple[int, int, int]] = {}
        self.end = 0

    def add(self, record: WaitingRecord, slot_ms: int, magic: int) -> None:
        base = self.end - self.end % self._file_size
        if self.end - base + UNIT_SIZE + _BLANK.size > self._file_size:
            blank = _BLANK.pack(base + self._file_size - self.end, 0, _BLANK_MAGIC)
            self.files[base] += blank
            base = self.end = base + self._file_size
        number = slot_ms // PRECISION_MS
        first, last, count = self.slots.get(number, (self.end, -1, 0))
        self.files.setdefault(base, bytearray()).extend(
            _UNIT.pack(
                UNIT_SIZE,
                last,
                magic,
                self._write_ms,
                slot_ms - self._write_ms,
                record.place,
                record.size,
                java_hash(record.topic),
                0,
            )
        )
        self.slots[number] = (first, self.end, count + 1)
        self.end += UNIT_SIZE


def java_timer_files(
    waiting: Iterable[WaitingRecord],
    last: WaitingRecord | None,
    queue_end: int,
    now_ms: int,
    file_size: int,
) -> JavaTimerFiles:
    """
    Make the files with which a Java broker delivers the waiting timer messages, and no others.

    :param waiting: the records that wait, in the order of the timer topic's queue.
    :param last: the last record of that queue if it does not wait any more. Java goes on to read
        the queue behind the record of the last unit, so this record gets a unit in a slot that is
        over.
    :param queue_end: the end of that queue.
    :param file_size: `mappedFileSizeTimerLog`.
    """
    write_ms = now_ms - now_ms % PRECISION_MS
    oldest, read_ms = write_ms - _OLDEST_MS, write_ms
    chains = _Chains(file_size, write_ms)
    for record in waiting:
        # A record that is overdue by more than `_OLDEST_MS` goes into the slot of that time, which
        # Java still reads. A record that is due beyond the window waits in a slot within it, from
        # which Java puts it in again.
        slot_ms, magic = max(record.out_ms, oldest), _PLAIN
        beyond = slot_ms - write_ms - _WINDOW_MS
        if beyond >= 0:
            magic |= _ROLL
            is_near = beyond < _WINDOW_MS // 3
            slot_ms = write_ms + (_WINDOW_MS // 2 if is_near else _WINDOW_MS)
        chains.add(record, slot_ms, magic)
        read_ms = min(read_ms, slot_ms - slot_ms % PRECISION_MS)
    if last is not None:
        chains.add(last, oldest - PRECISION_MS, _PLAIN)
    slots = {
        number % WHEEL_SLOTS * SLOT_SIZE: _SLOT.pack(number, first, end, count, 0)
        for number, (first, end, count) in chains.slots.items()
    }
    counts = _CHECKPOINT.pack(read_ms, chains.end, queue_end, queue_end, 0, now_ms, 1)
    log = {base: bytes(content) for base, content in chains.files.items()}
    return JavaTimerFiles(log, slots, counts.ljust(CHECKPOINT_SIZE, b"\0"))
