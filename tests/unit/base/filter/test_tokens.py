"""The words of a selector, as 4.9.7 cuts them."""

import pytest

from rmq_ha.base.errors import InvalidSelector
from rmq_ha.base.filter.parser import DECIMAL, END, NAME, STRING, WHOLE, next_token


def words(text: str) -> list[tuple[str, str]]:
    found, end = [], 0
    while True:
        token, end = next_token(text, end)
        if token.kind is END:
            return found
        found.append((token.kind, token.text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("012", [(WHOLE, "0"), (WHOLE, "12")]),
        ("0x1F", [(WHOLE, "0"), (NAME, "x1F")]),
        ("0L", [(WHOLE, "0"), (NAME, "L")]),
        ("5L 10l", [(WHOLE, "5L"), (WHOLE, "10l")]),
        ("012.5", [(DECIMAL, "012.5")]),
        ("1. .5 1e3", [(DECIMAL, "1."), (DECIMAL, ".5"), (DECIMAL, "1e3")]),
        ("1.5E-3 1.e+1", [(DECIMAL, "1.5E-3"), (DECIMAL, "1.e+1")]),
        ("1e", [(WHOLE, "1"), (NAME, "e")]),
        ("'it''s' ''", [(STRING, "'it''s'"), (STRING, "''")]),
        ("'a\nb'", [(STRING, "'a\nb'")]),
        ("$a _b a$1", [(NAME, "$a"), (NAME, "_b"), (NAME, "a$1")]),
        ("nOt notx bEtween", [("NOT", "nOt"), (NAME, "notx"), ("BETWEEN", "bEtween")]),
        ("1<>2<=5", [(WHOLE, "1"), ("<>", "<>"), (WHOLE, "2"), ("<=", "<="), (WHOLE, "5")]),
        (">=2<5>", [(">=", ">="), (WHOLE, "2"), ("<", "<"), (WHOLE, "5"), (">", ">")]),
        ("a/* x */b/***/c", [(NAME, "a"), (NAME, "b"), (NAME, "c")]),
        ("a -- x\nb -- y\r\nc", [(NAME, "a"), (NAME, "b"), (NAME, "c")]),
        ("a -- x", [(NAME, "a"), ("-", "-"), ("-", "-"), (NAME, "x")]),
        ("(a,b)", [("(", "("), (NAME, "a"), (",", ","), (NAME, "b"), (")", ")")]),
    ],
)  # fmt: skip
def test_a_text_is_cut_into_the_longest_words(text: str, expected: list[tuple[str, str]]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a ;", 3),
        ("a != 1", 3),
        ("é", 1),
        ("a = 'x", 5),
        ("a /* x", 3),
        ("a\u00a0b", 2),
        ("a.b c", 2),
    ],
)
def test_what_is_no_word_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(InvalidSelector) as caught:
        words(text)
    assert caught.value.position == position
    assert str(position) in str(caught.value)
