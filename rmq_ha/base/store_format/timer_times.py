"""The times of timer messages, as properties and queue units hold them.

Units of `rmq_sys_wheel_timer` hold the due time in place of a tag's hash: the time in ms before
which no consumer may see the message. So the consume queue lists all timer messages, and no other
file has to.

Java rounds the time in TIMER_OUT_MS down, so there it is a multiple of 100. The TIMER_OUT_MS that
rmq-ha writes is exact, and never such a multiple. So a reader knows which program wrote the time.
"""

from collections.abc import Mapping

from rmq_ha.base.model.properties import (
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)

RECALL_BIT = 1 << 62
"""The bit that a queue unit's number has if the record is a recall."""
ROLLED_BIT = 1 << 61
"""
The bit that a queue unit's number has if the record is a rolled copy: a timer message that was
stored again before the file of its first record was deleted.
"""
LEAST_DUE = 1 << 40
"""
The earliest due time, in the year 2004. A smaller number in a unit is a tag's hash: Java built that
file, or the record is no timer message.
"""
MOST_DUE = (1 << 60) - 1

TIMER_CODE_NAMES = (
    TIMER_OUT_MS,
    TIMER_DELAY_SEC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_DEL_UNIQKEY,
    TIMER_ROLL_TIMES,
)
"""The properties that `timer_code` reads."""
_JAVA_STEP_MS = 100
_JAVA_PRECISION_MS = 1000
_MOST_DIGITS = 18


def out_for(due_ms: int) -> int:
    """
    Return the TIMER_OUT_MS with which a message is due at `due_ms`: one ms less.

    If that number is a multiple of 100, the result is `due_ms` itself, and the message is due one
    ms later.
    """
    return due_ms if (due_ms - 1) % _JAVA_STEP_MS == 0 else due_ms - 1


def due_of(properties: Mapping[str, str]) -> int | None:
    """
    Return the due time of a record of the timer topic, never an earlier one than was asked for.

    :returns: None if the record is no timer message.
    """
    out = ms_in(properties, TIMER_OUT_MS)
    if out is None:
        return None
    due = out + 1
    if out % _JAVA_STEP_MS == 0:
        due = out + _JAVA_PRECISION_MS
        if not properties.get(TIMER_DELAY_SEC) and not properties.get(TIMER_DELAY_MS):
            asked = ms_in(properties, TIMER_DELIVER_MS)
            if asked is not None and out < asked <= due:
                due = asked
    return min(max(due, LEAST_DUE), MOST_DUE)


def timer_code(properties: Mapping[str, str]) -> int | None:
    """
    Return the number in the queue unit of a record of the timer topic: its due time, and bits that
    tell recalls and rolled copies.

    :returns: None if the record is no timer message.
    """
    due = due_of(properties)
    if due is None:
        return None
    if properties.get(TIMER_DEL_UNIQKEY):
        due |= RECALL_BIT
    if properties.get(TIMER_ROLL_TIMES):
        due |= ROLLED_BIT
    return due


def due_in(code: int) -> int:
    """Return the due time in a queue unit's number of at least `LEAST_DUE`."""
    return code & MOST_DUE


def ms_in(properties: Mapping[str, str], name: str) -> int | None:
    """Return the ms in a property; None if it is missing or no number of at most 18 digits."""
    text = properties.get(name, "")
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text)
    return None
