"""How many half messages are open, from the fates that memory has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.server.broker.transactions.fates import Fates, HalfMessageFate

FATES = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(HalfMessageFate)), max_size=30)


@given(FATES, st.integers(0, 45), st.integers(0, 45))
def test_open_ones_are_counted_as_one_by_one(
    notes: list[tuple[int, HalfMessageFate]], low: int, high: int
) -> None:
    fates = Fates()
    fates.begin(0)
    for offset, fate in notes:
        fates.note(0, offset, fate)
    expected = [
        offset for offset in range(low, high) if fates.fate_of(0, offset) is HalfMessageFate.OPEN
    ]
    count, first = fates.open_from(0, low, high)
    assert list(fates.open_offsets(0, low, high)) == expected
    assert (count, first) == (len(expected), expected[0] if expected else high)
