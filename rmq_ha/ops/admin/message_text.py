"""Renders messages as lines for people, and as values for programs."""

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

from rmq_ha.client.rules.messages import MessageExt, SendResult

_LONGEST = 200


def time_text(ms: int) -> str:
    """Return a time as UTC in ISO 8601; `-` when unknown."""
    if ms <= 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def body_values(body: bytes) -> dict[str, str]:
    """Return a body as `body` if it is UTF-8, else as `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}


def body_text(body: bytes) -> str:
    """
    Return a body as one line of at most 200 characters; bytes that are not UTF-8 in hexadecimal.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"({len(body)} bytes) {body[: _LONGEST // 4].hex()}"
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}... ({len(body)} bytes)"


def message_values(message: MessageExt) -> dict[str, Any]:
    return {
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "topic": message.topic,
        "broker_name": message.broker_name or None,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "tags": message.tags or None,
        "keys": message.keys or None,
        "born": time_text(message.born_timestamp),
        "born_host": str(message.born_host),
        "stored": time_text(message.store_timestamp),
        "store_host": str(message.store_host),
        "store_size": message.store_size,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        **body_values(message.body),
    }


def message_line(message: MessageExt) -> str:
    place = f"{message.broker_name}:{message.queue_id}:{message.queue_offset}"
    tags = f" [{message.tags}]" if message.tags else ""
    return f"{time_text(message.store_timestamp)} {place}{tags} {body_text(message.body)}"


def result_values(result: SendResult) -> dict[str, Any]:
    return {
        "status": result.send_status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "broker_name": result.message_queue.broker_name,
        "queue_id": result.message_queue.queue_id,
        "queue_offset": result.queue_offset,
    }


def result_line(result: SendResult) -> str:
    queue = result.message_queue
    place = f"{queue.broker_name}:{queue.queue_id}:{result.queue_offset}"
    return f"{result.send_status.name} {place} {result.msg_id}"
