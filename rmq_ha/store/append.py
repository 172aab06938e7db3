"""One pass that lays a group of messages out as records.

The hot path of the broker: what is done here is done for every message that is sent.

Spec: store.md, sections 2.1 to 2.8.
"""

from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct, error

from rmq_ha.model.flags import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_PREPARED
from rmq_ha.model.java_hash import tags_code
from rmq_ha.model.message import (
    Address,
    AppendResult,
    Message,
    MessageBatch,
    Row,
    offset_msg_id,
)
from rmq_ha.model.properties import (
    KEYS,
    MAX_PROPERTIES_SIZE,
    TAGS,
    UNIQ_KEY,
    decode_properties,
)
from rmq_ha.model.status import PutMessageStatus
from rmq_ha.model.topics import SCHEDULE_TOPIC, topic_fault
from rmq_ha.store.batch import BatchLayout
from rmq_ha.store.format.commitlog import (
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

_SHORT = Struct(">H")
_SAME_HOSTS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_RECORD_SLACK = 65536
_MAX_REMEMBERED = 65536
_PARTS = 5
"""Of each record, in its segment."""
_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL


@dataclass(slots=True)
class Segment:
    """What goes into one file with one write; `rmq_ha.store.run` says what its rows are."""

    physical_offset: int
    parts: list[bytes] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    work: int = 0
    end: int = 0
    first_result: int = 0


@dataclass(slots=True)
class Group:
    """
    A group of messages, laid out.

    :ivar results: one for each message, in order.
    """

    segments: list[Segment]
    results: list[AppendResult | PutMessageStatus] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """One for each record."""
        return [row for segment in self.segments for row in segment.rows]

    def records(self) -> list[bytes]:
        """The bytes of each record, for a log that puts something between them."""
        parts = [part for segment in self.segments for part in segment.parts]
        return [b"".join(parts[at : at + _PARTS]) for at in range(0, len(parts), _PARTS)]


class GroupEncoder:
    """
    Turns messages into records; knows limits and the numbering of queues.

    :param delay_levels: ms of level 1, 2, ...
    :param gap: bytes that the log puts before each record, and then also the blanks.
    :param largest: bytes that a record may have.
    :ivar queue_offsets: next queue offset by topic and queue.
    """

    def __init__(
        self, file_size: int, delay_levels: list[int], gap: int = 0, largest: int = 1 << 31
    ) -> None:
        self._file_size = file_size
        self._gap = gap
        self._largest = min(largest, file_size - gap - BLANK_SIZE)
        self._delay_levels = delay_levels
        self._topics: dict[str, bytes] = {}
        self._id_prefixes: dict[Address, str] = {}
        self.queue_offsets: dict[tuple[str, int], int] = {}

    def fault(self, message: Message, max_message_size: int) -> PutMessageStatus | None:
        """Why a message cannot be stored, or None. Spec: store.md, section 2.6."""
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
        return _fault(message, topic_bytes, stored)

    def encode(
        self,
        messages: list[Message],
        physical_offset: int,
        max_message_size: int,
        stamp: int,
    ) -> Group:
        """
        Lay out messages from the end of the log on; numbers are taken from `queue_offsets`.

        :param physical_offset: where the first record goes, if it fits, the gap before it counted.
        :param stamp: the store timestamp of all of them, ms.
        """
        group = Group([Segment(physical_offset)])
        results, segment = group.results, group.segments[0]
        rows, parts = segment.rows, segment.parts
        topics, numbers = self._topics, self.queue_offsets
        largest, gap = self._most(max_message_size), self._gap
        position = physical_offset
        room_end = self._room_end(position - gap)
        born_host = store_host = None
        hosts, id_prefix = 0, ""
        for message in messages:
            topic_bytes = topics.get(message.topic) or self._topic_part(message.topic)
            stored = message.properties_string.encode("utf-8", "replace")
            if message.born_host is not born_host or message.store_host is not store_host:
                born_host, store_host = message.born_host, message.store_host
                hosts = len(born_host.ip) + len(store_host.ip)
                id_prefix = self._id_prefix(store_host)
            body = message.body
            size = 82 + hosts + len(body) + len(topic_bytes) + len(stored)
            if (
                len(body) > max_message_size
                or size > largest
                or len(stored) > MAX_PROPERTIES_SIZE
                or not topic_bytes
            ):
                results.append(_fault(message, topic_bytes, stored))
                continue
            if position + size > room_end:
                segment = _roll(group, position, room_end + BLANK_SIZE, gap)
                rows, parts, position = segment.rows, segment.parts, segment.physical_offset
                room_end = self._room_end(position - gap)
            sys_flag = (
                message.sys_flag & _SAME_HOSTS
                if hosts == 8
                else _with_hosts(message.sys_flag, born_host, store_host)
            )
            # prepared and rolled-back types share the bit of prepared; they have no number
            counted = not sys_flag & TRANSACTION_PREPARED
            key = (message.topic, message.queue_id)
            number = numbers.get(key, 0) if counted else 0
            try:
                head = _head(message, position, size, sys_flag, number, stamp)
            except error:  # a value that does not fit its field
                results.append(_ILLEGAL)
                continue
            if counted:
                numbers[key] = number + 1
            parts += (head, body, topic_bytes, _SHORT.pack(len(stored)), stored)
            row = self._row(message, position, size, sys_flag, number, stamp)
            rows.append(row)
            if row[7]:
                segment.work += len(row[7])
            msg_id = f"{id_prefix}{position:016X}"
            results.append(AppendResult(position, size, stamp, number, 1, msg_id))
            position += size + gap
        segment.end = position
        return group

    def undo(self, rows: list[Row]) -> None:
        """Take back the numbers of records that did not get into the log."""
        for row in reversed(rows):
            if not row[9] & TRANSACTION_PREPARED:
                self.queue_offsets[row[:2]] = row[6]

    def lay_out(self, batch: MessageBatch, max_message_size: int) -> BatchLayout:
        """A batch whose members are added to it later."""
        hosts = batch.born_host, batch.store_host
        return BatchLayout(
            batch,
            _with_hosts(batch.sys_flag, *hosts),
            self._topic_part(batch.topic),
            self._id_prefix(batch.store_host),
            self._most(max_message_size),
            max_message_size,
        )

    def place_batch(self, batch: BatchLayout, physical_offset: int, stamp: int) -> Group:
        """
        Put a batch at the end of the log, or where that file has no room into the next.

        Its members take their numbers when they are in the log: see `count_batch`.

        :returns: with one result for all of it, and no rows: who dispatches reads the log.
        """
        group = Group([Segment(physical_offset)])
        position, room_end = physical_offset, self._room_end(physical_offset)
        if position + batch.size > room_end:
            position = _roll(group, position, room_end + BLANK_SIZE, 0).physical_offset
        ends = list(accumulate(batch.sizes, initial=position))
        group.segments[-1].end = ends.pop()
        group.results.append(batch.place(ends, self.next_number(batch), stamp))
        group.segments[-1].parts.append(batch.data())
        return group

    def next_number(self, batch: BatchLayout) -> int:
        """The queue offset that its first member gets."""
        return self.queue_offsets.get((batch.batch.topic, batch.batch.queue_id), 0)

    def count_batch(self, batch: BatchLayout) -> None:
        """Its members are in the log."""
        key = (batch.batch.topic, batch.batch.queue_id)
        self.queue_offsets[key] = self.next_number(batch) + len(batch.sizes)

    def _most(self, max_message_size: int) -> int:
        """Bytes that a record may have."""
        return min(max_message_size + _RECORD_SLACK, self._largest)

    def _room_end(self, position: int) -> int:
        """Records of the file that holds `position` end here at the latest."""
        return position - position % self._file_size + self._file_size - BLANK_SIZE

    def _row(
        self, message: Message, position: int, size: int, sys_flag: int, number: int, stamp: int
    ) -> Row:
        properties = message.properties
        if not properties and message.properties_string:
            properties = decode_properties(message.properties_string)
        tags = properties.get(TAGS)
        if message.topic == SCHEDULE_TOPIC:
            code = code_of(message.topic, properties, stamp, self._delay_levels) or 0
        else:
            code = tags_code(tags) if tags else 0
        return (
            message.topic,
            message.queue_id,
            position,
            size,
            code,
            stamp,
            number,
            properties.get(KEYS, ""),
            properties.get(UNIQ_KEY, ""),
            sys_flag,
            message.prepared_transaction_offset,
            message.properties_string,
        )

    def _topic_part(self, topic: str) -> bytes:
        """The topic as stored, remembered; empty for one that may not be stored."""
        known = self._topics.get(topic)
        if known is None:
            encoded = topic.encode("utf-8", "replace")
            fits = len(encoded) <= MAX_TOPIC_SIZE and topic_fault(topic) is None
            known = topic_part(encoded) if fits else b""
            if len(self._topics) >= _MAX_REMEMBERED:
                self._topics.clear()
            self._topics[topic] = known
        return known

    def _id_prefix(self, host: Address) -> str:
        """The part of an offsetMsgId that is the host, remembered."""
        prefix = self._id_prefixes.get(host)
        if prefix is None:
            if len(self._id_prefixes) >= _MAX_REMEMBERED:
                self._id_prefixes.clear()
            prefix = offset_msg_id(host, 0)[:-16]
            self._id_prefixes[host] = prefix
        return prefix


def _fault(message: Message, topic_bytes: bytes, stored: bytes) -> PutMessageStatus:
    """
    Why a message cannot be stored: Java's store asks for topic and characters, its encoder for
    bytes.

    Spec: store.md, section 2.6.
    """
    is_for_encoder = topic_bytes and len(message.properties_string) <= MAX_PROPERTIES_SIZE
    if is_for_encoder and len(stored) > MAX_PROPERTIES_SIZE:
        return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    return _ILLEGAL


def _with_hosts(sys_flag: int, born_host: Address, store_host: Address) -> int:
    """The sysFlag with the two IPv6 bits as the hosts are."""
    flag = sys_flag & _SAME_HOSTS
    if born_host.is_v6:
        flag |= BORN_HOST_V6
    if store_host.is_v6:
        flag |= STORE_HOST_V6
    return flag


def _head(
    message: Message, position: int, size: int, sys_flag: int, number: int, stamp: int
) -> bytes:
    born_ip, born_port = message.born_host
    store_ip, store_port = message.store_host
    body = message.body
    return HEADS[sys_flag >> 4 & 3].pack(
        size,
        MESSAGE_MAGIC,
        crc32(body) & CRC_MASK,
        message.queue_id,
        message.flag,
        number,
        position,
        sys_flag,
        message.born_timestamp,
        born_ip,
        born_port,
        stamp,
        store_ip,
        store_port,
        message.reconsume_times,
        message.prepared_transaction_offset,
        len(body),
    )


def _roll(group: Group, position: int, next_file: int, gap: int) -> Segment:
    """End a file with a blank, if it is ours; the next segment starts in the next one."""
    last = group.segments[-1]
    if not gap:
        last.parts.append(encode_blank(next_file - position))
    last.end = next_file
    segment = Segment(next_file + gap, first_result=len(group.results))
    group.segments.append(segment)
    return segment
