"""Delays: RocketMQ's levels, which stand for a few fixed times, and timers of any length."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from rmq_ha.base.model.properties import (
    DELAY,
    TIMER_ASKS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)
from rmq_ha.base.model.topics import DELAY_LEVELS
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.client.rules.errors import IllegalMessage

_NAMES = DELAY_LEVELS.split()
_LEVEL_OF_MS = {ms: level for level, ms in enumerate(parse_delay_levels(DELAY_LEVELS), 1)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT_MS = {TIMER_DELAY_SEC: 1000, TIMER_DELAY_MS: 1}


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


def timing(
    level: int, delay: timedelta | None, deliver_at: datetime | None
) -> tuple[str, str] | None:
    """
    Return name and value of the property for one of three arguments; None: deliver at once.

    A delay that a level has is sent as that level, which brokers of every version know.

    :raises IllegalMessage: the level does not exist, the delay is below 0, the time has no time
        zone, or several of the arguments are given.
    """
    if (level != 0) + (delay is not None) + (deliver_at is not None) > 1:
        raise IllegalMessage("one of delay, deliver_at and delay_time_level, not several")
    if deliver_at is not None:
        return TIMER_DELIVER_MS, str(_time(deliver_at))
    if delay is None:
        level = _check_level(level)
        return (DELAY, str(level)) if level else None
    if not isinstance(delay, timedelta):
        raise IllegalMessage(f"a delay is a timedelta, not {type(delay).__name__}")
    if delay < timedelta(0):
        raise IllegalMessage(f"a delay is not below 0, and this one is {delay}")
    ms = -(-delay // timedelta(milliseconds=1))
    if ms in _LEVEL_OF_MS:
        return DELAY, str(_LEVEL_OF_MS[ms])
    return (TIMER_DELAY_MS, str(ms)) if ms else None


def _check_level(level: int) -> int:
    if type(level) is not int or not 0 <= level <= len(_NAMES):
        raise IllegalMessage(
            f"delay_time_level={level!r}: levels are 1 ({_NAMES[0]}) to {len(_NAMES)}"
            f" ({_NAMES[-1]}), 0 is at once; of a broker with a messageDelayLevel of its own"
            ' others, too: properties={"DELAY": "20"}'
        )
    return level


def _time(moment: datetime) -> int:
    """Return a time in ms since the epoch, rounded up."""
    if not isinstance(moment, datetime):
        raise IllegalMessage(f"deliver_at is a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise IllegalMessage(
            f"deliver_at={moment} has no time zone, so it means another time on each machine: "
            "datetime.now(timezone.utc) has one"
        )
    return -(-(moment - _EPOCH) // timedelta(milliseconds=1))


def levels_near(properties: Mapping[str, str], now_ms: int) -> str:
    """
    Return in words which levels come nearest to the timer that a message asks for.

    :param now_ms: the current time, in ms since the epoch.
    """
    name = next(name for name in TIMER_ASKS if properties.get(name))
    try:
        number = int(properties[name])
    except ValueError:
        return f"the levels are {', '.join(_NAMES)}"
    ms = number - now_ms if name == TIMER_DELIVER_MS else number * _UNIT_MS[name]
    shorter = [level for length, level in _LEVEL_OF_MS.items() if length < ms]
    longer = [level for length, level in _LEVEL_OF_MS.items() if length > ms]
    near = [_NAMES[level - 1] for level in (*shorter[-1:], *longer[:1])]
    return f"the nearest {'levels are' if len(near) > 1 else 'level is'} {' and '.join(near)}"
