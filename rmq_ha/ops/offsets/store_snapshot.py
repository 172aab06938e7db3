"""
Takes a snapshot of a store's directory; its broker may be off.

Spec: store.md, sections 3, 12.2 to 12.6.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rmq_ha.base.errors import CannotDecide, ProtocolViolation
from rmq_ha.base.store_files import DirectoryEntry
from rmq_ha.base.wire.bodies import (
    GroupTable,
    TopicTable,
    decode_delay_offsets,
    decode_offset_table,
)
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.queues import OfflineQueue
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.log_sample import sample_log
from rmq_ha.ops.offsets.model import Fact, Snapshot

REST_MS = 30_000
"""A store that was not written for so many ms is at rest, even if its broker crashed."""

_TABLES: Mapping[str, Callable[[bytes], Iterable[Fact]]] = {
    "topics.json": lambda data: model.topic_facts(TopicTable.decode(data)),
    "subscriptionGroup.json": lambda data: model.group_facts(GroupTable.decode(data)),
    "consumerOffset.json": lambda data: model.offset_facts(decode_offset_table(data)),
    "delayOffset.json": lambda data: model.delay_facts(decode_delay_offsets(data)),
}


_KINDS: Mapping[str, frozenset[str]] = {
    "topics.json": frozenset({model.TOPIC, model.VERSION}),
    "subscriptionGroup.json": frozenset({model.GROUP, model.VERSION}),
    "consumerOffset.json": frozenset({model.OFFSET}),
    "delayOffset.json": frozenset({model.DELAY}),
}
"""Kinds of facts that are unknown if a store's table cannot be read."""


class StoredReplica:
    """
    A store of which snapshots are taken.

    :param note: called once with the remark that a file was read in place of a damaged one.
    """

    def __init__(
        self,
        open_store: Callable[[str], StoreFiles],
        listing: Callable[[str], list[DirectoryEntry]],
        place: str,
        now_ms: Callable[[], int],
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._open_store = open_store
        self._listing = listing
        self._place = place
        self._now_ms = now_ms
        self._note = note
        self._told: set[str] = set()

    def snapshot(self, topics: Mapping[str, int] | None = None) -> Snapshot:
        """
        Read all facts, and check whether the store changed meanwhile.

        :raises CannotDecide: there is no such store, or a file vanished.
        """
        try:
            return self._snapshot()
        except OSError as error:
            raise CannotDecide(
                f"{self._place} cannot be read: {error}. If its broker runs, it may have deleted"
                " that file just now: try again"
            ) from None

    def _snapshot(self) -> Snapshot:
        """Read the store once; the facts of a table that cannot be read are unknown."""
        began = self._now_ms()
        seen = self._changes()
        store = self._open_store(self._place)
        facts: list[Fact] = []
        numbers: dict[str, int] = {}
        kinds = frozenset(model.NUMBERS + model.TEXTS)
        faults = [
            ("STORE_DAMAGED", f"the log has no bytes from {hole.start} to {hole.end}")
            for hole in store.holes
        ]
        for name, read in _TABLES.items():
            try:
                # A broker that has nothing to write makes no file, and takes a missing file as
                # empty.
                data = store.config(name) or b"{}"
                facts += self._read(name, data, read)
            except CannotDecide as damage:
                kinds -= _KINDS[name]
                faults.append(("TABLE_DAMAGED", str(damage)))
                continue
            if name == "topics.json":
                numbers = model.queue_numbers(TopicTable.decode(data))
        queues = [store.queue(*name) for name in store.topics_on_disk()]
        faults += [("STORE_DAMAGED", fault) for queue in queues for fault in queue.faults]
        facts += _queue_facts(queues, numbers)
        sample = sample_log(store.bytes_at, queues, store.holes)
        faults += [("STORE_DAMAGED", fault) for fault in sample.faults]
        for text in store.notes:
            if text not in self._told:
                self._told.add(text)
                self._note(text)
        facts.append(model.log_fact(store.min_offset(), store.max_offset()))
        # A store is at rest if nothing changed it while it was read, and no broker seems to run on
        # it. It is then as it was at its last change, whenever it is read.
        ended, last_change = self._now_ms(), max(seen.values(), default=0)
        is_resting = self._changes() == seen and (not store.abort or ended - last_change > REST_MS)
        if is_resting:
            began = ended = min(ended, last_change)
        return Snapshot(
            self._place,
            None,
            None,
            None,
            is_resting,
            began,
            ended,
            kinds,
            tuple(facts),
            is_crashed=is_resting and store.abort,
            faults=tuple(faults),
            uncertain_queues=frozenset(
                (queue.topic, queue.queue_id) for queue in queues if not queue.is_end_known
            ),
            messages_read=sample.messages_read,
        )

    def _read(self, name: str, data: bytes, read: Callable[[bytes], Iterable[Fact]]) -> list[Fact]:
        """Return the facts of a table's file, or raise CannotDecide if it is damaged."""
        try:
            return list(read(data))
        except (ProtocolViolation, ValueError, TypeError, AttributeError) as error:
            raise CannotDecide(
                f"{self._place}/config/{name} cannot be read: {error}. Put {name}.bak in its place"
                " if that is whole"
            ) from None

    def _changes(self) -> dict[str, int]:
        """Return the files that a running broker writes, with the time of their last change."""
        root = self._place.rstrip("/")
        return {
            f"{directory}/{entry.name}": entry.modified_ms
            for directory in ("", "/config", "/commitlog")
            for entry in self._listing(root + directory)
            if not entry.is_directory
        }


def _queue_facts(queues: Sequence[OfflineQueue], numbers: Mapping[str, int]) -> Iterator[Fact]:
    """Yield the facts of queues on the disk, and of the empty ones of known topics."""
    on_disk = {(queue.topic, queue.queue_id) for queue in queues}
    for queue in queues:
        yield model.queue_fact(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset)
    for topic, number in numbers.items():
        for queue_id in range(number):
            if (topic, queue_id) not in on_disk:
                yield model.queue_fact(topic, queue_id, 0, 0)
