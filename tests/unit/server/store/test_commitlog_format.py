"""The bytes of the commit log. Spec: store.md, sections 2.1 to 2.4 and 15.2."""

import base64
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ConfigurationError, CorruptRecord
from rmq_ha.base.model.message import Address, DispatchRequest
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.runs.maker import walk
from rmq_ha.base.store_format.commitlog import (
    BLANK,
    RECORD_OVERHEAD,
    UNREADABLE,
    Record,
    body_crc,
    decode_record,
    decode_records,
    dispatch_request_at,
    encode_blank,
    encode_record,
    record_size_at,
    row_at,
    store_timestamp_of,
)
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.base.store_format.record_checks import record_fits

LEVELS = [1000, 2000]
SAMPLE = bytes.fromhex(
    "00000061daa320a700000000000000030000000700000000000000000000000000022 9be00000000"
    "000001a1fcfcb1867f0000010000c822000001a1fcfcb1867f00000100009be700000002"
    "00000000000000000000000006546f706963410000".replace(" ", "")
)

addresses = st.builds(
    Address,
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(0, 65535),
)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=30)
records = st.builds(
    Record,
    size=st.just(0),
    body_crc=st.just(0),
    queue_id=ints,
    flag=ints,
    queue_offset=longs,
    physical_offset=longs,
    sys_flag=st.integers(0, 0xFF),
    born_timestamp=longs,
    born_host=addresses,
    store_timestamp=longs,
    store_host=addresses,
    reconsume_times=ints,
    prepared_transaction_offset=longs,
    body=st.binary(max_size=200),
    topic=texts,
    properties_string=texts,
)


def test_the_sample_of_the_notes():
    """An empty body, a flag, a record of 97 bytes."""
    record = decode_record(SAMPLE)
    assert record.size == len(SAMPLE) == 97
    assert (record.topic, record.queue_id, record.flag, record.body) == ("TopicA", 3, 7, b"")
    assert str(record.born_host) == "127.0.0.1:51234"
    assert record.reconsume_times == 2
    assert record.msg_id == "7F00000100009BE700000000000229BE"
    assert encode_record(record) == SAMPLE
    assert store_timestamp_of(SAMPLE) == record.store_timestamp


@pytest.mark.parametrize(("topic", "properties"), [(128, 0), (0, 32768), (127, 32767)])
def test_what_does_not_fit_its_length_field_is_refused(topic, properties):
    record = decode_record(SAMPLE)._replace(topic="t" * topic, properties_string="p" * properties)
    if topic > 127 or properties > 32767:
        with pytest.raises(ValueError, match=f"topic of {topic} or properties of {properties}"):
            encode_record(record)
    else:
        assert decode_record(encode_record(record)).topic == record.topic


def test_vectors():
    """CRCs and a blank as the Java broker writes them."""
    assert body_crc(b"batch body 0") == 2055081561
    assert body_crc(b"x0") == 15126957
    assert body_crc(b"") == 0
    assert encode_blank(397).hex() == "0000018dcbd43194"


def test_java_records(tmp_path, java):
    """Every record of a Java store decodes to what Java says, and encodes to the same bytes."""
    java.unpack("clean", tmp_path / "store")
    expected = json.loads((java.fixtures / "clean.expected.json").read_text())
    for wanted in expected["records"]:
        start = wanted["offset"] - wanted["offset"] % 65536
        data = (tmp_path / "store" / "commitlog" / f"{start:020d}").read_bytes()
        position = wanted["offset"] - start
        record = decode_record(data, position, check_crc=True)
        stored = data[position : position + record.size]
        assert hashlib.sha256(stored).hexdigest() == wanted["recordSha256"]
        assert encode_record(record) == stored
        assert record.size == wanted["size"]
        assert record.body_crc == wanted["bodyCRC"]
        for ours, theirs in NAMES.items():
            assert getattr(record, ours) == wanted[theirs], ours
        assert record.born_host == java_address(wanted["bornHost"])
        assert record.store_host == java_address(wanted["storeHost"])
        assert len(record.body) == wanted["bodyLength"]
        if "bodyBase64" in wanted:
            assert record.body == base64.b64decode(wanted["bodyBase64"])
        assert record.properties == wanted["properties"]
        request = dispatch_request_at(data, position, len(data), LEVELS, check_crc=True)
        assert isinstance(request, DispatchRequest)
        assert request.topic == wanted["topic"]
        assert request.queue_offset == wanted["queueOffset"]
        assert request.physical_offset == wanted["offset"]
        assert request.keys == (wanted.get("keys") or "")
        assert request.uniq_key == (wanted.get("uniqKey") or "")
        assert request.store_timestamp == wanted["storeTimestamp"]
        assert request.sys_flag == wanted["sysFlag"]
        assert store_timestamp_of(stored) == wanted["storeTimestamp"]
    for blank in expected["blanks"]:
        start = blank["offset"] - blank["offset"] % 65536
        data = (tmp_path / "store" / "commitlog" / f"{start:020d}").read_bytes()
        assert dispatch_request_at(data, blank["offset"] - start, len(data), LEVELS) == BLANK


def java_address(text):
    host, _, port = text.rpartition(":")
    return Address.parse(host.strip("[]"), int(port))


NAMES = {
    "topic": "topic",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "physical_offset": "physicalOffset",
    "flag": "flag",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "store_timestamp": "storeTimestamp",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
    "properties_string": "propertiesRaw",
    "msg_id": "msgId",
}


@given(records)
def test_round_trip(record):
    """What is encoded is decoded; size, CRC and the IPv6 bits are filled in."""
    data = encode_record(record)
    decoded = decode_record(b"\0" * 3 + data, 3, check_crc=True)
    assert decoded.size == len(data)
    assert decoded._replace(size=0, body_crc=0, sys_flag=0) == record._replace(sys_flag=0)
    assert decoded.sys_flag & ~0x30 == record.sys_flag & ~0x30
    assert decode_records(data + data) == [decoded, decoded]


@given(records.filter(lambda record: record.topic), st.integers(0, 9), st.data())
def test_both_readers_say_the_same(record, before, data):
    """Wherever in a buffer it stands; and neither takes a record for whole that is cut anywhere."""
    record = record._replace(topic=record.topic.replace("/", "").replace("\0", "") or "T")
    whole = encode_record(record)
    buffer, end = b"\xff" * before + whole + b"\xff" * 9, before + len(whole)
    found = dispatch_request_at(buffer, before, end, LEVELS, check_crc=True)
    if record.topic not in (".", ".."):
        fields = "topic queue_id physical_offset store_timestamp queue_offset"
        for field in [*fields.split(), "prepared_transaction_offset", "properties"]:
            assert getattr(found, field) == getattr(record, field)
        assert (found.size, found.sys_flag & ~0x30) == (len(whole), record.sys_flag & ~0x30)
    assert store_timestamp_of(whole) == record.store_timestamp
    assert record_size_at(buffer, before, end) == len(whole)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert dispatch_request_at(buffer, before, before + cut, LEVELS) == UNREADABLE
    with pytest.raises(CorruptRecord):
        decode_record(buffer[: before + cut], before)
    assert record_size_at(buffer, before, before + cut) == (len(whole) if cut >= 8 else 0)


@pytest.mark.parametrize("at", range(4, 8))
def test_nothing_without_the_magic_is_a_record(at):
    """Whatever else fits."""
    data = bytearray(SAMPLE)
    data[at] ^= 1
    with pytest.raises(CorruptRecord, match="no message magic"):
        decode_record(bytes(data))
    assert dispatch_request_at(bytes(data), 0, len(data), LEVELS) == UNREADABLE


@pytest.mark.parametrize("zeros", [511, 512, 900])
def test_a_sector_of_zeros_in_the_properties_is_what_a_crash_left(zeros):
    """No checksum covers them; less than a sector may be somebody's own."""
    record = decode_record(SAMPLE)._replace(properties_string="K\x01" + "v" * 2000)
    data = bytearray(encode_record(record))
    data[-1000 : -1000 + zeros] = bytes(zeros)
    data = bytes(data)
    found = dispatch_request_at(data, 0, len(data), LEVELS, check_crc=True)
    assert (found == UNREADABLE) is (zeros >= 512)
    found = dispatch_request_at(data, 0, len(data), LEVELS)
    assert found.size == len(data)


@given(st.binary(max_size=300))
def test_anything_is_a_record_or_corrupt(data):
    """Bytes from anywhere give a value or the one error."""
    try:
        decode_record(data)
    except CorruptRecord:
        pass
    found = dispatch_request_at(data, 0, len(data), LEVELS, check_crc=True)
    assert isinstance(found, int)


@given(records, st.data())
def test_a_damaged_record(record, data):
    """Flipped bytes and cuts give a value or the one error, in both decoders."""
    good = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for damaged in (bytes(good), bytes(good[:cut])):
        try:
            decode_record(damaged, check_crc=True)
        except CorruptRecord:
            pass
        dispatch_request_at(damaged, 0, len(damaged), LEVELS, check_crc=True)


@given(records, st.booleans(), st.data())
def test_ordinary_records_are_read_as_unusual_ones_are(record, checks_crc, data):
    """The short way changes nothing: not for what is sound, and not for what is damaged."""
    record = record._replace(sys_flag=record.sys_flag & ~0x30)
    whole = bytearray(b"\xff" * 3 + encode_record(record) + b"\xff" * 3)
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: len(whole) - data.draw(st.integers(0, 4))])
    place = record.physical_offset
    row = row_at(damaged, 3, len(damaged), LEVELS, checks_crc)
    rows = walk(damaged, 3, place, 1, 1, checks_crc, 0)
    if rows is not None:
        assert list(rows) == [row]
    elif not isinstance(row, int):
        is_utf_8 = "\ufffd" not in row[0] + row[11]  # the native maker leaves others out
        assert row[2] != place or row[9] & 0x30 or row[0] == SCHEDULE_TOPIC or not is_utf_8


def test_a_torn_record_is_unreadable():
    """The second half of a record is zero: nothing that dispatch could use."""
    torn = SAMPLE[:50] + bytes(len(SAMPLE) - 50)
    assert dispatch_request_at(torn, 0, len(torn), LEVELS) in (UNREADABLE, len(SAMPLE))
    assert dispatch_request_at(SAMPLE, 0, len(SAMPLE) - 1, LEVELS) == UNREADABLE
    assert dispatch_request_at(bytes(200), 0, 200, LEVELS) == UNREADABLE


def test_a_wrong_crc():
    """Only who asks for the check hears of it."""
    record = decode_record(SAMPLE)._replace(body=b"body")
    data = bytearray(encode_record(record))
    data[88] ^= 1
    with pytest.raises(CorruptRecord, match="CRC"):
        decode_record(bytes(data), check_crc=True)
    assert dispatch_request_at(bytes(data), 0, len(data), LEVELS, True) == UNREADABLE
    assert isinstance(dispatch_request_at(bytes(data), 0, len(data), LEVELS), DispatchRequest)


@pytest.mark.parametrize(
    ("delay", "code"), [("1", 6000), ("2", 7000), ("9", 7000), ("0", 2598919), ("x", None)]
)
def test_the_schedule_topic_has_times_for_tags(delay, code):
    """Delivery time by level, capped; level 0 is no delay; a word is no level."""
    record = decode_record(SAMPLE)._replace(
        topic="SCHEDULE_TOPIC_XXXX",
        store_timestamp=5000,
        properties_string=f"DELAY\x01{delay}\x02TAGS\x01TagA",
    )
    data = encode_record(record)
    found = dispatch_request_at(data, 0, len(data), LEVELS)
    if code is None:
        assert found == len(data)
    else:
        assert found.tags_code == code


@pytest.mark.parametrize(
    ("delay", "is_level"),
    [
        ("2147483647", True),
        ("2147483648", False),
        ("-2147483648", True),
        ("-2147483649", False),
    ],
)
def test_a_delay_level_is_a_number_of_32_bits_as_in_java(delay, is_level):
    """What Java cannot parse it does not dispatch either: queues of a mixed pair stay equal."""
    record = decode_record(SAMPLE)._replace(
        topic="SCHEDULE_TOPIC_XXXX", properties_string=f"DELAY\x01{delay}"
    )
    data = encode_record(record)
    found = dispatch_request_at(data, 0, len(data), LEVELS)
    assert (found != len(data)) is is_level


@pytest.mark.parametrize("room", [*range(7, 10), RECORD_OVERHEAD - 1, RECORD_OVERHEAD, 200])
def test_a_blank_ends_a_file_however_little_room_it_has(room):
    """Eight bytes are the least, and no damage: a recovery goes on with the next file."""
    data = b"x" * 5 + (encode_blank(room) + b"\xff" * room)[:room]
    found = dispatch_request_at(data, 5, len(data), LEVELS, check_crc=True)
    assert found == (BLANK if room >= 8 else UNREADABLE)


def test_a_record_that_ends_with_its_file_is_whole():
    """With hosts of either kind, and one byte less is a torn one."""
    for host in (Address(b"\x7f\0\0\1", 1), Address(b"\x7f" * 16, 1)):
        data = encode_record(decode_record(SAMPLE)._replace(born_host=host))
        found = dispatch_request_at(data, 0, len(data), LEVELS, check_crc=True)
        assert isinstance(found, DispatchRequest)
        assert found.size == len(data)
        assert dispatch_request_at(data, 0, len(data) - 1, LEVELS, True) == UNREADABLE


@pytest.mark.parametrize("topic", ["../../etc", "a/b", "", "..", "a\0b"])
def test_a_topic_that_would_leave_its_directory_is_skipped(topic):
    """A record from a peer must not choose paths."""
    data = encode_record(decode_record(SAMPLE)._replace(topic=topic))
    assert dispatch_request_at(data, 0, len(data), LEVELS) == len(data)


def test_a_topic_of_the_greatest_size_is_read():
    """As it is written: one byte has its length, and Java reads 128 as a negative one."""
    data = encode_record(decode_record(SAMPLE)._replace(topic="t" * 127))
    assert decode_record(data).topic == "t" * 127
    assert dispatch_request_at(data, 0, len(data), LEVELS).topic == "t" * 127
    at = data.index(b"\x7ft")
    longer = data[:at] + b"\x80t" + data[at + 1 :]
    longer = len(longer).to_bytes(4, "big") + longer[4:]
    assert dispatch_request_at(longer, 0, len(longer), LEVELS) == UNREADABLE


def test_the_least_record_that_adds_up_has_no_topic_and_is_skipped():
    """Although nothing is behind it: whoever goes on at its end finds the next one."""
    bare = decode_record(SAMPLE)._replace(body=b"", topic="", properties_string="")
    data = encode_record(bare)
    assert dispatch_request_at(data, 0, len(data), LEVELS) == len(data) == RECORD_OVERHEAD


def test_delay_levels():
    """Numbers with a unit, single blanks between."""
    assert parse_delay_levels("1s 5m 2h 1d") == [1000, 300000, 7200000, 86400000]
    assert parse_delay_levels("999999999999999s") == [999_999_999_999_999_000]
    for wrong in ("", "1s  2s", "5", "xs", "1w", "s", "1000000000000000s"):
        with pytest.raises(ConfigurationError, match="messageDelayLevel"):
            parse_delay_levels(wrong)


@pytest.mark.parametrize("size", [0, 1, 32766, 32767])
def test_properties_of_any_length_that_fits(size):
    """Up to the largest signed short, as Java has it; and one byte more is no record's length."""
    place = Address.parse("127.0.0.1", 1)
    text = "a" * size
    data = encode_record(
        Record(0, 0, 3, 0, 5, 70, 0, 1, place, 2, place, 0, 0, b"body", "TopicA", text)
    )
    assert decode_record(data, check_crc=True).properties_string == text
    request = dispatch_request_at(data, 0, len(data), LEVELS, True)
    assert (request.physical_offset, request.size) == (70, len(data))
    assert record_fits(data, 70, len(data))


def test_properties_that_are_longer_than_a_short():
    """The field could say so as an unsigned one; Java would read it as negative."""
    place = Address.parse("127.0.0.1", 1)
    data = bytearray(
        encode_record(Record(0, 0, 3, 0, 5, 70, 0, 1, place, 2, place, 0, 0, b"", "T", "a" * 32767))
    )
    data[len(data) - 32769 : len(data) - 32767] = (32768).to_bytes(2, "big")
    data += b"a"
    data[:4] = len(data).to_bytes(4, "big")
    with pytest.raises(CorruptRecord, match="do not add up"):
        decode_record(bytes(data))
    assert dispatch_request_at(bytes(data), 0, len(data), LEVELS) == UNREADABLE
    assert not record_fits(bytes(data), 70, len(data))
