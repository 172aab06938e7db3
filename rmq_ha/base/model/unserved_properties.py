"""
Properties by which messages ask for something that RocketMQ 5 does and RocketMQ 4.9 does not.

A broker of 4.9 stores such a message as any other one: a message that shall come in an hour comes
at once, and its producer is told that all is well.
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
"""By name: what a message with this property asks for."""
MARKS = ("TIMER_DEL", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC")
"""One of them is in each of the names."""
TIMERS = frozenset(name for name in UNSERVED if name.startswith("TIMER_"))
"""Those of them that say when a message shall come."""


def unserved_property(properties: Mapping[str, str]) -> str | None:
    """
    The first property that asks for something that nobody would do; None: there is none.

    A delay level wins over the timers of RocketMQ 5, which takes them out of such a message.
    """
    if UNSERVED.keys().isdisjoint(properties):
        return None
    names = UNSERVED.keys() & properties.keys()
    level = properties.get(DELAY, "")
    if level.isdecimal() and int(level) > 0:
        names -= TIMERS
    return min((name for name in names if properties[name]), default=None)
