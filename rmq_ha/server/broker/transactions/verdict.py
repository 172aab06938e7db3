"""Decides what to do with a half message that no op message settles.

Spec: store.md, section 11.3.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from rmq_ha.base.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    TRANSACTION_CHECK_TIMES,
)

_MS_PER_SECOND = 1000
_MS_PER_HOUR = 3_600_000
_LONG_DIGITS = 19


class Verdict(Enum):
    """
    The decision about an open half message.

    :ivar LATER: the half message and all later ones are too young: this round is over.
    :ivar IMMUNE: its producer asked for a time without checks, so a copy moves to the end of the
        queue.
    :ivar CHECK: a copy moves to the end of the queue, and its producer is asked about it.
    :ivar DISCARD: its producer was asked too often, or it is too old: it is given up.
    """

    LATER = 1
    IMMUNE = 2
    CHECK = 3
    DISCARD = 4


class CheckLimits(NamedTuple):
    """
    The settings of a round.

    :ivar time_out_ms: `transactionTimeOut`.
    :ivar check_max: `transactionCheckMax`.
    :ivar reserved_hours: `fileReservedTime`.
    """

    time_out_ms: int
    check_max: int
    reserved_hours: int


def number_of(text: str | None) -> int:
    """Return a number in a property as RocketMQ reads it; -1 if it is missing or not a number."""
    if text is None or len(text) > _LONG_DIGITS:
        return -1
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else -1


def next_check_times(properties: Mapping[str, str]) -> int:
    """Return how often the producer will have been asked when it has been asked once more."""
    times = properties.get(TRANSACTION_CHECK_TIMES)
    return 1 if times is None else number_of(times) + 1


def judge(
    properties: Mapping[str, str],
    born_ms: int,
    stored_ms: int,
    began_ms: int,
    now_ms: int,
    limits: CheckLimits,
) -> Verdict:
    """
    Decide about a half message without an op message.

    A message born in the future (by the producer's clock) is checked at once. A half message that
    was stored in this very round is never discarded in it. RocketMQ does so, and leaves no time for
    the answer to the last question.

    :param stored_ms: store time of the half message, ms.
    :param began_ms: time when the round began, ms.
    """
    if stored_ms >= began_ms:
        return Verdict.LATER
    age_ms = now_ms - born_ms
    if (
        next_check_times(properties) > limits.check_max
        or age_ms > limits.reserved_hours * _MS_PER_HOUR
    ):
        return Verdict.DISCARD
    immunity = properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS)
    if immunity is not None:
        seconds = number_of(immunity)
        rest_ms = limits.time_out_ms if seconds == -1 else seconds * _MS_PER_SECOND
        return Verdict.IMMUNE if age_ms < rest_ms else Verdict.CHECK
    return Verdict.LATER if 0 <= age_ms < limits.time_out_ms else Verdict.CHECK
