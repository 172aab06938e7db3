"""
Reads the queues of a cluster or of a store in micro-batches, for
`spark.readStream.format("rocketmq")`.

Spark keeps the progress, in its checkpoint; only the offsets are remembered. The two ends of a
batch determine its messages, so that a batch which is repeated after a crash has the same messages.
Two cases need care for that:

- A query that starts at the end of the queues: Spark writes down where the first batch ends, but
  not where it began. So the first batch ends where it begins, and the second has a written start.
- A queue that appears later begins at its first message. It enters a batch with that offset as its
  end, and is read from the next batch on.

Up to version 4.1 Spark does not pass the offsets that the query has read when it asks for the end
of the next batch. So the reader remembers the end that it returned last. After a restart it
remembers none: all brokers have to answer before it returns the first end, and a queue that is not
in Spark's checkpoint begins at its first message.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.host.blocking import now_ms, pause
from rmq_ha.lake.spark.compat import (
    HAS_LIMITS,
    LIMITS_SINCE,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    refuse_limits,
)
from rmq_ha.lake.spark.host.telling import InSentences
from rmq_ha.lake.spark.source.boundaries import BoundaryKind
from rmq_ha.lake.spark.source.columns import WantedColumns
from rmq_ha.lake.spark.source.live import LiveQueues
from rmq_ha.lake.spark.source.messages import RangesPartition, partitions_of, queues_of
from rmq_ha.lake.spark.source.options import SourceOptions, parse_options
from rmq_ha.lake.spark.source.planning import Planner
from rmq_ha.lake.spark.source.reading import (
    Ends,
    QueueId,
    QueueRange,
    Queues,
    Subscription,
    first_names,
)
from rmq_ha.lake.spark.source.streaming_offsets import (
    Offsets,
    from_json,
    portions,
    portions_by_bytes,
    to_json,
)

IDLE_MS = 100
"""Ms between questions to brokers; Spark asks every 10 ms whether there are new messages."""
IDLE_STORE_MS = 1_000
"""Ms between looks at a store, which take longer."""
_SAMPLE = 16


def make_stream_reader(
    options: Mapping[str, str], schema: StructType
) -> "RocketmqStreamReader | UnusableReader":
    """Return the reader of `spark.readStream`; one that only raises if something is wrong."""
    try:
        parsed = parse_options(options, streaming=True)
        limits = {
            "maxOffsetsPerTrigger": parsed.max_offsets,
            "minOffsetsPerTrigger": parsed.min_offsets,
            "maxBytesPerTrigger": parsed.max_bytes,
        }
        refuse_limits([name for name, value in limits.items() if value is not None])
        return RocketmqStreamReader(
            queues_of(parsed), parsed, WantedColumns(schema, parsed.columns)
        )
    except WrongUsage as error:
        return UnusableReader(error)


class UnusableReader(InSentences, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    A reader that raises its error when it is used, because pyspark loses an error that is raised
    where a reader is made.
    """

    def __init__(self, error: WrongUsage) -> None:
        self._error = error

    def initialOffset(self, *_: Any, **__: Any) -> Any:
        """:raises WrongUsage: always."""
        raise self._error

    getDefaultReadLimit = prepareForTriggerAvailableNow = latestOffset = initialOffset
    partitions = read = initialOffset


class RocketmqStreamReader(InSentences, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    Plans the batches of a stream in one process; in the processes of tasks only `read` is called.

    :ivar _until: with the trigger `availableNow`: where the query ends; None: it has no end.
    :ivar _begun: what `initialOffset` returned, until the first batch is planned.
    :ivar _kept: the offsets that brokers keep for the group of `commitOffsets`.
    :ivar _found: by queue the offset that belongs to the time where the read ends.
    """

    def __init__(self, queues: Queues, options: SourceOptions, shape: WantedColumns) -> None:
        self._queues = queues
        self._options = options
        self._shape = shape
        self._until: Offsets | None = None
        self._begun: dict[str, Any] | None = None
        self._last_batch_ms = 0
        self._reported: Offsets = {}
        self._kept: Offsets = {}
        self._found: Offsets = {}
        self._told: Offsets | None = None

    # Planning

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; only here the options for the start are used."""
        self._begun = to_json(Planner(current(self._queues), self._options).starts())
        return self._begun

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit: Spark accepts no more, and `latestOffset` reads the others itself."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: messages that come later are for its next run."""
        self._until = self._tops(look(self._queues, self._options.subscription))

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """
        Return the offsets at which the next batch ends; they equal `start` if there are no new
        messages.

        :param start: where it begins; None: Spark is older than 4.2 and does not say it.
        :raises CannotDecide: with failOnDataLoss: messages that were not read yet are gone.
        """
        bounds = look(self._queues, self._options.subscription)
        self._reported = {queue: ends.max_offset for queue, ends in bounds.items()}
        if start is None:
            begin = self._told if self._told is not None else self._first_ends(bounds)
        else:
            begin = from_json(start)
            self._check_name(begin)
        end, sizes = self._news(begin, bounds)
        begun, self._begun = self._begun, None
        if start is not None and begun == start and not self._start_is_known():
            return start
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            sizes = self._limit_end(end, sizes, limit)
        for queue, size in sizes.items():
            end[queue] += size
        if end == begin and (start is not None or self._told is not None):
            if self._until is None:
                pause(IDLE_STORE_MS if self._options.is_offline else IDLE_MS)
        else:
            self._last_batch_ms = now_ms()
        self._told = end
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the queues ended at the last `latestOffset`, for Spark's reports."""
        return to_json(self._reported) if self._reported else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangesPartition]:
        """Return the tasks of a batch; they are the same whenever the batch is repeated."""
        begin = from_json(start)
        may_lose = self._options.is_offline and not self._options.fail_on_data_loss
        now = current(self._queues) if may_lose else None  # brokers report it themselves
        ranges = []
        for queue, stop in sorted(from_json(end).items()):
            first = begin[queue] if queue in begin else self._begin_of(queue, stop)
            if now is not None:
                first = max(first, now.bounds(queue)[0])
            if first < stop:
                ranges.append(QueueRange(queue, first, stop))
        return partitions_of(ranges, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """
        Have the brokers keep the progress, for consoles, if the option `commitOffsets` names a
        group.

        Nothing depends on this, so a failure does not stop the query. A repeated call is harmless.
        """
        group = self._options.commit_offsets
        if not group or not isinstance(self._queues, LiveQueues):
            return
        for queue, offset in from_json(end).items():
            if self._kept.get(queue) != offset:
                try:
                    self._queues.commit(group, queue, offset)
                except CannotDecide:
                    continue
                self._kept[queue] = offset

    def stop(self) -> None:
        if isinstance(self._queues, LiveQueues):
            self._queues.close()

    # Reading

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a task, as Arrow batches."""
        assert isinstance(partition, RangesPartition)
        for batch in partition.read(self._queues, self._shape.columns):
            yield self._shape.cast_batch(batch)

    # Parts

    def _first_ends(self, bounds: Mapping[QueueId, Ends]) -> Offsets:
        """
        Return the ends of all queues, for a Spark that does not pass the offsets that the query has
        read.

        :raises CannotDecide: a broker does not answer. Its queues would later look like new ones,
            and their messages would come again.
        """
        away = set(self._queues.queues(self._options.subscription)) - bounds.keys()
        if away:
            raise CannotDecide(
                f"{first_names(away)}: no answer. Spark before {LIMITS_SINCE} does not say how far"
                " a query came, so it can only begin while all brokers answer: start it again"
                f" when they do, or take Spark {LIMITS_SINCE}"
            )
        return self._tops(bounds)

    def _tops(self, bounds: Mapping[QueueId, Ends]) -> Offsets:
        """Return up to where each queue may be read: to its end, or to the time in the options."""
        tops = {queue: ends.max_offset for queue, ends in bounds.items()}
        end = self._options.end
        if end.kind is BoundaryKind.TIME:
            now = current(self._queues)
            for queue in tops:
                at = self._found.get(queue)
                if at is None:
                    at = now.offset_at(queue, end.ms)
                    if at is None:
                        continue
                    self._found[queue] = at
                tops[queue] = min(tops[queue], at)
        return tops

    def _start_is_known(self) -> bool:
        """Return whether asking again where a new query begins gives the same offsets."""
        boundary = self._options.start
        if boundary.kind is BoundaryKind.OFFSETS:
            return all(offset != -1 for offset in boundary.by_queue.values())
        return boundary.kind is BoundaryKind.EARLIEST

    def _begin_of(self, queue: QueueId, stop: int) -> int:
        """
        Return where a queue begins that is only in the end of a batch.

        Either it was new then, and the batch has no message of it. Or the first batch of a query is
        repeated while a broker that was there the first time is away.
        """
        if not HAS_LIMITS and self._begun is None:  # it appeared while the query was off
            return min(stop, current(self._queues).bounds(queue)[0])
        boundary = self._options.start
        is_new = boundary.kind is BoundaryKind.OFFSETS and boundary.offset_of(queue) is None
        if is_new or not self._start_is_known():
            return stop
        return min(stop, Planner(current(self._queues), self._options).start_of(queue))

    def _check_name(self, begin: Offsets) -> None:
        """Check that the store's broker name is the same: else every message comes again."""
        name = self._options.broker_name or ""
        other = next((queue.broker for queue in begin if queue.broker != name), None)
        if self._options.is_offline and other is not None:
            raise CannotDecide(
                f"the checkpoint is of a store with brokerName={other!r}, now it is {name!r}: give"
                " the same one (none for an empty name), or start a new query with another"
                " checkpointLocation"
            )

    def _news(self, begin: Offsets, bounds: Mapping[QueueId, Ends]) -> tuple[Offsets, Offsets]:
        """
        Return where the next batch begins in each queue, and how many messages follow there.

        A queue that is new gets its first offset, and no messages yet: see the module's text.

        :returns: the places, to which the caller adds what the batch takes; and the numbers of
            messages.
        """
        # `end` holds the places where the batch begins; `latestOffset` moves them to its end.
        end, sizes, tops = dict(begin), {}, self._tops(bounds)
        for queue, ends in bounds.items():
            top = tops[queue]
            if self._until is not None:
                top = min(top, self._until.get(queue, -1))
            if not ends.is_sure and begin.get(queue, -1) < ends.min_offset:
                continue  # a slave may begin later than its master, which may return
            if queue not in begin:
                if ends.min_offset <= top or self._until is None:
                    end[queue] = ends.min_offset
                continue
            at = end[queue] = self._check_start(queue, begin[queue], ends)
            if top > at:
                sizes[queue] = top - at
        return end, sizes

    def _check_start(self, queue: QueueId, at: int, ends: Ends) -> int:
        """Return where to continue in a queue whose next messages may be gone."""
        if at < ends.min_offset:
            self._lost(
                f"{queue} begins at {ends.min_offset}: the messages from {at} to"
                f" {ends.min_offset - 1} were deleted (fileReservedTime of the broker) before this"
                " query came to them"
            )
            return ends.min_offset
        if at > ends.max_offset and ends.is_sure:
            self._lost(
                f"{queue} ends at {ends.max_offset}, but this query has read up to {at} already:"
                " after a fail-over to a slave that was behind, other messages take those offsets"
            )
            return ends.max_offset
        return at

    def _lost(self, what: str) -> None:
        """Raise CannotDecide, unless `failOnDataLoss` is false and the query goes on."""
        if self._options.fail_on_data_loss:
            raise CannotDecide(
                f"{what}. With failOnDataLoss=false the query goes on behind them; or start a new"
                " one with another checkpointLocation"
            )

    def _limit_end(self, end: Offsets, sizes: Offsets, limit: ReadLimit) -> Offsets:
        """
        Return how many messages of each queue the batch takes; none while too few are there.

        :param limit: the limit that Spark passed; the others are in the options.
        """
        options, total = self._options, sum(sizes.values())
        least = limit.min_rows if isinstance(limit, ReadMinRows) else options.min_offsets
        is_early = now_ms() - self._last_batch_ms < options.max_trigger_delay_ms
        if least and self._until is None and total < least and is_early:
            return {}
        turn = sum(end.values())
        most_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.max_bytes
        if most_bytes is not None and sizes:
            mean = {queue: self._message_bytes(queue, end[queue], sizes[queue]) for queue in sizes}
            sizes = portions_by_bytes(sizes, mean, most_bytes, turn)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets
        return sizes if most is None else portions(sizes, most, turn)

    def _message_bytes(self, queue: QueueId, start: int, size: int) -> int:
        """Return the mean size of the next records in bytes."""
        sample = QueueRange(queue, start, start + min(size, _SAMPLE))
        rows = total = 0
        for batch in current(self._queues).read(sample, ["storeSize"]):
            rows += batch.num_rows
            total += sum(batch.column(0).to_pylist())
        return total // rows if rows else 1


def current(queues: Queues) -> Queues:
    """Return the queues as they are now: a store stays as it was when it was first opened."""
    return queues if isinstance(queues, LiveQueues) else copy(queues)


def look(queues: Queues, topics: Subscription) -> dict[QueueId, Ends]:
    """
    Return the queues that can be read now, with their ends.

    The queues of a broker that does not answer at all are left out, so that the others go on.

    :raises CannotDecide: no name server answers, or the store cannot be read.
    """
    if not isinstance(queues, LiveQueues):
        now = current(queues)
        return {queue: Ends(*now.bounds(queue)) for queue in now.queues(topics)}
    return queues.all_ends(queues.present(topics))
