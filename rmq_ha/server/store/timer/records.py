"""Makes the records of timer messages, and reads their properties.

The letters are those of the design: T is a record that waits, D is its delivery, and R recalls it.
T′ is a rolled copy of T: it waits at the end of the log in place of T, whose file is about to be
deleted.
"""

from collections.abc import Mapping

from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_ROLL_TIMES,
    TIMER_SRC,
    encode_properties,
)
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.base.store_format.timer_times import ms_in
from rmq_ha.server.store.delay.copies import copy_of, real_place
from rmq_ha.server.store.timer.sources import TimerSource, parse_source

_SECOND_MS = 1000
DELIVERY_MARK = f"{TIMER_DEQUEUE_MS}\x01"
"""A text that stands in the encoded properties of every delivery."""


def delivery_of(record: Record, source: TimerSource, now_ms: int) -> BrokerMessage:
    """
    Return D, the message as consumers get it, from the record T.

    :raises CorruptRecord: the record does not name its real topic and queue.
    """
    properties = dict(record.properties)
    topic, queue_id = real_place(properties)
    _stamp(properties, record, source, now_ms)
    return copy_of(record, topic, queue_id, properties, encode_properties(properties))


def rolled_copy_of(record: Record, source: TimerSource, now_ms: int) -> BrokerMessage:
    """Return T′, a copy that waits in place of the record T."""
    properties = dict(record.properties)
    properties[TIMER_ROLL_TIMES] = str(rolls_of(properties) + 1)
    _stamp(properties, record, source, now_ms)
    return copy_of(record, TIMER_TOPIC, 0, properties, encode_properties(properties))


def _stamp(properties: dict[str, str], record: Record, source: TimerSource, now_ms: int) -> None:
    stored_ms = record.store_timestamp
    properties[TIMER_ENQUEUE_MS] = str(stored_ms - stored_ms % _SECOND_MS)
    properties[TIMER_DEQUEUE_MS] = str(now_ms)
    properties[TIMER_SRC] = source.text


def frontier_message(body: bytes, store_host: Address, now_ms: int) -> BrokerMessage:
    """Return the message of a frontier; its put waits for neither flush nor replica."""
    return BrokerMessage(
        TIMER_PROGRESS_TOPIC, 0, body, store_host, store_host, now_ms, wait_store_ok=False
    )


def rolls_of(properties: Mapping[str, str]) -> int:
    """Return how often a waiting message was rolled."""
    return ms_in(properties, TIMER_ROLL_TIMES) or 0


def source_of(properties: Mapping[str, str]) -> TimerSource | None:
    """Return the waiting record that the property TIMER_SRC names; None if it names none."""
    return parse_source(properties.get(TIMER_SRC, ""))


def recalled_key(properties: Mapping[str, str]) -> str:
    """
    Return the unique key that the properties of a recall name; empty if they name none.

    The property is `<topic>+<unique key>`, or the key alone, as newer clients write it.
    """
    named = properties.get(TIMER_DEL_UNIQKEY, "")
    return named.removeprefix(f"{properties.get(REAL_TOPIC, '')}+")
