"""Tables page by page. Spec: remoting.md, chapter 8."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.pages import NEXT, PAGE_SIZE, next_page, page_of


def test_a_master_that_never_ends_is_left() -> None:
    """Each page has to begin behind the one before."""
    assert next_page(None, 0) is None
    assert next_page({}, 0) is None
    assert next_page({NEXT: "7"}, 6) == 7
    assert next_page({NEXT: "9" * 18}, 6) == 10**18 - 1
    for text in ("6", "5", "-1", "", "x", "9" * 19):
        with pytest.raises(ProtocolViolation):
            next_page({NEXT: text}, 6)


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 12))
def test_pages_are_the_table(sizes: list[int], most: int) -> None:
    table = {str(n): [n] * size for n, size in enumerate(sizes)}
    copied: dict[str, list[int]] = {}
    first: int | None = 0
    while first is not None:
        entries, ext = page_of(table, first, len, most)
        assert len(entries) <= 1 or sum(map(len, entries.values())) <= most
        assert bool(entries) or not table
        copied |= entries
        first = next_page(ext, first)
    assert copied == table


def test_a_page_is_full_before_there_is_another() -> None:
    table = dict.fromkeys(map(str, range(PAGE_SIZE)), 0)
    assert page_of(table, 0) == (table, {})
    table["more"] = 0
    entries, ext = page_of(table, 0)
    assert len(entries) == PAGE_SIZE
    assert page_of(table, next_page(ext, 0) or 0) == ({"more": 0}, {})
