"""Reads messages of the tier for pulls and pops."""

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import GetMessageResult
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE, UNIT_SIZE, decode_units
from rmq_ha.base.store_format.record_checks import message_check
from rmq_ha.server.tiered.blocks import BLOCK, BlockCache
from rmq_ha.server.tiered.catalogue import Catalogue, TierPlace
from rmq_ha.server.tiered.objects import TierError
from rmq_ha.server.tiered.segments import SegmentKeys

_MOST_UNITS = 800
"""Units that a pull with a filter looks at."""
_MOST_BYTES = 256 << 10
"""Bytes of messages that an answer holds, but for a single message that is larger."""


class TierReader:
    """
    Answers reads of messages that the local log has no more.

    Provides `rmq_ha.server.store.reading.reads.OlderMessages`.

    :ivar figures: returns the metrics of the tier, by their names without `rmqha_tier_`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        keys: SegmentKeys,
        blocks: BlockCache,
        figures: Callable[[], Mapping[str, float]],
    ) -> None:
        self._catalogue = catalogue
        self._keys = keys
        self._blocks = blocks
        self.figures = figures

    @property
    def min_physical_offset(self) -> int | None:
        starts = self._catalogue.starts
        return starts[0] if starts else None

    def first_offset(self, topic: str, queue_id: int, low: int, high: int) -> int:
        place = self._catalogue.place(topic, queue_id, 0, high)
        return low if place is None else min(low, place.part.first)

    def offset_by_time(self, topic: str, queue_id: int, ms: int, low: int, high: int) -> int | None:
        place = self._catalogue.place_since(topic, queue_id, ms, high)
        return None if place is None or place.part.first >= low else place.part.first

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: IMessageFilter | None,
        bounds: tuple[int, int],
    ) -> GetMessageResult | None:
        low, high = bounds
        place = self._catalogue.place(topic, queue_id, queue_offset, high)
        if place is None or (first := max(queue_offset, place.part.first)) >= low:
            return None
        lowest = self.first_offset(topic, queue_id, low, high)
        if queue_offset < first:
            # Before the oldest message, or in a gap between two segments.
            moved = GetMessageStatus.OFFSET_TOO_SMALL
            return GetMessageResult(moved, first, lowest, high, [])
        segment = self._catalogue.get(place.start)
        assert segment is not None
        scan = _Scan(self._blocks, self._keys, place, segment.size, message_filter)
        scan.run(queue_offset, min(low, place.part.end), max_nums)
        is_found = bool(scan.messages)
        status = GetMessageStatus.FOUND if is_found else GetMessageStatus.NO_MATCHED_MESSAGE
        later = scan.later
        if later is not None and (scan.messages or scan.next > queue_offset):
            later.addErrback(lambda failure: None)  # there is an answer, so nobody waits for it
            later = None
        return GetMessageResult(status, scan.next, lowest, high, scan.messages, False, later)


class _Scan:
    """
    One read along a queue in one segment.

    :param size: size of the segment's log file in bytes.
    :ivar next: the queue offset at which the next read goes on.
    :ivar later: fires when a block is here without which the scan could not go on; None: it had all
        that it needed.
    """

    def __init__(
        self,
        blocks: BlockCache,
        keys: SegmentKeys,
        place: TierPlace,
        size: int,
        message_filter: IMessageFilter | None,
    ) -> None:
        self._blocks = blocks
        self._size = size
        self._start = place.start
        self._part = place.part
        self._units_key = keys.units(place.start)
        self._log_key = keys.log(place.start)
        self._filter = message_filter
        self._check = message_check(place.part.topic, place.part.queue_id)
        self.messages: list[bytes] = []
        self.next = 0
        self.later: Deferred[None] | None = None

    def run(self, queue_offset: int, end: int, most: int) -> None:
        """
        Take messages from a queue offset on.

        :param end: the queue offset before which it ends.
        :param most: most messages to take.
        :raises TierError: the tier has other bytes than the message.
        """
        self.next = queue_offset
        count = min(end - queue_offset, most if self._filter is None else max(most, _MOST_UNITS))
        at = self._part.at + (queue_offset - self._part.first) * UNIT_SIZE
        data = self._part_of(self._units_key, at, count * UNIT_SIZE)
        size = 0
        for physical, length, code in decode_units(data or b""):
            if length != FILLER_SIZE and (self._filter is None or self._filter.matches_unit(code)):
                if self.messages and (len(self.messages) >= most or size + length > _MOST_BYTES):
                    return
                record = self._part_of(self._log_key, physical - self._start, length)
                if record is None:
                    return
                if not self._check(record, physical, length, self.next):
                    raise TierError(
                        f"{self._log_key} does not have the message with queue offset {self.next} "
                        f"of {self._part.topic} queue {self._part.queue_id} at its place: restore "
                        "the object from a copy, or delete the segment to go on behind it"
                    )
                if self._filter is None or self._filter.matches_record(record):
                    self.messages.append(record)
                    size += length
            self.next += 1

    def _part_of(self, key: str, start: int, size: int) -> bytes | None:
        """Return a part of an object; None if it is on its way, see `later`."""
        data = self._blocks.peek(key, start, size)
        if data is None:
            self.later = self._blocks.fetch(key, start, size)
        elif key == self._log_key:
            self._read_ahead(start + size)
        return data

    def _read_ahead(self, position: int) -> None:
        """Bring the next block of the log here when the last quarter of a block is read."""
        if position % BLOCK > BLOCK * 3 // 4:
            following = (position // BLOCK + 1) * BLOCK
            if following < self._size and self._blocks.peek(self._log_key, following, 1) is None:
                self._blocks.fetch(self._log_key, following, 1).addErrback(lambda failure: None)
