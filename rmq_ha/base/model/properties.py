"""The property string of a message: name, 0x01 and value; pieces are separated by 0x02.

Spec: store.md, section 2.4; remoting.md, sections 5.1 and 5.2.
"""

from collections.abc import Mapping

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CLUSTER = "CLUSTER"
SENT_BY = "RMQHA_SENT_BY"
"""
A property of rmq-ha: a digest of the account that sent the message. Brokers that compare ids and
accounts write it.
"""
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"

TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
"""A message with it asks to recall another one: the value is `<topic>+<unique key>`."""
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_SRC = "TIMER_SRC"
"""A property of rmq-ha: the waiting record that a delivery, a recall or a later copy settles."""
POP_CK = "POP_CK"
"""The receipt of a popped message; see `rmq_ha.base.wire.pop_receipt`. It is never stored."""
POP_SRC = "POP_SRC"
"""
A property of rmq-ha, in copies of popped messages in retry topics and dead-letter topics: the lease
that the copy ended.
"""
WRITTEN_BY_POPS = (POP_CK, POP_SRC)
"""Properties that only a broker writes, for pops. It removes them from messages of clients."""
FIRST_POP_TIME = "1ST_POP_TIME"
"""
In copies in retry topics: when the message was popped for the first time, in ms since the epoch.
"""
TIMER_ASKS = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""The properties by which a client asks for a timer; the first one that is there counts."""

MAX_PROPERTIES_SIZE = 32767


def waits(value: str | None) -> bool:
    """
    Return whether the property WAIT asks to wait for flush and replica: `true` and a missing one
    do.
    """
    return value is None or value.lower() == "true"


def decode_properties(text: str) -> dict[str, str]:
    """
    Split a property string as RocketMQ does. A piece without name, value or separator is left out;
    of equal names the last one counts.
    """
    properties: dict[str, str] = {}
    for piece in text.split("\x02"):
        name, separator, value = piece.partition("\x01")
        if separator and name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> str:
    """Join properties as 4.9.7 does, without a separator at the end."""
    return "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
