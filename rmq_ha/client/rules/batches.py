"""Batches: several messages in one request, split into as many requests as their size needs.

Spec: remoting.md, sections 5.7 and 11.1 (MessageBatch).
"""

from collections.abc import Sequence
from typing import NamedTuple

from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE, UNIQ_KEY, WAIT
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.batch import MEMBER_OVERHEAD, encode_batch
from rmq_ha.base.wire.text import to_bytes
from rmq_ha.client.rules.errors import IllegalMessage
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.send_frames import properties_text


class BatchPart(NamedTuple):
    """
    The messages of one request.

    :ivar message_ids: the messages' unique ids, separated by commas.
    :ivar length: how many messages the request carries.
    :ivar properties: the request's own properties, which all its messages share.
    """

    body: bytes
    message_ids: str
    length: int
    properties: str


def check_batch(messages: Sequence[Message]) -> None:
    """
    Check a batch by the rules of the Java client.

    :raises IllegalMessage: the batch is empty, or its messages may not be sent in one request.
    """
    if not messages:
        raise IllegalMessage("a batch without messages")
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        raise IllegalMessage("messages of a retry topic cannot be sent as a batch")
    for message in messages:
        if message.delay_time_level > 0:
            raise IllegalMessage("delayed messages cannot be sent as a batch: send them one by one")
        if message.topic != first.topic:
            raise IllegalMessage(
                f"messages of one batch have one topic, not {first.topic} and {message.topic}"
            )
        if message.wait_store_msg_ok != first.wait_store_msg_ok:
            raise IllegalMessage("messages of one batch have the same wait_store_msg_ok")


def split(messages: Sequence[Message], max_size: int) -> list[BatchPart]:
    """
    Split messages, in their order, into as few requests as possible.

    :param messages: messages with unique ids that `check_batch` has accepted.
    :param max_size: most bytes of a request's body.
    :raises IllegalMessage: one message alone is larger, or its properties are too long.
    """
    parts: list[BatchPart] = []
    members: list[tuple[int, bytes, str]] = []
    ids: list[str] = []
    size = 0
    shared = properties_text({WAIT: "true" if messages[0].wait_store_msg_ok else "false"})
    for message in messages:
        text = properties_text(message.properties)
        text_size = len(to_bytes(text))
        if text_size > MAX_PROPERTIES_SIZE:
            raise IllegalMessage(
                f"the properties of a message have {text_size} bytes, at most"
                f" {MAX_PROPERTIES_SIZE} are allowed"
            )
        length = MEMBER_OVERHEAD + len(message.body) + text_size
        if length > max_size:
            raise IllegalMessage(
                f"one message takes {length} bytes of a batch, at most {max_size} are allowed"
            )
        if size + length > max_size:
            parts.append(_part(members, ids, shared))
            members, ids, size = [], [], 0
        members.append((message.flag, message.body, text))
        ids.append(message.properties[UNIQ_KEY])
        size += length
    parts.append(_part(members, ids, shared))
    return parts


def _part(members: list[tuple[int, bytes, str]], ids: list[str], shared: str) -> BatchPart:
    return BatchPart(encode_batch(members), ",".join(ids), len(members), shared)
