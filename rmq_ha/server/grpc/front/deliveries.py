"""Turns stored messages into gRPC's messages.

Spec: grpc.md, section 6.5.
"""

import zlib
from collections.abc import Mapping
from hashlib import md5
from typing import Any

from rmq_ha.base.model.flags import COMPRESSED, COMPRESSION_MASK, COMPRESSION_ZLIB
from rmq_ha.base.model.properties import (
    KEYS,
    TAGS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.server.door import HalfMessage
from rmq_ha.server.grpc.front.names import split
from rmq_ha.server.grpc.front.properties import (
    BORN_HOST,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    RESERVED,
    SHARDING_KEY,
    TRACE_CONTEXT,
)
from rmq_ha.server.grpc.front.sends import type_of
from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.enums import BodyEncoding, DigestType, MessageType

_ANY_HEADER = 32 + zlib.MAX_WBITS
MOST_MS = 253_402_300_799_999
"""The last time in ms that a `Timestamp` can have."""
MOST_INFLATED = 64 << 20
"""Largest body that is unpacked for a client; a larger one goes out as it is stored."""


def half_message(half: HalfMessage, namespace: str) -> Any:
    """
    Return the gRPC message for a producer that is asked about its transaction.

    :param namespace: the namespace of the producer; empty if it uses none.
    """
    message = messages.Message()
    message.topic.resource_namespace, message.topic.name = split(half.topic, namespace)
    _add_body(message, half.body, half.sys_flag)
    _add_properties(message, half.properties)
    system = message.system_properties
    _set_time(system.born_timestamp, half.born_timestamp)
    system.born_host = half.properties.get(BORN_HOST) or str(half.born_host)
    _set_time(system.store_timestamp, half.stored_ms)
    system.store_host = str(half.store_host)
    system.queue_id = half.queue_id
    system.queue_offset = half.queue_offset
    system.delivery_attempt = 1
    return message


def stored_message(record: Record, topic: Any) -> Any:
    """
    Return the gRPC message of a record, for a consumer. It has no receipt yet.

    :param topic: the `Resource` of the topic that the consumer asked for.
    """
    message = messages.Message()
    message.topic.CopyFrom(topic)
    _add_body(message, record.body, record.sys_flag)
    properties = record.properties
    _add_properties(message, properties)
    system = message.system_properties
    if not system.message_id:
        system.message_id = record.msg_id
    _set_time(system.born_timestamp, record.born_timestamp)
    system.born_host = properties.get(BORN_HOST) or str(record.born_host)
    _set_time(system.store_timestamp, record.store_timestamp)
    system.store_host = str(record.store_host)
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    if DLQ_ORIGIN_TOPIC in properties:
        system.dead_letter_queue.topic = properties[DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties.get(DLQ_ORIGIN_MESSAGE_ID, "")
    return message


def _set_time(stamp: Any, millis: int) -> None:
    """
    Set a `Timestamp` to the nearest time that it can have, up to the year 9999. Clients of remoting
    may write any time into a message, which has to reach its consumers all the same.
    """
    stamp.FromMilliseconds(min(max(0, millis), MOST_MS))


def _add_body(message: Any, stored: bytes, sys_flag: int) -> None:
    """Add the body, unpacked if it is stored compressed, and its digest."""
    plain = _plain_body(stored, sys_flag)
    body = stored if plain is None else plain
    system = message.system_properties
    message.body = body
    system.body_encoding = BodyEncoding.GZIP if plain is None else BodyEncoding.IDENTITY
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = md5(body, usedforsecurity=False).hexdigest().upper()


def _plain_body(body: bytes, sys_flag: int) -> bytes | None:
    """Return the body without its compression; None if it cannot be unpacked here."""
    if not sys_flag & COMPRESSED:
        return body
    if sys_flag & COMPRESSION_MASK not in (0, COMPRESSION_ZLIB):
        return None
    stream = zlib.decompressobj(_ANY_HEADER)
    try:
        plain = stream.decompress(body, MOST_INFLATED)
    except zlib.error:
        return None
    return plain if stream.eof else None


def _add_properties(message: Any, properties: Mapping[str, str]) -> None:
    system = message.system_properties
    for name, value in properties.items():
        if name not in RESERVED:
            message.user_properties[name] = value
    system.message_id = properties.get(UNIQ_KEY, "")
    system.message_type = MessageType[type_of(properties)]
    if TAGS in properties:
        system.tag = properties[TAGS]
    system.keys.extend(properties.get(KEYS, "").split())
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    due = properties.get(TIMER_DELIVER_MS, "")
    if due.isascii() and due.isdigit() and len(due) < 16:
        _set_time(system.delivery_timestamp, int(due))
