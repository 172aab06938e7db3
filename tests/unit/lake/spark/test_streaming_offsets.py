"""Progress of a stream as JSON, and how much a batch takes of each queue."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.spark.source.reading import QueueId
from rmq_ha.lake.spark.source.streaming_offsets import (
    from_json,
    portions,
    portions_by_bytes,
    to_json,
)
from tests.kits.draws import draws

queue_ids = st.builds(
    QueueId, st.text(max_size=4), st.sampled_from(["", "a", "b-1"]), st.integers(0, 2**31 - 1)
)
offsets = st.dictionaries(queue_ids, st.integers(0, 2**63 - 1), max_size=8)
sizes = st.dictionaries(queue_ids, st.integers(0, 10_000), max_size=8)


def queue(number: int) -> QueueId:
    return QueueId("t", "b", number)


@settings(max_examples=draws(100))
@given(offsets)
def test_offsets_come_back_through_json_text(value: dict[QueueId, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


@given(offsets)
def test_equal_offsets_are_equal_text_whatever_their_order(value: dict[QueueId, int]) -> None:
    other = dict(reversed(list(value.items())))
    assert json.dumps(to_json(value)) == json.dumps(to_json(other))


def test_the_json_has_three_levels_of_text_keys() -> None:
    assert to_json({QueueId("t", "b", 10): 5}) == {"t": {"b": {"10": 5}}}


WRONG: list[Any] = [
    None,
    5,
    [],
    {"t": 5},
    {"t": {"0": 5}},
    {"t": {"b": {"x": 5}}},
    {"t": {"b": {"0": "5"}}},
    {"t": {"b": {"0": -1}}},
    {"t": {"b": {"0": True}}},
    {"t": {"b": {"0": 1.0}}},
]


@pytest.mark.parametrize("value", WRONG)
def test_another_sources_checkpoint_is_refused(value: Any) -> None:
    with pytest.raises(CannotDecide, match="checkpoint"):
        from_json(value)


@settings(max_examples=draws(100))
@given(sizes, st.integers(1, 20_000), st.integers(0, 10**12))
def test_a_batch_is_as_large_as_it_may_be_and_no_larger(
    value: dict[QueueId, int], most: int, turn: int
) -> None:
    taken = portions(value, most, turn)
    assert sum(taken.values()) == min(most, sum(value.values()))
    assert all(0 < count <= value[queue] for queue, count in taken.items())


@given(sizes, st.integers(8, 20_000), st.integers(0, 10**12))
def test_no_queue_starves_beside_larger_ones(
    value: dict[QueueId, int], most: int, turn: int
) -> None:
    taken = portions(value, most, turn)
    assert set(taken) == {queue for queue, size in value.items() if size}


def test_queues_take_turns_where_they_cannot_all_have_something() -> None:
    value = {queue(number): 5 for number in range(3)}
    first = [next(iter(portions(value, 1, turn))) for turn in range(3)]
    assert sorted(first) == [queue(0), queue(1), queue(2)]


def test_the_larger_backlog_gets_the_larger_part() -> None:
    taken = portions({queue(0): 900, queue(1): 90, queue(2): 1}, 100, 0)
    assert taken == {queue(0): 89, queue(1): 10, queue(2): 1}


@pytest.mark.parametrize(
    ("backlog", "most", "turn", "taken"),
    [
        ({}, 5, 0, {}),
        ({0: 0, 1: 0}, 5, 0, {}),
        ({0: 3, 1: 0, 2: 4}, 7, 0, {0: 3, 2: 4}),
        ({0: 3, 1: 0, 2: 4}, 8, 0, {0: 3, 2: 4}),
        ({0: 3, 1: 0, 2: 4}, 2, 9, {0: 1, 2: 1}),
        ({0: 1, 1: 1, 2: 5}, 6, 0, {0: 1, 1: 1, 2: 4}),
        # What is left over goes to those who would have most of one.
        ({0: 10, 1: 6, 2: 3}, 8, 0, {0: 4, 1: 2, 2: 2}),
        ({0: 3, 1: 6, 2: 10}, 8, 0, {0: 2, 1: 2, 2: 4}),
        ({0: 10, 1: 6, 2: 3}, 9, 0, {0: 4, 1: 3, 2: 2}),
        ({0: 3, 1: 3, 2: 3}, 5, 0, {0: 2, 1: 2, 2: 1}),
        # They take turns: from the one on whose turn it is, round and round.
        ({0: 9, 1: 9, 2: 0, 3: 9}, 2, 0, {0: 1, 1: 1}),
        ({0: 9, 1: 9, 2: 0, 3: 9}, 2, 1, {1: 1, 3: 1}),
        ({0: 9, 1: 9, 2: 0, 3: 9}, 2, 2, {3: 1, 0: 1}),
        ({0: 9, 1: 9, 2: 0, 3: 9}, 2, 3, {0: 1, 1: 1}),
        ({0: 9, 1: 9}, 1, 7, {1: 1}),
    ],
)
def test_how_much_of_each_queue(
    backlog: dict[int, int], most: int, turn: int, taken: dict[int, int]
) -> None:
    found = portions({queue(number): size for number, size in backlog.items()}, most, turn)
    assert found == {queue(number): count for number, count in taken.items()}


@pytest.mark.parametrize(
    ("backlog", "each", "most", "taken"),
    [
        ({0: 0}, {0: 5}, 100, {}),
        ({0: 4, 1: 4}, {0: 10, 1: 10}, 80, {0: 4, 1: 4}),
        ({0: 4, 1: 4}, {0: 10, 1: 10}, 79, {0: 4, 1: 3}),
        ({0: 4, 1: 4}, {}, 4, {0: 2, 1: 2}),  # not known: a byte each
        ({0: 4, 1: 4}, {0: 0, 1: -3}, 4, {0: 2, 1: 2}),
        ({0: 4, 1: 4}, {0: 10, 1: 30}, 60, {0: 1, 1: 1}),
        # Below what one of each may take they are counted, by the mean of what waits.
        ({0: 4, 1: 4}, {0: 10, 1: 30}, 59, {0: 1, 1: 1}),
        ({0: 4, 1: 4}, {0: 10, 1: 30}, 39, {1: 1}),
        ({0: 4, 1: 4}, {0: 10, 1: 30}, 3, {1: 1}),
        ({0: 4, 1: 0}, {0: 10, 1: 3000}, 20, {0: 2}),  # whose queue is empty has no say
        ({0: 100, 1: 100}, {0: 30, 1: 10}, 400, {0: 10, 1: 10}),
    ],
)
def test_how_many_messages_fit_into_so_many_bytes(
    backlog: dict[int, int], each: dict[int, int], most: int, taken: dict[int, int]
) -> None:
    sizes = {queue(number): size for number, size in backlog.items()}
    message_bytes = {queue(number): size for number, size in each.items()}
    found = portions_by_bytes(sizes, message_bytes, most, 1)
    assert found == {queue(number): count for number, count in taken.items()}


def test_queues_of_heavy_messages_get_fewer_of_them() -> None:
    value = {queue(0): 1000, queue(1): 1000}
    taken = portions_by_bytes(value, {queue(0): 100, queue(1): 10}, 11_000, 0)
    assert taken == {queue(0): 99, queue(1): 100}


@given(sizes, st.integers(1, 5_000), st.integers(1, 1 << 20), st.integers(0, 10**12))
def test_bytes_are_shared_out_with_at_least_one_message(
    value: dict[QueueId, int], each: int, most: int, turn: int
) -> None:
    taken = portions_by_bytes(value, dict.fromkeys(value, each), most, turn)
    assert bool(taken) is any(value.values())
    assert all(0 < count <= value[queue] for queue, count in taken.items())
    assert sum(taken.values()) * each <= max(most, each) + each * len(value)
