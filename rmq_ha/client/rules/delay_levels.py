"""Delays as RocketMQ's delay levels: numbers that stand for a few fixed times."""

from datetime import timedelta

from rmq_ha.base.model.topics import DELAY_LEVELS
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.client.rules.errors import IllegalMessage

_NAMES = DELAY_LEVELS.split()
_LEVEL_OF_MS = {ms: level for level, ms in enumerate(parse_delay_levels(DELAY_LEVELS), 1)}


def check_delay(text: str) -> None:
    """
    Check a DELAY property that an application has set itself. Any number passes, as a broker may
    have more levels than RocketMQ's default.

    :raises IllegalMessage: the text is no whole number. A broker would refuse the message or
        deliver it at once.
    """
    if not (text.isascii() and text.isdecimal()):
        raise IllegalMessage(
            f'properties={{"DELAY": {text!r}}}: a level is a whole number, 0 is at once; a time is'
            " given by delay=timedelta(...)"
        )


def delay_level(level: int, delay: timedelta | None) -> int:
    """
    Return the delay level for one of two arguments; 0 stands for delivery at once.

    :raises IllegalMessage: the level does not exist, no level has that delay, or both are given.
    """
    if delay is None:
        if type(level) is not int or not 0 <= level <= len(_NAMES):
            raise IllegalMessage(
                f"delay_time_level={level!r}: levels are 1 ({_NAMES[0]}) to {len(_NAMES)}"
                f" ({_NAMES[-1]}), 0 is at once; of a broker with a messageDelayLevel of its own"
                ' others, too: properties={"DELAY": "20"}'
            )
        return level
    if level:
        raise IllegalMessage("either delay or delay_time_level, not both")
    if not isinstance(delay, timedelta):
        raise IllegalMessage(f"a delay is a timedelta, not {type(delay).__name__}")
    level_of_delay = _LEVEL_OF_MS.get(delay // timedelta(milliseconds=1), 0)
    if not level_of_delay and delay:
        raise IllegalMessage(
            f"RocketMQ has no delay of {delay}, but of {', '.join(_NAMES)}: take one of them"
        )
    return level_of_delay
