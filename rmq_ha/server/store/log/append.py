"""Lays a group of messages out as records, over as many files as they need.

Spec: store.md, sections 2.1 to 2.8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from rmq_ha.base.model.flags import BORN_HOST_V6, STORE_HOST_V6
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    BrokerMessage,
    Draft,
    MessageBatch,
    Row,
    offset_msg_id,
)
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.runs.face import Rows, Sends
from rmq_ha.base.runs.maker import concat
from rmq_ha.base.runs.records import (
    SAME_HOSTS,
    lay_out,
    storable_topic,
    storage_fault,
    undo_numbers,
)
from rmq_ha.base.runs.row_list import NO_ROWS
from rmq_ha.base.store_format.commitlog import BLANK_SIZE, encode_blank
from rmq_ha.server.store.log.batch import BatchLayout

_RECORD_SLACK = 65536


@dataclass(slots=True)
class Segment:
    """
    Bytes that one write puts into one file: records, and perhaps the blank after the last one.

    :ivar first: number of its first draft in the group.
    :ivar rows: the rows of its records; None if it has no records, or if the dispatcher has to read
        them from the log.
    :ivar end: physical offset after the records; after a blank, the start of the next file.
    """

    physical_offset: int
    first: int = 0
    data: bytes = b""
    rows: Rows | None = None
    end: int = 0

    def add(self, data: bytes, rows: Rows, gap: int) -> None:
        """Add records behind those that it has."""
        self.data = bytes(gap).join((self.data, data)) if self.data else data
        self.rows = rows if self.rows is None else concat((self.rows, rows))
        self.end = rows.end + gap


@dataclass(slots=True)
class DraftGroup:
    """
    A group of drafts that are laid out as records.

    :ivar count: number of drafts.
    :ivar rows: one for each record, in order.
    :ivar faults: by draft number, why a draft did not become a record.
    """

    count: int
    segments: list[Segment]
    rows: Rows
    faults: dict[int, PutMessageStatus] = field(default_factory=dict)

    @classmethod
    def refused(cls, count: int, status: PutMessageStatus) -> "DraftGroup":
        """Return a group of which no draft was stored."""
        return cls(count, [], NO_ROWS, dict.fromkeys(range(count), status))

    def give_up(self, number: int, status: PutMessageStatus) -> Sequence[Row]:
        """Drop the records of segment `number` and all later ones; return their rows."""
        kept, lost = self.segments[:number], self.segments[number:]
        self.segments, self.rows = kept, _rows_of(kept)
        for place in range(lost[0].first, self.count):
            self.faults.setdefault(place, status)
        return _rows_of(lost)

    def records(self) -> list[bytes]:
        """Return the bytes of each record, for a log that writes headers between them."""
        return [
            segment.data[row[2] - segment.physical_offset :][: row[3]]
            for segment in self.segments
            for row in segment.rows or ()
        ]


class DraftsOfSends(Sequence[Draft]):
    """
    The drafts of the sends of one connection.

    `GroupEncoder.encode` usually lays the sends out as records without any draft. So the drafts are
    made at the first access to one of them.

    :ivar sends: the sends of the client, as `base.runs` found them.
    :ivar born: the client's address, which becomes the born host of the records.
    :ivar store: this broker's address.
    :ivar tail: the properties that this broker adds; see `Sends.lay_out`.
    :ivar is_listed: whether the drafts had to be made.
    """

    __slots__ = ("_drafts", "born", "is_listed", "sends", "store", "tail")

    def __init__(self, sends: Sends, born: Address, store: Address, tail: str) -> None:
        self.sends, self.born, self.store, self.tail = sends, born, store, tail
        self._drafts: Sequence[Draft] = ()
        self.is_listed = False

    def __len__(self) -> int:
        return len(self.sends)

    def __getitem__(self, place: Any) -> Any:
        if not self.is_listed:
            self.is_listed = True
            self._drafts = self.sends.drafts(self.born, self.store, self.tail)
        return self._drafts[place]


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
        self.queue_offsets: dict[tuple[str, int], int] = {}

    def fault(self, message: BrokerMessage, max_message_size: int) -> PutMessageStatus | None:
        """Return why a message cannot be stored, or None. Spec: store.md, section 2.6."""
        topic_bytes, body = storable_topic(message.topic), message.body
        stored = message.properties_string.encode("utf-8", "replace")
        hosts = len(message.born_host.ip) + len(message.store_host.ip)
        size = 82 + hosts + len(body) + len(topic_bytes) + len(stored)
        if (
            topic_bytes
            and len(body) <= max_message_size
            and size <= self._max_record_size(max_message_size)
            and len(stored) <= MAX_PROPERTIES_SIZE
        ):
            return None
        return storage_fault(message.properties_string, topic_bytes, stored)

    def encode(
        self, drafts: Sequence[Draft], physical_offset: int, max_message_size: int, stamp: int
    ) -> DraftGroup:
        """
        Lay drafts out as records from the end of the log on, and number them by `queue_offsets`.

        :param physical_offset: place of the first record, after its gap, if it fits into that file.
        :param stamp: the store timestamp of all records, ms.
        """
        gap, file_size, place = self.gap, self._file_size, 0
        largest = max_message_size + _RECORD_SLACK
        if largest > self._largest:
            largest = self._largest
        position = physical_offset
        # No record crosses the end of a file, and a blank must always fit after the last record.
        # `position` is the start of a record, so the gap before it is subtracted to find its file.
        room_end = position - (position - gap) % file_size - gap + file_size - BLANK_SIZE
        if type(drafts) is DraftsOfSends:
            laid_out = drafts.sends.lay_out(
                position, room_end, max_message_size, largest, stamp, self.queue_offsets,
                drafts.born, drafts.store, drafts.tail, gap,
            )  # fmt: skip
            if laid_out is not None:
                data, rows = laid_out
                return DraftGroup(
                    len(rows), [Segment(position, 0, data, rows, rows.end + gap)], rows
                )
        segments, faults = [Segment(position)], dict[int, PutMessageStatus]()
        # Each round lays out drafts until one cannot be stored, or does not fit into the present
        # file. The first is noted in `faults` and left out; for the second, the next file begins.
        while place < len(drafts):
            data, rows, is_whole, fault = lay_out(
                drafts[place:] if place else drafts,
                position,
                room_end,
                max_message_size,
                largest,
                stamp,
                self.queue_offsets,
                gap,
                self._delay_levels,
            )
            if is_whole and position == physical_offset and not place:
                first = Segment(physical_offset, 0, data, rows, rows.end + gap)
                return DraftGroup(len(rows), [first], rows, faults)
            if rows:
                segments[-1].add(data, rows, gap)
                place += len(rows)
                position = rows.end + gap
            if fault is not None:
                faults[place] = fault
                place += 1
            elif place < len(drafts):
                position = _roll(segments, position, room_end + BLANK_SIZE, gap, place)
                room_end += file_size
        return DraftGroup(len(drafts), segments, _rows_of(segments), faults)

    def undo(self, rows: Sequence[Row]) -> None:
        """Take back the queue offsets of records that did not get into the log."""
        undo_numbers(rows, self.queue_offsets)

    def lay_out(self, batch: MessageBatch, max_message_size: int) -> BatchLayout:
        """Return the layout of a batch without members; they are added later."""
        hosts = batch.born_host, batch.store_host
        return BatchLayout(
            batch,
            _with_hosts(batch.sys_flag, *hosts),
            storable_topic(batch.topic),
            offset_msg_id(batch.store_host, 0)[:-16],
            self._max_record_size(max_message_size),
            max_message_size,
        )

    def place_batch(
        self, batch: BatchLayout, physical_offset: int, stamp: int
    ) -> tuple[DraftGroup, AppendResult]:
        """
        Place a batch at the end of the log, or in the next file if the last one has no room.

        The queue offsets of its members count as taken only after `count_batch`.

        :returns: a group without rows, as the dispatcher reads batches from the log, and the
            append's result.
        """
        segment = Segment(physical_offset)
        segments = [segment]
        position, file_size = physical_offset, self._file_size
        next_file = position - position % file_size + file_size
        if position + batch.size > next_file - BLANK_SIZE:
            position = _roll(segments, position, next_file, 0, 0)
            segment = segments[-1]
        ends = list(accumulate(batch.sizes, initial=position))
        segment.end = ends.pop()
        result = batch.place(ends, self.next_number(batch), stamp)
        segment.data = batch.data()
        return DraftGroup(1, segments, NO_ROWS), result

    def next_number(self, batch: BatchLayout) -> int:
        """Return the queue offset of the batch's first member."""
        return self.queue_offsets.get((batch.batch.topic, batch.batch.queue_id), 0)

    def count_batch(self, batch: BatchLayout) -> None:
        """Count the members' queue offsets as taken, after they are in the log."""
        key = (batch.batch.topic, batch.batch.queue_id)
        self.queue_offsets[key] = self.next_number(batch) + len(batch.sizes)

    def _max_record_size(self, max_message_size: int) -> int:
        """Return the most bytes that a record may have."""
        return min(max_message_size + _RECORD_SLACK, self._largest)


def _with_hosts(sys_flag: int, born_host: Address, store_host: Address) -> int:
    """Return the sysFlag with its two IPv6 bits set as the addresses require."""
    flag = sys_flag & SAME_HOSTS
    if born_host.is_v6:
        flag |= BORN_HOST_V6
    if store_host.is_v6:
        flag |= STORE_HOST_V6
    return flag


def _roll(segments: list[Segment], position: int, next_file: int, gap: int, place: int) -> int:
    """
    End a file, with a blank if this log writes blanks itself, and begin the segment of the next.

    :returns: where that segment's first record begins.
    """
    last = segments[-1]
    if not gap:
        last.data += encode_blank(next_file - position)
    last.end = next_file
    segments.append(Segment(next_file + gap, place))
    return next_file + gap


def _rows_of(segments: list[Segment]) -> Rows:
    """Return the rows of all records."""
    parts = [segment.rows for segment in segments if segment.rows is not None]
    return concat(parts) if parts else NO_ROWS
