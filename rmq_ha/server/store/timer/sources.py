"""The place where a waiting timer message is stored, which is the value of TIMER_SRC."""

from typing import NamedTuple

_MOST_DIGITS = 19


class TimerSource(NamedTuple):
    """
    The place of a waiting record. Deliveries, recalls and recall handles name the record by it.

    :ivar physical_offset: physical offset of the record.
    :ivar queue_offset: queue offset of the record in queue 0 of the timer topic.
    """

    physical_offset: int
    queue_offset: int

    @property
    def text(self) -> str:
        """The value of TIMER_SRC, for example `104857-7`."""
        return f"{self.physical_offset}-{self.queue_offset}"


def parse_source(text: str) -> TimerSource | None:
    """Return the source that a value of TIMER_SRC names; None if the text has another form."""
    place, _, number = text.partition("-")
    if not (_is_number(place) and _is_number(number)):
        return None
    return TimerSource(int(place), int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
