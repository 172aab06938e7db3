"""
Makes records for large stores: the broker's own encoder makes some thousand records, which are
copied and numbered.

The fields that differ from one message to the next (numbers, offsets, times, keys, the CRC of the
body) are written into the copies as whole columns.

Spec: store.md, sections 2.1 to 2.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.store_format.commitlog import Record, body_crc, encode_record
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE

GIBIBYTE = 1 << 30
FIRST_MS = 1_700_000_000_000
MAX_BLOCK = 8192
"""Records in a block."""
_DIGITS = 12
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_BLOCK_BYTES = 12 << 20
_LENGTHS = 8
_TAGS = ("created", "paid", "shipped", "returned")
_WORDS = (
    "order customer street city amount currency EUR quantity article price total",
    "paid shipped warehouse north south carrier weight parcel invoice discount",
    "voucher gift note express",
)
_HOST = Address.parse("10.20.30.40", 10911)
_UNIQUE = "0A141E281F905B2133A1"
"""Address, process and producer, as Java's clients begin their ids."""
_MONTH_MS = 31 * 86_400_000


class Shape(NamedTuple):
    """
    The properties of a store to be written.

    :ivar size: bytes of commit log.
    :ivar body: bytes of a body, on average.
    :ivar queues: number of queues of each topic.
    :ivar rate: messages a second, in the times that they carry.
    :ivar file_size: `mappedFileSizeCommitLog`.
    :ivar queue_file_size: `mappedFileSizeConsumeQueue`, bytes.
    :ivar index_sizes: `(maxHashSlotNum, maxIndexNum)`, or None for no index: it is written by the
        broker's own code, message by message, which is far slower than the rest.
    """

    size: int
    body: int = 1024
    topics: int = 4
    queues: int = 4
    seed: int = 1
    first_ms: int = FIRST_MS
    rate: int = 20_000
    file_size: int = GIBIBYTE
    queue_file_size: int = 300_000 * UNIT_SIZE
    index_sizes: tuple[int, int] | None = None


def topic_names(shape: Shape) -> list[str]:
    """Return the names of the topics, all of the same length."""
    return [f"big-orders-{number:03d}" for number in range(shape.topics)]


@dataclass(slots=True)
class _Columns:
    """
    The places of the changing fields in each record of the block, and the values that they depend
    on.
    """

    queue: Any
    rank: Any
    born_before: Any
    code: Any
    keys_at: Any
    unique_at: Any
    body_at: Any
    crc: Any
    length: Any


class Block:
    """
    Some thousand records one after the other, to be copied and numbered.

    :ivar starts: where each record starts.
    :ivar ends: where it ends.
    :ivar names: topic and queue id of each queue, by its number.
    """

    def __init__(self, shape: Shape) -> None:
        random = Random(shape.seed)
        self._shape = shape
        self.names = [
            (topic, queue) for topic in topic_names(shape) for queue in range(shape.queues)
        ]
        spread = max(1, shape.body // 32)
        lengths = [max(0, shape.body + spread * (at - _LENGTHS // 2)) for at in range(_LENGTHS)]
        count = max(64, min(MAX_BLOCK, min(_BLOCK_BYTES, shape.size // 4) // (shape.body + 250)))
        pool = " ".join(random.choices(" ".join(_WORDS).split(), k=60_000)).encode()
        self._numbered = min(lengths) >= 8 + _DIGITS
        self._effects = _crc_effects(lengths) if self._numbered else None
        rows, parts, at = [], [], 0
        ranks = [0] * len(self.names)
        for _ in range(count):
            queue = random.randrange(len(self.names))
            length = random.randrange(_LENGTHS)
            record, row = self._record(random, queue, _body(random, pool, lengths[length]))
            rows.append((queue, ranks[queue], length, at, *row))
            ranks[queue] += 1
            parts.append(record)
            at += len(record)
        self._bytes = np.frombuffer(b"".join(parts), np.uint8)
        self._out = self._bytes.copy()
        table = np.array(rows, np.int64).T
        self.starts = table[3]
        self.ends = self.starts + np.array([len(part) for part in parts])
        self.columns = _Columns(
            queue=table[0],
            rank=table[1],
            born_before=table[4],
            code=table[5],
            keys_at=self.starts + table[6],
            unique_at=self.starts + table[7],
            body_at=self.starts + 88 + 7,
            crc=table[8].astype(np.uint32),
            length=table[2],
        )
        self.order = np.argsort(self.columns.queue, kind="stable")
        """The numbers of the records, sorted by queue, and within a queue in log order."""

    def _record(self, random: Random, queue: int, body: bytes) -> tuple[bytes, tuple[int, ...]]:
        topic, queue_id = self.names[queue]
        tag = random.choice(_TAGS)
        keys = "order-" + "0" * _DIGITS
        if random.random() < 0.5:
            keys += f" customer-{random.randrange(1000):03d}"
        properties = {
            "KEYS": keys,
            "UNIQ_KEY": _UNIQUE + "0" * _DIGITS,
            "CLUSTER": "DefaultCluster",
            "source": f"web-{random.randrange(100):02d}",
            "TAGS": tag,
        }
        record = encode_record(
            Record(
                size=0,
                body_crc=0,
                queue_id=queue_id,
                flag=0,
                queue_offset=0,
                physical_offset=0,
                sys_flag=0,
                born_timestamp=0,
                born_host=Address.parse(f"10.20.31.{random.randrange(1, 250)}", 40000 + queue),
                store_timestamp=0,
                store_host=_HOST,
                reconsume_times=0,
                prepared_transaction_offset=0,
                body=body,
                topic=topic,
                properties_string=encode_properties(properties),
            )
        )
        keys_at = record.rindex(b"KEYS\x01order-") + len(b"KEYS\x01order-")
        unique_at = record.rindex(_UNIQUE.encode()) + len(_UNIQUE)
        row = (random.randrange(5), tags_code(tag), keys_at, unique_at, body_crc(body))
        return record, row

    def fitting(self, room: int) -> int:
        """Return how many records, from the first one on, fit into a number of bytes."""
        return int(np.searchsorted(self.ends, room, side="right"))

    def store_times(self, first: int, count: int) -> Any:
        """Return the store times of messages by their numbers, in ms."""
        return self._shape.first_ms + np.arange(first, first + count) * 1000 // self._shape.rate

    def numbered(self, first: int, base: int, taken: Any, count: int) -> Any:
        """
        Return the bytes of the first `count` records, which are valid until the next call.

        :param first: number of the first message in the store.
        :param base: physical offset of the first record.
        :param taken: messages that each queue has already.
        """
        columns, starts = self.columns, self.starts[:count]
        out = self._out[: self.ends[count - 1]]
        out[:] = self._bytes[: len(out)]
        numbers = np.arange(first, first + count)
        times = self.store_times(first, count)
        offsets = np.stack((taken[columns.queue[:count]] + columns.rank[:count], base + starts), 1)
        _put(out, starts + 20, offsets.astype(">i8"))
        _put(out, starts + 40, (times - columns.born_before[:count]).astype(">i8")[:, None])
        _put(out, starts + 56, times.astype(">i8")[:, None])
        digits = _digits(numbers, 10)
        _put(out, columns.keys_at[:count], digits + 48)
        unique = (times - self._shape.first_ms) % _MONTH_MS << 16 | numbers & 0xFFFF
        _put(out, columns.unique_at[:count], _HEX[_digits(unique, 16)])
        if self._effects is not None:
            _put(out, columns.body_at[:count], digits + 48)
            crc = columns.crc[:count].copy()
            for place in range(_DIGITS):
                crc ^= self._effects[columns.length[:count], place, digits[:, place]]
            _put(out, starts + 8, (crc & 0x7FFFFFFF).astype(">u4")[:, None])
        return out


def _body(random: Random, pool: bytes, length: int) -> bytes:
    """
    Return a body of this length. It begins with the digits of a number, if there is room for them.
    """
    start = random.randrange(len(pool))
    head = b'{"id":"' + b"0" * _DIGITS + b'","note":"'
    text = pool[start:] + pool * (length // len(pool) + 1)
    return (head + text)[: max(0, length - 2)] + b'"}'[:length]


def _crc_effects(lengths: Sequence[int]) -> Any:
    """
    Return by length, place and digit the change of a body's CRC if the digit replaces a zero.

    CRC-32 is linear: what differs between two texts of one length adds (xor) to the CRC in a way
    that depends on nothing else.
    """
    effects = np.zeros((len(lengths), _DIGITS, 10), np.uint32)
    for number, length in enumerate(lengths):
        none = crc32(bytes(length))
        for place in range(_DIGITS):
            for digit in range(1, 10):
                text = bytearray(length)
                text[7 + place] = digit  # ord("0") ^ ord("3") is 3
                effects[number, place, digit] = crc32(text) ^ none
    return effects


def _digits(numbers: Any, base: int) -> Any:
    """Return the last `_DIGITS` digits of each number, a row for each."""
    out = np.empty((len(numbers), _DIGITS), np.uint8)
    rest = numbers
    for place in range(_DIGITS - 1, -1, -1):
        rest, out[:, place] = np.divmod(rest, base)
    return out


def _put(out: Any, positions: Any, values: Any) -> None:
    """Write one row of `values`, as the bytes that they are, at each position."""
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(positions), -1)
    sliding_window_view(out, rows.shape[1], writeable=True)[positions] = rows
