"""The walk ends where the broker's codec ends, whatever is damaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import (
    MAX_RECORD_SIZE,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD,
    Record,
    decode_record,
    encode_blank,
    encode_record,
)
from rmq_ha.base.store_format.dledger import BLANK, decode_header, encode_header
from rmq_ha.base.store_format.dledger_values import TERM_TOPIC, Entry
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.walk import walk
from rmq_ha.ops.offline.chain import ChainEnding, Layout, chain, first_record
from tests.kits.draws import draws

BASE = 7 << 30
VECTORS = Path(__file__).parents[3] / "vectors" / "ha" / "dledger_frames.json"
V4, V6 = Address.parse("10.0.0.1", 10911), Address.parse("2001:db8::1", 10911)


def record(
    offset: int, body: bytes = b"body", topic: str = "T", born: Address = V4, store: Address = V4
) -> bytes:
    return encode_record(
        Record(0, 0, 3, 0, 5, offset, 0, 1, born, 2, store, 0, 0, body, topic, "TAGS\x01a")
    )


def log(count: int = 8, base: int = BASE) -> bytes:
    data = b""
    for index in range(count):
        kind = [V4, V6]
        data += record(
            base + len(data), b"b" * (index * 7), "T" * index, kind[index & 1], kind[index >> 1 & 1]
        )
    return data


def expected(data: bytes, base: int) -> tuple[list[int], int]:
    """The oracle: record by record with the broker's codec."""
    places: list[int] = []
    at = 0
    while True:
        try:
            found = decode_record(data, at)
        except CorruptRecord:
            return places, at
        if found.physical_offset != base + at or found.size < RECORD_OVERHEAD:
            return places, at
        places.append(at)
        at += found.size


def agrees(data: bytes, base: int = BASE) -> None:
    places, end = expected(data, base)
    found = walk(data, base)
    assert (found.positions.tolist(), found.end) == (places, end)
    assert found.sizes.tolist() == np.diff([*places, end]).tolist()
    assert found.tail is not ChainEnding.TORN or found.reason
    records = Records(data, base, found.positions, found.shape)
    assert records.physical_offset.tolist() == [base + place for place in places]
    plain = chain(data, base)
    if plain.end == end:
        times = records.store_timestamp.tolist() or [-1]
        assert plain[:2] == (times[0], times[-1])
        assert (plain.tail, plain.needed) == (found.tail, found.needed)
    else:  # behind a record of which only the parts do not add up, sound ones follow
        assert plain.end > end
        assert data[end + 28 : end + 36] == (base + end).to_bytes(8, "big")
        last = [at for at in range(end + 1, plain.end) if expected(data[at:], base + at)[0]]
        assert expected(data[last[0] :], base + last[0])[1] + last[0] <= plain.end


@settings(max_examples=draws(500))
@given(st.data())
def test_any_damage_ends_the_walk_where_it_ends_the_codec(draw: st.DataObject) -> None:
    """Flipped bits, other bytes, cuts."""
    data = bytearray(log(draw.draw(st.integers(0, 10))) + encode_blank(100) + bytes(20))
    for _ in range(draw.draw(st.integers(0, 3))):
        at = draw.draw(st.integers(0, len(data) - 1))
        if draw.draw(st.booleans()):
            data[at] ^= 1 << draw.draw(st.integers(0, 7))
        else:
            other = draw.draw(st.binary(max_size=8))
            data[at : at + len(other)] = other
    agrees(bytes(data[: draw.draw(st.integers(0, len(data)))]))


def test_each_flipped_bit_of_a_record_ends_the_walk_where_it_ends_the_codec() -> None:
    """All bits of a record between two others."""
    first, second = record(BASE), record(BASE + len(record(BASE)), born=V6)
    for bit in range(len(second) * 8):
        damaged = bytearray(second)
        damaged[bit // 8] ^= 1 << bit % 8
        agrees(first + bytes(damaged) + record(BASE + len(first) + len(second)))


@settings(max_examples=draws(300))
@given(st.binary(max_size=300), st.integers(0, 1 << 62))
def test_junk_is_no_log(junk: bytes, base: int) -> None:
    """Any bytes give a verdict, and so do any behind a magic."""
    agrees(junk, base)
    agrees(junk[:4] + MESSAGE_MAGIC.to_bytes(4, "big") + junk[8:], base)
    walk(junk, base, 0, Layout.DLEDGER)
    for layout in Layout:
        assert first_record(junk, base, 0, layout) >= -1


@pytest.mark.parametrize(
    ("behind", "tail", "needed"),
    [
        (b"", ChainEnding.MORE, 8),
        (bytes(7), ChainEnding.MORE, 8),
        (bytes(8), ChainEnding.NOT_WRITTEN, 0),
        (encode_blank(8), ChainEnding.BLANK, 0),
        (encode_blank(400) + b"junk", ChainEnding.BLANK, 0),
        (b"junkjunk", ChainEnding.TORN, 0),
        (bytes(7) + b"\1", ChainEnding.TORN, 0),
        (record(0)[:-1], ChainEnding.MORE, len(record(0))),
        (record(0), ChainEnding.TORN, 0),
        (b"\0\0\0\x5a" + MESSAGE_MAGIC.to_bytes(4, "big"), ChainEnding.TORN, 0),
        (b"\x7f\0\0\0" + MESSAGE_MAGIC.to_bytes(4, "big"), ChainEnding.TORN, 0),
        (
            MAX_RECORD_SIZE.to_bytes(4, "big") + MESSAGE_MAGIC.to_bytes(4, "big"),
            ChainEnding.MORE,
            MAX_RECORD_SIZE,
        ),
    ],
)
def test_what_stands_behind_the_records(behind: bytes, tail: ChainEnding, needed: int) -> None:
    """A claim of more than any record has is no reason to wait for more."""
    data = log(3)
    found = walk(data + behind, BASE)
    assert (len(found.positions), found.end, found.tail) == (3, len(data), tail)
    assert found.needed == needed


def test_a_walk_begins_where_it_is_told_to() -> None:
    """The buffer may begin with something else."""
    data = log(4)
    second = int(walk(data, BASE).positions[1])
    assert walk(data, BASE, second).positions.tolist() == walk(data, BASE).positions[1:].tolist()


def test_from_anywhere_the_next_record_is_found() -> None:
    """Each place of a log, magics in bodies among it."""
    magic = MESSAGE_MAGIC.to_bytes(4, "big")
    data = b""
    for index in range(6):
        data += record(BASE + len(data), magic * index + record(77) + bytes(20) + magic)
    places = walk(data, BASE).positions
    for start in range(len(data)):
        later = places[places >= start]
        assert first_record(data, BASE, start) == (later[0] if len(later) else -1)


def test_a_record_in_a_body_is_taken_only_with_something_behind_it() -> None:
    """One that says exactly where it is, but is damaged and stands alone, is passed over."""
    outer = record(BASE)
    inner_at = BASE + len(outer) + 88 + 5
    inner = bytearray(record(inner_at, b"inner"))
    inner[90] ^= 1
    data = outer + record(BASE + len(outer), b"....." + bytes(inner) + b"x" * 40)
    data += record(BASE + len(data))
    assert first_record(data, BASE, len(outer) + 1) == int(walk(data, BASE).positions[2])


def test_a_record_before_damage_is_found() -> None:
    """What follows is broken, but its own CRC holds."""
    data = record(BASE) + b"\xff" * 60
    assert first_record(b"junk" * 5 + data, BASE - 20) == 20


def test_a_damaged_record_is_taken_if_no_head_fits_behind_it() -> None:
    """Then nothing says that it is none."""
    damaged = bytearray(record(BASE))
    damaged[90] ^= 1
    assert first_record(bytes(damaged) + b"x" * 35, BASE) == 0
    assert first_record(bytes(damaged) + b"x" * 36, BASE) == -1


# DLedger


def ledger(count: int = 6, base: int = BASE, bodies: Any = None) -> tuple[bytes, list[int]]:
    data, places = b"", []
    for index in range(count):
        pos = base + len(data)
        body = record(pos + 48, b"b" * index) if bodies is None else bodies(index, pos)
        entry = Entry(index, 1, pos, body)
        places.append(len(data) + 48)
        data += encode_header(entry) + body
    return data, places


def test_the_records_of_a_dledger_lie_48_bytes_behind_their_entries() -> None:
    """Spec: dledger.md, chapter 4."""
    data, places = ledger()
    found = walk(data + BLANK.pack(-1, 100), BASE, 0, Layout.DLEDGER)
    assert found.positions.tolist() == places
    assert (found.end, found.tail) == (len(data), ChainEnding.BLANK)
    records = Records(data, BASE, found.positions, found.shape)
    assert records.physical_offset.tolist() == [BASE + place for place in places]
    assert records.crc_ok().all()
    assert walk(data + bytes(60), BASE, 0, Layout.DLEDGER).tail is ChainEnding.NOT_WRITTEN
    assert walk(data + b"x" * 60, BASE, 0, Layout.DLEDGER).tail is ChainEnding.TORN
    assert walk(data[:-1], BASE, 0, Layout.DLEDGER).tail is ChainEnding.MORE
    assert (
        walk(data, BASE + 1, 0, Layout.DLEDGER).reason == f"an entry that says that it is at {BASE}"
    )


def test_a_last_entry_that_is_shorter_than_any_record_tells_no_time() -> None:
    data, _ = ledger(2, bodies=lambda index, pos: record(pos + 48) if index == 0 else b"\0" * 4)
    found = chain(data, BASE, Layout.DLEDGER)
    assert (found.first, found.last, found.end) == (2, 2, len(data))
    alone = chain(ledger(1, bodies=lambda *_: b"\0" * 4)[0], BASE, Layout.DLEDGER)
    assert (alone.first, alone.last) == (-1, -1)


def test_entries_that_java_wrote_are_read() -> None:
    """Recorded on a group of Java brokers."""
    disk = json.loads(VECTORS.read_text())["disk"]
    data = bytes.fromhex(disk["data_first_two_entries"])
    found = walk(data, 0, 0, Layout.DLEDGER)
    assert (found.positions.tolist(), found.end) == ([48, 208], 320)
    assert Records(data, 0, found.positions, found.shape).physical_offset.tolist() == [48, 208]
    blank = bytes.fromhex(disk["data_blank_at_121560"])
    assert walk(blank, 121560, 0, Layout.DLEDGER).tail is ChainEnding.BLANK


def test_entries_without_a_record_for_a_queue_are_left_out() -> None:
    """As the broker: the entry that begins a term, and one that holds something else."""
    bodies = [
        lambda pos: record(pos + 48),
        lambda pos: record(pos + 48, topic=TERM_TOPIC),
        lambda pos: b"not a record",
        lambda pos: record(pos),
        lambda pos: record(pos + 48) + b"x",
        lambda pos: record(pos + 48),
    ]
    data, places = ledger(6, bodies=lambda index, pos: bodies[index](pos))
    found = walk(data, BASE, 0, Layout.DLEDGER)
    assert found.positions.tolist() == [places[0], places[5]]
    assert found.end == len(data)


def expected_entries(data: bytes, base: int) -> tuple[list[int], int]:
    """The oracle: entry by entry with the codecs of ledger and log."""
    places, at = [], 0
    while at + 48 <= len(data):
        head = decode_header(data, at)
        if not head.is_sound or head.pos != base + at or at + head.size > len(data):
            break
        try:
            found = decode_record(data[at + 48 : at + head.size])
            if (found.physical_offset, found.size) == (base + at + 48, head.body_length):
                places.append(at + 48)
        except CorruptRecord:
            pass
        at += head.size
    return places, at


@settings(max_examples=draws(300))
@given(st.data())
def test_any_damage_in_a_dledger_ends_the_walk_where_it_ends_the_codec(
    draw: st.DataObject,
) -> None:
    """Flipped bits, other bytes, cuts."""
    data = bytearray(ledger()[0])
    for _ in range(draw.draw(st.integers(0, 3))):
        at = draw.draw(st.integers(0, len(data) - 1))
        other = draw.draw(st.one_of(st.binary(max_size=8), st.just(bytes([data[at] ^ 1]))))
        data[at : at + len(other)] = other
    cut = bytes(data[: draw.draw(st.integers(0, len(data)))])
    found = walk(cut, BASE, 0, Layout.DLEDGER)
    assert (found.positions.tolist(), found.end) == expected_entries(cut, BASE)
    plain = chain(cut, BASE, Layout.DLEDGER)
    records = Records(cut, BASE, found.positions, found.shape)
    times = records.store_timestamp.tolist() or [-1]
    assert plain == (times[0], times[-1], found.end, found.tail, found.needed)


@settings(max_examples=draws(300))
@given(st.data())
def test_damage_in_a_dledger_never_raises(draw: st.DataObject) -> None:
    """Records are found up to the damaged entry, and from the next one on."""
    data, places = ledger()
    broken = bytearray(data)
    at = draw.draw(st.integers(0, len(data) - 1))
    broken[at] ^= 1 << draw.draw(st.integers(0, 7))
    found = walk(bytes(broken), BASE, 0, Layout.DLEDGER)
    hit = max(index for index, place in enumerate(places) if place - 48 <= at)
    assert found.positions.tolist()[:hit] == places[:hit]
    later = [place - 48 for place in places if place - 48 > at]
    assert first_record(bytes(broken), BASE, at + 1, Layout.DLEDGER) == (later[0] if later else -1)
