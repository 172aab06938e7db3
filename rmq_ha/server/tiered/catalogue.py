"""The segments that the tier has, and where a message is in them."""

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple

from rmq_ha.server.tiered.objects import ObjectStore, TierError
from rmq_ha.server.tiered.segments import QueuePart, SegmentKeys, TierSegment, decode_segment


def read_segment(objects: ObjectStore, keys: SegmentKeys, start: int) -> TierSegment:
    """
    Read the description of the segment that begins at a physical offset. Blocks.

    :raises TierError: the object cannot be read, or describes another segment.
    """
    key = keys.segment(start)
    try:
        segment = decode_segment(objects.get(key))
    except ValueError as error:
        raise TierError(f"{key}: {error}") from error
    if segment.start != start:
        raise TierError(f"{key} describes the segment at {segment.start}")
    return segment


class TierPlace(NamedTuple):
    """
    Messages of one queue in one segment.

    :ivar start: physical offset of the segment.
    """

    start: int
    part: QueuePart


class Catalogue:
    """
    The segments by their physical offsets, and their messages by queue.

    If a topic is deleted and created again, its queues begin again at queue offset 0. The messages
    from before have left the topic, so a queue's places only go back to that moment.
    """

    def __init__(self) -> None:
        self._segments: dict[int, TierSegment] = {}
        self._starts: list[int] = []
        self._places: dict[tuple[str, int], list[TierPlace]] = {}

    def add(self, segment: TierSegment) -> None:
        """Add a segment at its place, or replace the one that begins there."""
        if segment.start in self._segments:
            self.remove(segment.start)
        if self._starts and segment.start < self._starts[-1]:
            self._segments[segment.start] = segment
            insort(self._starts, segment.start)
            self._lay_out()
            return
        self._segments[segment.start] = segment
        self._starts.append(segment.start)
        self._append(segment)

    def remove(self, start: int) -> None:
        """Remove the segment that begins at a physical offset."""
        del self._segments[start]
        self._starts.remove(start)
        self._lay_out()

    def _lay_out(self) -> None:
        self._places.clear()
        for start in self._starts:
            self._append(self._segments[start])

    def _append(self, segment: TierSegment) -> None:
        for part in segment.queues:
            places = self._places.setdefault((part.topic, part.queue_id), [])
            if places and places[-1].part.end > part.first:
                places.clear()
            places.append(TierPlace(segment.start, part))

    @property
    def starts(self) -> list[int]:
        """Physical offsets of all segments, rising."""
        return self._starts

    @property
    def end(self) -> int:
        """Physical offset after the newest segment; 0 without one."""
        return self._segments[self._starts[-1]].end if self._starts else 0

    @property
    def size(self) -> int:
        """Bytes of all segments' log files."""
        return sum(segment.size for segment in self._segments.values())

    def get(self, start: int) -> TierSegment | None:
        """Return the segment that begins at a physical offset; None if there is none."""
        return self._segments.get(start)

    def all(self) -> Iterable[TierSegment]:
        """Return all segments, oldest first."""
        return [self._segments[start] for start in self._starts]

    def place(self, topic: str, queue_id: int, queue_offset: int, end: int) -> TierPlace | None:
        """
        Return the place that has a queue offset. If none has it, return the first place after it.

        :param end: queue offset after the queue's last message. If the queue has fewer messages
            than the tier, it is another queue of that name, and the tier has none of its messages.
        """
        places = self._places.get((topic, queue_id))
        if not places or places[-1].part.end > end:
            return None
        at = bisect_right(places, queue_offset, key=lambda place: place.part.end)
        return places[at] if at < len(places) else None

    def place_since(self, topic: str, queue_id: int, ms: int, end: int) -> TierPlace | None:
        """
        Return the first place of a queue whose segment has a message stored at `ms` or later.

        :param end: see `place`.
        """
        places = self._places.get((topic, queue_id))
        if not places or places[-1].part.end > end:
            return None
        at = bisect_right(places, ms - 1, key=lambda place: self._segments[place.start].last_ms)
        return places[at] if at < len(places) else None
