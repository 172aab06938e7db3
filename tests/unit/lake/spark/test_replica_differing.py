"""Where bytes and records differ."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, body_crc, encode_blank, encode_record
from rmq_ha.lake.scan.replica.differing import describe, first_difference, is_blank
from rmq_ha.ops.offline.chain import Layout

HOST = Address.parse("10.0.0.1", 10911)
RECORD = Record(
    0, 0, 3, 5, 7, 1000, 0, 11, HOST, 12, HOST, 0, 0, b"body of it", "Orders", "TAGS\x01a"
)
BYTES = encode_record(RECORD)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_first_difference(one: bytes, other: bytes) -> None:
    expected = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        -1 if len(one) == len(other) else min(len(one), len(other)),
    )
    assert first_difference(one, other) == expected


@pytest.mark.parametrize("at", [0, 7, 8, (1 << 18) - 1, 1 << 18, (1 << 18) + 13, 600_000])
def test_first_difference_of_long_ones(at: int) -> None:
    """Chunks are compared by words, and the rest byte by byte."""
    one, other = bytearray(600_001), bytearray(600_001)
    other[at] = 1
    assert first_difference(one, other) == at
    assert first_difference(memoryview(one)[3:], memoryview(other)[3:]) == (
        at - 3 if at > 2 else -1
    )


@pytest.mark.parametrize(
    ("changed", "field", "expected", "actual"),
    [
        ({"queue_id": 4}, "queueId", "3", "4"),
        ({"flag": 6}, "flag", "5", "6"),
        ({"queue_offset": 8}, "queueOffset", "7", "8"),
        ({"physical_offset": 9}, "commitLogOffset", "1000", "9"),
        ({"born_timestamp": 1}, "bornTimestamp", "11", "1"),
        ({"born_host": Address.parse("10.0.0.2", 1)}, "bornHost", "10.0.0.1:10911", "10.0.0.2:1"),
        ({"store_timestamp": 1}, "storeTimestamp", "12", "1"),
        ({"reconsume_times": 1}, "reconsumeTimes", "0", "1"),
        ({"prepared_transaction_offset": 1}, "preparedTransactionOffset", "0", "1"),
        ({"topic": "Orderz"}, "topic", "Orders", "Orderz"),
        ({"properties_string": "TAGS\x01b"}, "properties", "TAGS='a'", "TAGS='b'"),
    ],
)
def test_the_field_is_named(changed: Any, field: str, expected: str, actual: str) -> None:
    found = describe(BYTES, encode_record(RECORD._replace(**changed)))
    assert found[:4] == (field, expected, actual, ())


def test_a_body_is_shown_from_where_it_differs_and_its_crc_is_a_witness() -> None:
    broken = BYTES.replace(b"body of", b"body xf")
    found = describe(BYTES, broken)
    assert found.field == "body"
    assert found.expected == "byte 5: " + b"of it".hex()
    assert found.verdict == "the slave's body does not match its CRC, the master's does"
    assert describe(broken, BYTES).verdict.startswith("the master's")
    fixed = encode_record(RECORD._replace(body=b"body xf it"))
    assert describe(BYTES, fixed)[0::3] == ("body", ("bodyCRC",))
    assert describe(BYTES, fixed).verdict == ""
    assert body_crc(b"body xf it") != body_crc(RECORD.body)


def test_several_fields() -> None:
    found = describe(BYTES, encode_record(RECORD._replace(flag=0, queue_offset=0)))
    assert (found.field, found.others) == ("flag", ("queueOffset",))


def test_places_mean_nothing_when_logs_are_out_of_step() -> None:
    other = encode_record(RECORD._replace(queue_offset=1, physical_offset=2, reconsume_times=3))
    assert describe(BYTES, other, shifted=True).field == "reconsumeTimes"


def test_records_that_differ_in_no_field_are_shown_by_their_first_bytes() -> None:
    """As two that say other places only, in logs that are out of step."""
    other = encode_record(RECORD._replace(queue_offset=1, physical_offset=2))
    found = describe(BYTES, other, shifted=True)
    assert found == ("record", BYTES[:16].hex(), other[:16].hex(), (), "")


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("A\x011\x02B\x012", "B\x013\x02C\x014", ("A='1', B='2', C=None", "A=None, B='3', C='4'")),
        ("TAGS\x01a", "TAGS\x01a\x02", ("'TAGS\\x01a'", "'TAGS\\x01a\\x02'")),  # in their form
        (
            "\x02".join(f"{name}\x01{1}" for name in "abcde"),
            "\x02".join(f"{name}\x01{2}" for name in "abcde"),
            ("a='1', b='1', c='1', d='1'", "a='2', b='2', c='2', d='2'"),
        ),
        ("A\x01" + "x" * 300, "A\x01" + "y" * 300, ("A='" + "x" * 197, "A='" + "y" * 197)),
        ("x" * 300, "y" * 300, ("'" + "x" * 199, "'" + "y" * 199)),
    ],
)
def test_of_properties_those_that_differ_are_shown_four_at_most(
    one: str, other: str, shown: tuple[str, str]
) -> None:
    found = describe(*(encode_record(RECORD._replace(properties_string=it)) for it in (one, other)))
    assert (found.field, found.expected, found.actual) == ("properties", *shown)


def test_of_a_body_sixteen_bytes_are_shown() -> None:
    bodies = b"a" + bytes(40), b"b" + bytes(40)
    found = describe(*(encode_record(RECORD._replace(body=body)) for body in bodies))
    assert found.expected == "byte 0: 61" + "00" * 15
    found = describe(*(encode_record(RECORD._replace(body=body)) for body in (b"a", b"ab")))
    assert found.expected == "byte 1: end"


def test_what_is_no_record() -> None:
    assert describe(BYTES, bytes(len(BYTES)))[:3] == ("record", "a record", f"{len(BYTES)} zeros")
    assert describe(bytes(len(BYTES)), BYTES).verdict == "only the slave has a sound record there"
    size = (len(BYTES) + 4).to_bytes(4, "big") + BYTES[4:]
    assert describe(BYTES, size)[:3] == ("storeSize", str(len(BYTES)), str(len(BYTES) + 4))


@given(st.integers(0, len(BYTES) - 1), st.integers(1, 255))
def test_any_changed_byte_is_told(at: int, change: int) -> None:
    other = bytearray(BYTES)
    other[at] ^= change
    found = describe(BYTES, bytes(other))
    assert found.expected != found.actual or found.field == "record"


@given(st.binary(max_size=150), st.binary(max_size=150))
def test_any_bytes_are_described(one: bytes, other: bytes) -> None:
    describe(one, other)


def test_blanks() -> None:
    assert is_blank(encode_blank(100), Layout.CLASSIC)
    assert is_blank(encode_blank(100) + b"x", Layout.CLASSIC)
    assert not is_blank(BYTES, Layout.CLASSIC)
    assert is_blank(b"\xff\xff\xff\xff\0\0\0d", Layout.DLEDGER)
    assert not is_blank(b"\0\0\0\1", Layout.DLEDGER)
