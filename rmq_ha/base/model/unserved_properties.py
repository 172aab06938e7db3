"""Properties by which messages ask for a service of RocketMQ 5 that RocketMQ 4.9 does not have.

A broker of 4.9 stores such a message as any other one. A message that shall be delivered in an hour
is delivered at once, and its producer is told that all is well. Timers are served while
`timerWheelEnable` is true, the other services never.
"""

from collections.abc import Mapping

from rmq_ha.base.model.properties import (
    DELAY,
    TIMER_ASKS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)

_OWN_DELAY = "a delay of its own"
UNSERVED = {
    TIMER_DELAY_SEC: _OWN_DELAY,
    TIMER_DELAY_MS: _OWN_DELAY,
    TIMER_DELIVER_MS: _OWN_DELAY,
    TIMER_DEL_UNIQKEY: "the recall of a delayed message",
    "_SYS_MSG_PRIORITY_": "a priority",
    "__LITE_TOPIC": "a lite topic",
}
"""
The service for which each property asks. The services of `TIMERS` are served while timerWheelEnable
is true, the others never.
"""
MARKS = ("TIMER_DEL", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC")
"""Each of the names in `UNSERVED` contains one of these texts."""
TIMERS = frozenset(name for name in UNSERVED if name.startswith("TIMER_"))
"""The properties among them that belong to timers."""


def has_level(properties: Mapping[str, str]) -> bool:
    """
    Return whether a message has a delay level, which wins over timers: RocketMQ 5 removes them from
    such a message.
    """
    try:
        return int(properties.get(DELAY, "0")) > 0
    except ValueError:
        return False


def asks_for_timer(properties: Mapping[str, str]) -> bool:
    """Return whether a message asks for a timer; a delay level wins over timers."""
    asks = any(properties.get(name) for name in TIMER_ASKS)
    return asks and not has_level(properties)


def unserved_property(properties: Mapping[str, str], *, serves_timers: bool = False) -> str | None:
    """
    Return the first property, by name, that asks for a service that a broker does not have; None if
    there is none.

    :param serves_timers: whether the broker delivers timer messages.
    """
    if UNSERVED.keys().isdisjoint(properties):
        return None
    names = UNSERVED.keys() & properties.keys()
    if serves_timers or has_level(properties):
        names -= TIMERS
    return min((name for name in names if properties[name]), default=None)
