"""Texts of peers in lines for people."""

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.printable import NamedValues, is_one_line, one_line, printable, words_of


@given(st.text())
def test_what_is_printed_has_no_controls(text: str) -> None:
    assert is_one_line(one_line(text))
    assert len(printable(text).splitlines()) <= text.count("\n") + 1
    assert (one_line(text) == text) == is_one_line(text)


def test_ordinary_names_stay() -> None:
    for text in ("broker-a", "%RETRY%grüppe", "a b", "日本"):
        assert printable(text) == one_line(text) == text
    assert printable("a\tb\nc") == "a\tb\nc"
    assert one_line("a\tb\nc\x1b") == "a\\x09b\\x0ac\\x1b"


def test_tables_and_lists_are_words() -> None:
    value = {"perm": 6, "on": ["a", "b"], "is_new": True, "why": None, "x": "\x1b["}
    assert words_of(value) == "perm=6, on=a, b, is_new=yes, why=-, x=\\x1b["
    assert str(NamedValues(perm=6)) == f"{NamedValues(perm=6)}" == " (perm=6)"
    assert f"nothing{NamedValues()}" == "nothing"
