"""Where reads begin and end: offsets are the next one to read, and data loss is noticed."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.planning import Planner, bundled, cut
from rmq_ha.lake.spark.source.reading import QueueId, QueueRange, Subscription

A0, A1 = QueueId("A", "b", 0), QueueId("A", "b", 1)


class Fake:
    """Queues with a message each 10 ms from 1000 ms on; offset `n` is stored at 1000 + 10 n."""

    def __init__(self, bounds: dict[QueueId, tuple[int, int]]) -> None:
        self._bounds = bounds

    def queues(self, topics: Subscription) -> list[QueueId]:
        return sorted(queue for queue in self._bounds if topics.wants(queue))

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        return self._bounds[queue]

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        low, high = self._bounds[queue]
        found = max(low, -(-(ms - 1000) // 10))
        return found if found < high else None

    def group_offsets(self, group: str, queues: Sequence[QueueId]) -> dict[QueueId, int]:
        kept = {"g": {A0: 13}, "late": {A0: 3, A1: 5}}.get(group, {})
        return {queue: offset for queue, offset in kept.items() if queue in queues}

    def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        raise NotImplementedError


TWO = {A0: (10, 20), A1: (0, 5)}


def planner(bounds: dict[QueueId, tuple[int, int]] = TWO, **given: str) -> Planner:
    options = {"namesrv": "ns:1", "subscribe": "A", **given}
    return Planner(Fake(bounds), parse_options(options))


def ranges(bounds: dict[QueueId, tuple[int, int]] = TWO, **given: str) -> list[tuple[int, ...]]:
    found = planner(bounds, **given).ranges()
    return [(each.queue.queue_id, each.start, each.stop) for each in found]


def test_everything_that_is_there_by_default() -> None:
    assert ranges() == [(0, 10, 20), (1, 0, 5)]


def test_an_offset_is_the_next_one_to_read_at_both_ends() -> None:
    given = {
        "startingOffsets": '{"A":{"0":11,"1":-2}}',
        "endingOffsets": '{"A":{"0":19,"1":-1}}',
    }
    assert ranges(**given) == [(0, 11, 19), (1, 0, 5)]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (10, 10, []),
        (10, 11, [(0, 10, 11)]),
        (19, 20, [(0, 19, 20)]),
        (20, 20, []),
        (10, 20, [(0, 10, 20)]),
    ],
)
def test_the_first_and_the_last_message_can_be_asked_for(
    start: int, stop: int, expected: list[tuple[int, ...]]
) -> None:
    assert (
        ranges(
            {A0: (10, 20)},
            startingOffsets=f'{{"A":{{"0":{start}}}}}',
            endingOffsets=f'{{"A":{{"0":{stop}}}}}',
        )
        == expected
    )


def test_where_one_read_ends_the_next_begins() -> None:
    first = planner({A0: (10, 20)}, endingOffsets='{"A":{"0":15}}').ranges()
    stop = first[0].stop
    second = planner({A0: (10, 20)}, startingOffsets=f'{{"A":{{"0":{stop}}}}}').ranges()
    read = [offset for each in first + second for offset in range(each.start, each.stop)]
    assert read == list(range(10, 20))


@pytest.mark.parametrize(
    ("option", "offset", "why"),
    [
        ("startingOffsets", 9, "begins at 10, 9 was asked for: 1 messages are gone"),
        ("startingOffsets", 21, "ends at 20, before 21"),
        ("endingOffsets", 21, "ends at 20, 21 was asked for: 1 messages are not there"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_how_to_go_on(
    option: str, offset: int, why: str
) -> None:
    with pytest.raises(CannotDecide, match=why) as failed:
        ranges({A0: (10, 20)}, **{option: f'{{"A":{{"0":{offset}}}}}'})
    assert "failOnDataLoss=false" in str(failed.value)
    assert "A/b/0" in str(failed.value)


@pytest.mark.parametrize(
    ("option", "offset", "expected"),
    [
        ("startingOffsets", 9, [(0, 10, 20)]),
        ("startingOffsets", 21, []),
        ("endingOffsets", 21, [(0, 10, 20)]),
    ],
)
def test_or_a_warning_where_loss_is_allowed(
    option: str, offset: int, expected: list[tuple[int, ...]]
) -> None:
    plan = planner({A0: (10, 20)}, failOnDataLoss="false", **{option: f'{{"A":{{"0":{offset}}}}}'})
    found = [(each.queue.queue_id, each.start, each.stop) for each in plan.ranges()]
    assert found == expected
    assert len(plan.warnings) == 1


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, [(0, 10, 20)]),
        (1100, [(0, 10, 20)]),
        (1101, [(0, 11, 20)]),
        (1110, [(0, 11, 20)]),
        (1190, [(0, 19, 20)]),
    ],
)
def test_a_time_means_the_first_message_stored_then_or_later(
    ms: int, expected: list[tuple[int, ...]]
) -> None:
    assert ranges({A0: (10, 20)}, startingTimestamp=str(ms)) == expected


def test_a_queue_without_a_later_message_is_an_error_or_begins_at_its_end() -> None:
    with pytest.raises(WrongUsage, match="startingOffsetsByTimestampStrategy=latest"):
        ranges(startingTimestamp="1100")
    given = {"startingTimestamp": "1100", "startingOffsetsByTimestampStrategy": "latest"}
    assert ranges(**given) == [(0, 10, 20)]


def test_a_group_says_where_to_begin_or_to_end() -> None:
    """A queue that it has nothing of begins with its first message, and of it it read nothing."""
    assert ranges(startingOffsets="group:g") == [(0, 13, 20), (1, 0, 5)]
    assert ranges(endingOffsets="group:g") == [(0, 10, 13)]
    with pytest.raises(WrongUsage, match="the group nobody has no offset in any queue"):
        ranges(startingOffsets="group:nobody")
    with pytest.raises(CannotDecide, match="begins at 10, 3 was asked for"):
        ranges(startingOffsets="group:late")
    assert ranges(startingOffsets="group:late", failOnDataLoss="false") == [(0, 10, 20)]


def test_an_end_time_is_exclusive_and_open_where_nothing_is_later() -> None:
    assert ranges(endingTimestamp="1150") == [(0, 10, 15), (1, 0, 5)]
    assert ranges(endingTimestamp="1101") == [(0, 10, 11), (1, 0, 5)]


def test_times_by_queue() -> None:
    given = {
        "startingOffsetsByTimestamp": '{"A":{"0":1120,"1":1010}}',
        "endingOffsetsByTimestamp": '{"A":{"0":1150,"1":1030}}',
    }
    assert ranges(**given) == [(0, 12, 15), (1, 1, 3)]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('{"A":{"0":10}}', "A/b/1 missing"),
        ('{"A":{"0":10,"1":0,"2":0}}', "names A/2, which is not there"),
        ('{"A":{"0":10,"1":0},"B":{"0":0}}', "names B/0, which is not there"),
        ('{"A":{"x":{"0":10,"1":0}}}', "missing"),
    ],
)
def test_offsets_name_every_queue_and_no_other(table: str, why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        ranges(startingOffsets=table)


def test_queues_of_several_brokers_are_named_with_them() -> None:
    bounds = {A0: (10, 20), QueueId("A", "c", 0): (0, 5)}
    with pytest.raises(WrongUsage, match="is on b, c: write"):
        ranges(bounds, startingOffsets='{"A":{"0":10}}')
    assert ranges(bounds, startingOffsets='{"A":{"b":{"0":12},"c":{"0":-2}}}') == [
        (0, 12, 20),
        (0, 0, 5),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"A":{"0":15}}', "endingOffsets": '{"A":{"0":14}}'},
        {"startingTimestamp": "1101", "endingTimestamp": "1100"},
        {"startingOffsets": '{"A":{"0":5}}', "endingOffsets": '{"A":{"0":0}}'},
        {
            "startingOffsetsByTimestamp": '{"A":{"0":1101}}',
            "endingOffsetsByTimestamp": '{"A":{"0":1100}}',
        },
    ],
)
def test_a_beginning_behind_the_end_is_a_contradiction(given: dict[str, str]) -> None:
    with pytest.raises(WrongUsage, match="behind"):
        ranges({A0: (10, 20)}, **given)


def test_a_contradiction_is_found_in_any_queue_and_by_a_new_stream() -> None:
    start, end = '{"A":{"0":12,"1":3}}', '{"A":{"0":15,"1":2}}'
    with pytest.raises(WrongUsage, match="has 3 for A/b/1, behind the 2 of endingOffsets"):
        ranges(startingOffsets=start, endingOffsets=end)
    with pytest.raises(WrongUsage, match="A/b/1 missing"):
        ranges(endingOffsets='{"A":{"0":15}}')
    with pytest.raises(WrongUsage, match="A/b/1 missing"):
        planner(startingOffsets='{"A":{"0":12}}').starts()


def test_no_time_between_beginning_and_end_and_a_word_for_an_end_are_no_contradiction() -> None:
    assert ranges({A0: (10, 20)}, startingTimestamp="1150", endingTimestamp="1150") == []
    word = {"startingOffsets": '{"A":{"0":12}}', "endingOffsets": '{"A":{"0":-1}}'}
    assert ranges({A0: (10, 20)}, **word) == [(0, 12, 20)]


def test_a_time_never_means_what_is_gone() -> None:
    """What expired may still be found by its time; nothing is lost that was not asked for."""

    class Remembering(Fake):
        def offset_at(self, queue: QueueId, ms: int) -> int | None:
            return 3

    given = {"namesrv": "ns:1", "subscribe": "A", "startingTimestamp": "1030"}
    plan = Planner(Remembering({A0: (10, 20)}), parse_options(given))
    assert plan.ranges() == [QueueRange(A0, 10, 20)]
    assert plan.warnings == []


def test_a_new_stream_begins_where_the_options_say() -> None:
    options = parse_options({"namesrv": "ns:1", "subscribe": "A"}, streaming=True)
    assert Planner(Fake(TWO), options).starts() == {A0: 20, A1: 5}


SIZES = st.lists(st.integers(0, 50_000), max_size=6)


def messages(parts: list[tuple[QueueRange, ...]]) -> dict[QueueId, list[tuple[int, int]]]:
    found: dict[QueueId, list[tuple[int, int]]] = {}
    for part in parts:
        for each in part:
            found.setdefault(each.queue, []).append((each.start, each.stop))
    return found


@pytest.mark.lake
@given(SIZES, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1, 9000)))
def test_cutting_keeps_every_message_once_and_in_order(
    sizes: list[int], at_least: int | None, at_most: int | None
) -> None:
    wanted = [QueueRange(QueueId("T", "b", n), 7, 7 + size) for n, size in enumerate(sizes)]
    parts = cut(wanted, at_least, at_most)
    assert all(part for part in parts)
    found = messages(parts)
    for each in wanted:
        edges = found.get(each.queue, [])
        assert edges == sorted(edges)
        covered = [offset for low, high in edges for offset in (low, high)]
        assert covered[1:-1:2] == covered[2::2]
        assert bool(edges) == (each.start < each.stop)
        if edges:
            assert (covered[0], covered[-1]) == (each.start, each.stop)
    if at_least is not None:
        assert len(parts) >= min(at_least, sum(sizes))
    if at_most is not None:
        assert all(sum(each.stop - each.start for each in part) <= at_most for part in parts)


def test_ranges_are_cut_by_their_size() -> None:
    for first in (0, 1000):
        big, small = QueueRange(A0, first, first + 100), QueueRange(A1, first, first + 10)
        parts = cut([big, small], 4, None)
        assert [part[0].stop - part[0].start for part in parts] == [25, 25, 25, 25, 10]


def test_a_queue_has_a_partition_of_its_own_but_where_there_are_very_many() -> None:
    many = [QueueRange(QueueId("T", "b", n), 0, 100) for n in range(1000)]
    assert cut(many[:64], None, None) == [(each,) for each in many[:64]]
    assert 64 <= len(cut(many, None, None)) < 100
    assert len(cut(many, 1000, None)) == 1000
    later = [each._replace(start=5000, stop=5100) for each in many]
    assert [len(part) for part in cut(later, None, None)] == [15] * 66 + [10]


def test_small_queues_share_a_partition_only_where_there_are_more_than_64() -> None:
    uneven = [QueueRange(QueueId("T", "b", n), 0, n + 1) for n in range(65)]
    assert cut(uneven[:64], None, None) == [(each,) for each in uneven[:64]]
    assert len(cut(uneven, None, None)) < 65
    single = [each._replace(stop=1) for each in uneven]
    assert len(cut(single, None, None)) == 65, "a share is one message at least"


def test_what_is_together_may_reach_the_bound() -> None:
    halves = [QueueRange(QueueId("T", "b", n), 7, 57) for n in range(4)]
    assert bundled(halves, 100) == [tuple(halves[:2]), tuple(halves[2:])]
    assert bundled(halves, 99) == [(each,) for each in halves]
    assert bundled([], 100) == []


def test_a_queue_that_came_later_is_not_taken_for_one_that_was_named() -> None:
    new = QueueId("A", "b", 2)
    plan = planner({**TWO, new: (0, 5)}, startingOffsets='{"A":{"0":12,"1":1}}')
    with pytest.raises(WrongUsage, match="says nothing about A/b/2, which is new"):
        plan.start_of(new)


def test_a_group_is_asked_about_once() -> None:
    asked = list[str]()

    class Counting(Fake):
        def group_offsets(self, group: str, queues: Sequence[QueueId]) -> dict[QueueId, int]:
            asked.append(group)
            return super().group_offsets(group, queues)

    given = {"namesrv": "ns:1", "subscribe": "A", "startingOffsets": "group:g"}
    assert len(Planner(Counting(TWO), parse_options(given)).ranges()) == 2
    assert asked == ["g"]
