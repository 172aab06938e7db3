"""Hashes of many texts at once are the broker's, one by one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.store_format.index import key_hash
from rmq_ha.lake.scan.replica.hashing import key_hashes, split_keys, tag_codes

TEXTS = st.one_of(
    st.text("abcXYZ019-_ ", max_size=40),
    st.text(max_size=12),
    st.text("k", min_size=250, max_size=262),
)


@pytest.mark.lake
@given(st.lists(st.tuples(st.sampled_from(["A", "TopicB", "中"]), TEXTS), max_size=20))
def test_keys(pairs: list[tuple[str, str]]) -> None:
    topics = pa.array([topic for topic, _ in pairs], pa.string())
    keys = pa.array([key for _, key in pairs], pa.string())
    assert key_hashes(topics, keys).tolist() == [key_hash(*pair) for pair in pairs]


def test_the_one_hash_that_has_no_absolute_value() -> None:
    """-2^31 becomes 0: `polygenelubricants`, made of a topic and a key here."""
    topics, keys = pa.array(["", "A"]), pa.array(["x", "u0"])
    assert key_hashes(topics, keys).tolist() == [key_hash("", "x"), 1973725]
    edges = pa.array(
        ["ajvakuzl", "ajvakuzm", "ajvakuzn"]
    )  # behind `T#`: 2^31 - 1 and its neighbours
    assert key_hashes(pa.array(["T"] * 3), edges).tolist() == [0x7FFFFFFF, 0, 0x7FFFFFFF]
    assert [key_hash("T", key.as_py()) for key in edges] == [0x7FFFFFFF, 0, 0x7FFFFFFF]


def test_a_slice_of_a_longer_array_is_itself() -> None:
    whole = pa.array(["aa", "bbb", "c", "größe", "d"])
    for keys in (whole.slice(1), whole.slice(1, 2), whole.slice(0, 1), whole.slice(2, 0)):
        topics = pa.array(["T"] * len(keys))
        assert key_hashes(topics, keys).tolist() == [key_hash("T", key) for key in keys.to_pylist()]


@given(st.lists(st.one_of(st.none(), TEXTS), max_size=20))
def test_tags(tags: list[str | None]) -> None:
    expected = [tags_code(tag) if tag else 0 for tag in tags]
    assert tag_codes(pa.array(tags, pa.string())).tolist() == expected


@given(st.lists(st.one_of(st.none(), st.text("ab  ", max_size=9)), max_size=20))
def test_keys_are_split_at_single_spaces_and_empty_ones_vanish(rows: list[str | None]) -> None:
    numbers, words = split_keys(pa.array(rows, pa.string()))
    expected = [
        (number, word) for number, row in enumerate(rows) for word in (row or "").split(" ") if word
    ]
    assert list(zip(numbers.tolist(), words.to_pylist(), strict=True)) == expected
