"""What a compiled selector says of a message; all of it was asked of Java."""

import pytest

from rmq_ha.base.errors import InvalidSelector
from rmq_ha.base.filter.cache import SelectorCache
from rmq_ha.base.filter.selector import Selector

YES, NO = True, False


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("a = 1", "1", YES),
        ("a = 1", "01", YES),
        ("a = 1", "1.0", NO),
        ("a = 1", None, NO),
        ("NOT a = 1", "1", NO),
        ("NOT (a = 1)", "2", YES),
        ("NOT (a = 1)", None, NO),
        ("NOT (a = 1)", "x", NO),
        ("a > 5", "3000000000", NO),
        ("a > 5L", "6", YES),
        ("a > 3000000000", "4000000000", YES),
        ("a > -5", "-4", YES),
        ("a > - -5", "6", YES),
        ("a > - -5", "0", NO),
        ("a > - - -5", "-4", YES),
        ("a > -a", "1", NO),
        ("5 < a", "6", YES),
        ("a > 1.5", "NaN", YES),
        ("a >= 1.5", " 1.5 ", YES),
        ("a = 'x'", "x", YES),
        ("a <> 'x'", "y", YES),
        ("a <> 'x'", None, NO),
        ("a = ''", "x", NO),
        ("a", "true", NO),
        ("a = TRUE", "True", YES),
        ("TRUE = a", "true", NO),
        ("a IS NULL", None, YES),
        ("a IS NOT NULL", "x", YES),
        ("a IS NOT NULL", None, NO),
        ("a IN ('x', 'y')", "y", YES),
        ("a NOT IN ('x', 'y')", "z", YES),
        ("a NOT IN ('x', 'y')", None, NO),
        ("a BETWEEN 1 AND 5", "5", YES),
        ("a BETWEEN 1 AND 5", "6", NO),
        ("a NOT BETWEEN 1 AND 5", "6", YES),
        ("a BETWEEN -5 AND -9", "-7", NO),
        ("a = b", None, YES),
        ("a = b", "x", NO),
        ("a > a", "x", NO),
        ("a >= a", "1.5", YES),
        ("TRUE", None, YES),
        ("FALSE OR TRUE", None, YES),
        ("NULL", None, NO),
        ("NULL OR TRUE", None, YES),
        ("NOT NULL", None, NO),
        ("NULL AND FALSE", None, NO),
        ("NOT (NULL AND FALSE)", None, YES),
        ("a = 1 OR a = 'x'", "x", NO),
        ("a = 'x' OR a = 1", "x", YES),
        ("a = 'y' AND a = 1", "x", NO),
        ("NOT (a = 'y' AND a = 1)", "x", YES),
        ("-(a = 1) IS NULL", "1", YES),
        ("-'5' IS NULL", "1", YES),
        ("'x' = a", "x", YES),
        ("(a = 1) = TRUE", "1", YES),
        ("(a = 1) = 'true'", "1", NO),
        ("a > -('x' = 5)", "1", NO),
    ],
)
def test_a_selector_matches_as_java_says(text: str, value: str | None, expected: bool) -> None:
    properties = {} if value is None else {"a": value}
    assert Selector(text).matches(properties) is expected


def test_the_cache_gives_the_same_selector_and_the_same_fault() -> None:
    cache = SelectorCache()
    assert cache.get("a = 1") is cache.get("a = 1")
    faults = []
    for _ in range(2):
        with pytest.raises(InvalidSelector) as caught:
            cache.get("a = ;")
        faults.append(str(caught.value))
    assert faults == ["unexpected character ';', at character 5"] * 2
    assert len(cache) == 2


def test_the_cache_drops_what_was_used_longest_ago() -> None:
    cache = SelectorCache(capacity=300)
    first = cache.get("a = 1")
    cache.get("a = 2")
    cache.get("a = 1")
    for number in range(3, 6):
        cache.get(f"a = {number}")
        assert cache.get("a = 1") is first
    assert len(cache) == 4
    exact = SelectorCache(capacity=2 * (len("a = 1") + 64))
    for number in (1, 2):
        exact.get(f"a = {number}")
    assert len(exact) == 2
    cache.get("a = '" + "x" * 1000 + "'")
    assert len(cache) == 0
