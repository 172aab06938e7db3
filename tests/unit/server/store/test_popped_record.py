"""Records of retry topics as a consumer gets them. Spec: pop.md, section 2.4."""

import json
from pathlib import Path

import pytest

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import POP_CK, decode_properties, encode_properties
from rmq_ha.base.store_format.commitlog import Record, decode_record, decode_records, encode_record
from rmq_ha.base.store_format.popped_record import with_receipt
from rmq_ha.base.wire.frame import FrameReader

RECORDED = Path(__file__).parents[3] / "fixtures" / "pop" / "pop-basic.json"
HOST = Address.parse("127.0.0.1", 10911)
HOST_V6 = Address.parse("::1", 10911)


def stored(properties: str, host: Address = HOST) -> bytes:
    return encode_record(
        Record(0, 0, 0, 0, 3, 700, 0, 1, host, 2, HOST, 1, 0, b"body", "%RETRY%G_T", properties)
    )


def test_recorded_answers_come_out_of_the_records_that_were_stored() -> None:
    seen = 0
    for item in json.loads(RECORDED.read_text()):
        ext = (item["response"] or {}).get("extFields") or {}
        if not ext.get("startOffsetInfo", "").startswith("1 "):
            continue
        ((_, _, body),) = FrameReader().receive_data(bytes.fromhex(item["response"]["hex"]))
        for record in decode_records(body):
            properties = record.properties
            receipt = properties.pop(POP_CK)
            in_store = encode_record(
                record._replace(
                    topic="%RETRY%PopG3_PopT3", properties_string=encode_properties(properties)
                )
            )
            got = decode_record(with_receipt(in_store, b"PopT3", receipt.encode()), check_crc=True)
            assert got.properties == record.properties
            same = record._replace(properties_string="", size=0)
            assert got._replace(properties_string="", size=0) == same
            seen += 1
    assert seen >= 4


@pytest.mark.parametrize("host", [HOST, HOST_V6])
def test_a_stored_receipt_is_replaced_and_a_message_without_properties_gets_one(
    host: Address,
) -> None:
    old = stored("TAGS\x01a\x02POP_CK\x01old\x02", host)
    got = decode_record(with_receipt(old, b"T", b"new"))
    assert (got.topic, got.body, got.born_host) == ("T", b"body", host)
    assert decode_properties(got.properties_string) == {"TAGS": "a", POP_CK: "new"}
    assert decode_record(with_receipt(stored(""), b"T", b"new")).properties == {POP_CK: "new"}


def test_a_receipt_without_room_leaves_the_record_as_it_is() -> None:
    full = stored("A\x01" + "x" * 32760)
    assert with_receipt(full, b"T", b"receipt") is full


def test_damaged_records_are_refused() -> None:
    sound = stored("TAGS\x01a")
    for damaged in (b"", sound[:60], sound[:-1], sound + b"x", sound[:84] + b"\xff" + sound[85:]):
        with pytest.raises(CorruptRecord):
            with_receipt(damaged, b"T", b"receipt")
