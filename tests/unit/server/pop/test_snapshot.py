"""The bytes of a snapshot of POP consumption."""

import pytest

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.server.pop.entries import NumbersEntry
from rmq_ha.server.pop.snapshot import (
    SnapshotEnd,
    decode_snapshot,
    encode_image,
    encode_snapshot,
)
from rmq_ha.server.pop.state import PopState
from tests.unit.server.pop.samples import NOW, RandomJournal


def snapshot() -> tuple[PopState, bytes]:
    state, journal = PopState(), RandomJournal(5)
    state.apply_all([journal.entry() for _ in range(300)])
    images = [encode_image(7 + number, image) for number, image in enumerate(state.images())]
    state.apply(NumbersEntry(0, 0, 5_000_000_000, NOW))
    numbers = state.numbers_entry()
    return state, encode_snapshot(SnapshotEnd(40, 123_456, 789), 7, numbers, -1, images)


def test_a_snapshot_is_read_as_it_was_written() -> None:
    state, data = snapshot()
    found = decode_snapshot(data)
    assert found.place == (40, 123_456, 789)
    assert (found.begin, found.images_begin) == (7, -1)
    assert found.numbers == (state.next_name, state.least_pop_ms, 5_000_000_000, NOW)
    again = PopState()
    again.apply(found.numbers)
    for number, (since, image) in enumerate(found.images):
        assert since == 7 + number
        again.apply(image)
    assert again.digest() == state.digest()


def test_a_snapshot_with_any_damage_is_refused() -> None:
    _, data = snapshot()
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(CorruptRecord):
            decode_snapshot(bytes(damaged))
    for end in range(0, len(data), 11):
        with pytest.raises(CorruptRecord):
            decode_snapshot(data[:end])
