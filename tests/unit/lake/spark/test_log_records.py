"""Columns made with numpy are what the broker's codec and the client make of the same records."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import KEYS, TAGS, UNIQ_KEY
from rmq_ha.base.store_format.commitlog import Record, decode_records, encode_record
from rmq_ha.client.rules.messages import MessageExt, message_of
from rmq_ha.lake.scan.log.columns import ARROW, COLUMNS, repeated, schema_of
from rmq_ha.lake.scan.log.columns import times as arrow_times
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.walk import walk
from rmq_ha.ops.offline.chain import ChainEnding
from tests.kits.draws import draws

BASE = 1 << 40
WIRE = [name for name in COLUMNS if name != "crcOk"]

bits32 = st.integers(-(1 << 31), (1 << 31) - 1)
bits64 = st.integers(-(1 << 63), (1 << 63) - 1)
times = st.one_of(st.integers(0, 1 << 42), bits64)
hosts = st.builds(
    Address,
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.one_of(st.integers(0, 65535), bits32),
)
words = st.one_of(
    st.sampled_from(
        ["TAGS", "KEYS", "UNIQ_KEY", "UNIQ_KEY2", "TAG", "TAGSS", "WAIT", "", "\u4e2d"]
    ),
    st.text(max_size=12),
)
separators = st.sampled_from(["\x01", "\x02", "\x01", "\x02", "\x01\x01", "\x02\x02", ""])
strings = st.one_of(
    st.lists(st.tuples(words, separators), max_size=12).map(
        lambda parts: "".join(word + separator for word, separator in parts)
    ),
    st.dictionaries(words, words, max_size=6).map(
        lambda held: "\x02".join(f"{name}\x01{value}" for name, value in held.items())
    ),
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """A body and the bits of sysFlag that say how it is compressed."""
    body = draw(st.binary(max_size=300))
    kind = draw(st.sampled_from(["plain", "zlib", "old", "broken", "lz4", "cut"]))
    packed = zlib.compress(body)
    return {
        "plain": (body, 0),
        "zlib": (packed, 0x301),
        "old": (packed, 0x1),
        "broken": (body, 0x301),
        "lz4": (body, 0x101),
        "cut": (packed[:-3], 0x301),
    }[kind]


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Records one after the other, each of which says where it is."""
    parts: list[bytes] = []
    size = 0
    for _ in range(draw(st.integers(1, 12))):
        body, flag = draw(bodies())
        part = encode_record(
            Record(
                0,
                0,
                draw(bits32),
                draw(bits32),
                draw(bits64),
                BASE + size,
                flag | draw(st.sampled_from([0, 2, 4, 8, 12])),
                draw(times),
                draw(hosts),
                draw(times),
                draw(hosts),
                draw(bits32),
                draw(bits64),
                body,
                draw(st.text(min_size=0, max_size=30)),
                draw(strings),
            )
        )
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def batch_of_messages(
    messages: Iterable[MessageExt], columns: Sequence[str], broker_name: str | None = None
) -> Any:
    """The oracle: columns out of what a client was given."""
    held = list(messages)
    schema = schema_of(columns)
    arrays = []
    for name in columns:
        if name == "brokerName" and broker_name is not None:
            arrays.append(repeated(broker_name, len(held)))
        elif name in ("bornTimestamp", "storeTimestamp"):
            arrays.append(
                arrow_times(np.array([_VALUE[name](message) for message in held], np.int64))
            )
        else:
            arrays.append(pa.array([_VALUE[name](message) for message in held], ARROW[name]))
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(held), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_VALUE: dict[str, Callable[[MessageExt], Any]] = {
    "topic": lambda message: message.topic,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "commitLogOffset": lambda message: message.commit_log_offset,
    "msgId": lambda message: message.msg_id,
    "keys": lambda message: message.properties.get(KEYS),
    "tags": lambda message: message.properties.get(TAGS),
    "body": lambda message: message.body,
    "properties": lambda message: list(message.properties.items()),
    "flag": lambda message: message.flag,
    "sysFlag": lambda message: message.sys_flag,
    "bornTimestamp": lambda message: message.born_timestamp,
    "bornHost": lambda message: str(message.born_host),
    "storeTimestamp": lambda message: message.store_timestamp,
    "storeHost": lambda message: str(message.store_host),
    "bodyCRC": lambda message: message.body_crc,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "brokerName": lambda message: message.broker_name or None,
    "storeSize": lambda message: message.store_size,
    "uniqKey": lambda message: message.properties.get(UNIQ_KEY),
    "preparedTransactionOffset": lambda message: message.prepared_transaction_offset,
}


def read(data: bytes, base: int = BASE) -> Records:
    found = walk(data, base)
    return Records(data, base, found.positions, found.shape)


def plain(batch: Any) -> list[dict[str, Any]]:
    """Comparable rows: a map has no order, times may be beyond Python's."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column.to_pylist()
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    for row in rows:
        if "properties" in row:
            assert len(dict(row["properties"])) == len(row["properties"])
            row["properties"] = dict(row["properties"])
    return rows


@pytest.mark.lake
@settings(max_examples=draws(120))
@given(logs())
def test_all_columns_are_what_the_client_says(data: bytes) -> None:
    """The oracle is `message_of` over `decode_records`."""
    messages = [message_of(record, "b") for record in decode_records(data)]
    records = read(data)
    assert len(records) == len(messages)
    batch = records.batch(COLUMNS, "b")
    batch.validate(full=True)
    assert batch.schema == schema_of(COLUMNS)
    assert plain(records.batch(WIRE, "b")) == plain(batch_of_messages(messages, WIRE, "b"))
    assert batch.column("crcOk").to_pylist() == [True] * len(messages)


@pytest.mark.lake
@settings(max_examples=draws(80))
@given(logs(), st.data())
def test_bytes_that_are_no_text_read_as_on_the_wire(data: bytes, draw: st.DataObject) -> None:
    """Bad UTF-8 anywhere in topic and properties: each bad byte is U+FFFD, in both."""
    broken = bytearray(data)
    shape = read(data).shape
    for begin, end in ((shape.topic, shape.topic_end), (shape.properties, shape.end)):
        for low, high in zip(begin.tolist(), end.tolist(), strict=True):
            for at in draw.draw(st.lists(st.integers(low, max(low, high - 1)), max_size=4)):
                if at < high and broken[at] not in (1, 2):
                    broken[at] = draw.draw(st.sampled_from([0x80, 0xFF, 0xE4, 0xED, 0xC0, 0x00]))
    messages = [message_of(record) for record in decode_records(bytes(broken))]
    rows = plain(read(bytes(broken)).batch(WIRE))
    assert rows == plain(batch_of_messages(messages, WIRE))


def one(properties: bytes | str, body: bytes = b"body", **changes: Any) -> bytes:
    text = properties if isinstance(properties, str) else properties.decode("latin1")
    host = Address.parse("10.0.0.1", 80)
    fields: dict[str, Any] = dict(zip(Record._fields, [0] * len(Record._fields), strict=True))
    fields |= {"born_host": host, "store_host": host, "topic": "T", "body": body}
    fields |= {"properties_string": text, "physical_offset": BASE} | changes
    return encode_record(Record(**fields))


@pytest.mark.parametrize(
    ("text", "tags", "keys"),
    [
        ("TAGS\x01a\x02KEYS\x01k", "a", "k"),
        ("TAGS\x01a\x02KEYS\x01k\x02", "a", "k"),
        ("TAGS\x01a\x02TAGS\x01b", "b", None),
        ("TAGS\x01a\x02TAGS\x01", "a", None),
        ("X\x01TAGS\x01a", None, None),
        ("X\x01 TAGS\x02KEYS\x01TAGS\x01z", None, "TAGS\x01z"),
        ("xTAGS\x01a\x02TAGSx\x01b", None, None),
        ("TAGS", None, None),
        ("", None, None),
        ("\x02\x02KEYS\x01 \x02", None, " "),
    ],
)
def test_a_name_counts_at_the_start_of_a_piece(
    text: str, tags: str | None, keys: str | None
) -> None:
    """Whatever stands in values; of several the last one that has a value."""
    batch = read(one(text)).batch(["tags", "keys"])
    assert batch.to_pylist() == [{"tags": tags, "keys": keys}]


def test_very_different_lengths_are_read_all_the_same() -> None:
    """The quick ways are for strings of about one length; these are not."""
    texts = ["a\x01" + "v" * 30000, "", *[f"KEYS\x01k{index}" for index in range(50)]]
    texts.append("\x02".join(f"n{index % 90}\x01{index}" for index in range(3000)))
    data = b""
    for text in texts:
        data += one(text, physical_offset=BASE + len(data))
    messages = [message_of(record) for record in decode_records(data)]
    columns = ["keys", "properties", "msgId"]
    assert plain(read(data).batch(columns)) == plain(batch_of_messages(messages, columns))


def test_a_wrong_crc_is_seen_and_nothing_else_changes() -> None:
    """Spec: store.md, section 2.1: over the stored body; an empty one is always right."""
    good = one("TAGS\x01a", b"x" * 50)
    bad = bytearray(one("TAGS\x01a", b"x" * 50, physical_offset=BASE + len(good)))
    bad[100] ^= 1
    empty = one("", b"", physical_offset=BASE + 2 * len(good))
    empty = empty[:8] + b"\x00\x00\x00\x07" + empty[12:]
    records = read(good + bytes(bad) + empty)
    assert records.crc_ok().tolist() == [True, False, True]
    assert len(records.batch(COLUMNS)) == 3


def test_what_is_selected_is_what_is_read() -> None:
    """By flags or by slice, before or after columns were read."""
    data = b""
    for index in range(10):
        data += one(f"KEYS\x01k{index}", physical_offset=BASE + len(data), queue_id=index)
    records = Records(data, BASE, walk(data, BASE).positions)
    some = records.select(records.queue_id % 3 == 0).select(slice(1, None))
    assert some.batch(["keys"]).column("keys").to_pylist() == ["k3", "k6", "k9"]
    assert some.queue_id.tolist() == [3, 6, 9]
    assert records.select(np.zeros(10, np.bool_)).batch(COLUMNS).num_rows == 0


def test_batches_are_bounded_by_rows_by_bytes_and_by_what_bodies_grow_to() -> None:
    """A small record may hold a body of megabytes."""
    data = b""
    bomb = zlib.compress(bytes(1 << 20))
    for index in range(20):
        changes = {"physical_offset": BASE + len(data), "sys_flag": 0x301 if index > 9 else 0}
        data += one("", bomb if index > 9 else b"x" * 100, **changes)
    records = read(data)

    def rows(columns: Sequence[str], **bounds: int) -> list[int]:
        return [batch.num_rows for batch in records.batches(columns, **bounds)]

    assert rows(["topic"]) == [20]
    assert rows(["topic"], rows=8) == [8, 8, 4]
    assert rows(["topic"], size=500) == [2, 2, 2, 2, 2, *[1] * 10]
    assert rows(["body"], size=4 << 20) == [14, 4, 2]
    assert sum(rows(["body"], size=1)) == 20


def test_no_columns_still_count_rows() -> None:
    """`count()` asks for nothing."""
    assert read(one("")).batch([]).num_rows == 1
    assert batch_of_messages([], ["topic"]).num_rows == 0
    with pytest.raises(ProtocolViolation, match="no such column: nope"):
        read(one("")).batch(["nope"])


def test_the_types_are_sparks() -> None:
    """What the schema of a reader is compared with."""
    assert str(ARROW["bornTimestamp"]) == "timestamp[us, tz=UTC]"
    assert ARROW["properties"] == pa.map_(pa.string(), pa.string())


def test_an_end_inside_the_last_head_is_no_record() -> None:
    """A walk over nothing finds nothing."""
    assert walk(b"", 0).tail is ChainEnding.MORE
    assert len(read(b"")) == 0
    assert read(b"").batch(COLUMNS).num_rows == 0
