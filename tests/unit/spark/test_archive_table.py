"""What an archive knows of its queues, without Spark."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.offsets.places import StorePlace, parse_place
from rmq_ha.spark.archive.forms import OFFSETS, _commits
from rmq_ha.spark.archive.job import _EVERYTHING, Asked, _source
from rmq_ha.spark.archive.table import _starts, assigned, check_names, nested
from rmq_ha.spark.source.boundaries import assigned_queues, queue_table
from rmq_ha.spark.source.options import parse_options
from rmq_ha.spark.source.reading import QueueId
from rmq_ha.spark.source.streaming_offsets import to_json
from tests.unit.spark.golden_stores import java_store

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
        stream = parse_options(_source(Asked(place=place, to="/to")), streaming=True)
        assert not stream.subscription.wants_topic(SCHEDULE_TOPIC)
        assert stream.subscription.wants_topic("%RETRY%g")
        named = _source(Asked(place=place, to="/to", topics=(SCHEDULE_TOPIC,)))
        assert parse_options(named, streaming=True).subscription.wants_topic(SCHEDULE_TOPIC)


def test_a_store_is_read_under_the_name_that_was_given_and_no_loss_is_let_pass() -> None:
    """Who is asked through name servers says its name itself."""
    store, live = StorePlace("/s"), parse_place("namesrv://ns:9876/b")
    assert _source(Asked(place=store, to="/to", broker_name="mine"))["brokerName"] == "mine"
    assert "brokerName" not in _source(Asked(place=store, to="/to"))
    assert _source(Asked(place=live, to="/to", broker_name="mine"))["brokerName"] == "b"
    for place in (store, live):
        found = _source(Asked(place=place, to="/to", options={"failOnDataLoss": "false"}))
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
