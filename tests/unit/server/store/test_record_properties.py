"""Properties are found in a record without decoding the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, decode_record, encode_record
from rmq_ha.base.store_format.record_properties import record_properties

V4, V6 = Address.parse("10.0.0.1", 1), Address.parse("2001:db8::1", 2)


def record(born: Address, store: Address, body: bytes, topic: str, properties: str) -> bytes:
    return encode_record(
        Record(0, 0, 1, 2, 3, 4, 0, 5, born, 6, store, 7, 8, body, topic, properties)
    )


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("properties", ["", "a\x011", "a\x01é\x02b\x01", "x" * 300 + "\x01y"])
def test_they_are_what_the_whole_record_has(born: Address, store: Address, properties: str) -> None:
    data = record(born, store, b"body" * 50, "Topic" * 20, properties)
    assert record_properties(data) == decode_record(data).properties


@given(st.binary(max_size=200))
def test_a_damaged_record_has_none_or_some(data: bytes) -> None:
    assert isinstance(record_properties(data), dict)


def test_a_cut_record_has_none() -> None:
    data = record(V4, V4, b"x", "T", "a\x011")
    assert record_properties(data[:90]) == {}
    assert record_properties(b"") == {}


def test_what_stands_behind_a_record_is_none_of_its_properties() -> None:
    data = record(V4, V6, b"x", "T", "a\x011")
    for behind in (b"2", b"\x02b\x012", data):
        assert record_properties(data + behind) == {"a": "1"}
