"""Lays a group of messages out as records, in one pass.

This is the hot path of the broker: it runs for every message that is sent.

Spec: store.md, sections 2.1 to 2.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct, error

from rmq_ha.base.model.flags import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_PREPARED
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    Draft,
    Message,
    MessageBatch,
    Row,
    offset_msg_id,
)
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE, decode_properties
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import SCHEDULE_TOPIC, topic_fault
from rmq_ha.base.store_format.commitlog import (
    BLANK_SIZE,
    CRC_MASK,
    HEADS,
    MAX_TOPIC_SIZE,
    MESSAGE_MAGIC,
    code_of,
    crc32,
    encode_blank,
    topic_part,
)
from rmq_ha.server.store.log.batch import BatchLayout

_SHORT = Struct(">H")
_SAME_HOSTS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_RECORD_SLACK = 65536
_MAX_REMEMBERED = 65536
_PARTS = 5
"""How many items of `Segment.parts` each record has."""
_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL


@dataclass(slots=True)
class Segment:
    """
    Records that one write puts into one file; `rmq_ha.base.store_format.run` describes their rows.

    :ivar first: number of its first draft in the group.
    """

    physical_offset: int
    first: int = 0
    parts: list[bytes] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    work: int = 0
    end: int = 0


@dataclass(slots=True)
class Group:
    """
    A group of drafts that are laid out as records.

    :ivar count: number of drafts.
    :ivar rows: one for each record, in order.
    :ivar size: size of these records, bytes.
    :ivar faults: by draft number, why a draft did not become a record.
    """

    count: int
    segments: list[Segment]
    size: int = 0
    rows: list[Row] = field(default_factory=list)
    faults: dict[int, PutMessageStatus] = field(default_factory=dict)

    @classmethod
    def refused(cls, count: int, status: PutMessageStatus) -> "Group":
        """Return a group of which no draft was stored."""
        return cls(count, [], faults=dict.fromkeys(range(count), status))

    def give_up(self, number: int, status: PutMessageStatus) -> list[Row]:
        """Drop the records of segment `number` and all later ones; return their rows."""
        lost = [row for segment in self.segments[number:] for row in segment.rows]
        del self.rows[len(self.rows) - len(lost) :]
        self.size -= sum([row[3] for row in lost])
        for place in range(self.segments[number].first, self.count):
            self.faults.setdefault(place, status)
        del self.segments[number:]
        return lost

    def records(self) -> list[bytes]:
        """Return the bytes of each record, for a log that writes headers between them."""
        parts = [part for segment in self.segments for part in segment.parts]
        return [b"".join(parts[at : at + _PARTS]) for at in range(0, len(parts), _PARTS)]


class GroupEncoder:
    """
    Turns messages into records; knows the limits and the next queue offsets.

    :param delay_levels: delay of level 1, 2, ..., ms.
    :param gap: size in bytes of the header that the log writes before every record: 48 in DLedger
        mode, where each record is the body of an entry, else 0. The blank that closes a file has
        such a header, too.
    :param largest: most bytes of a record.
    :ivar gap: see the parameter.
    :ivar queue_offsets: next queue offset by topic and queue.
    """

    def __init__(
        self, file_size: int, delay_levels: list[int], gap: int = 0, largest: int = 1 << 31
    ) -> None:
        self._file_size = file_size
        self.gap = gap
        self._largest = min(largest, file_size - gap - BLANK_SIZE)
        self._delay_levels = delay_levels
        self._topics: dict[str, bytes] = {}
        self.queue_offsets: dict[tuple[str, int], int] = {}

    def fault(self, message: Message, max_message_size: int) -> PutMessageStatus | None:
        """Return why a message cannot be stored, or None. Spec: store.md, section 2.6."""
        topic_bytes, body = self._topic_part(message.topic), message.body
        stored = message.properties_string.encode("utf-8", "replace")
        hosts = len(message.born_host.ip) + len(message.store_host.ip)
        size = 82 + hosts + len(body) + len(topic_bytes) + len(stored)
        if (
            topic_bytes
            and len(body) <= max_message_size
            and size <= self._most(max_message_size)
            and len(stored) <= MAX_PROPERTIES_SIZE
        ):
            return None
        return _fault(message.properties_string, topic_bytes, stored)

    def encode(
        self, drafts: Sequence[Draft], physical_offset: int, max_message_size: int, stamp: int
    ) -> Group:
        """
        Lay drafts out as records from the end of the log on, and number them by `queue_offsets`.

        :param physical_offset: place of the first record, after its gap, if it fits into that file.
        :param stamp: the store timestamp of all records, ms.
        """
        segment = Segment(physical_offset)
        group = Group(len(drafts), [segment])
        parts, rows = segment.parts, segment.rows
        topics, numbers, gap = self._topics, self.queue_offsets, self.gap
        largest = min(max_message_size + _RECORD_SLACK, self._largest)
        position = physical_offset
        file_size = self._file_size
        # No record crosses the end of a file, and a blank must always fit after the last record.
        # `position` is the start of a record, so the gap before it is subtracted to find its file.
        room_end = position - (position - gap) % file_size - gap + file_size - BLANK_SIZE
        topic, topic_bytes, topic_size = "", b"", 0
        born_host = store_host = None
        overhead = kind = work = place = total = 0
        pack = HEADS[0].pack
        for (
            name, queue_id, body, born, store, born_ms, flag, sys_flag, reconsumed, prepared,
            keys, uniq_key, tags, text,
        ) in drafts:  # fmt: skip
            # Consecutive drafts mostly have the same topic and hosts, so these are laid out only at
            # a change.
            if name != topic:
                topic, topic_bytes = name, topics.get(name) or self._topic_part(name)
                topic_size = len(topic_bytes)
            if born is not born_host or store is not store_host:
                born_host, store_host = born, store
                kind = len(born[0]) >> 4 | len(store[0]) >> 4 << 1
                pack, overhead = HEADS[kind].pack, HEADS[kind].size + 2
            stored = text.encode("utf-8", "replace")
            length, stored_size = len(body), len(stored)
            size = overhead + length + topic_size + stored_size
            if (
                length > max_message_size
                or size > largest
                or stored_size > MAX_PROPERTIES_SIZE
                or not topic_size
            ):
                group.faults[place] = _fault(text, topic_bytes, stored)
                place += 1
                continue
            if position + size > room_end:
                segment.work, work = work, 0
                segment = _roll(group, position, room_end + BLANK_SIZE, gap, place)
                rows, parts, position = segment.rows, segment.parts, segment.physical_offset
                room_end += file_size
            sys_flag = sys_flag & _SAME_HOSTS | kind << 4
            # prepared and rolled-back messages have the bit TRANSACTION_PREPARED, and no queue
            # offset
            counted = not sys_flag & TRANSACTION_PREPARED
            key = (name, queue_id)
            number = numbers.get(key, 0) if counted else 0
            try:
                head = pack(
                    size, MESSAGE_MAGIC, crc32(body) & CRC_MASK, queue_id, flag, number, position,
                    sys_flag, born_ms, born[0], born[1], stamp, store[0], store[1], reconsumed,
                    prepared, length,
                )  # fmt: skip
            except error:  # a value that does not fit its field
                group.faults[place] = _ILLEGAL
                place += 1
                continue
            # Count only here: a refused draft must leave no hole in the offsets of its queue.
            if counted:
                numbers[key] = number + 1
            parts += (head, body, topic_bytes, _SHORT.pack(stored_size), stored)
            code = tags_code(tags) if tags else 0
            if name == SCHEDULE_TOPIC:
                code = code_of(name, decode_properties(text), stamp, self._delay_levels) or 0
            if keys:
                work += len(keys)
            rows.append(
                (
                    name, queue_id, position, size, code, stamp, number, keys, uniq_key, sys_flag,
                    prepared, text,
                )
            )  # fmt: skip
            position += size + gap
            total += size
            place += 1
        segment.end, segment.work = position, work
        if segment.first:
            rows = [row for segment in group.segments for row in segment.rows]
        group.rows, group.size = rows, total
        return group

    def undo(self, rows: list[Row]) -> None:
        """Take back the queue offsets of records that did not get into the log."""
        for row in reversed(rows):
            if not row[9] & TRANSACTION_PREPARED:
                self.queue_offsets[row[:2]] = row[6]

    def lay_out(self, batch: MessageBatch, max_message_size: int) -> BatchLayout:
        """Return the layout of a batch without members; they are added later."""
        hosts = batch.born_host, batch.store_host
        return BatchLayout(
            batch,
            _with_hosts(batch.sys_flag, *hosts),
            self._topic_part(batch.topic),
            offset_msg_id(batch.store_host, 0)[:-16],
            self._most(max_message_size),
            max_message_size,
        )

    def place_batch(
        self, batch: BatchLayout, physical_offset: int, stamp: int
    ) -> tuple[Group, AppendResult]:
        """
        Place a batch at the end of the log, or in the next file if the last one has no room.

        The queue offsets of its members count as taken only after `count_batch`.

        :returns: a group without rows, as the dispatcher reads batches from the log, and the
            append's result.
        """
        segment = Segment(physical_offset)
        group = Group(1, [segment])
        position, file_size = physical_offset, self._file_size
        next_file = position - position % file_size + file_size
        if position + batch.size > next_file - BLANK_SIZE:
            segment = _roll(group, position, next_file, 0, 0)
            position = segment.physical_offset
        ends = list(accumulate(batch.sizes, initial=position))
        segment.end = ends.pop()
        result = batch.place(ends, self.next_number(batch), stamp)
        segment.parts.append(batch.data())
        return group, result

    def next_number(self, batch: BatchLayout) -> int:
        """Return the queue offset of the batch's first member."""
        return self.queue_offsets.get((batch.batch.topic, batch.batch.queue_id), 0)

    def count_batch(self, batch: BatchLayout) -> None:
        """Count the members' queue offsets as taken, after they are in the log."""
        key = (batch.batch.topic, batch.batch.queue_id)
        self.queue_offsets[key] = self.next_number(batch) + len(batch.sizes)

    def _most(self, max_message_size: int) -> int:
        """Return the most bytes that a record may have."""
        return min(max_message_size + _RECORD_SLACK, self._largest)

    def _topic_part(self, topic: str) -> bytes:
        """
        Return the topic as it is stored, from memory if known; empty if it must not be stored.
        """
        known = self._topics.get(topic)
        if known is None:
            encoded = topic.encode("utf-8", "replace")
            fits = len(encoded) <= MAX_TOPIC_SIZE and topic_fault(topic) is None
            known = topic_part(encoded) if fits else b""
            if len(self._topics) >= _MAX_REMEMBERED:
                self._topics.clear()
            self._topics[topic] = known
        return known


def _fault(text: str, topic_bytes: bytes, stored: bytes) -> PutMessageStatus:
    """
    Return why a message cannot be stored.

    Java's store checks the topic and counts characters; its encoder counts bytes.

    Spec: store.md, section 2.6.
    """
    is_for_encoder = topic_bytes and len(text) <= MAX_PROPERTIES_SIZE
    if is_for_encoder and len(stored) > MAX_PROPERTIES_SIZE:
        return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    return _ILLEGAL


def _with_hosts(sys_flag: int, born_host: Address, store_host: Address) -> int:
    """Return the sysFlag with its two IPv6 bits set as the addresses require."""
    flag = sys_flag & _SAME_HOSTS
    if born_host.is_v6:
        flag |= BORN_HOST_V6
    if store_host.is_v6:
        flag |= STORE_HOST_V6
    return flag


def _roll(group: Group, position: int, next_file: int, gap: int, place: int) -> Segment:
    """
    End a file, with a blank if this log writes blanks itself; return the segment of the next file.
    """
    last = group.segments[-1]
    if not gap:
        last.parts.append(encode_blank(next_file - position))
    last.end = next_file
    segment = Segment(next_file + gap, place)
    group.segments.append(segment)
    return segment
