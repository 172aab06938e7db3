"""What readers of queues have in common: names, ranges, and what can be asked of a set of queues.

Offsets are always the next one to read: a range is [start, stop), and `stop` of one read is `start`
of the next.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

LMQ_PREFIX = "%LMQ%"
"""Of light queues, which have no messages of their own: they point at those of other queues."""


class QueueId(NamedTuple):
    """
    One queue of a cluster.

    :ivar broker: name of the broker; empty for a store whose broker was not named.
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        """`topic/broker/0`."""
        return "/".join(filter(None, (self.topic, self.broker, str(self.queue_id))))


class QueueRange(NamedTuple):
    """
    Messages of one queue.

    :ivar start: offset of the first one.
    :ivar stop: behind the last one.
    """

    queue: QueueId
    start: int
    stop: int


def first_names(names: Iterable[Any]) -> str:
    """The first of them, and how many more there are."""
    shown = sorted(names)
    return ", ".join(map(str, shown[:3])) + (f" and {len(shown) - 3} more" if shown[3:] else "")


class Ends(NamedTuple):
    """
    Where a queue begins and ends.

    :ivar is_sure: its end is where it really ends; that of a slave may be behind what was read.
    """

    min_offset: int
    max_offset: int
    is_sure: bool = True


@dataclass(frozen=True)
class Subscription:
    """
    Which queues are wanted; everything when all three are None.

    :ivar topics: by name (`subscribe`).
    :ivar pattern: that the whole name of a topic has to match (`subscribePattern`).
    :ivar assigned: topic, broker (empty: any) and queue (`assign`).
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[QueueId, ...] | None = None

    @property
    def is_everything(self) -> bool:
        """Nothing was chosen: every topic that is there."""
        return self.topics is None and self.pattern is None and self.assigned is None

    @cached_property
    def named(self) -> tuple[str, ...] | None:
        """The topics that were named, sorted; None when one has to look which there are."""
        return None if self._names is None else tuple(sorted(self._names))

    def wants_topic(self, topic: str) -> bool:
        """At least one queue of the topic may be wanted."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return self._names is None or topic in self._names

    def wants(self, queue: QueueId) -> bool:
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
    A store or a cluster, as queues. Implementations can be pickled, and keep nothing between calls
    that a repeated read could tell.
    """

    def queues(self, topics: Subscription) -> list[QueueId]:
        """
        The wanted queues that are there now, sorted.

        :raises CannotDecide: nobody can be asked, or a topic that was named is not there.
        """
        ...

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        """Offset of the first message, and behind the last one."""
        ...

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        """The first message stored at `ms` or later; None when there is none."""
        ...

    def group_offsets(self, group: str, queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
        """
        Where a consumer group goes on in these queues; those in which it has nothing are left out.

        :raises CannotDecide: nobody can be asked.
        """
        ...

    def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        """
        The messages of a range as `pyarrow.RecordBatch` of exactly these columns, in queue order;
        only those with the tags of the options.

        :raises CannotDecide: the range cannot be read whole: messages are gone, or not there yet.
        """
        ...
