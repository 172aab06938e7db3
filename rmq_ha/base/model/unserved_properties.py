"""Properties by which messages ask for a service of RocketMQ 5 that RocketMQ 4.9 does not have.

A broker of 4.9 stores such a message as any other one. A message that shall be delivered in an hour
is delivered at once, and its producer is told that all is well.
"""

from collections.abc import Mapping

from rmq_ha.base.model.properties import DELAY

_OWN_DELAY = "a delay of its own"
UNSERVED = {
    "TIMER_DELAY_SEC": _OWN_DELAY,
    "TIMER_DELAY_MS": _OWN_DELAY,
    "TIMER_DELIVER_MS": _OWN_DELAY,
    "TIMER_DEL_UNIQKEY": "the recall of a delayed message",
    "_SYS_MSG_PRIORITY_": "a priority",
    "__LITE_TOPIC": "a lite topic",
}
"""By name of a property: the service for which it asks."""
MARKS = ("TIMER_DEL", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC")
"""Each of the names contains one of these texts."""
TIMERS = frozenset(name for name in UNSERVED if name.startswith("TIMER_"))
"""The properties among them that say when a message shall be delivered."""


def unserved_property(properties: Mapping[str, str]) -> str | None:
    """
    Return the first property, by name, that asks for a service that this broker does not have; None
    if there is none.

    A delay level wins over the timers of RocketMQ 5, which removes them from such a message.
    """
    if UNSERVED.keys().isdisjoint(properties):
        return None
    names = UNSERVED.keys() & properties.keys()
    level = properties.get(DELAY, "")
    if level.isdecimal() and int(level) > 0:
        names -= TIMERS
    return min((name for name in names if properties[name]), default=None)
