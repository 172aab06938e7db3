"""Records one behind the other: which times they tell, where they end, and where one may begin."""

from struct import pack

import pytest

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_files import WINDOW
from rmq_ha.base.store_format.commitlog import (
    MAX_RECORD_SIZE,
    RECORD_OVERHEAD,
    Record,
    encode_blank,
    encode_record,
)
from rmq_ha.base.store_format.dledger import encode_header
from rmq_ha.base.store_format.dledger_values import TERM_TOPIC, Entry
from rmq_ha.ops.offline.backup import _copy_file
from rmq_ha.ops.offline.chain import ChainEnding, Layout, RecordChain, chain, first_record, tail_at
from rmq_ha.ops.offline.log_files import is_number

BASE = 3 << 30
HOST = Address.parse("10.0.0.1", 10911)


def record(offset: int, ms: int, body: bytes = b"body", topic: str = "T") -> bytes:
    head = (0, 0, 3, 0, 5, offset, 0, 1, HOST, ms, HOST, 0, 0)
    return encode_record(Record(*head, body, topic, "A\x01b"))


def log(*times: int, base: int = BASE) -> bytes:
    data = b""
    for ms in times:
        data += record(base + len(data), ms)
    return data


SIZE = len(log(1))


@pytest.mark.parametrize(
    ("times", "first", "last"), [((), -1, -1), ((5,), 5, 5), ((5, 9), 5, 9), ((5, 9, 7, 4), 5, 4)]
)
def test_a_chain_tells_the_times_of_its_first_and_last_record(
    times: tuple[int, ...], first: int, last: int
) -> None:
    data, end = log(*times), len(times) * SIZE
    assert chain(data, BASE) == RecordChain(first, last, end, ChainEnding.MORE, 8)
    assert chain(data + bytes(8), BASE) == RecordChain(first, last, end, ChainEnding.NOT_WRITTEN)
    assert chain(data + encode_blank(50), BASE) == RecordChain(first, last, end, ChainEnding.BLANK)
    assert chain(data + b"nothing!", BASE) == RecordChain(first, last, end, ChainEnding.TORN)
    cut = data + record(BASE + end, 8)[:-1]
    assert chain(cut, BASE) == RecordChain(first, last, end, ChainEnding.MORE, SIZE)


def test_a_record_that_says_that_it_is_elsewhere_ends_the_chain() -> None:
    data = log(5, 9) + record(BASE, 7) + record(BASE + 3 * SIZE, 8)
    assert chain(data, BASE) == RecordChain(5, 9, 2 * SIZE, ChainEnding.TORN)
    assert chain(data, BASE + 1) == RecordChain(-1, -1, 0, ChainEnding.TORN)


def test_of_the_last_ones_the_parts_have_to_add_up() -> None:
    """Elsewhere the next one follows, which says as much."""
    data = bytearray(log(5, 9, 7))
    for at, found in (
        (2, RecordChain(5, 9, 2 * SIZE, ChainEnding.TORN)),
        (1, RecordChain(5, 7, 3 * SIZE, ChainEnding.MORE, 8)),
    ):
        harmed = data.copy()
        harmed[at * SIZE + 84 : at * SIZE + 88] = pack(">i", 500)  # the body's length
        assert chain(bytes(harmed), BASE) == found
    for at in range(3):
        data[at * SIZE + 84 : at * SIZE + 88] = pack(">i", -1)
    assert chain(bytes(data), BASE) == RecordChain(-1, -1, 0, ChainEnding.TORN)


@pytest.mark.parametrize(
    ("size", "tail"),
    [
        (RECORD_OVERHEAD - 1, ChainEnding.TORN),
        (RECORD_OVERHEAD, ChainEnding.MORE),
        (MAX_RECORD_SIZE, ChainEnding.MORE),
        (MAX_RECORD_SIZE + 1, ChainEnding.TORN),
    ],
)
def test_a_record_claims_no_more_bytes_than_any_has(size: int, tail: ChainEnding) -> None:
    head = pack(">i", size) + log(1)[4:8]
    found, reason, needed = tail_at(head, 0)
    assert (found, needed) == (tail, size if tail is ChainEnding.MORE else 0)
    assert bool(reason) is (tail is ChainEnding.TORN)
    assert tail_at(head[:7], 0) == (ChainEnding.MORE, "", 8)


# A DLedger's


def ledger(*entries: tuple[int, str]) -> tuple[bytes, list[int]]:
    """Times and topics of the records in entries; where these begin, and the end."""
    data, places = b"", []
    for index, (ms, topic) in enumerate(entries):
        pos = BASE + len(data)
        places.append(len(data))
        body = record(pos + 48, ms, topic=topic) if topic else b"\0" * 60
        data += encode_header(Entry(index, 1, pos, body)) + body
    return data, [*places, len(data)]


TERM = (1, TERM_TOPIC)


@pytest.mark.parametrize(
    ("entries", "first", "last"),
    [
        ([(5, "T"), (9, "T"), (7, "T")], 5, 7),
        ([TERM, (5, "T"), (9, "T"), TERM], 5, 9),
        ([TERM, (5, "T"), TERM], 5, 5),
        ([TERM, TERM], -1, -1),
        ([(3, ""), (5, "T"), (9, "T"), (3, "")], 5, 9),
    ],
)
def test_entries_tell_the_times_of_the_records_in_them(
    entries: list[tuple[int, str]], first: int, last: int
) -> None:
    data, places = ledger(*entries)
    assert chain(data, BASE, Layout.DLEDGER)[:3] == (first, last, places[-1])
    # One that says that it is elsewhere ends the chain in front of it.
    for at, place in enumerate(places[:-1]):
        harmed = bytearray(data)
        harmed[place + 24 : place + 32] = pack(">q", BASE - 1)
        found = chain(bytes(harmed), BASE, Layout.DLEDGER)
        before = [ms for ms, topic in entries[:at] if topic == "T"] or [-1]
        assert found[:4] == (before[0], before[-1], place, ChainEnding.TORN)


# Where one may begin


def test_a_walk_begins_at_what_says_where_it_is() -> None:
    data = b"x" * 7 + record(BASE + 7, 5) + record(BASE + 7 + SIZE, 6)
    assert first_record(data, BASE) == 7
    assert first_record(data, BASE, 7) == 7
    assert first_record(data, BASE, 8) == 7 + SIZE
    assert first_record(data, BASE, 8 + SIZE) == -1
    assert first_record(data, BASE + 1) == -1
    # Cut off: as far as it is seen it may be one.
    for length in (36, SIZE - 1, SIZE):
        assert first_record(data[: 7 + length], BASE) == 7
    assert first_record(data[: 7 + 35], BASE) == -1


@pytest.mark.parametrize(
    ("behind", "is_sound", "is_one"),
    [
        (bytes(40), False, True),  # nothing was written behind it
        (encode_blank(60) + bytes(40), False, True),
        (b"n" * 35, False, True),  # too little to see another one's head
        (b"n" * 36, False, False),
        (b"n" * 60, False, False),
        (b"n" * 60, True, True),  # its CRC holds
    ],
)
def test_one_that_lies_in_a_body_is_not_believed(
    behind: bytes, is_sound: bool, is_one: bool
) -> None:
    """Somebody wrote it there to deceive: what follows it, or its CRC, has to belong into a log."""
    fake = bytearray(record(BASE, 5))
    if not is_sound:
        fake[8:12] = pack(">i", 7)
    assert first_record(bytes(fake) + behind, BASE) == (0 if is_one else -1)
    follows = bytes(fake) + record(BASE + SIZE, 6)
    assert first_record(follows, BASE) == 0
    empty = record(BASE, 5, b"")
    assert first_record(empty + b"n" * 60, BASE) == -1  # without a body there is no CRC


# Files


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("0" * 20, True),
        (f"{(1 << 63) - 1:020}", True),
        (f"{1 << 63:020}", False),
        ("0" * 21, False),
        ("7", True),
        ("", False),
        ("-1", False),
        ("²", False),
        ("٣", False),
    ],
)
def test_files_of_a_row_are_named_by_javas_longs(name: str, is_one: bool) -> None:
    assert is_number(name) is is_one


def test_a_file_of_several_windows_is_copied_whole() -> None:
    class Bytes:
        def __init__(self, data: bytes) -> None:
            self.data = bytearray(data)

        def window(self, path: str, offset: int, size: int) -> bytes:
            return bytes(self.data[offset : offset + size])

        def pwrite(self, data: bytes, offset: int) -> None:
            self.data[offset : offset + len(data)] = data

    told = list[int]()
    whole = bytes(range(256)) * (2 * WINDOW // 256) + b"the end"
    made = Bytes(bytes(len(whole) + 9))
    _copy_file(Bytes(whole), "one", made, len(whole), told.append)  # type: ignore[arg-type]
    assert (told, bytes(made.data[-9:])) == ([WINDOW, WINDOW, 7], bytes(9))
    assert made.data[:-9] == whole
