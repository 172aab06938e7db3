"""
The CommitLog file: records one after the other, and a blank where the next one did not fit.

==========  ====  =====  ======================================================================
position    size  type   meaning (B: bytes of the born host's address, S: of the store host's)
==========  ====  =====  ======================================================================
0           4     int32  size of the whole record, bytes
4           4     int32  magic: a message, or a blank that ends the file
8           4     int32  CRC-32 of the body without its sign bit; 0 for an empty body
12          4     int32  queue id
16          4     int32  flag, the producer's
20          8     int64  queue offset; 0 for prepared and rolled-back messages
28          8     int64  physical offset of this record
36          4     int32  sysFlag; bits 4 and 5 tell which hosts are IPv6
40          8     int64  born timestamp, ms
48          B+4          born host: 4 or 16 bytes, port as int32
52+B        8     int64  store timestamp, ms
60+B        S+4          store host
64+B+S      4     int32  times that a consumer gave it back
68+B+S      8     int64  physical offset of the half message of a committed transaction
76+B+S      4     int32  length of the body n
80+B+S      n            body
80+B+S+n    1     int8   length of the topic t
81+B+S+n    t            topic, UTF-8
+ t         2     int16  length of the properties p
+ 2         p            properties, UTF-8
==========  ====  =====  ======================================================================

Big-endian. Spec: store.md, sections 2.1 to 2.4, 3.1, 5.4 and 6.1.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.flags import BORN_HOST_V6, STORE_HOST_V6
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import Address, DispatchRequest, Row, offset_msg_id
from rmq_ha.base.model.properties import (
    DELAY,
    KEYS,
    MAX_PROPERTIES_SIZE,
    TAGS,
    UNIQ_KEY,
    decode_properties,
)
from rmq_ha.base.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.delay_levels import parse_delay_level
from rmq_ha.base.store_format.timer_times import timer_code

MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
BLANK_SIZE = 8
RECORD_OVERHEAD = 91
MAX_RECORD_SIZE = 64 << 20
"""A record that claims more is damage; remoting frames end at 16 MiB."""
MAX_TOPIC_SIZE = 127
CRC_MASK = 0x7FFFFFFF

BLANK = 0
UNREADABLE = -1

_PREFIX = Struct(">iI")
_SHORT = Struct(">H")
_INT = Struct(">i")
HEADS = tuple(
    Struct(f">iIiiiqqiq{born}siq{store}siiqi")
    for born, store in ((4, 4), (16, 4), (4, 16), (16, 16))
)
"""The formats of the fields before the body, by `sys_flag >> 4 & 3`."""
DISPATCH_HEADS = tuple(
    Struct(f">iIii4xqqi8x{born}x4xq{store}x4x4xqi")
    for born, store in ((4, 4), (16, 4), (4, 16), (16, 16))
)
LOST_SECTOR = bytes(512)
"""
The zeros of a lost sector. Properties with so many zeros are what a crash leaves; the CRC does not
cover them.
"""
_LEAST = DISPATCH_HEADS[0].size
HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
_address = lru_cache(maxsize=1024)(Address)
"""Makes an `Address`, and remembers it, since most records come from few machines."""


class Record(NamedTuple):
    """
    One message as the log holds it.

    :ivar size: size of the whole record in bytes.
    :ivar properties_string: the properties as they are stored; `properties` has them by name.
    """

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Address
    store_timestamp: int
    store_host: Address
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_string: str

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.properties_string)

    @property
    def msg_id(self) -> str:
        """The offsetMsgId. Spec: store.md, section 2.5."""
        return offset_msg_id(self.store_host, self.physical_offset)


def body_crc(body: bytes) -> int:
    """Return the CRC that a record stores for its body; 0 for an empty body."""
    crc: int = crc32(body)
    return crc & CRC_MASK


def encode_blank(room: int) -> bytes:
    """
    Return the head of a blank. The bytes after the head are never read.

    :param room: bytes from the blank to the end of its file, at least 8.
    """
    return _PREFIX.pack(room, BLANK_MAGIC)


def encode_record(record: Record) -> bytes:
    """
    Return the bytes of a record. `size`, `body_crc` and the two IPv6 bits are computed, not taken
    from it.

    :raises ValueError: topic or properties are too long for their length fields.
    """
    topic = record.topic.encode("utf-8", "replace")
    properties = record.properties_string.encode("utf-8", "replace")
    if len(topic) > MAX_TOPIC_SIZE or len(properties) > MAX_PROPERTIES_SIZE:
        raise ValueError(f"topic of {len(topic)} or properties of {len(properties)} bytes")
    born, store = record.born_host, record.store_host
    # Bit 0 and bit 1 of `kind` become the bits BORN_HOST_V6 and STORE_HOST_V6 of sysFlag.
    kind = (born.is_v6 and 1) | (store.is_v6 and 2)
    head = HEADS[kind]
    size = head.size + len(record.body) + 1 + len(topic) + 2 + len(properties)
    return b"".join(
        (
            head.pack(
                size,
                MESSAGE_MAGIC,
                body_crc(record.body),
                record.queue_id,
                record.flag,
                record.queue_offset,
                record.physical_offset,
                record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | kind << 4,
                record.born_timestamp,
                born.ip,
                born.port,
                record.store_timestamp,
                store.ip,
                store.port,
                record.reconsume_times,
                record.prepared_transaction_offset,
                len(record.body),
            ),
            record.body,
            topic_part(topic),
            _SHORT.pack(len(properties)),
            properties,
        )
    )


def topic_part(topic: bytes) -> bytes:
    """Return a topic with its length in front."""
    return bytes((len(topic),)) + topic


def decode_record(buffer: bytes, position: int = 0, *, check_crc: bool = False) -> Record:
    """
    Return the record that starts at `position`.

    :raises CorruptRecord: no record starts there; or, with `check_crc`, the CRC of its body is
        wrong.
    """
    total = len(buffer) - position
    if total < RECORD_OVERHEAD:
        raise CorruptRecord(f"{total} bytes at {position} are too few for a record")
    # The last byte of sysFlag has the IPv6 bits, which decide the length of the fixed part.
    kind = buffer[position + 39] >> 4 & 3
    head = HEADS[kind]
    if total < head.size:
        raise CorruptRecord(f"{total} bytes at {position} are too few for a record")
    values = head.unpack_from(buffer, position)
    size, magic, crc, length = values[0], values[1], values[2], values[16]
    if magic != MESSAGE_MAGIC:
        raise CorruptRecord(f"no message magic at {position}: {magic:08x}")
    if not 0 < size <= total:
        raise CorruptRecord(f"record at {position} claims {size} of {total} bytes")
    cuts = cuts_at(buffer, position + size, position + head.size, length)
    if cuts is None or cuts[3] != position + size:
        raise CorruptRecord(f"the parts of the record at {position} do not add up")
    body_at, topic_at, properties_at, end = cuts
    body = bytes(buffer[body_at : body_at + length])
    if check_crc and length and crc32(body) & CRC_MASK != crc:
        raise CorruptRecord(f"the body of the record at {position} does not match its CRC")
    return Record(
        size,
        crc,
        values[3],
        values[4],
        values[5],
        values[6],
        values[7],
        values[8],
        _address(values[9], values[10]),
        values[11],
        _address(values[12], values[13]),
        values[14],
        values[15],
        body,
        bytes(buffer[topic_at : properties_at - 2]).decode("utf-8", "replace"),
        bytes(buffer[properties_at:end]).decode("utf-8", "replace"),
    )


def decode_records(data: bytes) -> list[Record]:
    """
    Return the records that stand one after the other, as in the body of a pull response.

    :raises CorruptRecord: there are other bytes among them.
    """
    records: list[Record] = []
    position = 0
    while position < len(data):
        record = decode_record(data, position)
        records.append(record)
        position += record.size
    return records


def cuts_at(
    buffer: bytes, limit: int, body_at: int, length: int
) -> tuple[int, int, int, int] | None:
    """
    Return where body, topic text and properties text start, and where the record ends; None if they
    do not fit before `limit`.
    """
    topic_length_at = body_at + length
    if length < 0 or topic_length_at >= limit:
        return None
    topic_size = buffer[topic_length_at]
    properties_at = topic_length_at + 3 + topic_size
    if topic_size > MAX_TOPIC_SIZE or properties_at > limit:
        return None
    (size,) = _SHORT.unpack_from(buffer, properties_at - 2)
    end = properties_at + size
    if end > limit or size > MAX_PROPERTIES_SIZE:
        return None
    return body_at, topic_length_at + 1, properties_at, end


def row_at(
    buffer: bytes,
    position: int,
    limit: int,
    delay_levels: Sequence[int],
    check_crc: bool = False,
) -> Row | int:
    """
    Return what dispatchers and recovery need of any record at `position`.

    It is the general way: `rmq_ha.base.runs` reads many ordinary records at once.

    :param limit: end of the bytes that may be read.
    :param delay_levels: delays of level 1, 2, ... in ms.
    :returns: the row; `BLANK`; `UNREADABLE`; or a positive number, which is the size of a record
        whose parts do not add up or whose topic cannot be a directory.
    """
    available = limit - position
    if available < RECORD_OVERHEAD:
        if available >= BLANK_SIZE and _PREFIX.unpack_from(buffer, position)[1] == BLANK_MAGIC:
            return BLANK
        return UNREADABLE
    values: tuple[int, ...] = DISPATCH_HEADS[0].unpack_from(buffer, position)
    if values[1] != MESSAGE_MAGIC:
        return BLANK if values[1] == BLANK_MAGIC else UNREADABLE
    size = values[0]
    if not RECORD_OVERHEAD <= size <= available:
        return UNREADABLE
    body_at = position + _LEAST
    if kind := values[6] >> 4 & 3:
        head = DISPATCH_HEADS[kind]
        if size < head.size:
            return UNREADABLE
        values = head.unpack_from(buffer, position)
        body_at = position + head.size
    # A record that ends elsewhere than it says is skipped by its size; one whose size cannot be
    # trusted is unreadable, and the reader has to search.
    cuts = cuts_at(buffer, position + size, body_at, values[9])
    if cuts is None:
        return UNREADABLE
    body_at, topic_at, properties_at, end = cuts
    if end != position + size:
        return size
    if check_crc and values[9]:
        body = memoryview(buffer)[body_at : topic_at - 1]
        if crc32(body) & CRC_MASK != values[2]:
            return UNREADABLE
    topic = directory_name(buffer[topic_at : properties_at - 2])
    if topic is None:
        return size
    stored = buffer[properties_at:end]
    if check_crc and LOST_SECTOR in stored:
        return UNREADABLE
    text = stored.decode("utf-8", "replace")
    properties = decode_properties(text) if text else {}
    code = code_of(topic, properties, values[7], delay_levels)
    if code is None:
        return size
    keys, uniq_key = properties.get(KEYS, ""), properties.get(UNIQ_KEY, "")
    return (
        topic, values[3], values[5], size, code, values[7], values[4], keys, uniq_key, values[6],
        values[8], text,
    )  # fmt: skip


def dispatch_request_at(
    buffer: bytes,
    position: int,
    limit: int,
    delay_levels: Sequence[int],
    check_crc: bool = False,
) -> DispatchRequest | int:
    """Return the same as `row_at`, but a row as an object with named fields."""
    row = row_at(buffer, position, limit, delay_levels, check_crc)
    return row if isinstance(row, int) else DispatchRequest._make(row)


def code_of(
    topic: str, properties: dict[str, str], store_timestamp: int, delay_levels: Sequence[int]
) -> int | None:
    """
    Return the number that the consume queue stores for a record: the hash of the tag, or the
    delivery time in ms. In the timer topic it may have the bits of `timer_times`, too.

    :returns: None if the record is in the schedule topic and its DELAY is no number.

    Spec: store.md, section 3.1.
    """
    if topic == SCHEDULE_TOPIC and DELAY in properties:
        level = parse_delay_level(properties[DELAY])
        if level is None:
            return None
        if level > 0:
            level = min(level, len(delay_levels))
            return store_timestamp + (delay_levels[level - 1] if level else 1000)
    if topic == TIMER_TOPIC:
        code = timer_code(properties)
        if code is not None:
            return code
    return tags_code(properties.get(TAGS, ""))


@lru_cache(maxsize=4096)
def directory_name(topic: bytes) -> str | None:
    """
    Return the text of a topic; None if its directory would not lie in the consumequeue directory.
    """
    if not topic or b"/" in topic or b"\0" in topic or topic in (b".", b".."):
        return None
    return topic.decode("utf-8", "replace")


def store_timestamp_of(head: bytes) -> int:
    """
    Return the store timestamp of the record that starts with these bytes; 0 if none does.

    :param head: at least the first 80 bytes of the record.

    Spec: store.md, section 5.4 (the timestamp decides where an abnormal recovery begins).
    """
    if len(head) < _LEAST or _PREFIX.unpack_from(head)[1] != MESSAGE_MAGIC:
        return 0
    position = 56 + (12 if head[39] & BORN_HOST_V6 else 0)
    return int.from_bytes(head[position : position + 8], "big", signed=True)


def record_size_at(buffer: bytes, position: int, limit: int) -> int:
    """
    Return the size that a message record at `position` claims.

    The result is 0 if there is no message magic, if fewer than `BLANK_SIZE` bytes are left before
    `limit`, or if the size is smaller than that of an empty record.
    """
    if limit - position < BLANK_SIZE:
        return 0
    size: int
    size, magic = _PREFIX.unpack_from(buffer, position)
    return size if magic == MESSAGE_MAGIC and size >= RECORD_OVERHEAD else 0
