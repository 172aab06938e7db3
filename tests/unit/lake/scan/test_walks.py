"""Where a walk over records ends, and what it says of it: the edges of each rule."""

from struct import pack
from typing import Any

import pytest

from rmq_ha.base.store_format.commitlog import MESSAGE_MAGIC, RECORD_OVERHEAD, encode_blank
from rmq_ha.base.store_format.dledger_values import TERM_TOPIC
from rmq_ha.lake.scan.log.walk import walk
from rmq_ha.ops.offline.chain import ChainEnding, Layout
from tests.unit.lake.scan.parts_kit import ledger_of, log_of

BASE = 7 << 30
SMALLEST: dict[str, Any] = {"body": b"", "topic": ""}
ADDS_NOT_UP = "a record whose parts do not add up"


def harmed(data: bytes, at: int, other: bytes) -> bytes:
    return data[:at] + other + data[at + len(other) :]


def test_the_smallest_record_is_one_and_may_be_the_last_bytes() -> None:
    for count in (1, 3):
        data = log_of(*[SMALLEST] * count, base=BASE)
        assert len(data) == count * RECORD_OVERHEAD
        found = walk(data, BASE)
        assert found.positions.tolist() == [at * RECORD_OVERHEAD for at in range(count)]
        assert (found.end, found.tail, found.reason) == (len(data), ChainEnding.MORE, "")


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_walk_ends_at_the_first_record_that_is_none_and_says_why(
    bad: int, is_moved: bool
) -> None:
    size = len(log_of({}))
    data = log_of({}, {}, {}, base=BASE)
    for at in range(bad, 3):  # all behind it are as bad: the first is named
        place = at * size
        data = (
            harmed(data, place + 28, pack(">q", 77 + at))
            if is_moved
            else harmed(data, place + 84, pack(">i", 1 << 20))
        )
    found = walk(data, BASE)
    assert found.positions.tolist() == [at * size for at in range(bad)]
    assert found.sizes.tolist() == [size] * bad
    assert found.shape is not None
    assert len(found.shape.body) == bad
    reason = f"a record that says that it is at {77 + bad}" if is_moved else ADDS_NOT_UP
    assert found[2:6] == (bad * size, ChainEnding.TORN, reason, 0)


@pytest.mark.parametrize(
    ("behind", "tail"),
    [
        (encode_blank(200).ljust(200, b"x"), ChainEnding.BLANK),
        (pack(">iI", RECORD_OVERHEAD - 1, MESSAGE_MAGIC) + bytes(200), ChainEnding.TORN),
        (log_of({}, base=BASE + 2 * len(log_of({})))[:-1], ChainEnding.MORE),
    ],
    ids=["a blank", "less than any record has", "a record that is cut off"],
)
def test_a_walk_ends_where_magic_and_size_make_no_record(behind: bytes, tail: ChainEnding) -> None:
    data = log_of({}, {}, base=BASE)
    found = walk(data + behind, BASE)
    assert (len(found.positions), found.end, found.tail) == (2, len(data), tail)
    assert not found.reason.startswith("a record that says")


# DLedger


@pytest.mark.parametrize(
    ("entry", "is_sound"),
    [
        ({"index": 0, "term": 0}, True),
        ({"index": -1}, False),
        ({"term": -1}, False),
        ({"index": 1 << 55, "term": 1 << 55}, True),  # a sign bit, if one read a byte further
    ],
)
def test_an_entry_has_a_place_in_the_ledger_and_a_term(
    entry: dict[str, int], is_sound: bool
) -> None:
    data, places = ledger_of({}, entry, {}, base=BASE)
    found = walk(data, BASE, 0, Layout.DLEDGER)
    seen = places if is_sound else places[:1]
    assert found.positions.tolist() == [at + 48 for at in seen]
    assert found.end == (len(data) if is_sound else places[1])
    assert found.sizes.tolist() == [len(log_of({}))] * len(seen)


@pytest.mark.parametrize("at", [20 + 4, 44])
def test_an_entry_that_says_another_place_or_length_ends_the_walk(at: int) -> None:
    """Whatever is behind it, also if that says the truth."""
    data, places = ledger_of({}, {}, {}, base=BASE)
    found = walk(harmed(data, places[1] + at, b"\x00\x00\x00\x09"), BASE, 0, Layout.DLEDGER)
    assert (found.positions.tolist(), found.end) == ([48], places[1])
    assert found.tail is ChainEnding.TORN


def test_entries_that_hold_no_record_of_a_queue_are_left_out() -> None:
    """The first ones of terms, and what is no record by one of its numbers."""
    size = len(log_of({}))
    data, places = ledger_of({}, {}, {}, {}, SMALLEST, base=BASE)
    assert data[places[1] + 48 :][:size] == log_of({}, base=BASE + places[1] + 48)
    data = harmed(data, places[1] + 48, pack(">i", size - 1))
    data = harmed(data, places[2] + 52, b"\x00\x00\x00\x07")  # its magic
    data = harmed(data, places[3] + 48 + 28, pack(">q", 5))
    found = walk(data, BASE, 0, Layout.DLEDGER)
    assert found.positions.tolist() == [places[0] + 48, places[4] + 48]
    assert found.sizes.tolist() == [size, RECORD_OVERHEAD]
    assert found.end == len(data)


def test_a_topic_that_is_as_long_as_that_of_terms_is_another_one() -> None:
    other = "x" * len(TERM_TOPIC)
    topics = [other, TERM_TOPIC, TERM_TOPIC[:-1] + "x", "x" + TERM_TOPIC[1:], TERM_TOPIC, other]
    topics += [TERM_TOPIC + "x", TERM_TOPIC[:-1]]
    data, places = ledger_of(*({"topic": topic} for topic in topics))
    found = walk(data, 0, 0, Layout.DLEDGER)
    wanted = [at + 48 for at, topic in zip(places, topics, strict=True) if topic != TERM_TOPIC]
    assert found.positions.tolist() == wanted
