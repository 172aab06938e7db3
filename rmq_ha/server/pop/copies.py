"""Makes and recognizes the copies that go to a retry or dead-letter topic when a lease has ended.

Spec: pop.md, sections 4.2 and 13.4, rule 4.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.properties import (
    DELAY,
    FIRST_POP_TIME,
    POP_CK,
    POP_SRC,
    TIMER_ASKS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_SRC,
    encode_properties,
)
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.server.store.delay.copies import copy_of

SOURCE_MARK = f"{POP_SRC}\x01"
"""A text that stands in the encoded properties of every copy."""

_STRIPPED = (
    POP_CK,
    DELAY,
    *TIMER_ASKS,
    TIMER_OUT_MS,
    TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ROLL_TIMES,
    TIMER_SRC,
)
_NUMBERS = 4
_MOST_DIGITS = 18


class LeaseSource(NamedTuple):
    """
    The lease that ended, as the property POP_SRC of the copy names it.

    :ivar name: the number that stands for group and topic.
    :ivar queue_id: the queue of the message that was copied.
    :ivar queue_offset: the offset of that message.
    :ivar pop_ms: the lease name.
    """

    name: int
    queue_id: int
    queue_offset: int
    pop_ms: int

    @property
    def text(self) -> str:
        """The value of POP_SRC, for example `3-0-1742-1795883444356`."""
        return "-".join([str(number) for number in self])


def source_of(properties: Mapping[str, str]) -> LeaseSource | None:
    """Return the lease that a copy belongs to; None if the properties are not those of a copy."""
    parts = properties.get(POP_SRC, "").split("-")
    if len(parts) != _NUMBERS or not all(_is_number(part) for part in parts):
        return None
    return LeaseSource(*[int(part) for part in parts])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def copy_for(record: Record, topic: str, source: LeaseSource) -> BrokerMessage:
    """
    Return the copy of a message whose lease has ended.

    :param topic: the retry topic or the dead-letter topic.
    """
    properties = {name: value for name, value in record.properties.items() if name not in _STRIPPED}
    properties.setdefault(FIRST_POP_TIME, str(source.pop_ms))
    properties[POP_SRC] = source.text
    copy = copy_of(record, topic, 0, properties, encode_properties(properties))
    copy.reconsume_times = record.reconsume_times + 1
    return copy
