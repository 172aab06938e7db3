"""What is sought of properties is what all of them would say."""

from hypothesis import example, given
from hypothesis import strategies as st

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from rmq_ha.base.runs.maker import walk
from rmq_ha.base.store_format.commitlog import Record, encode_record

HOST = Address(b"\x0a\0\0\1", 10911)

PIECES = st.sampled_from(
    [KEYS, TAGS, UNIQ_KEY, "X", "\x01", "\x02", "\x01\x01", "a b", "\n", "é", KEYS + "\x01k"]
)


@given(st.lists(PIECES, max_size=12).map("".join))
@example(f"{KEYS}\x01a\x02{KEYS}\x01b\x02{KEYS}\x01\x02{TAGS}\x01x\x01y\x02X{UNIQ_KEY}\x01u")
def test_a_row_has_the_properties_by_which_messages_are_sought(text: str) -> None:
    record = Record(0, 0, 1, 0, 2, 3, 0, 4, HOST, 5, HOST, 0, 0, b"body", "T", text)
    rows = walk(encode_record(record), 0, 3, 1, 1, True, 0)
    assert rows is not None
    every = decode_properties(text)
    sought = every.get(KEYS, ""), every.get(UNIQ_KEY, ""), tags_code(every.get(TAGS, ""))
    assert (rows[0][7], rows[0][8], rows[0][4]) == sought
