"""Lists are walked in slices, at most so often, and filtered in slices."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.timing.slices import Lane
from rmq_ha.ops.app.page.listing import FILTERED_AT_ONCE, FRESH_S, Listing, Selection, pick
from rmq_ha.testing.host import World


def outcome(later: Any) -> list[Any]:
    found: list[Any] = []
    later.addBoth(found.append)
    return found


def test_a_list_is_walked_once_for_all_who_ask_and_kept() -> None:
    clock = World(1).add("b").seams.clock

    def walk(found: list[int]) -> Iterator[None]:
        for number in range(3):
            found.append(number)
            yield

    world = World(1)
    clock = world.add("b").seams.clock
    listing: Listing[int] = Listing(clock, walk)
    first, second = outcome(listing.rows()), outcome(listing.rows())
    assert first == []
    world.clock.run_for(0.1)
    assert first == second == [[0, 1, 2]]
    assert outcome(listing.rows()) == [[0, 1, 2]]
    assert listing.walks == 1
    world.clock.run_for(FRESH_S + 0.1)
    outcome(listing.rows())
    assert listing.walks == 2


def test_a_walk_that_fails_tells_those_who_wait_and_is_tried_again() -> None:
    world = World(1)

    def walk(found: list[int]) -> Iterator[None]:
        yield
        raise ZeroDivisionError

    listing: Listing[int] = Listing(world.add("b").seams.clock, walk)
    found = outcome(listing.rows())
    world.clock.run_for(0.1)
    assert found[0].check(ZeroDivisionError)
    outcome(listing.rows())
    assert listing.walks == 2


@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_those_that_are_wanted(largest: bool) -> None:
    world = World(1)
    lane = Lane(world.add("b").seams.clock)
    rows = list(range(FILTERED_AT_ONCE * 2 + 7))
    found: list[Selection[int]] = outcome(
        pick(lane, "h", rows, lambda row: row % 2 == 0, lambda row: row, 3, largest=largest)
    )
    world.clock.run_for(0.1)
    assert found[0].total == len(rows) // 2 + 1
    assert found[0].rows == ([4006, 4004, 4002] if largest else [0, 2, 4])
