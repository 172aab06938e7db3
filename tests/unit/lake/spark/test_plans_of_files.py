"""Whether a store is read by files or by queues, which parts of files, and what that rests on."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.scan.store.scanning import Split
from rmq_ha.lake.spark.source.batch import MessagesReader, make_reader, schema_of
from rmq_ha.lake.spark.source.messages import (
    LEAST,
    FilePlan,
    _are_few,
    _plan_files,
    _splits,
)
from rmq_ha.lake.spark.source.offline import END_OF_LOG, OfflineQueues
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.reading import QueueId, QueueRange, Subscription
from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of
from rmq_ha.lake.spark.source.tables import TableReader
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log

T0, T1 = QueueId("T", "b", 0), QueueId("T", "b", 1)
RANGES = [QueueRange(T0, 5, 20), QueueRange(T1, 7, 12)]


class Store:
    """As much of a store as plans ask for."""

    uri = "/s"

    def __init__(self, low: int = 0, high: int = 8000, *, has_queues: bool = True) -> None:
        self._low, self._high, self._has_queues = low, high, has_queues
        self.cut: list[tuple[int, int]] = []

    def topics_on_disk(self) -> list[tuple[str, int]]:
        return [("T", 0), ("T", 1)] if self._has_queues else []

    def min_offset(self) -> int:
        return self._low

    def max_offset(self) -> int:
        return self._high

    def splits(self, size: int, start: int) -> Iterable[Split]:
        self.cut.append((size, start))
        for low in range(start, 1 << 16, size):
            yield Split("f", 0, low, low + size, low + size, 1 << 16)


class Asked:
    """Queues and a planner in one, that remember what they were asked for."""

    def __init__(
        self, store: Store, mean: float = 100.0, *, reach: bool = True, ranges: Any = RANGES
    ) -> None:
        self.store = store
        self._mean, self._reach, self._ranges = mean, reach, ranges
        self.checked: list[Subscription] = []

    def reach_the_end(self) -> bool:
        return self._reach

    def queues(self, topics: Subscription) -> list[QueueId]:
        self.checked.append(topics)
        return [T0, T1]

    def mean_size(self, span: QueueRange) -> float:
        return self._mean

    def log_range(self, ranges: Sequence[QueueRange]) -> tuple[int, int]:
        assert ranges is self._ranges
        return 300, 4000

    def ranges(self) -> Any:
        return self._ranges

    def starts(self) -> dict[QueueId, int]:
        return {span.queue: span.start for span in self._ranges}


WHOLE = FilePlan()
OPEN = FilePlan({("T", 0): (5, END_OF_LOG), ("T", 1): (7, END_OF_LOG)}, 300)
CLOSED = FilePlan({("T", 0): (5, 20), ("T", 1): (7, 12)}, 300, 4000)
SOME = {"subscribe": "T"}
FROM = {**SOME, "startingTimestamp": "9"}
TO = {**SOME, "endingTimestamp": "9"}
FROM_THEN, TO_THEN = {"startingTimestamp": "9"}, {"endingTimestamp": "9"}


@pytest.mark.parametrize(
    ("given", "mean", "reach", "plan", "is_checked"),
    [
        # 20 messages of 100 bytes are a quarter of the log, and that is few.
        (SOME, 100.0, True, None, False),
        (SOME, 100.1, True, WHOLE, True),
        (SOME, 100.0, False, WHOLE, True),  # queues would miss what is not in them yet
        ({}, 1.0, True, WHOLE, False),
        ({"startingTimestamp": "9"}, 1.0, True, None, False),
        ({"endingTimestamp": "9"}, 101.0, True, CLOSED, False),
        ({**SOME, "maxRecordsPerPartition": "5"}, 101.0, True, None, False),
        ({**SOME, "scan": "queues"}, 101.0, True, None, False),
        ({**SOME, "scan": "files"}, 1.0, True, WHOLE, True),
        ({"scan": "files"}, 1.0, True, WHOLE, False),
        ({**FROM, "scan": "files"}, 1.0, True, CLOSED, True),
        ({**FROM, "scan": "files"}, 1.0, False, OPEN, True),
        (FROM, 101.0, True, CLOSED, True),
        (FROM, 101.0, False, OPEN, True),
        ({**TO, "scan": "files"}, 1.0, False, CLOSED, True),
        (TO, 1.0, True, None, False),
    ],
)
def test_how_a_store_is_read(
    given: dict[str, str], mean: float, reach: bool, plan: FilePlan | None, is_checked: bool
) -> None:
    """Topics that are read by files are looked for all the same: one may not be there."""
    options = parse_options({"path": "/s", **given})
    asked: Any = Asked(Store(), mean, reach=reach)
    assert _plan_files(asked, asked, options) == plan
    assert asked.checked == ([options.subscription] if is_checked else [])


@pytest.mark.parametrize(
    ("given", "is_read"),
    [
        ({}, True),
        (SOME, True),
        ({"scan": "files"}, True),
        ({"scan": "queues"}, False),
        (FROM_THEN, False),
        (TO_THEN, False),
    ],
)
def test_a_log_without_queues_has_no_offsets(given: dict[str, str], is_read: bool) -> None:
    options = parse_options({"path": "/s", **given})
    asked: Any = Asked(Store(has_queues=False))
    if is_read:
        assert _plan_files(asked, asked, options) == WHOLE
        assert not asked.checked
    else:
        with pytest.raises(CannotDecide, match="no consume queues"):
            _plan_files(asked, asked, options)
    empty: Any = Asked(Store(8000, 8000, has_queues=False), 1.0, ranges=[])
    plan = _plan_files(empty, empty, options)
    assert (plan is None) is (options.scan == "queues" or given in (SOME, FROM_THEN, TO_THEN))


def spans(*sizes: int) -> list[QueueRange]:
    return [QueueRange(QueueId("T", "b", at), 3, 3 + size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("ranges", "log", "are_few"),
    [
        (spans(), 0, True),
        (spans(5), 200, True),
        (spans(5), 199, False),
        (spans(2, 3), 200, True),
        (spans(2, 3), 199, False),
        # Of seventeen the smallest, whose messages are larger than all, is not asked.
        (spans(1, *[2] * 16), 33 * 40, True),
        (spans(*[2] * 8, 1, *[2] * 8), 33 * 40, True),
        (spans(1, *[2] * 16), 33 * 40 - 1, False),
        (spans(1, *[2] * 15), 33 * 40, False),
    ],
)
def test_what_is_few_is_estimated_by_the_messages_of_the_largest_ranges(
    ranges: list[QueueRange], log: int, are_few: bool
) -> None:
    class Sized(Asked):
        def mean_size(self, span: QueueRange) -> float:
            return 10.0 if span.stop - span.start > 1 else 1e6

    asked: Any = Sized(Store(100, 100 + log))
    assert _are_few(asked, ranges) is are_few


@pytest.mark.parametrize(
    ("given", "plan", "cut", "lows"),
    [
        ({}, FilePlan(), [(20_000, 100)], [100, 20_100]),
        ({}, FilePlan({}, 50, 20_101), [(20_000, 100)], [100, 20_100]),
        ({}, FilePlan({}, 50, 20_100), [(20_000, 100)], [100]),
        ({}, FilePlan({}, 10_000, 60_000), [(20_000, 10_000)], [10_000, 30_000]),
        ({}, FilePlan({}, 9000, 9000), [], []),
        ({}, FilePlan({}, 9000, 9001), [(20_000, 9000)], [9000]),
        ({"minPartitions": "1"}, FilePlan(), [(20_000, 100)], [100, 20_100]),
        ({"minPartitions": "4"}, FilePlan({}, 100, 40_101), [(9975, 100)],
            [100, 10_075, 20_050, 30_025]),
        ({"minPartitions": "4"}, FilePlan({}, 101, 30_000), [(7475, 101)],
            [101, 7576, 15_051, 22_526]),
        ({"minPartitions": "1000"}, FilePlan({}, 100, 9000), [(LEAST, 100)], [100, 4196, 8292]),
    ],
)  # fmt: skip
def test_parts_of_files_begin_within_what_is_wanted(
    given: dict[str, str], plan: FilePlan, cut: list[tuple[int, int]], lows: list[int]
) -> None:
    """As many as are asked for, none of them smaller than a page."""
    options = parse_options({"path": "/s", "splitSize": "20000", **given})
    asked: Any = Asked(Store(100, 40_000))
    parts = list(_splits(asked, options, plan))
    assert asked.store.cut == cut
    assert [part.split.lo for part in parts] == lows
    assert all(part.spans is plan.spans for part in parts)


def test_the_size_of_a_queues_messages_is_that_of_the_first_ones(tmp_path: Path) -> None:
    store = java_store("clean", tmp_path)
    sizes = [
        row["storeSize"]
        for row in rows_of_log(store, None)
        if (row["topic"], row["queueId"]) == ("TopicB", 1)
    ]
    assert len(sizes) == 65
    queues = OfflineQueues(parse_options({"path": str(store)}))
    queue = QueueId("TopicB", "", 1)
    for low, high in ((0, 1), (0, 3), (60, 65), (1, 65), (0, 64), (0, 65)):
        some = sizes[low : min(high, low + 64)]
        assert queues.mean_size(QueueRange(queue, low, high)) == pytest.approx(
            sum(some) / len(some)
        )
    assert queues.mean_size(QueueRange(queue, 5, 5)) == 0.0
    assert queues.mean_size(QueueRange(QueueId("None", "", 1), 0, 5)) == 0.0


# Which reader


FEW = struct_of({"topic": COLUMNS["topic"]})
TABLE = {"provider": "rocketmq", "path": "/of/the/table", "subscribe": "T"}


def test_a_table_of_the_catalog_brings_its_options_in_its_schema() -> None:
    """Spark 4.3 gives none of them to a reader; what it gives wins."""
    reader: Any = make_reader({}, schema_of(TABLE))
    assert isinstance(reader, MessagesReader)
    assert (reader._options.path, reader._options.subscription.topics) == ("/of/the/table", ("T",))
    other: Any = make_reader({"path": "/other"}, schema_of(TABLE))
    assert (other._options.path, other._options.subscription.is_everything) == ("/other", True)
    for schema in (FEW, StructType([])):
        with pytest.raises(WrongUsage, match="nothing to read from"):
            make_reader({}, schema)


def test_messages_and_tables_have_their_own_readers() -> None:
    assert isinstance(make_reader({"path": "/s"}, FEW), MessagesReader)
    table = {"path": "/s", "table": "topics"}
    assert isinstance(make_reader(table, schema_of(table)), TableReader)


def test_what_has_no_effect_is_said_to_whoever_asked() -> None:
    given = {"path": "/s", "maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1m"}
    with pytest.warns(UserWarning, match="is for streams") as told:
        make_reader(given, FEW)
    assert len(told) == 2
    assert {warning.filename for warning in told} == {__file__}
