"""
The entries of queues and index that the records of a stretch require, computed once for both sides.

Spec: store.md, sections 3.1, 4.2 and 6.2.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.model.properties import DELAY, KEYS, TAGS
from rmq_ha.base.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.delay_levels import parse_delay_level
from rmq_ha.base.store_format.timer_times import TIMER_CODE_NAMES, timer_code
from rmq_ha.lake.scan.log.pieces import text_values
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.shape import Flags, Ints
from rmq_ha.lake.scan.replica.hashing import key_hashes, split_keys, tag_codes

_NOT_FOR_CONSUMERS = 0x4
_ROLLBACK = 0xC
NO_LEVEL = 0
"""Delay level of a message that is not delayed."""


class QueueRows(NamedTuple):
    """The records of one queue among those of a stretch, by their numbers, in log order."""

    topic: str
    queue_id: int
    rows: Ints


class Facts:
    """The entries that the records of one stretch of one log require."""

    def __init__(self, records: Records) -> None:
        self.records = records

    @cached_property
    def offsets(self) -> Ints:
        """Physical offset of each record."""
        offsets: Ints = self.records.positions + self.records.base
        return offsets

    @cached_property
    def queue_offsets(self) -> Ints:
        """The queue offset that is stored in each record."""
        queue_offsets: Ints = self.records.queue_offset
        return queue_offsets

    @cached_property
    def store_timestamps(self) -> Ints:
        """When each record was stored, in ms."""
        timestamps: Ints = self.records.store_timestamp
        return timestamps

    @cached_property
    def topics(self) -> Any:
        """Topic of each record, as Arrow texts."""
        return self.records.topics()

    @cached_property
    def has_entry(self) -> Flags:
        """Whether each record has an entry in a queue: prepared and rolled back ones do not."""
        has_entry: Flags = self.records.stored_sys_flag & _NOT_FOR_CONSUMERS == 0
        return has_entry

    @cached_property
    def queues(self) -> list[QueueRows]:
        """The queues that these records belong to."""
        encoded = self.topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        groups = codes << 32 | self.records.queue_id.astype(np.int64) & 0xFFFFFFFF
        rows = np.flatnonzero(self.has_entry)
        rows = rows[np.argsort(groups[rows], kind="stable")]
        cuts = np.flatnonzero(np.diff(groups[rows])) + 1
        queues = []
        for mine in np.split(rows, cuts):
            if len(mine):
                group = int(groups[mine[0]])
                queue_id = np.array(group & 0xFFFFFFFF, np.uint32).astype(np.int32)
                queues.append(QueueRows(names[group >> 32], int(queue_id), mine))
        return queues

    @cached_property
    def tag_codes(self) -> Ints:
        """
        Hash of each record's tags. The queue entry of a delayed message (`levels` is not
        `NO_LEVEL`) has its time of delivery in place of this hash.
        """
        return tag_codes(text_values(self.records.pieces, TAGS.encode()))

    @cached_property
    def levels(self) -> Ints:
        """Delay level of each record in the schedule topic, as its properties have it."""
        levels = np.full(len(self.records), NO_LEVEL, np.int64)
        if not any(queue.topic == SCHEDULE_TOPIC for queue in self.queues):
            return levels
        texts = text_values(self.records.pieces, DELAY.encode())
        for queue in self.queues:
            if queue.topic == SCHEDULE_TOPIC:
                for row in queue.rows.tolist():
                    text = texts[row].as_py()
                    level = parse_delay_level(text) if text is not None else None
                    levels[row] = max(level or NO_LEVEL, NO_LEVEL)
        return levels

    @cached_property
    def timer_codes(self) -> Ints:
        """
        The number that the queue entry of a timer message has in place of the hash of its tags: its
        due time, and the bits of recalls and copies; -1 for other records. Queues that Java built
        have hashes.
        """
        codes = np.full(len(self.records), -1, np.int64)
        mine = [queue for queue in self.queues if queue.topic == TIMER_TOPIC]
        if not mine:
            return codes
        texts = {name: text_values(self.records.pieces, name.encode()) for name in TIMER_CODE_NAMES}
        for queue in mine:
            for row in queue.rows.tolist():
                values = {name: column[row].as_py() for name, column in texts.items()}
                code = timer_code({name: text for name, text in values.items() if text})
                codes[row] = -1 if code is None else code
        return codes

    @cached_property
    def keys(self) -> tuple[Ints, Ints]:
        """The index items that records require: row and key's hash of each, in any order."""
        indexed = self.records.stored_sys_flag & _ROLLBACK != _ROLLBACK
        unique = self.records.uniq_key
        with_id = np.flatnonzero(unique.is_valid().to_numpy(zero_copy_only=False))
        several, words = split_keys(text_values(self.records.pieces, KEYS.encode()))
        rows = np.concatenate((with_id, several))
        hashes = np.concatenate(
            (
                key_hashes(self.topics.take(_arrow(with_id)), unique.take(_arrow(with_id))),
                key_hashes(self.topics.take(_arrow(several)), words),
            )
        )
        mine = indexed[rows]
        return rows[mine], hashes[mine]


def _arrow(rows: Ints) -> Any:
    import pyarrow as pa

    return pa.array(rows, pa.int64())
