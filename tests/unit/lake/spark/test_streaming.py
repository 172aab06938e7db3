"""Batches of a stream over queues that change as a test says."""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import IntegerType

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.spark.source import streaming
from rmq_ha.lake.spark.source.columns import ROCKETMQ, WantedColumns
from rmq_ha.lake.spark.source.live import Ends, LiveQueues
from rmq_ha.lake.spark.source.live_reading import BrokerAway
from rmq_ha.lake.spark.source.messages import RangesPartition
from rmq_ha.lake.spark.source.options import SourceOptions, parse_options
from rmq_ha.lake.spark.source.reading import QueueId, QueueRange, Subscription
from rmq_ha.lake.spark.source.schema import struct_of
from rmq_ha.lake.spark.source.streaming import RocketmqStreamReader

ALL = ReadAllAvailable()
SHAPE = WantedColumns(struct_of({"queueId": IntegerType()}), ROCKETMQ)


class FakeQueues:
    """Queues as spans; each message has 100 bytes."""

    def __init__(self, spans: dict[QueueId, tuple[int, int]]) -> None:
        self.spans = spans

    def queues(self, topics: Subscription) -> list[QueueId]:
        return sorted(queue for queue in self.spans if topics.wants(queue))

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        return self.spans[queue]

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        return ms if ms < self.spans[queue][1] else None

    def group_offsets(self, group: str, queues: Sequence[QueueId]) -> dict[QueueId, int]:
        return {queues[0]: 3}

    def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        count = span.stop - span.start
        yield pa.RecordBatch.from_pydict({name: [100] * count for name in columns})


class FakeCluster(LiveQueues):
    """A cluster without sockets: a broker may be away, or only its slave there."""

    def __init__(self, options: SourceOptions, spans: dict[QueueId, tuple[int, int]]) -> None:
        super().__init__(options)
        self.spans = spans
        self.away: set[str] = set()
        self.slaves: set[str] = set()
        self.times_asked = 0
        self.kept: list[tuple[str, QueueId, int]] = []

    def present(self, topics: Subscription) -> list[QueueId]:
        return sorted(self.spans)

    def queues(self, topics: Subscription) -> list[QueueId]:
        return sorted(self.spans)

    def ends_of_topic(self, queues: Sequence[QueueId]) -> dict[QueueId, Ends]:
        self.times_asked += 1
        if queues[0].broker in self.away:
            raise BrokerAway(f"{queues[0].broker} is away")
        return {each: Ends(*self.spans[each], each.broker not in self.slaves) for each in queues}

    def commit(self, group: str, queue: QueueId, offset: int) -> None:
        if queue.broker in self.away:
            raise BrokerAway(f"{queue.broker} is away")
        self.kept.append((group, queue, offset))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pauses: list[int] = []
    monkeypatch.setattr(streaming, "pause", pauses.append)
    return pauses


def queue(number: int, broker: str = "b") -> QueueId:
    return QueueId("t", broker, number)


def options(**more: str) -> SourceOptions:
    given = {"namesrv": "localhost:1", "subscribe": "t", **more}
    return parse_options(given, streaming=True)


def reader(
    spans: dict[QueueId, tuple[int, int]], **more: str
) -> tuple[RocketmqStreamReader, FakeQueues]:
    queues = FakeQueues(spans)
    return RocketmqStreamReader(queues, options(**more), SHAPE), queues


def at(**numbers: int) -> dict[str, Any]:
    """`at(q0=5)`: offsets of queues of `b`."""
    return {"t": {"b": {name[1:]: number for name, number in numbers.items()}}}


def ranges(made: RocketmqStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    found = [each for part in made.partitions(start, end) for each in part.ranges]
    return sorted((each.queue.queue_id, each.start, each.stop) for each in found)


def test_a_query_begins_at_the_end_unless_told_otherwise() -> None:
    made, _ = reader({queue(0): (5, 9)})
    assert made.initialOffset() == at(q0=9)
    made, _ = reader({queue(0): (5, 9)}, startingOffsets="earliest")
    assert made.initialOffset() == at(q0=5)
    made, _ = reader({queue(0): (5, 9)}, startingOffsets='{"t":{"0":7}}')
    assert made.initialOffset() == at(q0=7)


def test_a_query_that_goes_on_where_a_group_is_writes_down_where_that_was() -> None:
    """The group may move on before a first batch that has to be done again."""
    made, _ = reader({queue(0): (0, 9)}, startingOffsets="group:g")
    start = made.initialOffset()
    assert start == at(q0=3)
    assert made.latestOffset(start, ALL) == start
    assert made.latestOffset(start, ALL) == at(q0=9)


@pytest.mark.parametrize(
    ("given", "is_known"),
    [
        ("earliest", True),
        ("latest", False),
        ("group:g", False),
        ('{"t":{"0":1,"1":2}}', True),
        ('{"t":{"0":1,"1":-2}}', True),
        ('{"t":{"0":1,"1":-1}}', False),
    ],
)
def test_only_a_start_that_may_be_another_one_later_is_written_down_first(
    given: str, is_known: bool
) -> None:
    made, _ = reader({queue(0): (0, 9), queue(1): (0, 9)}, startingOffsets=given)
    start = made.initialOffset()
    assert (made.latestOffset(start, ALL) != start) is is_known or given == "latest"
    assert made._start_is_known() is is_known


def test_offsets_are_the_next_to_read() -> None:
    """No message twice at the seam of two batches, none left out."""
    made, queues = reader({queue(0): (0, 3)}, startingOffsets="earliest")
    start = made.initialOffset()
    first = made.latestOffset(start, ALL)
    queues.spans[queue(0)] = 0, 5
    second = made.latestOffset(first, ALL)
    assert ranges(made, start, first) == [(0, 0, 3)]
    assert ranges(made, first, second) == [(0, 3, 5)]


def test_the_first_batch_of_a_query_that_begins_at_the_end_only_writes_down_where() -> None:
    """Else messages that came before a crash in that batch would be skipped by the next start."""
    made, queues = reader({queue(0): (0, 3)})
    start = made.initialOffset()
    queues.spans[queue(0)] = 0, 8
    written = made.latestOffset(start, ALL)
    assert written == start
    queues.spans[queue(0)] = 0, 10
    again, _ = reader(queues.spans)
    again.prepareForTriggerAvailableNow()
    assert ranges(again, again.initialOffset(), written) == []
    assert ranges(again, written, again.latestOffset(written, ALL)) == [(0, 3, 10)]


def test_nothing_new_is_the_same_text_and_a_pause(no_pause: list[int]) -> None:
    made, _ = reader({queue(0): (0, 3)})
    assert made.latestOffset(at(q0=3), ALL) == at(q0=3)
    assert no_pause == [streaming.IDLE_MS]


def test_a_new_queue_begins_at_its_first_message_one_batch_later() -> None:
    made, queues = reader({queue(0): (0, 3)})
    queues.spans[queue(1)] = 2, 6
    entered = made.latestOffset(at(q0=3), ALL)
    assert entered == at(q0=3, q1=2)
    assert ranges(made, at(q0=3), entered) == []
    following = made.latestOffset(entered, ALL)
    assert ranges(made, entered, following) == [(1, 2, 6)]


def test_a_new_queue_of_a_query_that_began_at_given_offsets() -> None:
    """They say nothing about it."""
    made, queues = reader({queue(0): (0, 3)}, startingOffsets='{"t":{"0":1}}')
    queues.spans[queue(1)] = 2, 6
    entered = made.latestOffset(at(q0=3), ALL)
    assert ranges(made, at(q0=3), entered) == []
    assert ranges(made, entered, made.latestOffset(entered, ALL)) == [(1, 2, 6)]


def test_a_checkpoint_of_a_store_with_another_broker_name_is_refused() -> None:
    """Its queues would all be new: every message would come again."""
    given = parse_options({"path": "/x", "brokerName": "a"}, streaming=True)
    made = RocketmqStreamReader(FakeQueues({queue(0, "a"): (0, 9)}), given, SHAPE)
    for before in ("", "b"):
        start = {"t": {before: {"0": 5}}}
        with pytest.raises(CannotDecide, match="brokerName"):
            made.latestOffset(start, ALL)
    assert made.latestOffset({"t": {"a": {"0": 5}}}, ALL) == {"t": {"a": {"0": 9}}}


def test_the_sizes_of_messages_are_looked_up_in_the_store_as_it_is_now() -> None:
    """It grows new files while the query runs."""

    class Aging(FakeQueues):
        def __copy__(self) -> FakeQueues:
            return FakeQueues(self.spans)

        def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
            raise CannotDecide("an old look")

    given = parse_options({"path": "/x", "maxBytesPerTrigger": "1k"}, streaming=True)
    made = RocketmqStreamReader(Aging({queue(0, ""): (0, 100)}), given, SHAPE)
    end = made.latestOffset({"t": {"": {"0": 0}}}, ReadMaxBytes(1024))
    assert end == {"t": {"": {"0": 10}}}


def test_a_queue_of_the_first_batch_whose_broker_is_away_when_it_is_done_again() -> None:
    """Its beginning was not written down, so it is asked for; it is not skipped."""
    made, _ = reader({queue(0): (0, 3), queue(1): (1, 3)}, startingOffsets="earliest")
    assert ranges(made, at(q0=0), at(q0=3, q1=3)) == [(0, 0, 3), (1, 1, 3)]


def test_limits_of_rows_are_kept_and_reach_the_end() -> None:
    made, _ = reader({queue(0): (0, 100), queue(1): (0, 10)}, maxOffsetsPerTrigger="20")
    assert made.getDefaultReadLimit() == ReadMaxRows(20)
    now, batches = at(q0=0, q1=0), 0
    while (end := made.latestOffset(now, ReadMaxRows(20))) != now:
        assert sum(stop - start for _, start, stop in ranges(made, now, end)) <= 20
        now, batches = end, batches + 1
    assert now == at(q0=100, q1=10)
    assert batches == 6


def test_a_trigger_that_wants_all_gets_all_in_spite_of_limits() -> None:
    made, _ = reader({queue(0): (0, 100)}, maxOffsetsPerTrigger="20", minOffsetsPerTrigger="500")
    assert made.latestOffset(at(q0=0), ALL) == at(q0=100)


def test_limits_of_bytes_go_by_the_next_messages() -> None:
    made, _ = reader({queue(0): (0, 100)}, maxBytesPerTrigger="1k")
    assert made.getDefaultReadLimit() == ReadMaxBytes(1024)
    assert made.latestOffset(at(q0=0), ReadMaxBytes(1024)) == at(q0=10)


def test_both_limits_hold_together() -> None:
    made, _ = reader({queue(0): (0, 100)}, maxBytesPerTrigger="1k", maxOffsetsPerTrigger="7")
    assert made.latestOffset(at(q0=0), made.getDefaultReadLimit()) == at(q0=7)


def test_few_messages_wait_for_more_or_for_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000_000]
    monkeypatch.setattr(streaming, "now_ms", lambda: now[0])
    made, queues = reader({queue(0): (0, 5)}, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    assert made.getDefaultReadLimit() == ReadMinRows(10)
    first = made.latestOffset(at(q0=0), ReadMinRows(10))
    assert first == at(q0=5), "nothing was read for longer than the delay"
    queues.spans[queue(0)] = 0, 9
    assert made.latestOffset(first, ReadMinRows(10)) == first
    queues.spans[queue(0)] = 0, 15
    assert made.latestOffset(first, ReadMinRows(10)) == at(q0=15)
    queues.spans[queue(0)] = 0, 16
    now[0] += 60_000
    assert made.latestOffset(at(q0=15), ReadMinRows(10)) == at(q0=16)


def test_available_now_ends_where_the_queues_ended_when_it_began() -> None:
    made, queues = reader({queue(0): (0, 5), queue(1): (0, 1)}, minOffsetsPerTrigger="100")
    made.prepareForTriggerAvailableNow()
    queues.spans |= {queue(0): (0, 9), queue(2): (0, 7)}
    limit = made.getDefaultReadLimit()
    end = made.latestOffset(at(q0=0), limit)
    assert end == at(q0=5, q1=0), "queue 1 is new to the checkpoint"
    end = made.latestOffset(end, limit)
    assert end == at(q0=5, q1=1)
    assert made.latestOffset(end, limit) == end


def test_a_stream_reads_only_what_was_stored_before_a_time() -> None:
    """In these queues the message with offset n was stored at n ms."""
    made, queues = reader({queue(0): (0, 9), queue(1): (0, 3)}, endingTimestamp="5")
    assert made.latestOffset(at(q0=0, q1=0), ALL) == at(q0=5, q1=3)
    queues.spans = {queue(0): (7, 20), queue(1): (0, 20)}
    # Another run read further already: that is no queue whose end was lost.
    assert made.latestOffset(at(q0=9, q1=3), ALL) == at(q0=9, q1=5)
    made.prepareForTriggerAvailableNow()
    assert made.latestOffset(at(q0=9, q1=3), ALL) == at(q0=9, q1=5)


def test_available_now_never_goes_back_behind_what_was_read() -> None:
    made, queues = reader({queue(0): (0, 5)})
    made.prepareForTriggerAvailableNow()
    queues.spans[queue(0)] = 0, 9
    assert made.latestOffset(at(q0=8), ALL) == at(q0=8)


def test_messages_deleted_before_they_were_read_are_an_error_or_passed_over() -> None:
    made, _ = reader({queue(0): (10, 20)})
    with pytest.raises(CannotDecide, match=r"t/b/0 begins at 10: the messages from 4 to 9"):
        made.latestOffset(at(q0=4), ALL)
    made, _ = reader({queue(0): (10, 20)}, failOnDataLoss="false", maxOffsetsPerTrigger="3")
    assert made.latestOffset(at(q0=4), ReadMaxRows(3)) == at(q0=13)


def test_deleted_messages_of_a_store_are_passed_over_when_that_is_allowed() -> None:
    given = parse_options({"path": "/x", "failOnDataLoss": "false"}, streaming=True)
    made = RocketmqStreamReader(FakeQueues({queue(0): (10, 20)}), given, SHAPE)
    assert ranges(made, at(q0=4), at(q0=15)) == [(0, 10, 15)]
    assert ranges(made, at(q0=4), at(q0=8)) == []


def test_a_queue_that_was_cut_is_an_error_or_gone_on_with() -> None:
    made, _ = reader({queue(0): (0, 20)})
    with pytest.raises(CannotDecide, match=r"t/b/0 ends at 20.*read up to 25"):
        made.latestOffset(at(q0=25), ALL)
    made, _ = reader({queue(0): (0, 20)}, failOnDataLoss="false")
    end = made.latestOffset(at(q0=25), ALL)
    assert end == at(q0=20)
    assert ranges(made, at(q0=25), end) == []


def cluster(
    spans: dict[QueueId, tuple[int, int]], **more: str
) -> tuple[RocketmqStreamReader, FakeCluster]:
    queues = FakeCluster(options(**more), spans)
    return RocketmqStreamReader(queues, options(**more), SHAPE), queues


def test_a_slave_that_is_behind_is_no_loss() -> None:
    made, queues = cluster({queue(0): (0, 20)})
    queues.slaves.add("b")
    assert made.latestOffset(at(q0=25), ALL) == at(q0=25)


def test_a_slave_that_begins_later_is_not_read_in_place_of_its_master() -> None:
    made, queues = cluster({queue(0): (10, 20), queue(1): (10, 20)})
    queues.slaves.add("b")
    assert made.latestOffset(at(q0=5), ALL) == at(q0=5), "queue 1 is new: the master knows where"
    assert made.latestOffset(at(q0=10), ALL) == at(q0=20)


def test_the_others_go_on_while_a_broker_is_away() -> None:
    other = QueueId("u", "c", 0)
    spans = {queue(0): (0, 5), queue(0, "c"): (0, 5), queue(1, "c"): (0, 5), other: (0, 0)}
    made, queues = cluster(spans)
    queues.away.add("c")
    start = {"t": {"b": {"0": 0}, "c": {"0": 2, "1": 3}}, "u": {"c": {"0": 0}}}
    end = made.latestOffset(start, ALL)
    assert end == {**start, "t": {"b": {"0": 5}, "c": {"0": 2, "1": 3}}}
    assert queues.times_asked == 2, "a broker that does not answer is not asked for every topic"
    queues.away.clear()
    assert made.latestOffset(end, ALL)["t"] == {"b": {"0": 5}, "c": {"0": 5, "1": 5}}


def test_progress_is_kept_for_consoles_once() -> None:
    made, queues = cluster({queue(0): (0, 5), queue(0, "c"): (0, 5)}, commitOffsets="g")
    queues.away.add("c")
    end = {"t": {"b": {"0": 4}, "c": {"0": 2}}}
    made.commit(end)
    made.commit(end)
    assert queues.kept == [("g", queue(0), 4)]
    queues.away.clear()
    made.commit(end)
    assert queues.kept == [("g", queue(0), 4), ("g", queue(0, "c"), 2)]


def test_the_end_of_the_queues_is_reported() -> None:
    made, _ = reader({queue(0): (0, 5)}, maxOffsetsPerTrigger="1")
    assert made.reportLatestOffset() is None
    made.latestOffset(at(q0=0), ReadMaxRows(1))
    assert made.reportLatestOffset() == at(q0=5)


def test_a_task_gives_each_of_its_ranges_in_the_columns_that_were_asked_for() -> None:
    made, _ = reader({queue(0): (0, 3), queue(1): (0, 2)})
    found = [
        batch
        for part in made.partitions(at(q0=0, q1=0), at(q0=3, q1=2))
        for batch in made.read(part)
    ]
    assert sum(batch.num_rows for batch in found) == 5
    task = RangesPartition([QueueRange(queue(0), 0, 3), QueueRange(queue(1), 0, 2)])
    assert [batch.num_rows for batch in made.read(task)] == [3, 2]
    assert [batch.schema.names for batch in made.read(task)] == [["queueId"]] * 2


def test_a_query_that_stops_closes_the_connections_that_it_has() -> None:
    made, queues = cluster({queue(0): (0, 5)})
    closed: list[int] = []
    queues.close = lambda: closed.append(1)  # type: ignore[method-assign]
    made.stop()
    assert closed == [1]
    made, _ = reader({queue(0): (0, 5)})
    made.stop()


def test_large_ranges_are_cut_for_more_tasks() -> None:
    made, _ = reader({queue(0): (0, 100)}, minPartitions="4")
    assert len(made.partitions(at(q0=0), at(q0=100))) == 4


def test_reader_and_tasks_can_be_sent_to_executors() -> None:
    made, _ = cluster({queue(0): (0, 5)})
    live = RocketmqStreamReader(LiveQueues(options()), options(), SHAPE)
    assert isinstance(pickle.loads(pickle.dumps(live)), RocketmqStreamReader)
    (task,) = made.partitions(at(q0=0), at(q0=5))
    assert pickle.loads(pickle.dumps(task)).ranges == task.ranges
