"""Finds between which times a log was written, though some store times may be wrong."""

from collections.abc import Sequence
from typing import NamedTuple


class Stamps(NamedTuple):
    """Store times (ms) and physical offsets of some messages of one broker."""

    least_ms: int
    most_ms: int
    least_place: int
    most_place: int
    messages: int


def trusted_times(stamps: Sequence[Stamps], grace_ms: int) -> tuple[int, int]:
    """
    Return the oldest and the newest store time, without those of a few messages that the messages
    before or behind them in the log contradict.

    A clock that was set back for good contradicts nothing here: many messages have its times.

    :param stamps: at least one.
    :param grace_ms: times that differ by less than this belong together.
    """
    return -_newest([_mirror(some) for some in stamps], grace_ms), _newest(stamps, grace_ms)


def _mirror(some: Stamps) -> Stamps:
    """Return stamps negated, so that the oldest time is found as the newest."""
    return Stamps(-some.most_ms, -some.least_ms, -some.most_place, -some.least_place, some.messages)


def _newest(stamps: Sequence[Stamps], grace_ms: int) -> int:
    """
    Return the newest store time that is not contradicted.

    From the newest time on, stamps with neighbouring times are joined to a group. A group counts if
    it has many messages, or the end of the log; otherwise it is passed over.
    """
    few = max(1, sum(some.messages for some in stamps) // 100)
    end = max(some.most_place for some in stamps)
    rest = sorted(stamps, key=lambda some: some.most_ms)
    newest = rest[-1].most_ms
    while rest:
        top = rest.pop()
        high, low, place, messages = top.most_ms, top.least_ms, top.most_place, top.messages
        while rest and rest[-1].most_ms >= low - grace_ms:
            more = rest.pop()
            low, place = min(low, more.least_ms), max(place, more.most_place)
            messages += more.messages
        if messages > few or place >= end:
            return high
    return newest
