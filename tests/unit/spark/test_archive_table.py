"""What an archive knows of its queues, without Spark."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.offsets.places import StorePlace, parse_place
from rmq_ha.spark.archive.job import _EVERYTHING, Asked, _source
from rmq_ha.spark.archive.table import _starts, assigned, check_names, nested
from rmq_ha.spark.source.boundaries import assigned_queues, queue_table
from rmq_ha.spark.source.options import parse_options
from rmq_ha.spark.source.reading import QueueId
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
