"""The frontier: a record that says which timer messages are settled, so that a start reads little.

Its body is JSON, for example `{"due": 1795883382001, "offset": 7, "end": 104857, "open": []}`. A
message is *settled* when it waits no more: it was delivered, recalled or replaced. The frontier
claims two things. Each message before `end` in the log, whose due time and queue offset are not
above `due` and `offset`, is settled by records before the frontier itself, unless `open` names the
message. And each delivery before the frontier is of such a message.

So a master writes it in front of deliveries, and only while no delivery is in flight.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.server.store.timer.sources import TimerSource, parse_source

MOST_OPEN = 1000
"""A frontier with more open messages is not written; the master waits until fewer are open."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """
    The claim of one frontier record.

    :ivar due_ms: due time of the last message, in the order of delivery, that was delivered; 0 if
        none was.
    :ivar queue_offset: queue offset of that message.
    :ivar end: physical offset up to which the log was dispatched when the frontier was made.
    :ivar unsettled: messages up to that due time and queue offset that are not settled yet.
    :ivar place: physical offset of the frontier record; 0 without a record.
    """

    due_ms: int = 0
    queue_offset: int = -1
    end: int = 0
    unsettled: frozenset[TimerSource] = frozenset()
    place: int = 0

    def settles(self, due_ms: int, source: TimerSource) -> bool:
        """Return whether a message is settled by records before the frontier."""
        return (
            source.physical_offset < self.end
            and (due_ms, source.queue_offset) <= (self.due_ms, self.queue_offset)
            and source not in self.unsettled
        )


NO_FRONTIER = Frontier()


def encode_frontier(
    due_ms: int, queue_offset: int, end: int, open_sources: Iterable[TimerSource]
) -> bytes:
    """
    Return the body of a frontier record.

    :param open_sources: the messages that are not settled; see `Frontier.unsettled`.
    """
    sources = [source.text for source in open_sources]
    body = {"due": due_ms, "offset": queue_offset, "end": end, "open": sources}
    return json.dumps(body, separators=(",", ":")).encode()


def decode_frontier(body: bytes, place: int) -> Frontier:
    """
    Read the body of a frontier record.

    :param place: physical offset of the record.
    :raises CorruptRecord: the body is not that of a frontier.
    """
    try:
        said = json.loads(body)
        numbers = [said["due"], said["offset"], said["end"]]
        sources = [parse_source(text) for text in said["open"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptRecord(f"the frontier of timer messages at {place} is unreadable") from error
    if not all(type(number) is int for number in numbers) or None in sources:
        raise CorruptRecord(f"the frontier of timer messages at {place} has other values")
    named = frozenset(source for source in sources if source is not None)
    return Frontier(numbers[0], numbers[1], numbers[2], named, place)
