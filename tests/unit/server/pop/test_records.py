"""The bytes of the POP journal."""

import pytest

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.server.pop.entries import AckEntry, Entry, PopEntry
from rmq_ha.server.pop.records import UnknownEntry, decode_entries, encode_entries
from tests.unit.server.pop.samples import NOW, ONE_OF_EACH, RandomJournal


def as_tuples(entries: list[Entry]) -> list[tuple[object, ...]]:
    return [
        (type(entry).__name__, *[list(item) if isinstance(item, tuple) else item for item in entry])
        for entry in entries
    ]


def test_what_is_written_is_read() -> None:
    assert as_tuples(decode_entries(encode_entries(ONE_OF_EACH, NOW))) == as_tuples(ONE_OF_EACH)


def test_entries_of_any_time_are_read_as_they_were_written() -> None:
    journal = RandomJournal(3)
    entries = [journal.entry() for _ in range(2000)]
    for base in (0, NOW, NOW + 10**9):
        assert as_tuples(decode_entries(encode_entries(entries, base))) == as_tuples(entries)


def test_entries_are_small() -> None:
    def added(entry: Entry) -> int:
        return len(encode_entries([entry], NOW)) - len(encode_entries([], NOW))

    assert added(AckEntry(3, 1, NOW - 9000, [1_000_000])) <= 12
    many = list(range(1_000_000, 1_000_032))
    assert added(PopEntry(3, 1, many[0], many[-1] + 1, many, NOW, 60_000)) <= 50
    assert added(AckEntry(3, 1, NOW - 9000, many)) <= 45


def test_a_damaged_body_is_refused_and_nothing_else_happens() -> None:
    body = encode_entries(ONE_OF_EACH, NOW)
    for end in range(1, len(body)):
        try:
            decode_entries(body[:end])  # ends between two entries, or
        except CorruptRecord:
            continue
    with pytest.raises(CorruptRecord):
        decode_entries(body[:-1])


@pytest.mark.parametrize("body", [b"", b"\x02", b"\x01\x00\x7f\x00"])
def test_a_record_of_a_newer_broker_is_recognized(body: bytes) -> None:
    with pytest.raises(UnknownEntry):
        decode_entries(body)
