"""
Lays drafts out as records of the log. The pure maker uses it for all sends, and both makers for
unusual messages.

Spec: store.md, sections 2.1 to 2.8.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from struct import Struct, error
from typing import Any
from zlib import crc32

from rmq_ha.base.model.flags import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_PREPARED
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import Address, Row
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE, decode_properties
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import HOLD_TIMES, RETRY_PREFIX, topic_fault
from rmq_ha.base.runs.row_list import RowList
from rmq_ha.base.store_format.commitlog import (
    CRC_MASK,
    HEADS,
    MAX_TOPIC_SIZE,
    MESSAGE_MAGIC,
    code_of,
    topic_part,
)

_draft = itemgetter(slice(14))
SAME_HOSTS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_SHORT = Struct(">H")
_ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL


LaidOut = tuple[bytes, RowList, bool, PutMessageStatus | None]
"""
The result of `lay_out`: the bytes of the records, with the gaps between them; their rows; whether
all drafts became records. If not, the fourth value is the reason why the next draft cannot be
stored, or None if only the room is missing.
"""


def lay_out(
    drafts: Sequence[Any],
    position: int,
    room_end: int,
    max_body: int,
    largest: int,
    stamp: int,
    numbers: dict[tuple[str, int], int],
    gap: int,
    delay_levels: Sequence[int] = (),
    hosts: tuple[Address, Address] | None = None,
    tail: str = "",
) -> LaidOut:
    """
    Lay drafts out side by side, and number them; see `rmq_ha.base.runs.face.Sends.lay_out`.

    :param drafts: only the first 14 items of each count.
    :param delay_levels: delay of level 1, 2, ..., ms.
    :param hosts: born and store host of all drafts; None: each draft has its own.
    :param tail: what is added to the properties of each draft, with a separator in front.
    """
    parts, rows, is_whole, fault = list[bytes](), RowList(), False, None
    topics, names = dict[str, None](), dict[tuple[str, int], None]()
    topic, topic_bytes, topic_size, first = "", b"", 0, position
    born_host = store_host = None
    overhead = kind = work = total = 0
    pack = HEADS[0].pack
    for (
        name, queue_id, body, born, store, born_ms, flag, sys_flag, reconsumed, prepared,
        keys, uniq_key, tags, text,
    ) in map(_draft, drafts):  # fmt: skip
        if hosts is not None:
            born, store = hosts
            text = text + tail if text else tail[1:]
        # Consecutive drafts mostly have the same topic and hosts, so these are laid out only at a
        # change.
        if name != topic:
            topic, topic_bytes = name, storable_topic(name)
            topic_size = len(topic_bytes)
            topics[name] = None
        if born is not born_host or store is not store_host:
            born_host, store_host = born, store
            kind = len(born[0]) >> 4 | len(store[0]) >> 4 << 1
            pack, overhead = HEADS[kind].pack, HEADS[kind].size + 2
        stored = text.encode("utf-8", "replace")
        length, stored_size = len(body), len(stored)
        size = overhead + length + topic_size + stored_size
        if (
            length > max_body
            or size > largest
            or stored_size > MAX_PROPERTIES_SIZE
            or not topic_size
        ):
            fault = storage_fault(text, topic_bytes, stored)
            break
        if position + size > room_end:
            break
        sys_flag = sys_flag & SAME_HOSTS | kind << 4
        # prepared and rolled-back messages have the bit TRANSACTION_PREPARED, and no queue offset
        counted = not sys_flag & TRANSACTION_PREPARED
        key = (name, queue_id)
        number = numbers.get(key, 0) if counted else 0
        try:
            head = pack(
                size, MESSAGE_MAGIC, crc32(body) & CRC_MASK, queue_id, flag, number, position,
                sys_flag, born_ms, born[0], born[1], stamp, store[0], store[1], reconsumed,
                prepared, length,
            )  # fmt: skip
        except error:  # a value that does not fit its field
            fault = _ILLEGAL
            break
        # Count only here: a refused draft must leave no hole in the offsets of its queue.
        if counted:
            numbers[key] = number + 1
        names[key] = None
        parts += (head, body, topic_bytes, _SHORT.pack(stored_size), stored)
        if gap:
            parts.append(bytes(gap))
        code = tags_code(tags) if tags else 0
        if name in HOLD_TIMES:
            code = code_of(name, decode_properties(text), stamp, delay_levels) or 0
        if keys:
            work += len(keys)
        rows.append(
            (
                name, queue_id, position, size, code, stamp, number, keys, uniq_key, sys_flag,
                prepared, text,
            )
        )  # fmt: skip
        position += size + gap
        total += size
    else:
        is_whole = True
    rows.start, rows.end = first, position - gap
    rows.size, rows.work, rows.topics, rows.names = total, work, topics, names
    return b"".join(parts[:-1] if gap else parts), rows, is_whole, fault


def undo_numbers(rows: Sequence[Row], numbers: dict[tuple[str, int], int]) -> None:
    """Take back the queue offsets of records that did not get into the log."""
    for row in reversed(rows):
        if not row[9] & TRANSACTION_PREPARED:
            numbers[row[:2]] = row[6]


@lru_cache(maxsize=65536)
def storable_topic(topic: str) -> bytes:
    """
    Return the topic as it is stored, with its length in front; empty if no message of it may be
    stored.

    A retry topic of pops may have a `+` between group and topic, which no client may use.
    """
    encoded = topic.encode("utf-8", "replace")
    named = topic.replace("+", "_", 1) if topic.startswith(RETRY_PREFIX) else topic
    fits = len(encoded) <= MAX_TOPIC_SIZE and topic_fault(named) is None
    return topic_part(encoded) if fits else b""


def storage_fault(text: str, topic_bytes: bytes, stored: bytes) -> PutMessageStatus:
    """
    Return why a message cannot be stored: `PROPERTIES_SIZE_EXCEEDED` or `MESSAGE_ILLEGAL`.

    Two parts of Java refuse messages. Its store checks the topic and counts the characters of the
    properties: `MESSAGE_ILLEGAL`. Its encoder counts their bytes: `PROPERTIES_SIZE_EXCEEDED`.

    :param text: the properties.
    :param topic_bytes: the result of `storable_topic`.
    :param stored: `text` in UTF-8.

    Spec: store.md, section 2.6.
    """
    is_for_encoder = topic_bytes and len(text) <= MAX_PROPERTIES_SIZE
    if is_for_encoder and len(stored) > MAX_PROPERTIES_SIZE:
        return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    return _ILLEGAL
