"""Java's String.hashCode: the vectors of store.md 15.2 and the definition itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.java_hash import java_hash, tags_code

VECTORS = {
    "TagA": 2598919,
    "TagB": 2598920,
    "TagC||D": 115167259,
    "TagDelay": -724558295,
    "TagZip": -1797378745,
    "d": 100,
    "中文": 646394,
    "TopicA#key-0": -1577233007,
    "polygenelubricants": -2147483648,
    "": 0,
}


def by_definition(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (value * 31 + int.from_bytes(data[position : position + 2])) % 2**32
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize(("text", "expected"), VECTORS.items())
def test_vectors_of_java(text: str, expected: int) -> None:
    """Java 4.9.7 printed these."""
    assert java_hash(text) == expected
    assert tags_code(text) == expected


@given(st.text(st.characters(), max_size=400))
def test_any_text_equals_the_definition(text: str) -> None:
    """Surrogates and characters outside the BMP hash by their UTF-16 units."""
    assert java_hash(text) == by_definition(text)


@given(st.text(st.characters(max_codepoint=127), max_size=600))
def test_ascii_equals_the_definition(text: str) -> None:
    """Every ASCII text, control characters and long ones too."""
    assert java_hash(text) == by_definition(text)


def test_a_hostile_length_is_linear() -> None:
    """A megabyte of property is hashed without int()'s limit or its square."""
    assert java_hash("k" * 1_000_000) == by_definition("k" * 1_000_000)
