"""The checkers' own reader of store files."""

import struct
from zlib import crc32

from rmq_ha.testing.images import LogImage, LogRecord, QueueImage, is_seen_as, parse_record
from tests.sim_kit.checkers import check_numbering, check_queues, compare_logs, last_lives

# Recorded from a Java broker: empty body, no properties, TopicA, queue 3.
# Spec: store.md, section 2.1.
JAVA = bytes.fromhex(
    "00000061 daa320a7 00000000 00000003 00000007 0000000000000000 00000000000229be 00000000"
    "000001a1fcfcb186 7f000001 0000c822 000001a1fcfcb186 7f000001 00009be7 00000002"
    "0000000000000000 00000000 06 546f70696341 0000"
)


def image_of(data, start=0, file_size=1000):
    return LogImage(start, data, start + len(data), file_size)


def record_at(offset, queue_offset=0):
    return JAVA[:20] + struct.pack(">qq", queue_offset, offset) + JAVA[36:]


def test_a_record_that_java_wrote():
    """All fields of a recorded record come out."""
    assert parse_record(JAVA, 0, len(JAVA)) == LogRecord(
        141758, 97, "TopicA", 3, 0, "", "", 0x1A1FCFCB186
    )


def test_what_is_no_record():
    """Short, zero and damaged bytes are none."""
    assert parse_record(JAVA, 0, 96) is None
    assert parse_record(bytes(200), 0, 200) is None
    assert parse_record(JAVA[:90] + b"\xff" + JAVA[91:], 0, 97) is None


def test_a_record_that_nobody_can_tell_from_another():
    """Flag, transaction, stamps, hosts and properties are covered by nothing; all else is."""
    body, properties = b"the body", b"TAGS\x01red\x02"
    size = len(JAVA) + len(body) + len(properties)
    crc = crc32(body) & 0x7FFFFFFF
    good = struct.pack(">iII", size, 0xDAA320A7, crc) + JAVA[12:84]
    good += struct.pack(">i", len(body)) + body + JAVA[88:95]
    good += struct.pack(">h", len(properties)) + properties
    assert parse_record(good, 0, size)
    unseen = set()
    for at in range(size):
        found = bytearray(good)
        found[at] ^= 0x80
        if is_seen_as(good, bytes(found)):
            unseen.add(at)
    stamps_and_hosts, properties_at = range(40, 84), size - len(properties)
    assert unseen == {
        *range(16, 20),
        *range(36, 40),
        *stamps_and_hosts,
        *range(properties_at, size),
    }
    assert is_seen_as(good, good)
    assert is_seen_as(good, good[:-4] + bytes(4))
    assert not is_seen_as(good, good + b"\0")
    assert not is_seen_as(good, bytes(size))
    v6 = good[:39] + b"\x10" + good[40:]
    assert not is_seen_as(good, v6)


def test_an_empty_body_has_no_checksum_to_miss():
    """Whatever the record says: there is nothing that it could be compared with."""
    assert is_seen_as(JAVA, JAVA[:8] + b"\1" + JAVA[9:])


def test_records_and_blanks():
    """Reading jumps over a blank to the next file and stops at the first thing that is none."""
    blank = struct.pack(">iI", 103, 0xCBD43194) + bytes(95)
    data = record_at(0) + blank + record_at(200, 1) + bytes(103)
    image = image_of(data, file_size=200)
    assert [record.offset for record in image.records()] == [0, 200]
    assert image.readable_end() == 297


def test_a_record_of_another_place():
    """A stale record that names another offset ends the log."""
    assert list(image_of(record_at(0) + record_at(0)).records())[1:] == []


def test_first_difference():
    """Logs are compared where both have bytes."""
    assert compare_logs(image_of(b"abcdef"), image_of(b"cdefgh", start=2)) is None
    assert compare_logs(image_of(b"abcdef"), image_of(b"cxef", start=2)) == 3
    assert compare_logs(image_of(b"ab"), image_of(b"xy", start=500)) is None


def test_numbering():
    """A gap and a repetition are both seen; only a topic that was made again begins anew."""
    image = image_of(record_at(0, 5) + record_at(97, 6))
    assert check_numbering(image.records(), {}) is None
    again = list(image_of(record_at(0, 5) + record_at(97, 0)).records())
    assert check_numbering(again, {"TopicA": 97}) is None
    for number in (0, 5, 7):
        records = list(image_of(record_at(0, 5) + record_at(97, number)).records())
        assert f"{number} after 5" in check_numbering(records, {})
        assert number == 0 or f"{number} after 5" in check_numbering(records, {"TopicA": 97})


def test_queues():
    """A unit that is missing, wrong or too many is seen."""
    records = list(image_of(record_at(0, 5) + record_at(97, 6)).records())
    key = ("TopicA", 3)
    lives = {key: records}

    def problem(queues):
        return check_queues(records, lives, queues, 0)

    good = {5: (0, 97, 0), 6: (97, 97, 0)}
    assert problem({key: QueueImage(good, 7)}) is None
    assert "unit 6 is None" in problem({key: QueueImage({5: good[5]}, 6)})
    assert "unit 5 is None" in problem({})
    more = good | {7: (194, 97, 0)}
    assert "goes on to 8" in problem({key: QueueImage(more, 8)})
    other = QueueImage({5: (0, 97, 0)}, 6)
    assert "no such record" in problem({key: QueueImage(good, 7), ("TopicB", 3): other})


def test_the_last_life_of_a_topic():
    """Of a topic made again, what lies behind its deletion and the last beginning counts."""
    records = list(image_of(b"".join(record_at(97 * n, n % 2) for n in range(4))).records())
    key = ("TopicA", 3)
    assert [r.offset for r in last_lives(records[:2], {})[key]] == [0, 97]
    assert [r.offset for r in last_lives(records, {"TopicA": 97})[key]] == [194, 291]
    assert last_lives(records, {"TopicA": 388}) == {}
