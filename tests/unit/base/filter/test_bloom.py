"""The bloom filter gives the bits that Java's gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.filter.bloom import BloomFilter, BloomFilterData, is_hit, murmur3

DEFAULT = BloomFilter.by_error_rate(20, 32)


@pytest.mark.parametrize(
    ("percent", "expected", "hashes", "bits"),
    [(20, 32, 3, 112), (1, 1, 7, 16), (99, 100, 1, 8), (50, 64, 1, 96), (25, 7, 2, 24)],
)
def test_the_size_follows_from_error_rate_and_consumers(
    percent: int, expected: int, hashes: int, bits: int
) -> None:
    assert BloomFilter.by_error_rate(percent, expected) == BloomFilter(hashes, bits)


@pytest.mark.parametrize(
    ("name", "positions"),
    [("CG_fixture_sql#TopicA", (43, 26, 9)), ("GroupX#TopicY", (5, 44, 83))],
)
def test_the_bits_of_a_consumer_are_those_of_java(name: str, positions: tuple[int, ...]) -> None:
    assert DEFAULT.generate(name) == BloomFilterData(112, positions)


def test_the_hash_is_murmur3() -> None:
    assert murmur3(b"") == 0
    assert murmur3(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C


@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=40))
def test_who_matched_is_hit(names: list[str], other: str) -> None:
    matched = [DEFAULT.generate(name) for name in names]
    bit_map = DEFAULT.bit_map(matched)
    assert len(bit_map) == 14
    assert all(is_hit(bit_map, data) for data in matched)
    assert DEFAULT.is_valid(DEFAULT.generate(other))
    if not names:
        assert not is_hit(bit_map, DEFAULT.generate(other))


def test_bits_of_another_filter_are_not_valid() -> None:
    for data in (
        None,
        BloomFilterData(120, (1, 2, 3)),
        BloomFilterData(112, (1, 2)),
        BloomFilterData(112, (1, 2, 112)),
        BloomFilterData(112, (1, 2, -1)),
    ):
        assert not DEFAULT.is_valid(data)
