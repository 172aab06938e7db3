"""Delays by their names: RocketMQ knows some, and counts them."""

from datetime import timedelta

from rmq_ha.base.model.topics import DELAY_LEVELS
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.client.rules.errors import IllegalMessage

_NAMES = DELAY_LEVELS.split()
_LEVEL_OF_MS = {ms: level for level, ms in enumerate(parse_delay_levels(DELAY_LEVELS), 1)}


def check_delay(text: str) -> None:
    """
    What an application wrote as DELAY; a broker may have more levels than those that we name.

    :raises IllegalMessage: no broker has such a level: it would refuse the message, or deliver it
        at once.
    """
    if not (text.isascii() and text.isdecimal()):
        raise IllegalMessage(
            f'properties={{"DELAY": {text!r}}}: a level is a whole number, 0 is at once; a time is'
            " given by delay=timedelta(...)"
        )


def delay_level(level: int, delay: timedelta | None) -> int:
    """
    The level that is meant; 0: at once.

    :raises IllegalMessage: there is no such level, or none of that time; or both are given.
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
