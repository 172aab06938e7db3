"""Places in flight."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.client.rules.in_flight import InFlight, SendAdmission


@settings(deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 50),
    st.integers(0, 5),
    st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=60),
)
def test_never_more_than_allowed(
    most: int, most_bytes: int, most_waiting: int, steps: list[tuple[bool, int]]
) -> None:
    """Counts hold, the order of those who wait is kept, a place that is free is given away."""
    table: InFlight[int] = InFlight(most, most_bytes, most_waiting)
    flying: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    for number, (is_send, size) in enumerate(steps):
        if is_send:
            admission = table.admit(number, size)
            if admission is SendAdmission.GO:
                assert not waiting
                flying.append((number, size))
            elif admission is SendAdmission.WAIT:
                waiting.append((number, size))
            else:
                assert len(waiting) == most_waiting
        elif flying:
            _, size = flying.pop()
            table.release(size)
            while (item := table.next()) is not None:
                assert item == waiting[0][0]
                flying.append(waiting.pop(0))
        assert table.count == len(flying) <= most
        assert table.size == sum(size for _, size in flying)
        assert table.size <= most_bytes or len(flying) == 1
        assert table.waiting == len(waiting) <= most_waiting
        if waiting:
            assert flying


@pytest.mark.parametrize(
    ("flying", "size", "admission"),
    [
        ([], 10, SendAdmission.GO),
        ([], 11, SendAdmission.GO),  # larger than all, but alone
        ([4], 6, SendAdmission.GO),  # exactly full
        ([4], 7, SendAdmission.WAIT),
        ([10], 0, SendAdmission.GO),
        ([11], 0, SendAdmission.WAIT),
        ([1, 1], 1, SendAdmission.GO),
        ([1, 1, 1], 1, SendAdmission.WAIT),  # three is the most
    ],
)
def test_the_edges(flying: list[int], size: int, admission: SendAdmission) -> None:
    """Limits may be reached, and not be passed; who waits goes as soon as it fits."""
    table: InFlight[int] = InFlight(3, 10, 1)
    for number, each in enumerate(flying):
        assert table.admit(number, each) is SendAdmission.GO
    assert table.admit(9, size) is admission
    if admission is SendAdmission.WAIT:
        assert table.next() is None
        table.release(flying[0])
        assert table.next() == 9


def test_forget() -> None:
    """Who gives up waiting frees the place in the queue; others are not disturbed."""
    table: InFlight[str] = InFlight(1, 10, 5)
    assert table.admit("a", 1) is SendAdmission.GO
    assert [table.admit(item, 1) for item in "bcd"] == [SendAdmission.WAIT] * 3
    assert table.forget("b")
    assert not table.forget("b")
    assert table.items_waiting() == ["c", "d"]
    table.release(1)
    assert table.next() == "c"
    assert table.next() is None
