"""Plans where each queue's read begins and ends, and how it is cut into partitions."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.spark.source.boundaries import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Boundary,
    BoundaryKind,
)
from rmq_ha.lake.spark.source.options import SourceOptions
from rmq_ha.lake.spark.source.reading import Ends, QueueId, QueueRange, Queues

ALONE = 64
"""
If there are at most this many queues, each has its own partition; if there are more, small queues
share one.
"""
SMALL = 10_000
"""Most messages in a shared partition."""
_TIMES = (BoundaryKind.TIME, BoundaryKind.TIMES)
_WORDS = {BoundaryKind.EARLIEST: EARLIEST_OFFSET, BoundaryKind.LATEST: LATEST_OFFSET}
_LOST = " Say where to begin with startingOffsets, or read what is there with failOnDataLoss=false."


class Planner:
    """
    Plans the ranges of a read, by asking a set of queues.

    :ivar warnings: texts about losses that `failOnDataLoss=false` allows.
    """

    def __init__(self, queues: Queues, options: SourceOptions) -> None:
        self._queues = queues
        self._options = options
        self._spans: dict[QueueId, Ends] = {}
        self._here: Sequence[QueueId] = ()
        self._of_groups: dict[str, Mapping[QueueId, int]] = {}
        self.warnings: list[str] = []

    def ranges(self) -> list[QueueRange]:
        """
        Return the ranges that a batch reads, one for each queue that has messages.

        :raises WrongUsage: offsets were given for some queues only, or contradict each other.
        :raises CannotDecide: with `failOnDataLoss`: messages that were asked for do not exist.
        """
        queues = self._queues.queues(self._options.subscription)
        self._check(queues)
        ranges: list[QueueRange] = []
        for queue in queues:
            start, stop = self.start_of(queue), self.stop_of(queue)
            if start < stop:
                ranges.append(QueueRange(queue, start, stop))
        return ranges

    def starts(self) -> dict[QueueId, int]:
        """Return where a new stream begins in each present queue; raises like `ranges`."""
        queues = self._queues.queues(self._options.subscription)
        self._check(queues)
        return {queue: self.start_of(queue) for queue in queues}

    def start_of(self, queue: QueueId) -> int:
        """Return the first offset that is read of a queue; raises like `ranges`."""
        boundary = self._options.start
        first, end, _ = self._span(queue)
        given = self._resolve(boundary, queue)
        if given is None and self._options.strategy == "error":
            raise WrongUsage(
                f"{boundary.option}: {queue} has no message stored at"
                f" {self._number(boundary, queue)} ms or later; choose an earlier time, or have"
                " such queues begin at their end with startingOffsetsByTimestampStrategy=latest"
            )
        if given is None:
            return end
        if boundary.kind in _TIMES:
            return max(given, first)
        if given < first:
            self._lost(
                f"{queue} begins at {first}, {given} was asked for: {first - given}"
                " messages are gone (fileReservedTime of the broker says how long it keeps them)."
            )
        elif given > end:
            self._lost(
                f"{queue} ends at {end}, before {given} where the read should begin: its end"
                " was lost, perhaps in a fail-over to a slave that was behind, or the offset is"
                " wrong."
            )
        return min(max(given, first), end)

    def stop_of(self, queue: QueueId) -> int:
        """Return the offset after the last one that is read of a queue; raises like `ranges`."""
        (_, end, _), given = self._span(queue), self._resolve(self._options.end, queue)
        if given is not None and given > end and self._options.end.kind not in _TIMES:
            self._lost(
                f"{queue} ends at {end}, {given} was asked for: {given - end} messages"
                " are not there: lost, or not yet written."
            )
            return end
        return end if given is None else given

    def _resolve(self, boundary: Boundary, queue: QueueId) -> int | None:
        """Return the offset that a boundary means for a queue; None: no message is late enough."""
        (first, end, _), kind = self._span(queue), boundary.kind
        if kind in _TIMES:
            return self._queues.offset_at(queue, self._number(boundary, queue))
        given = _WORDS[kind] if kind in _WORDS else self._number(boundary, queue)
        return {EARLIEST_OFFSET: first, LATEST_OFFSET: end}.get(given, given)

    def _check(self, queues: Sequence[QueueId]) -> None:
        """Check that the boundaries fit the queues and each other; raises WrongUsage."""
        self._here = queues
        start, end = self._options.start, self._options.end
        for boundary in (start, end):
            if boundary.kind in (BoundaryKind.OFFSETS, BoundaryKind.TIMES):
                boundary.check_covers(queues)
        if start.kind is BoundaryKind.TIME and end.kind is BoundaryKind.TIME and start.ms > end.ms:
            raise WrongUsage(f"startingTimestamp={start.ms} is behind endingTimestamp={end.ms}")
        if start.kind is not end.kind or start.kind not in (
            BoundaryKind.OFFSETS,
            BoundaryKind.TIMES,
        ):
            return
        for queue in queues:
            first, last = self._number(start, queue), self._number(end, queue)
            if min(first, last) >= 0 and first > last:
                raise WrongUsage(
                    f"{start.option} has {first} for {queue}, behind the {last} of {end.option}"
                )

    def _span(self, queue: QueueId) -> Ends:
        """Return a queue's ends; each queue is asked once, so that the plan fits together."""
        span = self._spans.get(queue)
        if span is None:
            span = self._spans[queue] = Ends(*self._queues.bounds(queue))
        return span

    def _lost(self, what: str) -> None:
        """Add a warning that messages are lost; with `failOnDataLoss` raise CannotDecide."""
        if self._options.fail_on_data_loss:
            raise CannotDecide(what + _LOST)
        if what not in self.warnings:
            self.warnings.append(what)

    def _number(self, boundary: Boundary, queue: QueueId) -> int:
        """Return a boundary's number for a queue: an offset, or ms for boundaries in time."""
        if boundary.kind is BoundaryKind.TIME:
            return boundary.ms
        if boundary.kind is BoundaryKind.GROUP:
            return self._group_offsets(boundary).get(queue, self._span(queue).min_offset)
        number = boundary.offset_of(queue)
        if number is None:
            raise WrongUsage(f"{boundary.option} says nothing about {queue}, which is new")
        return number

    def _group_offsets(self, boundary: Boundary) -> Mapping[QueueId, int]:
        """Return where a group continues; a queue that gave it no message has no offset."""
        offsets = self._of_groups.get(boundary.group)
        if offsets is None:
            offsets = self._queues.group_offsets(boundary.group, self._here)
            self._of_groups[boundary.group] = offsets
        if not offsets:
            raise WrongUsage(
                f"{boundary.option}: the group {boundary.group} has no offset in any queue that is"
                " read. Is its name right? Groups in broadcasting mode keep theirs themselves"
            )
        return offsets


def cut(
    ranges: Iterable[QueueRange], min_partitions: int | None, max_records: int | None
) -> list[tuple[QueueRange, ...]]:
    """
    Cut ranges into partitions, one for each queue. Large queues are cut if that is asked for; if
    there are very many queues, small ones share a partition.

    :param min_partitions: least number of partitions, if there are so many messages.
    """
    pieces = [span for span in ranges if span.start < span.stop]
    if max_records is not None:
        pieces = cut_at(pieces, max_records)
    if min_partitions is not None:
        total = sum(piece.stop - piece.start for piece in pieces)
        parts = min(min_partitions, total)
        if len(pieces) < parts:  # cut by size, as Spark's Kafka source does
            pieces = cut_at(pieces, total // parts)
        return [(piece,) for piece in pieces]
    if len(pieces) <= ALONE:
        return [(piece,) for piece in pieces]
    share = sum(piece.stop - piece.start for piece in pieces) // ALONE
    return bundled(pieces, min(SMALL, max_records or SMALL, max(1, share)))


def cut_at(ranges: Iterable[QueueRange], most: int) -> list[QueueRange]:
    """Return ranges that are not empty, cut into parts of at most `most` messages."""
    return [
        piece for span in ranges for piece in _divide(span, -(-(span.stop - span.start) // most))
    ]


def _divide(span: QueueRange, parts: int) -> list[QueueRange]:
    """Cut a range into so many parts of about equal size."""
    size = span.stop - span.start
    edges = [span.start + size * at // parts for at in range(parts + 1)]
    return [QueueRange(span.queue, *edge) for edge in pairwise(edges)]


def bundled(pieces: list[QueueRange], most: int) -> list[tuple[QueueRange, ...]]:
    """Put small ranges together, up to `most` messages."""
    bundles: list[tuple[QueueRange, ...]] = []
    small: list[QueueRange] = []
    together = 0
    for piece in pieces:
        size = piece.stop - piece.start
        if small and together + size > most:
            bundles.append(tuple(small))
            small, together = [], 0
        small.append(piece)
        together += size
    return [*bundles, tuple(small)] if small else bundles
