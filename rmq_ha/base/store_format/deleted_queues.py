"""`deletedQueues.json`, a file of rmq-ha: where in the log each queue's present life begins."""

from collections.abc import Mapping
from typing import Any

from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import read_body

NAME = "deletedQueues"


def encode_beginnings(table: Mapping[tuple[str, int], int]) -> bytes:
    """
    Return the file's content.

    :param table: physical offsets by topic and queue id.
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, queue_id), begin in sorted(table.items()):
        topics.setdefault(topic, {})[str(queue_id)] = begin
    return fastjson.pretty({NAME: topics})


def decode_beginnings(data: bytes) -> dict[tuple[str, int], int]:
    """
    Return the physical offsets in the file, by topic and queue id.

    :raises ProtocolViolation: the data are not such a file.
    """
    return read_body(data, _convert, None)


def _convert(document: dict[str, Any]) -> dict[tuple[str, int], int]:
    return {
        (topic, int(queue_id)): int(begin)
        for topic, queues in document[NAME].items()
        for queue_id, begin in queues.items()
    }
