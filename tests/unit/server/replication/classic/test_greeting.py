"""The greeting of a slave: its golden words, its checksum, and what is no greeting."""

import itertools
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.server.replication.classic.frames import ReportReader
from rmq_ha.server.replication.classic.greeting import (
    DEPTH,
    MARK,
    MAX_WINDOW_BITS,
    Greeting,
    GreetingProgress,
    GreetingReader,
    encode_greeting,
    greet,
)
from tests.unit.server.replication.memory_log import MemoryLog

DATA = bytes(range(256)) * 40
GREETING = Greeting(1000, 512, bytes.fromhex("00ff102030405060"))
GOLDEN = [1000, 835, 991, 1000, 745, 984, 968, 952, 936, 920, 904, 1000]


def words_of(data: bytes) -> list[int]:
    return ReportReader().receive_all(data)


def test_golden_words() -> None:
    assert words_of(encode_greeting(GREETING)) == GOLDEN
    assert encode_greeting(GREETING).hex().startswith("00000000000003e80000000000000343")


def test_the_checksum_is_of_what_lies_below() -> None:
    log = MemoryLog(1024, 0, DATA)
    assert greet(log, 6000) == Greeting(
        6000, 4096, blake2b(DATA[1904:6000], digest_size=8).digest()
    )


@pytest.mark.parametrize("start", [0, 4096])
def test_every_word_is_a_place_in_the_slaves_log(start: int) -> None:
    """A Java master may take any of them for the first report, and send from there."""
    log = MemoryLog(4096, start, DATA)
    for place in range(start + 1, start + 1500):
        greeting = greet(log, place)
        if place < start + 255 + (start == 0):
            assert greeting is None
            continue
        assert greeting is not None
        words = words_of(encode_greeting(greeting))
        assert all(max(start, 1) <= word <= place for word in words)
        assert (words[0], words[-1]) == (place, place)
        assert start <= place - greeting.window


def test_the_window_is_a_mebibyte_at_most() -> None:
    greeting = greet(MemoryLog(1 << 22, 0, bytes(3 << 20)), 3 << 20)
    assert greeting is not None
    assert greeting.window == 1 << 20


@given(
    st.integers(300, 2**62), st.integers(0, 20), st.binary(min_size=8, max_size=8),
    st.lists(st.integers(1, 95)),
)  # fmt: skip
def test_any_split_of_the_stream_gives_the_greeting(
    place: int, bits: int, checksum: bytes, cuts: list[int]
) -> None:
    greeting = Greeting(place, 1 << bits, checksum)
    data = encode_greeting(greeting)
    reports, reader = ReportReader(), GreetingReader()
    edges = sorted({0, *cuts, len(data)})
    for start, end in itertools.pairwise(edges):
        assert reader.greeting is None
        for word in reports.receive_all(data[start:end]):
            reader.receive_word(word)
    assert (reader.progress, reader.greeting) == (GreetingProgress.WHOLE, greeting)


@given(st.integers(0, 2**62), st.lists(st.integers(0, 2**40), min_size=1))
def test_reports_that_only_rise_are_no_greeting(first: int, growths: list[int]) -> None:
    reader = GreetingReader()
    reader.receive_word(first)
    assert reader.progress is GreetingProgress.OPEN
    assert not reader.is_marked
    reader.receive_word(first + growths[0])
    assert reader.progress is GreetingProgress.IS_NONE


def test_the_second_word_tells_that_it_is_no_ordinary_report() -> None:
    """What comes by then is not to be answered as one."""
    assert [read(GOLDEN[:count]).is_marked for count in (1, 2, 3, 11, 12)] == [
        False, True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("index", range(1, 12))
def test_one_wrong_word_makes_it_none(index: int) -> None:
    reader = GreetingReader()
    for word in GOLDEN[:index]:
        reader.receive_word(word)
    reader.receive_word(GOLDEN[0] - MARK - 1000)
    assert reader.progress is GreetingProgress.IS_NONE
    assert reader.greeting is None


def read(words: list[int]) -> GreetingReader:
    reader = GreetingReader()
    for word in words:
        reader.receive_word(word)
    return reader


def test_every_byte_may_be_in_a_checksum() -> None:
    """Also one that leaves its word at the place itself."""
    assert read(GOLDEN).greeting == GREETING
    for byte in range(256):
        greeting = Greeting(1000, 1 << MAX_WINDOW_BITS, bytes([byte]) * 8)
        assert read(words_of(encode_greeting(greeting))).greeting == greeting


@pytest.mark.parametrize(
    ("index", "below"), [(2, -1), (2, MAX_WINDOW_BITS + 1), (3, -1), (3, DEPTH + 1), (10, 256)]
)
def test_words_beyond_what_a_greeting_can_say_make_it_none(index: int, below: int) -> None:
    assert read([*GOLDEN[:index], GOLDEN[0] - below]).progress is GreetingProgress.IS_NONE
