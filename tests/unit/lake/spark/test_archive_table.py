"""What an archive knows of its queues, without Spark."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.lake.spark.archive import table as archive_table
from rmq_ha.lake.spark.archive.forms import OFFSETS, _commits
from rmq_ha.lake.spark.archive.job import _EVERYTHING, ArchiveRequest, _source
from rmq_ha.lake.spark.archive.table import (
    _error,
    _starts,
    assigned,
    check_names,
    joint,
    lasts_of,
    nested,
    table,
)
from rmq_ha.lake.spark.source.boundaries import assigned_queues, queue_table
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.reading import QueueId, QueueRange
from rmq_ha.lake.spark.source.streaming_offsets import Offsets, to_json
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.ops.offsets.places import StorePlace, parse_place
from tests.unit.lake.spark.golden_stores import java_store
from tests.unit.lake.spark.plans import Plan, Session, columns_without_java

__all__ = ("columns_without_java",)

QUEUES = st.builds(
    QueueId, st.sampled_from("tu"), st.sampled_from(["", "a", "b"]), st.integers(0, 9)
)


@given(st.dictionaries(QUEUES, st.integers(0, 1 << 60), min_size=1, max_size=6))
def test_offsets_are_written_as_the_data_source_reads_them(ends: dict[QueueId, int]) -> None:
    mixed = {queue.broker == "" for queue in ends}
    if len(mixed) > 1:
        return  # check_names refuses that
    assert queue_table(nested(ends), "startingOffsets", "") == ends
    assert set(assigned_queues(assigned(ends), "assign")) == set(ends)


def test_messages_on_their_way_are_not_archived_unless_named() -> None:
    for topic in (SCHEDULE_TOPIC, HALF_TOPIC):
        assert not re.fullmatch(_EVERYTHING, topic)
        assert re.fullmatch(_EVERYTHING, f"{topic}2")
    for place in (StorePlace("/s"), parse_place("namesrv://ns:9876/b")):
        stream = parse_options(_source(ArchiveRequest(place=place, to="/to")), streaming=True)
        assert not stream.subscription.wants_topic(SCHEDULE_TOPIC)
        assert stream.subscription.wants_topic("%RETRY%g")
        named = _source(ArchiveRequest(place=place, to="/to", topics=(SCHEDULE_TOPIC,)))
        assert parse_options(named, streaming=True).subscription.wants_topic(SCHEDULE_TOPIC)


def test_a_store_is_read_under_the_name_that_was_given_and_no_loss_is_let_pass() -> None:
    """Who is asked through name servers says its name itself."""
    store, live = StorePlace("/s"), parse_place("namesrv://ns:9876/b")
    assert (
        _source(ArchiveRequest(place=store, to="/to", broker_name="mine"))["brokerName"] == "mine"
    )
    assert "brokerName" not in _source(ArchiveRequest(place=store, to="/to"))
    assert _source(ArchiveRequest(place=live, to="/to", broker_name="mine"))["brokerName"] == "b"
    for place in (store, live):
        found = _source(ArchiveRequest(place=place, to="/to", options={"failOnDataLoss": "false"}))
        assert found["failOnDataLoss"] == "true"
        assert "scan" not in found


def test_a_queue_has_one_name_for_ever() -> None:
    check_names({"a"}, {"b"})
    check_names((), {""})
    with pytest.raises(WrongUsage, match="--broker-name"):
        check_names({"a"}, {""})
    with pytest.raises(WrongUsage, match="was not named"):
        check_names({""}, {"a"})


def test_what_was_replaced_is_noticed_whatever_its_tags(tmp_path: Path) -> None:
    """With `tags` the message that tells it was left out, and other messages were taken for it."""
    store = java_store("clean", tmp_path)
    options = parse_options({"path": str(store), "assign": '{"TopicB":[1]}', "tags": "Nope"})
    queue = QueueId("TopicB", "", 1)
    with pytest.raises(CannotDecide, match="holds another message now"):
        _starts(options, {queue: 5}, {queue: "another@1"})


def commit(version: int, offset: int | None = None, restored: str | None = None) -> Row:
    """As DESCRIBE HISTORY tells it: one of ours has an offset; others were compactions."""
    said = (
        None if offset is None else json.dumps({OFFSETS: to_json({QueueId("t", "b", 0): offset})})
    )
    kind = "RESTORE" if restored is not None else "WRITE" if said else "OPTIMIZE"
    return Row(
        version=version,
        operation=kind,
        operationParameters={"version": restored or None, "timestamp": None},
        userMetadata=said if said or version % 2 else '{"somebody": "else"}',
    )


@pytest.mark.parametrize(
    ("history", "offsets"),
    [
        ([commit(0)], []),
        ([commit(2), commit(1, 7), commit(0, 4)], [7, 4]),
        ([commit(3, restored="0"), commit(2, 9), commit(1, 7), commit(0, 4)], [4]),
        (
            [commit(5, 6), commit(4, restored="2"), commit(3, 9), commit(2), commit(1, 5)],
            [6, 5],
        ),
        ([commit(3, restored="2"), commit(2, restored="0"), commit(1, 9), commit(0, 4)], [4]),
        ([commit(3, 8), commit(2, restored=""), commit(1, 7)], [8]),
    ],
)
def test_only_commits_count_that_the_table_is_made_of(
    history: list[Row], offsets: list[int]
) -> None:
    """What a RESTORE took back does not, or messages would be missing; one to a time ends it."""
    assert [list(ends.values()) for ends in _commits(history)] == [[each] for each in offsets]


def error_of(queue: QueueId) -> Finding:
    return _error("EXPIRED", queue, 5, "gone", "offset 5", "begins at 7")


def test_a_finding_names_its_queue_and_no_broker_where_none_was_named() -> None:
    found = error_of(QueueId("t", "b", 3))
    assert (found.broker, found.topic, found.queue_id, found.queue_offset) == ("b", "t", 3, 5)
    assert (found.detail, found.expected, found.actual) == ("gone", "offset 5", "begins at 7")
    assert error_of(QueueId("t", "", 3)).broker is None


class Live:
    """A live topic of one queue: its ends; a message was stored at as many ms as its offset."""

    def __init__(self, first: int, stop: int, broker: str = "b") -> None:
        self.queue, self.span = QueueId("t", broker, 1), (first, stop)

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        return self.span

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        return ms if ms < self.span[1] else None

    def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        assert self.span[0] <= span.start < self.span[1]
        at = datetime.fromtimestamp(span.start / 1000, UTC)
        rows = [{"msgId": f"id{span.start}", "storeTimestamp": at}]
        for some in ([], rows):
            yield SimpleNamespace(to_pylist=lambda some=some: some)


@pytest.mark.parametrize(
    ("span", "end", "before", "goes_on", "misfit"),
    [
        ((2, 9), 5, None, (5, 9), ""),
        ((2, 9), None, None, (2, 9), ""),
        ((2, 9), 9, None, (9, 9), ""),
        ((2, 9), 5, 7, (5, 7), ""),
        ((2, 9), 5, 3, (5, 5), ""),  # what is archived is not cold any more, as of another clock
        ((2, 9), 5, 12, (5, 9), ""),
        ((2, 9), 2, None, (2, 9), ""),
        ((2, 9), 1, None, (2, 9), "EXPIRED 1: 1 messages were deleted before"),
        ((2, 9), 10, None, (9, 9), "ARCHIVE_AHEAD 9: the archive has 1 messages"),
    ],
)
def test_each_queue_goes_on_behind_its_archive_as_far_as_it_is_cold(
    span: tuple[int, int],
    end: int | None,
    before: int | None,
    goes_on: tuple[int, int],
    misfit: str,
) -> None:
    live: Any = Live(*span)
    ends = {} if end is None else {live.queue: end}
    lasts = {queue: f"id{at - 1}@{at - 1}" for queue, at in ends.items()}
    spans, misfits = joint(live, [live.queue], ends, lasts, before)
    assert spans == {live.queue: goes_on}
    said = [f"{found.code} {found.queue_offset}: {found.detail}" for found in misfits]
    assert len(said) == bool(misfit)
    assert "".join(said).startswith(misfit)


@pytest.mark.parametrize(
    ("last", "codes"), [("id4@4", []), ("id4@5", ["REPLACED"]), ("id5@4", ["REPLACED"]), ("", [])]
)
def test_the_last_message_of_the_archive_is_looked_for_in_its_queue(
    last: str, codes: list[str]
) -> None:
    live: Any = Live(2, 9)
    _, misfits = joint(live, [live.queue], {live.queue: 5}, {live.queue: last})
    assert [(found.code, found.queue_offset) for found in misfits] == [(code, 4) for code in codes]
    assert all(found.detail.startswith("offset 4, the last that is") for found in misfits)


def test_a_message_that_cannot_be_read_any_more_replaces_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who reads on from there is told of it."""
    live: Any = Live(2, 9)

    def gone(*_: Any) -> Any:
        raise CannotDecide("deleted meanwhile")

    monkeypatch.setattr(Live, "read", gone)
    assert joint(live, [live.queue], {live.queue: 5}, {live.queue: "id9@9"})[1] == []


def test_queues_that_have_other_names_in_the_archive_are_not_gone_on_with() -> None:
    live: Any = Live(2, 9)
    with pytest.raises(WrongUsage, match="was not named"):
        joint(live, [live.queue], {live.queue._replace(broker=""): 5}, {})


def test_what_misfits_is_told_with_its_queue_unless_loss_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store whose broker was not named has no name to tell."""
    for broker, place in (("b", "t/b/1"), ("", "t/1")):
        live: Any = Live(7, 9, broker)
        live.queues = lambda _, live=live: [live.queue]
        monkeypatch.setattr(archive_table, "queues_of", lambda _, live=live: live)
        given = {"namesrv": "n:1", "subscribe": "t"}
        with pytest.raises(CannotDecide, match=f"^{place}: 2 messages were deleted before"):
            _starts(parse_options(given), {live.queue: 5}, {})
        allowed = parse_options({**given, "failOnDataLoss": "false"})
        assert _starts(allowed, {live.queue: 5}, {}) == {live.queue: 7}


def test_queues_in_which_brokers_keep_messages_on_their_way_are_not_taken_for_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden, live = QueueId(SCHEDULE_TOPIC, "b", 0), Live(2, 9)
    there: Any = live
    there.queues = lambda _: [hidden, live.queue]
    monkeypatch.setattr(archive_table, "queues_of", lambda _: there)
    given = {"path": "/s"}
    assert _starts(parse_options(given), {}, {}) == {live.queue: 2}
    named = {**given, "subscribe": f"t,{SCHEDULE_TOPIC}"}
    assert _starts(parse_options(named), {}, {}) == {hidden: 2, live.queue: 2}


# Plans


@pytest.mark.usefixtures("columns_without_java")
def test_the_last_message_of_each_queue_is_told_by_its_id_and_time() -> None:
    """Of the rows with one of these numbers, those that are the last of their own queue."""
    ends = {QueueId("t", "b", 0): 5, QueueId("t", "b", 1): 3, QueueId("t", "", 2): 9}
    rows = [
        Row(topic="t", broker=broker, queueId=number, queueOffset=at, msgId=f"m{at}", ms=at * 10)
        for broker, number, at in (("b", 0, 2), ("b", 0, 4), ("b", 1, 2), ("", 2, 4), ("b", 2, 8))
    ]
    table: Any = Plan("archive", rows)
    assert lasts_of(table, ends) == {QueueId("t", "b", 0): "m4@40", QueueId("t", "b", 1): "m2@20"}
    assert lasts_of(table, {}) == {}
    step = ".where(and(in(topic, t), in(queueOffset, 4)))"
    lasts_of(table, {QueueId("t", "b", 0): 5})
    assert step in table.collected[-1]


# Archive and live topic


STORE, LIVE = {"path": "/s"}, {"namesrv": "n:1", "subscribe": "t"}


class Joined:
    """An archive of two queues, and what the part that is read live is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broker: str = "b") -> None:
        self.ends: Offsets | None = {QueueId("t", broker, 0): 5, QueueId("u", broker, 1): 7}
        self.told: list[Any] = []
        self.kept: Any = SimpleNamespace(ends=lambda: self.ends, rows=self.rows)
        monkeypatch.setattr(archive_table, "open_archive", lambda *given: self.kept)
        monkeypatch.setattr(archive_table, "_starts", self.starts)
        monkeypatch.setattr(archive_table, "lasts_of", lambda old, ends: dict.fromkeys(ends, "x@1"))

    def rows(self, ends: Any) -> Plan:
        assert ends == (self.ends or {})
        return Plan("archive")

    def starts(self, options: Any, ends: Any, lasts: Any) -> Any:
        self.told.append((ends, lasts))
        return {queue: end for queue, end in ends.items() if queue.topic == "t"}

    def of(self, live: dict[str, str] | None) -> tuple[str, str]:
        """What is read of the archive, and what live."""
        session: Any = Session()
        old, _, new = str(table(session, "/to", live)).partition(".unionByName(")
        return old, new


@pytest.mark.usefixtures("columns_without_java")
def test_an_archive_alone_and_one_that_has_nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = Joined(monkeypatch)
    old, new = joined.of(None)
    assert old.startswith("archive.select([")
    assert new == ""
    assert joined.told == []
    joined.ends = None
    old, new = joined.of(LIVE)
    assert joined.told == [({}, {})]
    assert new == "", "there is no queue to read"


@pytest.mark.usefixtures("columns_without_java")
def test_the_live_part_begins_where_the_archive_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes by queues, where a store is read: what lies before it is not asked for again."""
    joined = Joined(monkeypatch)
    for asked, scan in ((LIVE, False), (STORE | {"brokerName": "b", "Subscribe": "t"}, True)):
        _, new = joined.of(asked)
        assert 'assign={"t": {"b": [0]}}' in new
        assert 'startingOffsets={"t": {"b": {"0": 5}}}' in new
        assert ("scan=queues" in new) is scan
        assert "ubscribe" not in new
    with pytest.raises(WrongUsage, match="give no starting offsets"):
        joined.of(LIVE | {"startingOffsets": "group:g"})
    assert all(lasts == dict.fromkeys(ends, "x@1") for ends, lasts in joined.told)
    joined.of(LIVE | {"failOnDataLoss": "false"})
    assert joined.told[-1][1] == {}, "what is lost need not be known"


@pytest.mark.usefixtures("columns_without_java")
@pytest.mark.parametrize(
    ("archived", "named", "known"), [("", "b", "b"), ("b", "b", "b"), ("", "", ""), ("a", "b", "a")]
)
def test_an_archive_of_a_store_without_a_name_is_that_of_the_broker_that_is_named(
    monkeypatch: pytest.MonkeyPatch, archived: str, named: str, known: str
) -> None:
    joined = Joined(monkeypatch, archived)
    old, _ = joined.of(STORE | ({"brokerName": named} if named else {}))
    assert (f"archive.withColumn(brokerName, {named})" in old) is (archived != known)
    ((ends, lasts),) = joined.told
    assert {queue.broker for queue in ends} == {known}
    assert set(lasts) == set(ends)


@pytest.mark.usefixtures("columns_without_java")
@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, ""),
        ({"subscribe": "t"}, ".where(in(topic, t)).where(in(concat_ws(/, coalesce(brokerName, ),"),
        ({"assign": '{"u":[1]}'}, ".where(in(topic, u))"),
        ({"tags": "A"}, ".where(in(tags, A))"),
    ],
)
def test_of_an_archive_only_what_was_subscribed_to_is_read(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], chosen: str
) -> None:
    old, _ = Joined(monkeypatch).of({**STORE, "brokerName": "b", **given})
    assert old.startswith(f"archive{chosen}")
    assert ("where" in old) is bool(chosen)
