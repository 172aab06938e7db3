"""Texts as Java's numbers, and how values compare."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.filter.values import (
    Incomparable,
    Long,
    compare_doubles,
    equal,
    order,
    to_double,
    to_integer,
    to_long,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("+5", 5), ("-0", 0), ("007", 7), ("2147483647", 2**31 - 1),
     ("-2147483648", -(2**31)), ("0" * 5000 + "5", 5), ("\u0663", 3), ("-\uff15", -5)],
)  # fmt: skip
def test_an_integer_is_a_sign_and_digits_of_any_script(text: str, value: int) -> None:
    assert to_integer(text) == value == to_long(text)


@pytest.mark.parametrize(
    "text", ["", "+", "--5", " 5", "5 ", "1_0", "5L", "0x1", "1.0", "1e3", "2147483648", "5" * 5000,
             "\U0001d7d3", "5\U0001d7d3", "-2147483649", "x"],
)  # fmt: skip
def test_other_texts_are_no_integer(text: str) -> None:
    with pytest.raises(Incomparable):
        to_integer(text)


def test_a_long_has_64_bits() -> None:
    assert to_long("9223372036854775807") == 2**63 - 1
    assert to_long("-9223372036854775808") == -(2**63)
    for text in ("9223372036854775808", "-9223372036854775809"):
        with pytest.raises(Incomparable):
            to_long(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [(" 1.5\x01", 1.5), ("1.", 1.0), (".5", 0.5), ("5d", 5.0), ("5F", 5.0), ("1e400", math.inf),
     ("1e-400", 0.0), ("-Infinity", -math.inf), ("0x1p4", 16.0), ("0X.8P1d", 1.0),
     ("0x1p99999", math.inf), ("-0x1p99999", -math.inf), ("0x1p-99999", 0.0), ("1e5f", 1e5)],
)  # fmt: skip
def test_a_double_is_what_java_reads_as_one(text: str, value: float) -> None:
    assert to_double(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "x", "nan", "inf", "1_0", "5L", "0x10", "1e", "--1", "\u0663", "1.5.", "\u00a05", "NaNd"],
)
def test_other_texts_are_no_double(text: str) -> None:
    with pytest.raises(Incomparable):
        to_double(text)


def test_doubles_are_ordered_by_their_bits_where_they_seem_equal() -> None:
    nan = math.nan
    assert compare_doubles(-0.0, 0.0) == -1
    assert compare_doubles(0.0, -0.0) == 1
    assert compare_doubles(0.0, 0.0) == 0
    assert (compare_doubles(nan, math.inf), compare_doubles(1.0, nan)) == (1, -1)
    assert compare_doubles(nan, -nan) == 0


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_the_order_of_doubles_has_two_sides(one: float, other: float) -> None:
    assert compare_doubles(one, other) == -compare_doubles(other, one)


def test_texts_are_ordered_as_doubles() -> None:
    assert order("10", "9") == 1
    assert order("1.0", "1") == 0
    with pytest.raises(Incomparable):
        order("a", "b")


def test_a_text_takes_the_class_of_the_number_beside_it() -> None:
    assert order("3000000000", Long(5)) == 1
    assert order(5, "7") == -1
    assert order(1.5, "2") == -1
    assert order(5, 5.5) == -1
    assert order(Long(2**40), 5) == 1
    for left, right in (("3000000000", 5), (5, "1.5"), (5, "x"), ("x", 1.5)):
        with pytest.raises(Incomparable):
            order(left, right)


def test_equality_knows_unknown() -> None:
    assert equal(None, None) is True
    assert equal(None, 1) is None
    assert equal(1, None) is False


def test_equality_of_truth_values() -> None:
    assert equal("TRUE", True) is True
    assert equal("yes", True) is False
    assert equal("yes", False) is True
    assert equal(True, 1) is False
    assert equal(1, True) is False
    assert equal(True, False) is False
    with pytest.raises(Incomparable):
        equal(True, "true")


@given(st.text())
def test_any_text_is_a_number_or_is_not(text: str) -> None:
    for read in (to_integer, to_long, to_double):
        try:
            assert isinstance(read(text), int | float)
        except Incomparable:
            pass
