"""The first message of a queue from a physical offset on, with gaps where damage was left out."""

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.store.format.consumequeue import FILLER_SIZE, UNIT_SIZE
from rmq_ha.store.queue_search import first_from

FILLER = (0, FILLER_SIZE, 0)


@given(
    prefix=st.integers(0, 200),
    present=st.lists(st.booleans(), max_size=60),
    wanted=st.integers(0, 8000),
)
def test_as_a_walk_finds_it(prefix: int, present: list[bool], wanted: int) -> None:
    """Fillers at the beginning, and gaps of any messages but the last, hide no message."""
    units = [FILLER] * prefix
    units += [(100 * number, 100, 0) if is_there else FILLER for number, is_there in
              enumerate([*present[:30], True])]  # fmt: skip

    def unit(position: int) -> tuple[int, int, int]:
        return units[position // UNIT_SIZE]

    found = first_from(unit, 0, len(units) * UNIT_SIZE, wanted) // UNIT_SIZE
    walked = (n for n, one in enumerate(units) if one != FILLER and one[0] >= wanted)
    assert found == next(walked, len(units))


def test_one_damaged_record_behind_the_first() -> None:
    """Pair seed 832: the queue began behind the gap, and its first message was not readable."""
    units = [(0, 100, 0), FILLER, *((100 * number, 100, 0) for number in range(2, 32))]
    assert first_from(lambda position: units[position // UNIT_SIZE], 0, 32 * UNIT_SIZE, 0) == 0
