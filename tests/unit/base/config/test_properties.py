"""Java's properties format. Spec: store.md, section 13.1."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq_ha.base.config.properties import (
    PropertyLine,
    decode,
    format_properties,
    parse,
    with_changes,
)
from rmq_ha.base.errors import ConfigurationError


def pairs(text: str) -> list[tuple[str, str]]:
    return [(item.key, item.value) for item in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a b c", [("a", "b c")]),
        ("a\t\f = \t b", [("a", "b")]),
        ("a = = b", [("a", "= b")]),
        ("a", [("a", "")]),
        ("=b", [("", "b")]),
        ("  # c\n\t! d\n\n a=b", [("a", "b")]),
        ("a=b # no comment", [("a", "b # no comment")]),
        ("a=b \r\nc=d\re=f", [("a", "b "), ("c", "d"), ("e", "f")]),
        ("a=b\\\n   c\\\r\n\td", [("a", "bcd")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("# comments do not continue \\\na=b", [("a", "b")]),
        ("a\\=b\\:c\\ d=e", [("a=b:c d", "e")]),
        ("a=\\t\\n\\r\\f\\q\\\\", [("a", "\t\n\r\fq\\")]),
        ("a=\\u00e9\\u4E2d\\uD83D\\uDE00", [("a", "é中😀")]),
        ("a=b\\", [("a", "b")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_reads_as_java_does(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_counts_the_lines_of_the_file() -> None:
    assert parse("# c\n\na=b\\\n  c\nd=e\n") == [
        PropertyLine("a", "bc", 3, 2),
        PropertyLine("d", "e", 5, 1),
    ]


def test_a_file_is_latin_1() -> None:
    assert decode(b"a=\xe9") == "a=é"


@pytest.mark.parametrize("text", ["\n\na=\\u12", "\n\na=\\u12g4", "\n\na=\\uD83D"])
def test_a_malformed_escape_names_file_and_line(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^b\.properties:3: "):
        parse(text, "b.properties")


@given(st.lists(st.tuples(st.text(), st.text())))
@example([("", "a")])
@example([(" a#", "  b ")])
def test_what_is_written_reads_back(properties: list[tuple[str, str]]) -> None:
    text = format_properties(properties)
    assert text.isascii()
    assert pairs(text) == properties


@given(st.text(alphabet=st.sampled_from("ab=:#!\\ \t\f\r\nu0Dé😀")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except ConfigurationError:
        pass


def test_changes_keep_comments_and_order() -> None:
    text = "# first\na=1\n\nb=2\\\n  3\n# last\na=4\n"
    assert with_changes(text, {"a": "9", "c": "x y"}) == (
        "# first\n\nb=2\\\n  3\n# last\na=9\nc=x y\n"
    )


def test_no_change_is_no_change() -> None:
    assert with_changes("a=1\r\n", {}) == "a=1\r\n"


@given(
    st.text(alphabet=st.sampled_from("ab=# \\\n")),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text()),
)
def test_a_changed_file_says_what_was_changed(text: str, changes: dict[str, str]) -> None:
    assert dict(pairs(with_changes(text, changes))) == {**dict(pairs(text)), **changes}
