"""Columns of a handful of records, each unlike the others, and of records that are all alike."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rmq_ha.base.model.message import Address
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.lake.scan.log.columns import COLUMNS
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.walk import walk
from tests.unit.lake.scan.parts_kit import log_of, records_of

BASE = 1 << 40
ZLIB = 0x301
V4 = [Address.parse("10.0.0.1", 10911), Address.parse("10.0.0.2", 80)]
V6 = [Address.parse("2001:db8::1", 10911), Address.parse("2001:db8::2", -1)]
BODIES = [b"plain", zlib.compress(b"first" * 9), b"no zlib", b"", zlib.compress(b"second" * 20)]
INFLATED = [b"plain", b"first" * 9, b"no zlib", b"", b"second" * 20]
FLAGS = [0, ZLIB, ZLIB | 8, 4, ZLIB | 8]
HOSTS = {
    "all kinds": [(V4[0], V6[0]), (V6[1], V4[0]), (V4[1], V4[1]), (V6[0], V6[1]), (V4[0], V4[0])],
    "v4": [(V4[0], V4[1])] * 5,
    "v4, several": [(one, V4[0]) for one in (V4 * 3)[:5]],
    "v6": [(V6[0], V6[1])] * 5,
}


def rows_of(hosts: Sequence[tuple[Address, Address]]) -> list[dict[str, Any]]:
    return [
        {
            "queue_id": 1000 + at,
            "flag": -2000 - at,
            "queue_offset": (1 << 40) + at,
            "sys_flag": FLAGS[at],
            "born_timestamp": (1 << 41) + at,
            "born_host": born,
            "store_timestamp": (1 << 42) + at,
            "store_host": stored,
            "reconsume_times": 3000 + at,
            "prepared_transaction_offset": (1 << 43) + at,
            "body": BODIES[at],
            "topic": "T" * (at + 1),
            "properties_string": ["", "KEYS\x01k", "TAGS\x01t", "UNIQ_KEY\x01u", ""][at],
        }
        for at, (born, stored) in enumerate(hosts)
    ]


def read(*given: dict[str, Any]) -> tuple[Records, list[Record]]:
    data = log_of(*given, base=BASE)
    found = walk(data, BASE)
    return Records(data, BASE, found.positions, found.shape), decode_records(data)


@pytest.mark.parametrize("hosts", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[::-1]])
def test_each_column_says_what_the_codec_says(
    hosts: Sequence[tuple[Address, Address]], columns: Sequence[str]
) -> None:
    found, plain = read(*rows_of(hosts))
    batch = found.batch(columns, "b")
    batch.validate(full=True)
    told = {name: batch.column(name) for name in columns}
    for name in ("bornTimestamp", "storeTimestamp"):
        told[name] = told[name].cast("int64")
    said = {name: column.to_pylist() for name, column in told.items()}
    sizes = [one.size for one in plain]
    wanted: dict[str, list[Any]] = {
        "topic": [one.topic for one in plain],
        "queueId": [one.queue_id for one in plain],
        "queueOffset": [one.queue_offset for one in plain],
        "commitLogOffset": [one.physical_offset for one in plain],
        "msgId": [one.properties.get("UNIQ_KEY") or one.msg_id for one in plain],
        "keys": [None, "k", None, None, None],
        "tags": [None, None, "t", None, None],
        "body": INFLATED,
        "properties": [list(one.properties.items()) for one in plain],
        "flag": [one.flag for one in plain],
        "sysFlag": [
            one.sys_flag & ~1 if at in (1, 4) else one.sys_flag for at, one in enumerate(plain)
        ],
        "bornTimestamp": [one.born_timestamp * 1000 for one in plain],
        "bornHost": [str(one.born_host) for one in plain],
        "storeTimestamp": [one.store_timestamp * 1000 for one in plain],
        "storeHost": [str(one.store_host) for one in plain],
        "bodyCRC": [one.body_crc for one in plain],
        "reconsumeTimes": [one.reconsume_times for one in plain],
        "brokerName": ["b"] * 5,
        "storeSize": sizes,
        "crcOk": [True] * 5,
        "uniqKey": [None, None, None, "u", None],
        "preparedTransactionOffset": [one.prepared_transaction_offset for one in plain],
    }
    assert said.keys() == wanted.keys()
    for name in columns:
        assert said[name] == wanted[name], name
    assert found.stored_sys_flag.tolist() == [one.sys_flag for one in plain]
    assert found.body_length.tolist() == [len(body) for body in BODIES]
    assert found.sizes.tolist() == sizes
    assert [bytes(body) for body in found.bodies()] == INFLATED
    assert found.offset_msg_id.to_pylist() == [one.msg_id for one in plain]
    unique = found.select(slice(3, 4))
    assert unique.msg_id.to_pylist() == ["u"]


@pytest.mark.parametrize("hosts", HOSTS.values(), ids=HOSTS)
def test_records_without_a_known_shape_find_it_out(
    hosts: Sequence[tuple[Address, Address]],
) -> None:
    found, plain = read(*rows_of(hosts))
    for some in (slice(1, None), np.array([False, True, True, True, True])):
        mine = Records(found.buffer, BASE, found.positions).select(some)
        known = found.select(some)
        for one in (mine, known):
            assert len(one) == 4
            assert one.topics().to_pylist() == [each.topic for each in plain[1:]]
            assert one.store_host.to_pylist() == [str(each.store_host) for each in plain[1:]]


@pytest.mark.parametrize("asked", [["crcOk"], ["body", "crcOk"], ["crcOk", "body"]])
@pytest.mark.parametrize("is_asked_before", [False, True])
def test_a_body_that_was_changed_is_seen_and_an_empty_one_has_no_crc(
    asked: list[str], is_asked_before: bool
) -> None:
    bodies = [b"one", b"two", b"", b"four"]
    data = bytearray(log_of(*({"body": body} for body in bodies)))
    at = walk(bytes(data), 0).positions
    data[at[1] + 88] ^= 1
    data[at[2] + 11] ^= 1
    found = Records(bytes(data), 0, at)
    if is_asked_before:
        assert found.crc_ok().tolist() == [True, False, True, True]
    batch = found.batch(asked)
    assert batch.column("crcOk").to_pylist() == [True, False, True, True]
    if "body" in asked:
        assert batch.column("body").to_pylist() == [b"one", b"uwo", b"", b"four"]


def test_a_body_ends_before_the_length_of_the_topic() -> None:
    """Though that byte would make a whole one of it."""
    whole = zlib.compress(b"bod")
    topic = "T" * whole[-1]
    (body,) = records_of({"body": whole[:-1], "sys_flag": ZLIB, "topic": topic}).bodies()
    assert bytes(body) == whole[:-1]
    (body,) = records_of({"body": whole, "sys_flag": ZLIB, "topic": topic}).bodies()
    assert body == zlib.decompress(whole)


@pytest.mark.parametrize(
    ("tags", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ({"a"}, [0, 2]),
        ({"a", "b"}, [0, 1, 2]),
        ({"x"}, []),
        (set(), []),
    ],
)
def test_messages_of_tags_are_picked(tags: set[str] | None, numbers: list[int]) -> None:
    texts = ["TAGS\x01a", "TAGS\x01b", "TAGS\x01a", ""]
    found = records_of(
        *({"queue_id": at, "properties_string": text} for at, text in enumerate(texts))
    )
    wanted = None if tags is None else frozenset(tags)
    assert found.tagged(wanted).queue_id.tolist() == numbers
    assert len(records_of().tagged(wanted)) == 0
    assert len(found.select(slice(0, 0)).tagged(frozenset("a"))) == 0
    alike = found.select(np.array([True, False, True, False]))
    assert alike.tagged(frozenset("a")) is alike


# Batches


def sizes(found: Records, columns: Sequence[str], **bounds: int) -> list[int]:
    batches = list(found.batches(columns, **bounds))
    if "queueId" in columns:  # each once, in order
        numbers = [number for batch in batches for number in batch.column("queueId").to_pylist()]
        assert numbers == list(range(len(found)))
    return [batch.num_rows for batch in batches]


def test_a_batch_has_no_more_rows_and_bytes_than_are_asked_for() -> None:
    found = records_of(*({"queue_id": at} for at in range(10)))
    size = int(found.sizes[0])
    columns = ["queueId"]
    assert sizes(found, columns) == [10]
    assert sizes(found, columns, rows=4) == [4, 4, 2]
    assert sizes(found, columns, rows=5) == [5, 5]
    assert sizes(found, columns, size=3 * size) == [3, 3, 3, 1]
    assert sizes(found, columns, size=3 * size - 1) == [2] * 5
    assert sizes(found, columns, size=1) == [1] * 10
    assert sizes(records_of(), columns) == []


@pytest.mark.parametrize("asked", [["body"], ["sysFlag"], ["body", "sysFlag", "crcOk"], []])
def test_a_batch_has_no_more_of_inflated_bodies_than_is_asked_for(asked: list[str]) -> None:
    """Two bodies of 1,000 bytes fill 2,000; small ones and what is no zlib take nothing."""
    given = []
    for at in range(12):
        is_small = at in (0, 6)
        body = b"small" if is_small else bytes([at]) * 1000
        packed = body if at in (0, 3) else zlib.compress(body)
        given.append({"queue_id": at, "sys_flag": ZLIB, "body": packed})
    given[3]["sys_flag"] = ZLIB  # says so, and is none
    given[3]["body"] = b"no zlib"
    found = records_of(*given)
    columns = ["queueId", *asked]
    if not asked:
        assert sizes(found, columns, size=2000) == [12]
        return
    # 1 and 2, with 0 before and 3 behind them; 4 and 5; 6 of five bytes and 7; ...
    assert sizes(found, columns, size=2000) == [4, 2, 2, 2, 2]
    assert sizes(found, columns, size=2005) == [4, 3, 2, 2, 1]
    assert sizes(found, columns, size=1999) == [2, 2, 1, 2, 1, 1, 1, 1, 1]
    batches = list(found.batches(columns, size=2000))
    if "body" in asked:
        bodies = [body for batch in batches for body in batch.column("body").to_pylist()]
        assert bodies == [
            b"small" if at in (0, 6) else b"no zlib" if at == 3 else bytes([at]) * 1000
            for at in range(12)
        ]
    if "sysFlag" in asked:
        flags = [flag for batch in batches for flag in batch.column("sysFlag").to_pylist()]
        assert flags == [ZLIB if at in (0, 3) else ZLIB & ~1 for at in range(12)]


def test_batches_without_a_column_count_rows() -> None:
    found = records_of(*({"queue_id": at} for at in range(3)))
    assert sizes(found, [], rows=2) == [2, 1]
