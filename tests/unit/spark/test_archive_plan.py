"""Manifest and plan of an archive."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.spark.archive.manifest import (
    DataFile,
    Kept,
    Manifest,
    Run,
    assigned,
    batches,
    decode,
    encode,
    name_of,
    nested,
    number_of,
)
from rmq_ha.spark.archive.planning import Took, check_names, plan, verify
from rmq_ha.spark.archive.reading import _starts
from rmq_ha.spark.source.boundaries import assigned_queues, queue_table
from rmq_ha.spark.source.options import parse_options
from rmq_ha.spark.source.reading import QueueId, QueueRange, Subscription
from tests.unit.spark.golden_stores import java_store

Q0, Q1 = QueueId("t", "a", 0), QueueId("t", "a", 1)


def run(number: int = 1, *kept: Kept) -> Run:
    return Run(
        number=number, token=f"k{number}", source="/s", created_ms=5, ranges=kept,
        files=[DataFile("topic=t/x", "_rmqha/staging/k/topic=t/x", 9)], rows=3, bad_crc=0,
        digest=-1,
    )  # fmt: skip


class Fake:
    """Queues with bounds, and one message a ms."""

    def __init__(self, bounds: dict[QueueId, tuple[int, int]]) -> None:
        self.all = bounds

    def queues(self, topics: Subscription) -> list[QueueId]:
        return sorted(queue for queue in self.all if topics.wants(queue))

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        return self.all[queue]

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        first, end = self.all[queue]
        return None if ms >= end else max(ms, first)

    def read(self, wanted: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        if wanted.queue.queue_id:
            raise CannotDecide("gone")
        assert wanted.stop == wanted.start + 1
        yield pa.RecordBatch.from_pylist(
            [{"msgId": f"m{wanted.start}", "storeTimestamp": datetime.fromtimestamp(0.007, UTC)}]
        )


def planned(bounds: dict[QueueId, tuple[int, int]], *kept: Kept, before: int | None = None) -> Any:
    manifest = Manifest.of([run(1, *kept)] if kept else [])
    return plan(Fake(bounds), Subscription(), manifest, before, 77)


def test_the_first_run_takes_everything_that_is_cold() -> None:
    found = planned({Q0: (3, 50), Q1: (0, 9)}, before=20)
    assert found.ranges == [QueueRange(Q0, 3, 20), QueueRange(Q1, 0, 9)]
    assert found.findings == []


def test_the_next_run_goes_on_where_the_last_one_ended() -> None:
    found = planned({Q0: (3, 50), Q1: (9, 9)}, Kept(Q0, 0, 30, 30), Kept(Q1, 0, 9, 9))
    assert found == ([QueueRange(Q0, 30, 50)], [])


def test_nothing_new_that_is_cold() -> None:
    assert planned({Q0: (0, 50)}, Kept(Q0, 0, 30, 30), before=30).ranges == []
    assert planned({Q0: (0, 50)}, Kept(Q0, 0, 30, 30), before=10).ranges == []


def test_what_was_deleted_too_early_is_told() -> None:
    found = planned({Q0: (40, 50)}, Kept(Q0, 0, 30, 30))
    assert found.ranges == [QueueRange(Q0, 40, 50)]
    (finding,) = found.findings
    assert (finding.code, finding.severity, finding.queue_offset) == ("EXPIRED", "ERROR", 30)
    assert "10 messages" in finding.detail


def test_a_queue_that_is_shorter_than_its_archive_is_told() -> None:
    found = planned({Q0: (0, 20)}, Kept(Q0, 0, 30, 30))
    assert found.ranges == []
    assert [each.code for each in found.findings] == ["ARCHIVE_AHEAD"]


def test_an_offset_that_was_used_again_is_told_and_the_queue_is_left_alone() -> None:
    same = planned({Q0: (0, 50)}, Kept(Q0, 0, 30, 30, "m29@7"))
    assert same == ([QueueRange(Q0, 30, 50)], [])
    other = planned({Q0: (0, 50), Q1: (0, 50)}, Kept(Q0, 0, 30, 30, "m29@6"), Kept(Q1, 0, 9, 9))
    assert other.ranges == [QueueRange(Q1, 9, 50)]
    assert [(each.code, each.queue_offset) for each in other.findings] == [("REPLACED", 29)]
    # What cannot be looked at (any more) accuses nobody.
    assert planned({Q1: (0, 50)}, Kept(Q1, 0, 30, 30, "x@1")).findings == []
    assert planned({Q0: (30, 50)}, Kept(Q0, 0, 30, 30, "x@1")).findings == []


def test_messages_on_their_way_are_not_archived_unless_named() -> None:
    internal = QueueId("SCHEDULE_TOPIC_XXXX", "a", 3)
    retry = QueueId("%RETRY%g", "a", 0)
    found = planned({internal: (0, 5), retry: (0, 5)})
    assert [each.queue for each in found.ranges] == [retry]
    named = Subscription(topics=("SCHEDULE_TOPIC_XXXX",))
    found = plan(Fake({internal: (0, 5)}), named, Manifest(), None, 0)
    assert [each.queue for each in found.ranges] == [internal]


def test_a_queue_has_one_name_for_ever() -> None:
    check_names(set(), {"a"})
    check_names({"a"}, {"b"})
    check_names({""}, {""})
    with pytest.raises(WrongUsage, match="not named"):
        check_names({""}, {"a"})
    with pytest.raises(WrongUsage, match="--broker-name"):
        check_names({"a"}, {""})


def test_what_was_read_back_is_compared_with_what_was_asked_for() -> None:
    asked = [QueueRange(Q0, 10, 20), QueueRange(Q1, 0, 4)]
    whole = {Q0: Took(10, 10, 10, 19), Q1: Took(4, 4, 0, 3)}
    assert verify(asked, whole, 0) == []

    def codes(took: dict[QueueId, Took]) -> list[tuple[str, str]]:
        return [(str(each.severity), each.code) for each in verify(asked, took, 0)]

    assert codes(whole | {Q0: Took(8, 8, 10, 19)}) == [("WARN", "HOLE")]
    assert codes({Q0: whole[Q0]}) == [("WARN", "HOLE")]
    assert codes(whole | {Q0: Took(11, 10, 10, 19)}) == [("ERROR", "VERIFY_FAILED")]
    assert codes(whole | {Q0: Took(10, 10, 9, 18)}) == [("ERROR", "VERIFY_FAILED")]
    stranger = QueueId("u", "a", 0)
    assert codes(whole | {stranger: Took(1, 1, 0, 0)}) == [("ERROR", "VERIFY_FAILED")]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=6), st.integers(1, 60))
def test_runs_divide_the_ranges_without_a_gap(sizes: list[tuple[int, int]], most: int) -> None:
    ranges = [
        QueueRange(QueueId("t", "a", n), start, start + size)
        for n, (start, size) in enumerate(sizes)
    ]
    runs = list(batches(ranges, most))
    counts = [sum(each.stop - each.start for each in one) for one in runs]
    assert all(count == most for count in counts[:-1])
    assert all(0 < count <= most for count in counts)
    flat = [each for one in runs for each in one]
    for each in ranges:
        parts = [part for part in flat if part.queue == each.queue]
        assert [n for part in parts for n in range(part.start, part.stop)] == list(
            range(each.start, each.stop)
        )


queue_ids = st.builds(
    QueueId, st.text(min_size=1), st.sampled_from(["", "a", "b%|"]), st.integers(0, 99)
)
kepts = st.builds(
    Kept, queue_ids, st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.integers(0, 1 << 40)
)


@given(st.lists(kepts, max_size=4), st.text(), st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_run_comes_back_from_its_json(kept: list[Kept], token: str, digest: int) -> None:
    one = Run(
        number=7, token=token, source="s", created_ms=1, ranges=tuple(kept),
        files=(DataFile("a", "b", 3),), rows=2, bad_crc=1, digest=digest,
    )  # fmt: skip
    assert decode(encode(one), "x") == one


@given(st.data())
def test_anything_else_is_a_damaged_archive(data: Any) -> None:
    value = json.loads(encode(run(1, Kept(Q0, 0, 3, 3))))
    name = data.draw(st.sampled_from(sorted(value)))
    value[name] = data.draw(
        st.none() | st.booleans() | st.floats() | st.lists(st.integers()) | st.just({"a": 1})
    )
    if name in ("ranges", "files") and value[name] in ([], {}):
        return
    with pytest.raises(CannotDecide, match=r"run-000001\.json"):
        decode(json.dumps(value), "run-000001.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"format":2}'])
def test_text_that_is_no_run(text: str) -> None:
    with pytest.raises(CannotDecide, match=r"run-1\.json"):
        decode(text, "run-1.json")


def test_runs_must_fit_together() -> None:
    first, second = run(1, Kept(Q0, 0, 3, 3)), run(2, Kept(Q0, 3, 9, 6))
    both = Manifest.of([second, first])
    assert both.ends() == {Q0: 9}
    assert (both.next_number, both.rows, both.brokers()) == (3, 6, {"a"})
    with pytest.raises(CannotDecide, match="has no"):
        Manifest.of([second])
    with pytest.raises(CannotDecide, match="two archives were mixed"):
        Manifest.of([first, run(2, Kept(Q0, 2, 9, 7))])


def test_names_of_runs() -> None:
    assert name_of(12) == "_rmqha/run-000012.json"
    assert number_of("run-000012.json") == 12
    assert number_of("run-1000000.json") == 1_000_000
    for other in (
        "run-.json",
        "pending.json",
        "run-12.json.k.tmp",
        ".run-000001.json.crc",
        "run-1",
    ):
        assert number_of(other) is None


@given(st.dictionaries(queue_ids, st.integers(0, 1 << 60), min_size=1, max_size=6))
def test_offsets_are_written_as_the_data_source_reads_them(ends: dict[QueueId, int]) -> None:
    mixed = {queue.broker == "" for queue in ends}
    if len(mixed) > 1:
        return  # check_names refuses that
    assert queue_table(nested(ends), "startingOffsets", "") == ends
    assert set(assigned_queues(assigned(ends), "assign")) == set(ends)


def test_what_was_replaced_is_noticed_whatever_its_tags(tmp_path: Path) -> None:
    """With `tags` the message that tells it was left out, and other messages were taken for it."""
    store = java_store("clean", tmp_path)
    options = parse_options({"path": str(store), "assign": '{"TopicB":[1]}', "tags": "Nope"})
    queue = QueueId("TopicB", "", 1)
    with pytest.raises(CannotDecide, match="holds another message now"):
        _starts(options, {queue: 5}, {queue: "another@1"})
