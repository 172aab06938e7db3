"""Spans of time, as every option that takes one reads them."""

import pytest

from rmq_ha.base.spans import span_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("1.5m", 90_000),
        ("15min", 900_000),
        (" 2 H ", 7_200_000),
        ("7d", 604_800_000),
        ("0s", 0),
    ],
)
def test_a_number_and_its_unit(text: str, ms: int) -> None:
    assert span_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "s", "5", "-1s", "1e3s", "5 parsecs", "1..5s", "٣s", "9" * 13 + "s"]
)
def test_anything_else_is_none(text: str) -> None:
    assert span_ms(text) is None


def test_a_number_alone_counts_where_an_option_has_a_unit() -> None:
    assert span_ms("20", bare="s") == 20_000
    assert span_ms("20ms", bare="s") == 20
