"""ConsumerOffsetManager: the next offset of each consumer group in each queue.

Spec: store.md, section 12.4; remoting.md, section 7.4 and chapter 8.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import decode_offset_table
from rmq_ha.base.wire.pages import page_of
from rmq_ha.server.broker.tables.entries import WrittenEntries

_NOTHING: Mapping[int, int] = {}


class OffsetBeyondEnd(NamedTuple):
    """
    A group's offset beyond the end of its queue.

    :ivar end: end of the queue.
    """

    topic: str
    group: str
    queue_id: int
    offset: int
    end: int


class ConsumerOffsetManager(PersistedTable):
    """
    The next queue offset by `topic@group` and queue id, in memory and in `consumerOffset.json`.

    Commits only mark the table dirty; the broker calls `persist_if_dirty` every
    `flushConsumerOffsetInterval` and when it stops.

    :ivar table: `topic@group` to queue id to offset; only read it.
    :ivar on_change: called with each `topic@group` whose offsets changed or were removed.
    """

    def __init__(self, disk: Disk, worker: Worker, path: str) -> None:
        super().__init__(disk, worker, path)
        self.table: dict[str, dict[int, int]] = {}
        self.on_change: Callable[[str], None] = lambda key: None
        self._at_first_change: Callable[[], None] | None = None
        self._in_file = WrittenEntries[dict[int, int]]()

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Store a consumer's progress unchecked: lower offsets and unknown topics, too."""
        key = f"{topic}@{group}"
        table = self.table
        queues = table.get(key)
        if queues is None:
            queues = table[key] = {}
        elif queues.get(queue_id) == queue_offset:
            return
        queues[queue_id] = queue_offset
        self._has_changed(key)

    def call_at_first_change(self, function: Callable[[], None] | None) -> None:
        """Have a function called once, when an offset changes; at once if one has changed."""
        self._at_first_change = function
        if self.is_dirty:
            self._tell_first_change()

    def _has_changed(self, key: str) -> None:
        self._in_file.changed(key)
        self.is_dirty = True
        self.on_change(key)
        if self._at_first_change is not None:
            self._tell_first_change()

    def _tell_first_change(self) -> None:
        function, self._at_first_change = self._at_first_change, None
        if function is not None:
            function()

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset; -1 if there is none."""
        return self.table.get(f"{topic}@{group}", _NOTHING).get(queue_id, -1)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the committed offset by queue id; empty for an unknown group and topic."""
        return self.table.get(f"{topic}@{group}", _NOTHING)

    def merge(self, table: Mapping[str, Mapping[int, int]]) -> bool:
        """
        Take a master's offsets at a slave: all queues of each `topic@group` together; keep the
        others.

        :returns: whether an offset changed; `persist_if_dirty` writes it.
        """
        changed = False
        for key, queues in table.items():
            if self.table.get(key) != queues:
                self.table[key] = dict(queues)
                self._has_changed(key)
                changed = True
        return changed

    def clone(self, source_group: str, group: str, topic: str) -> bool:
        """
        Replace a group's progress on a topic by that of another group.

        :returns: whether the other group has any.
        """
        queues = self.table.get(f"{topic}@{source_group}")
        if queues is None:
            return False
        self.table[f"{topic}@{group}"] = dict(queues)
        self._has_changed(f"{topic}@{group}")
        return True

    def remove_group(self, group: str) -> int:
        """
        Forget a group's offsets.

        :returns: number of topics.
        """
        return self.forget([key for key, _, name in self._split() if name == group])

    def remove_topic(self, topic: str) -> int:
        """
        Forget all groups' offsets on a deleted topic.

        :returns: number of groups.
        """
        return self.forget([key for key, name, _ in self._split() if name == topic])

    def forget(self, keys: Iterable[str]) -> int:
        """
        Forget all offsets of each `topic@group`.

        :returns: how many of them had offsets.
        """
        known = [key for key in keys if self.table.pop(key, None) is not None]
        for key in known:
            self._has_changed(key)
        return len(known)

    def begin_anew(self, topic: str, queue_id: int, queue_offset: int) -> list[str]:
        """
        Forget offsets that are too high for a queue whose topic was deleted and made again.

        A group that kept such an offset would be told that it is beyond the end, and would skip all
        messages that have come since.

        :param queue_offset: no group can have consumed more messages of the new queue.
        :returns: the groups that had such an offset.
        """
        groups = []
        for key, name, group in list(self._split()):
            if name == topic and self.table[key].get(queue_id, -1) > queue_offset:
                del self.table[key][queue_id]
                groups.append(group)
                if not self.table[key]:
                    del self.table[key]
                self._has_changed(key)
        return groups

    def end_at_queues(
        self, end_of: Callable[[str, int], int], is_exempt: Callable[[str, str], bool]
    ) -> list[OffsetBeyondEnd]:
        """
        Set each offset beyond the end of its queue to that end.

        Such an offset belongs to a log that was longer, such as the old master's. The group would
        skip every new message until the queue reaches the offset.

        :param end_of: returns the end of a topic's queue; 0 if there is no such queue.
        :param is_exempt: returns whether the offsets of a topic and a group stay as they are.
        :returns: the offsets that were changed, as they were before.
        """
        beyond = [
            OffsetBeyondEnd(topic, group, queue_id, offset, end)
            for key, topic, group in self._split()
            if not is_exempt(topic, group)
            for queue_id, offset in self.table[key].items()
            if offset > (end := end_of(topic, queue_id))
        ]
        for item in beyond:
            self.commit(item.group, item.topic, item.queue_id, item.end)
        return beyond

    def unread(self, min_offset: Callable[[str, int], int]) -> dict[str, int]:
        """
        Count the messages that were deleted from the log before groups have consumed them.

        :param min_offset: returns the first queue offset of a queue that can be read.
        :returns: number of messages by `topic@group`; only groups that miss messages.
        """
        missing_by_key: dict[str, int] = {}
        for key, topic, _ in self._split():
            for queue_id, offset in self.table[key].items():
                missing = min_offset(topic, queue_id) - offset
                if missing > 0:
                    missing_by_key[key] = missing_by_key.get(key, 0) + missing
        return missing_by_key

    def which_groups(self, topic: str) -> set[str]:
        """Return the groups with committed offsets on the topic."""
        return {group for _, name, group in self._split() if name == topic}

    def which_topics(self, group: str) -> set[str]:
        """Return the topics on which the group has committed offsets."""
        return {topic for _, topic, name in self._split() if name == group}

    def topics_by_group(self) -> dict[str, set[str]]:
        """Return `which_topics` of every group, in one walk."""
        topics: dict[str, set[str]] = {}
        for _, topic, group in self._split():
            topics.setdefault(group, set()).add(topic)
        return topics

    def to_json(self) -> dict[str, Any]:
        """Return the content of `consumerOffset.json` and of code 43."""
        return {"offsetTable": self.table}

    def to_json_of_5(self) -> dict[str, Any]:
        """
        Return the same content in the form of RocketMQ 5, for its slaves.

        The version never changes, as nobody compares it.
        """
        topics = {group: sorted(names) for group, names in self.topics_by_group().items()}
        version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        return {"dataVersion": version, "groupTopicMap": topics, "offsetTable": self.table}

    def to_body(self) -> bytes:
        """Return the body of the answer to GET_ALL_CONSUMER_OFFSET (43)."""
        return fastjson.encode(self.to_json())

    def page(self, first: int) -> tuple[bytes, dict[str, str]]:
        """
        Return the body and the header fields of a page of that answer, see
        `rmq_ha.base.wire.pages`.
        """
        entries, ext = page_of(self.table, first, len)
        return fastjson.encode({"offsetTable": entries}), ext

    def encode(self) -> bytes:
        """Return the text of `consumerOffset.json`."""
        return fastjson.pretty({"offsetTable": self._in_file.texts_of(self.table)})

    def decode(self, data: bytes) -> None:
        """
        Replace the table by a file's offsets.

        :raises ProtocolViolation: the text does not hold offsets.
        """
        self.table = decode_offset_table(data)

    def _split(self) -> Iterator[tuple[str, str, str]]:
        """Yield key, topic and group of each entry; a topic cannot hold an `@`."""
        for key in self.table:
            topic, separator, group = key.partition("@")
            if separator:
                yield key, topic, group
