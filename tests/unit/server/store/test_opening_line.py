"""The line of the log that says what a store holds when it opens."""

import pytest

from rmq_ha.server.store.service import _content


@pytest.mark.parametrize(
    ("low", "high", "dispatched", "text"),
    [
        (-1, 0, 0, "its log is empty"),
        (0, 0, 0, "its log is empty"),
        (0, 100, 100, "its log holds bytes 0 to 100, and its queues cover all of it"),
        (64, 100, 80, "its log holds bytes 64 to 100, and its queues cover bytes up to 80 of it"),
    ],
)
def test_an_operator_reads_what_the_store_holds(
    low: int, high: int, dispatched: int, text: str
) -> None:
    assert _content(low, high, dispatched) == text
