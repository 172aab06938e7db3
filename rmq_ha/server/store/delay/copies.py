"""Messages that are made of stored records: a delayed message that becomes due, or one that waits
again.

Spec: store.md, sections 10.3 and 11; remoting.md, section 4.7.
"""

from collections.abc import Mapping

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.properties import REAL_QID, REAL_TOPIC
from rmq_ha.base.store_format.commitlog import Record

_SHOWN = 40
_QUEUE_ID_DIGITS = 9


def copy_of(
    record: Record, topic: str, queue_id: int, properties: dict[str, str], stored: str
) -> BrokerMessage:
    """
    Return a message for another topic and queue, with body, born time, flags and hosts of a record.

    Its put waits for neither flush nor replica.

    :param stored: the property string that the log is to have.
    """
    return BrokerMessage(
        topic,
        queue_id,
        record.body,
        record.born_host,
        record.store_host,
        record.born_timestamp,
        record.flag,
        record.sys_flag,
        record.reconsume_times,
        0,
        properties,
        stored,
        wait_store_ok=False,
    )


def real_place(properties: Mapping[str, str]) -> tuple[str, int]:
    """
    Return the topic and queue id that a delayed or half message was sent to.

    :raises CorruptRecord: the properties do not name both.
    """
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QID, "")
    if not topic:
        raise CorruptRecord(f"it has no {REAL_TOPIC}")
    if not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) <= _QUEUE_ID_DIGITS):
        raise CorruptRecord(f"its {REAL_QID} is {queue_id[:_SHOWN]!r}")
    return topic, int(queue_id)
