"""
Events for people: the last 500, and the states that each member had.

Pure: the time is passed in.
"""

from collections import deque
from enum import StrEnum

from msgspec import Struct

from rmq_ha.base.model.printable import one_line

MOST_EVENTS = 500
MOST_TEXT = 400
_RECENT_MS = 120_000
MOST_LANES = 24
MOST_SPANS = 120


class EventKind(StrEnum):
    ROLE = "role"
    REPLICATION = "replication"
    REGISTRATION = "registration"
    REFUSAL = "refusal"
    CHANGE = "change"
    HEALTH = "health"
    LOG = "log"


class EventSeverity(StrEnum):
    INFO = "info"
    GOOD = "good"
    WARN = "warn"
    ERROR = "error"


_LOOKED_BACK = {EventKind.REFUSAL: 8, EventKind.LOG: 8}
"""
How many of the last events a new event of a kind is compared with; 1 for kinds that are not here.
Several refusals or log lines may recur in turns. An event of another kind is a repetition only if
it is the same as the last event.
"""


class Event(Struct, frozen=True):
    """
    One event.

    :ivar number: counts from 1; a later event has a larger number.
    :ivar at_ms: ms since the epoch.
    :ivar times: how often this event occurred; `at_ms` is the time of the last occurrence.
    """

    number: int
    at_ms: int
    kind: EventKind
    severity: EventSeverity
    text: str
    times: int = 1


class Events:
    """The last events, in memory."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._last = 0

    @property
    def last_number(self) -> int:
        """Number of the newest event; 0: there is none."""
        return self._last

    def add(
        self, at_ms: int, kind: EventKind, severity: EventSeverity, text: str, times: int = 1
    ) -> None:
        """
        Add an event. If it has the kind and text of a recent event, it takes the place of that
        event: with a new number and time, and with the counts of both.

        :param times: how often the event occurred.
        """
        text = one_line(text)
        if len(text) > MOST_TEXT:
            text = f"{text[:MOST_TEXT]}..."
        self._last += 1
        for back in range(1, 1 + min(_LOOKED_BACK.get(kind, 1), len(self._events))):
            event = self._events[-back]
            if at_ms - event.at_ms > _RECENT_MS:
                break
            if (event.kind, event.text) == (kind, text):
                times += event.times
                del self._events[-back]
                break
        self._events.append(Event(self._last, at_ms, kind, severity, text, times))

    def newer_than(self, number: int, most: int = MOST_EVENTS) -> list[Event]:
        """Return the events after this number, newest first."""
        events: list[Event] = []
        for event in reversed(self._events):
            if event.number <= number or len(events) >= most:
                break
            events.append(event)
        return events


class StateSpan(Struct, frozen=True):
    """The state of a member from a moment on, up to the next span of that member."""

    from_ms: int
    state: str


class MemberLane(Struct, frozen=True):
    name: str
    spans: list[StateSpan]


class Timeline:
    """The states that each member of a pair or group had, and since when."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[StateSpan]] = {}

    def note(self, at_ms: int, name: str, state: str) -> bool:
        """
        Note the state of a member.

        :returns: whether the state is new.
        """
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) >= MOST_LANES:
                self._lanes.pop(next(iter(self._lanes)))
            lane = self._lanes[name] = deque(maxlen=MOST_SPANS)
        if lane and lane[-1].state == state:
            return False
        lane.append(StateSpan(at_ms, state))
        return True

    def state_since(self, name: str) -> int | None:
        """Return when the member's current state began."""
        lane = self._lanes.get(name)
        return lane[-1].from_ms if lane else None

    def lanes(self) -> list[MemberLane]:
        """Return the lanes in the order in which the members came."""
        return [MemberLane(name, list(spans)) for name, spans in self._lanes.items()]
