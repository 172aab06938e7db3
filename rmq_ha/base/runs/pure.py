"""
The maker in Python: what it makes is right by definition, and the other maker gives the same.

Spec: remoting.md, chapter 4; store.md, sections 2 and 6.3.
"""

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from struct import Struct
from typing import Any
from zlib import crc32

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import Address, Draft
from rmq_ha.base.model.properties import KEYS, MAX_PROPERTIES_SIZE, TAGS, UNIQ_KEY, WAIT
from rmq_ha.base.model.topics import HOLD_TIMES
from rmq_ha.base.runs.face import FACE_VERSION, UNUSUAL_PROPERTIES, QueueKey, Rows, Sends
from rmq_ha.base.runs.records import lay_out, undo_numbers
from rmq_ha.base.runs.row_list import RowList, joined
from rmq_ha.base.store_format.commitlog import (
    CRC_MASK,
    DISPATCH_HEADS,
    HOSTS_V6,
    LOST_SECTOR,
    MAX_TOPIC_SIZE,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD,
    directory_name,
)
from rmq_ha.base.wire.command import FLAG_ONEWAY
from rmq_ha.base.wire.frame import JSON, MAX_FRAME_SIZE, Frame
from rmq_ha.base.wire.send_header import UNDECODABLE, decode_fast_v1, decode_fast_v2

VERSION = FACE_VERSION

_WORDS = Struct(">iI").unpack_from
_WORDS_SIZE = 8
_MOST = MAX_FRAME_SIZE - 4
_V2 = b'{"code":310,'
_BEGINNING = re.compile(
    rb'[ \t\r\n]*\{[ \t\r\n]*"code"[ \t\r\n]*:[ \t\r\n]*(310|10)[ \t\r\n]*,'
).match
_LONG = MAX_PROPERTIES_SIZE // 4 - 512
"""
Properties with more characters than this are not ordinary. Shorter ones surely fit into a record
beside CLUSTER and SENT_BY, even if each character takes 4 bytes in UTF-8.
"""
_WAIT_TRUE = f"\x02{WAIT}\x01true"
_MANY_KEYS = 64
_TRANSACTION = 0xC

_HEAD = DISPATCH_HEADS[0].unpack_from
_HEAD_SIZE = DISPATCH_HEADS[0].size
_SHORT = Struct(">H").unpack_from
_ENTRY = Struct(">ii16xq").unpack_from

_Send = tuple[
    str, int, bytes, None, None, int, int, int, int, int, str, str, str | None, str,
    int | None, bytes,
]  # fmt: skip
"""
A decoded send: the 14 values of a `Draft`, but None in place of both hosts, and properties without
those that the broker adds; then the opaque (None: one-way), and the bytes of the header.
"""


_opaque = itemgetter(14)


class SendList(list[_Send]):
    """The `Sends` of this maker: a list of decoded sends. `cut` and `part` set its variables."""

    __slots__ = ("end", "size", "topics")
    end: int
    size: int
    topics: Sequence[str]

    def part(self, first: int, end: int) -> Sends:
        sends = SendList(self[first:end])
        sends.end = self.end
        sends.size = sum([_WORDS_SIZE + len(send[15]) + len(send[2]) for send in sends])
        sends.topics = tuple(dict.fromkeys([send[0] for send in sends]))
        return sends

    def fit(self, queues: Sequence[int]) -> int:
        numbers = dict(zip(self.topics, queues, strict=True))
        number = 0
        for send in self:
            if not 0 <= send[1] < numbers[send[0]]:
                break
            number += 1
        return number

    def opaques(self) -> Sequence[int | None]:
        return list(map(_opaque, self))

    def uniq_keys(self) -> list[tuple[str, str]]:
        return [(send[0], send[11]) for send in self]

    def frames(self) -> list[Frame]:
        return [(JSON, send[15], send[2]) for send in self]

    def drafts(self, born: Address, store: Address, tail: str) -> list[Draft]:
        return [
            (
                *send[:3], born, store, *send[5:13],
                send[13] + tail if send[13] else tail[1:],
            )
            for send in self
        ]  # fmt: skip

    def lay_out(
        self,
        position: int,
        room_end: int,
        max_body: int,
        largest: int,
        stamp: int,
        numbers: dict[QueueKey, int],
        born: Address,
        store: Address,
        tail: str,
        gap: int,
    ) -> tuple[bytes, Rows] | None:
        if not HOLD_TIMES.isdisjoint(self.topics):
            return None
        data, rows, is_whole, _ = lay_out(
            self,
            position,
            room_end,
            max_body,
            largest,
            stamp,
            numbers,
            gap,
            (),
            (born, store),
            tail,
        )
        if is_whole:
            return data, rows
        undo_numbers(rows, numbers)
        return None


def cut(data: bytes, at: int, max_header: int) -> Sends | None:
    """Return the ordinary sends at the front of a chunk; see `face.Maker.cut`."""
    sends = SendList()
    topics = dict[str, None]()
    decode: Callable[[bytes], Any]
    begin, limit = at, len(data)
    # Each round takes one frame, and each `break` leaves a message that is not ordinary to the
    # caller. `word` is the length of the header. Its highest byte, the kind of the header, is 0
    # for JSON; any other kind makes `word` larger than `max_header`.
    while limit - at >= _WORDS_SIZE:
        length, word = _WORDS(data, at)
        header_at = at + _WORDS_SIZE
        body_at, end = header_at + word, at + 4 + length
        if not body_at <= end <= limit or word > max_header or length > _MOST:
            break
        decode, code = decode_fast_v2, 310
        if not data.startswith(_V2, header_at):
            beginning = _BEGINNING(data, header_at, body_at)
            if beginning is None:
                break
            if beginning[1] == b"10":
                decode, code = decode_fast_v1, 10
        header = data[header_at:body_at]
        try:
            frame = decode(header)
        except UNDECODABLE:
            break
        ext = frame.ext
        text = ext.properties
        is_plain = frame.code == code and not (ext.batch or frame.flag & ~FLAG_ONEWAY)
        if not is_plain or ext.sys_flag & _TRANSACTION or text[_LONG:]:
            break
        # WAIT is true unless a client says otherwise; a true one is not stored, as in RocketMQ.
        head, mark, tail = text.partition(_WAIT_TRUE)
        if mark and (not tail or tail[0] == "\x02"):
            text = head + tail
        if text[-1:] == "\x02":  # some clients end properties with it
            text = text[:-1]
        keys, uniq_key, tags = "", "", None
        is_unusual = False
        for piece in text.split("\x02") if text else ():
            name, _, value = piece.partition("\x01")
            if name in UNUSUAL_PROPERTIES or not (name and value):
                is_unusual = True
            elif name == UNIQ_KEY:
                uniq_key = value
            elif name == TAGS:
                tags = value
            elif name == KEYS:
                keys = value
                if len(keys) > 2 * _MANY_KEYS and keys.count(" ") > _MANY_KEYS:
                    is_unusual = True
        if is_unusual:
            break
        topic = ext.topic
        topics[topic] = None
        sends.append(
            (
                topic, ext.queue_id, data[body_at:end], None, None, ext.born_timestamp, ext.flag,
                ext.sys_flag, ext.reconsume_times, 0, keys, uniq_key, tags, text,
                None if frame.flag else frame.opaque, header,
            )
        )  # fmt: skip
        at = end
    if not sends:
        return None
    sends.end, sends.size, sends.topics = at, at - begin, tuple(topics)
    return sends


def walk(
    data: bytes,
    at: int,
    position: int,
    max_count: int,
    max_work: int,
    check_crc: bool,
    gap: int,
) -> Rows | None:
    """Return the ordinary records at the front of a stretch of the log; see `face.Maker.walk`."""
    rows = RowList()
    topics, names = dict[str, None](), dict[QueueKey, None]()
    limit, first = len(data), position
    total = work = 0
    # The native maker has the same conditions. A record that only one of the two makers takes would
    # be dispatched by other rules, depending on the maker.
    for _ in range(max_count):
        if limit - at < RECORD_OVERHEAD:
            break
        size, magic, crc, queue_id, number, place, flags, stamp, prepared, length = _HEAD(data, at)
        end = at + size
        topic_at = at + _HEAD_SIZE + length + 1
        if (
            magic != MESSAGE_MAGIC
            or place != position
            or length < 0
            or not topic_at + 2 <= end <= limit
            or flags & HOSTS_V6
            or (topic_size := data[topic_at - 1]) > MAX_TOPIC_SIZE
            or (text_at := topic_at + topic_size + 2) > end
            or not _SHORT(data, text_at - 2)[0] == end - text_at <= MAX_PROPERTIES_SIZE
            or (gap and (at < gap or _ENTRY(data, at - gap) != (1, gap + size, position - gap)))
        ):
            break
        topic = directory_name(data[topic_at : text_at - 2])
        if topic is None or topic in HOLD_TIMES:
            break
        stored = data[text_at:end]
        if check_crc and (
            (length and crc32(data[topic_at - 1 - length : topic_at - 1]) & CRC_MASK != crc)
            or LOST_SECTOR in stored
        ):
            break
        text = stored.decode("utf-8", "replace")
        keys = uniq_key = tags = ""
        for piece in text.split("\x02"):
            name, _, value = piece.partition("\x01")
            if value:
                if name == UNIQ_KEY:
                    uniq_key = value
                elif name == KEYS:
                    keys = value
                elif name == TAGS:
                    tags = value
        code = tags_code(tags) if tags else 0
        rows.append(
            (
                topic, queue_id, place, size, code, stamp, number, keys, uniq_key, flags, prepared,
                text,
            )
        )  # fmt: skip
        topics[topic] = names[topic, queue_id] = None
        total += size
        at, position = end + gap, position + size + gap
        if keys:
            work += len(keys)
        if work >= max_work:
            break
    if not rows:
        return None
    rows.start, rows.end = first, position - gap
    rows.size, rows.work, rows.topics, rows.names = total, work, topics, names
    return rows


concat = joined
