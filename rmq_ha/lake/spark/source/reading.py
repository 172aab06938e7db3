"""
The common parts of readers of queues: names, ranges, and the questions to a set of queues.

An offset is always the next one to read: a range is [start, stop), and `stop` of one read is
`start` of the next.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol


class QueueId(NamedTuple):
    """
    One queue of a cluster.

    :ivar broker: name of the broker; empty for a store whose broker was not named.
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        """Return a text like `topic/broker/0` for people; without a broker `topic/0`."""
        return "/".join(filter(None, (self.topic, self.broker, str(self.queue_id))))


class QueueRange(NamedTuple):
    """Messages of one queue, at the offsets [start, stop)."""

    queue: QueueId
    start: int
    stop: int


def first_names(names: Iterable[Any]) -> str:
    """Return a text with the first names, and with the number of further ones."""
    shown = sorted(names)
    return ", ".join(map(str, shown[:3])) + (f" and {len(shown) - 3} more" if shown[3:] else "")


class Ends(NamedTuple):
    """
    Where a queue begins and ends.

    :ivar is_sure: whether a master answered; the end that a slave knows may be before the real end
        of the queue.
    """

    min_offset: int
    max_offset: int
    is_sure: bool = True


@dataclass(frozen=True)
class Subscription:
    """
    The wanted queues; all queues when all three are None.

    :ivar pattern: pattern that the whole name of a topic has to match (`subscribePattern`).
    :ivar assigned: topic, broker (empty: any) and queue (`assign`).
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[QueueId, ...] | None = None

    @property
    def is_everything(self) -> bool:
        """Whether every existing topic is wanted, because none was chosen."""
        return self.topics is None and self.pattern is None and self.assigned is None

    @cached_property
    def named(self) -> tuple[str, ...] | None:
        """The topics that were named, sorted; None: the existing topics have to be looked up."""
        return None if self._names is None else tuple(sorted(self._names))

    def wants_topic(self, topic: str) -> bool:
        """Return whether a queue of the topic may be wanted."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return self._names is None or topic in self._names

    def wants(self, queue: QueueId) -> bool:
        """Return whether a queue is wanted; one assigned without broker is so on each."""
        if self.assigned is None:
            return self.wants_topic(queue.topic)
        return queue in self._queues or queue._replace(broker="") in self._queues

    @cached_property
    def _names(self) -> frozenset[str] | None:
        if self.assigned is not None:
            return frozenset(queue.topic for queue in self.assigned)
        return None if self.topics is None else frozenset(self.topics)

    @cached_property
    def _queues(self) -> frozenset[QueueId]:
        return frozenset(self.assigned or ())


class Queues(Protocol):
    """
    A store or a cluster, as queues. Implementations can be pickled, and keep no state that changes
    the result of a repeated read.
    """

    def queues(self, topics: Subscription) -> list[QueueId]:
        """
        Return the wanted queues that exist now, sorted.

        :raises CannotDecide: no server answers, or a topic that was named does not exist.
        """
        ...

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        """Return the offset of the first message, and the one after the last."""
        ...

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        """Return the offset of the first message stored at `ms` or later; None: there is none."""
        ...

    def group_offsets(self, group: str, queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
        """
        Return where a consumer group continues in these queues; queues in which it has no offset
        are left out.

        :raises CannotDecide: no server answers.
        """
        ...

    def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        """
        Yield the messages of a range as `pyarrow.RecordBatch` of exactly these columns, in queue
        order; only messages with the tags of the options.

        :raises CannotDecide: the range cannot be read as a whole: messages are gone, or do not
            exist yet.
        """
        ...
