"""Plans the partitions of a read of messages, and reads their rows. This module needs no Spark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from warnings import warn

import pyarrow as pa

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.log.columns import schema_of
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.store.directory import scan_with_gaps
from rmq_ha.lake.scan.store.scanning import Split
from rmq_ha.lake.spark.compat import InputPartition
from rmq_ha.lake.spark.source.boundaries import BoundaryKind
from rmq_ha.lake.spark.source.offline import END_OF_LOG, FileWanted, OfflineQueues, Spans
from rmq_ha.lake.spark.source.options import SourceOptions, parse_options
from rmq_ha.lake.spark.source.planning import Planner, cut
from rmq_ha.lake.spark.source.reading import QueueRange, Queues

FEW = 4
"""
A read that wants at most one message in this many reads single messages by the queues; any other
read reads whole files.
"""
LEAST = 4096
"""Least bytes of a file for one partition, however many partitions are asked for."""


class RangesPartition(InputPartition):
    """Ranges of queues, one after the other."""

    def __init__(self, ranges: tuple[QueueRange, ...]) -> None:
        self.ranges = ranges

    def __repr__(self) -> str:
        return ", ".join(f"{queue} [{start}, {stop})" for queue, start, stop in self.ranges)

    def read(self, queues: Queues, columns: Sequence[str]) -> Iterator[Any]:
        """Yield their messages, as `Queues.read` does."""
        for span in self.ranges:
            yield from queues.read(span, columns)


def partitions_of(ranges: list[QueueRange], options: SourceOptions) -> list[RangesPartition]:
    """Return ranges as partitions, cut as the options say."""
    parts = cut(ranges, options.min_partitions, options.max_records)
    return [RangesPartition(part) for part in parts]


class SplitPartition(InputPartition):
    """
    A part of a file.

    :ivar spans: the wanted queue offsets of each queue; None: all.
    """

    def __init__(self, split: Split, spans: Spans | None) -> None:
        self.split = split
        self.spans = spans


def messages(given: Mapping[str, str], columns: Sequence[str]) -> Any:
    """Return some columns of messages as a `pyarrow.Table`, in this process."""
    options, schema = parse_options(given), schema_of(columns)
    batches = [
        batch.cast(schema)
        for partition in planned(options)
        for batch in batches_of(partition, options, columns)
    ]
    return pa.Table.from_batches(batches, schema)


def planned(options: SourceOptions) -> list[InputPartition]:
    """Return the partitions of a read."""
    queues = queues_of(options)
    planner = Planner(queues, options)
    if isinstance(queues, OfflineQueues):
        for hole in queues.store.holes:
            warn(
                f"failOnDataLoss=false: the log has no bytes from {hole.start} to {hole.end}",
                stacklevel=3,
            )
        plan = _plan_files(queues, planner, options)
        if plan is not None:
            _tell(planner)
            return list(_splits(queues, options, plan))
    ranges = planner.ranges()
    _tell(planner)
    return list(partitions_of(ranges, options))


def batches_of(
    partition: InputPartition, options: SourceOptions, columns: Sequence[str]
) -> Iterator[Any]:
    """Yield the messages of a partition as `pyarrow.RecordBatch`."""
    queues = queues_of(options)
    if isinstance(partition, RangesPartition):
        yield from partition.read(queues, columns)
    elif isinstance(partition, SplitPartition) and isinstance(queues, OfflineQueues):
        wanted_of_file = FileWanted(options, partition.spans)
        name = options.broker_name
        for records in _sound(queues, partition.split, options):
            chosen = wanted_of_file.select(records).tagged(options.tags)
            yield from chosen.batches(columns, name, rows=options.batch_rows)


def queues_of(options: SourceOptions) -> Queues:
    """Return the store, or the cluster, that the options name."""
    if options.is_offline:
        return OfflineQueues(options)
    from rmq_ha.lake.spark.source.live import LiveQueues

    return LiveQueues(options)


class FilePlan(NamedTuple):
    """
    The parts of files to be read.

    :ivar low: no wanted message starts before this offset of the log.
    :ivar high: no wanted message starts at or after this offset.
    """

    spans: Spans | None = None
    low: int = 0
    high: int = END_OF_LOG


def _plan_files(queues: OfflineQueues, planner: Planner, options: SourceOptions) -> FilePlan | None:
    """
    Return which parts of files are read; None: the queues are read instead.

    With `scan=auto` queues are read if partitions are limited by messages; or if few messages are
    wanted, and the queues reach the end of the log.

    :raises CannotDecide: the store has a log without queues, and not all of it is wanted.
    """
    is_whole = (
        options.start.kind is BoundaryKind.EARLIEST and options.end.kind is BoundaryKind.LATEST
    )
    store = queues.store
    if not store.topics_on_disk() and store.max_offset() > store.min_offset():
        if is_whole and options.scan != "queues":
            return FilePlan()  # only the log was copied, without queues
        raise CannotDecide(
            f"{store.uri} has messages, but no consume queues (consumequeue/): copy them, or let a"
            " broker build them; or read with scan=files and without offsets or times"
        )
    if options.scan == "queues":
        return None
    if options.scan == "auto":
        if options.max_records is not None:
            return None
        is_everything = is_whole and options.subscription.is_everything
        if not is_everything and _are_few(queues, planner.ranges()) and queues.reach_the_end():
            return None
    if not options.subscription.is_everything:
        queues.queues(options.subscription)  # a missing topic is an error
    if is_whole:
        return FilePlan()
    ranges = planner.ranges()
    if options.end.kind is BoundaryKind.LATEST and not queues.reach_the_end():
        starts = planner.starts()
        open_spans = {
            (queue.topic, queue.queue_id): (at, END_OF_LOG) for queue, at in starts.items()
        }
        return FilePlan(open_spans, queues.log_range(ranges)[0])
    spans = {(span.queue.topic, span.queue.queue_id): (span.start, span.stop) for span in ranges}
    return FilePlan(spans, *queues.log_range(ranges))


def _are_few(queues: OfflineQueues, ranges: list[QueueRange]) -> bool:
    """Return whether these ranges are a small part of the log, by the size of some records."""
    largest = sorted(ranges, key=lambda span: span.start - span.stop)[:16]
    sizes = [queues.mean_size(span) for span in largest]
    mean = sum(sizes) / max(1, len(sizes))
    log = queues.store.max_offset() - queues.store.min_offset()
    return mean * sum(span.stop - span.start for span in ranges) * FEW <= log


def _splits(
    queues: OfflineQueues, options: SourceOptions, plan: FilePlan
) -> Iterator[SplitPartition]:
    """Yield the parts of files that a plan needs, each as a partition."""
    store = queues.store
    start = max(store.min_offset(), plan.low)
    high = min(store.max_offset(), plan.high)
    if start >= high:
        return
    size: int = options.split_size
    if options.min_partitions is not None:
        size = min(size, max(LEAST, -(-(high - start) // options.min_partitions)))
    for split in store.splits(size, start=start):
        if split.lo < high:
            yield SplitPartition(split, plan.spans)


def _sound(queues: OfflineQueues, split: Split, options: SourceOptions) -> Iterator[Records]:
    """Yield the records of a part; damage between them is an error unless options allow it."""
    for piece in scan_with_gaps(queues.store, split):
        if isinstance(piece, Records):
            yield piece
        elif options.fail_on_data_loss and options.scan != "files":
            raise CannotDecide(
                f"{piece.path}: from {piece.start} to {piece.end} of the log there is"
                f" {piece.reason}: messages may be lost. Copy the file from a replica"
                " (rmqha-spark verify-replica compares them), or pass over it with"
                " failOnDataLoss=false"
            )


def _tell(planner: Planner) -> None:
    for warning in planner.warnings:
        warn(f"failOnDataLoss=false: {warning}", stacklevel=2)
