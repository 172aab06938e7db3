"""The leases of all groups, as the entries of the POP journal make them. Every replica has them.

`PopState.apply` never fails: an entry that does not fit the state changes nothing and is counted.
So all replicas that applied the same entries have the same state.

Spec: pop.md, sections 13.1 to 13.5.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from rmq_ha.server.pop.entries import (
    AckEntry,
    ChangeEntry,
    DropEntry,
    Entry,
    ImageEntry,
    ImagesEntry,
    MoveEntry,
    NameEntry,
    NumbersEntry,
    PopEntry,
    ResetEntry,
    SkipEntry,
)
from rmq_ha.server.pop.leases import QueueLeases, restored
from rmq_ha.server.pop.records import encode_entries

QueueName = tuple[int, int]
"""The number that stands for a group and a topic, and a queue id of that topic."""


class PopState:
    """
    The leases of all groups.

    A *lease* is one handing out of one message to a consumer. The `pop_ms` of its pop, a time in
    ms, is the *lease name*; the names that one queue gives only grow. An *image* is a journal entry
    with the whole state of one queue of one group. An entry *fits* if the state has what the entry
    is about: the number of its group and topic, its queue, or the leases that it names. A name
    entry fits if the state has neither its number nor its group and topic.

    :ivar names: group and topic by the number that stands for both in journal entries.
    :ivar numbers: that number by group and topic.
    :ivar queues: the leases of each queue by its `QueueName`.
    :ivar next_name: the number that the next new group and topic gets.
    :ivar least_pop_ms: the greatest lease name of the queues that were dropped. A new queue gives
        only greater ones, so an old receipt never names a new lease.
    :ivar java_end: see `NumbersEntry`.
    :ivar java_born_ms: see `NumbersEntry`.
    :ivar out: number of messages of all queues that are out.
    :ivar ignored: number of entries that changed nothing, because they did not fit.
    :ivar images_begin: a queue offset of the journal: its records from there on have the whole
        state, because images of all queues begin there. -1 if there never were such images.
    """

    def __init__(self) -> None:
        self.names: dict[int, tuple[str, str]] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.queues: dict[QueueName, QueueLeases] = {}
        self.next_name = 1
        self.least_pop_ms = 0
        self.java_end = 0
        self.java_born_ms = 0
        self.out = 0
        self.ignored = 0
        self.images_begin = -1

    def apply(self, entry: Entry) -> int:
        """
        Change the state as an entry of the journal says.

        :returns: number of messages that the entry changed. A skip counts the offsets that it
            passed, and a reset counts as 1. 0 if the entry did not fit, and for all entries that
            name no message: names, drops, images and numbers.
        """
        if isinstance(entry, (PopEntry, AckEntry, ChangeEntry, MoveEntry, SkipEntry)):
            return self._apply_to_queue(entry)
        if isinstance(entry, ResetEntry):
            return self._reset(entry)
        if isinstance(entry, NameEntry):
            self._give_name(entry.name, entry.group, entry.topic)
        elif isinstance(entry, DropEntry):
            self._drop(entry.name)
        elif isinstance(entry, ImageEntry):
            self._restore(entry)
        elif isinstance(entry, NumbersEntry):
            self.next_name = max(self.next_name, entry.next_name)
            self.least_pop_ms = max(self.least_pop_ms, entry.least_pop_ms)
            self.java_end = max(self.java_end, entry.java_end)
            self.java_born_ms = max(self.java_born_ms, entry.java_born_ms)
        elif isinstance(entry, ImagesEntry):
            self.images_begin = max(self.images_begin, entry.begin)
        return 0

    def apply_all(self, entries: Iterable[Entry]) -> None:
        """Apply the entries of one journal record, in their order."""
        for entry in entries:
            self.apply(entry)

    def _apply_to_queue(
        self, entry: PopEntry | AckEntry | ChangeEntry | MoveEntry | SkipEntry
    ) -> int:
        queue = self.queues.get((entry.name, entry.queue_id))
        if queue is None:
            self.ignored += 1
            return 0
        before = queue.out
        if isinstance(entry, PopEntry):
            count = queue.pop(entry)
        elif isinstance(entry, AckEntry):
            count = queue.ack(entry)
        elif isinstance(entry, ChangeEntry):
            count = queue.change(entry)
        elif isinstance(entry, MoveEntry):
            count = queue.move(entry)
        else:
            count = queue.skip(entry)
        self.out += queue.out - before
        if not count:
            self.ignored += 1
        return count

    def _reset(self, entry: ResetEntry) -> int:
        if entry.name not in self.names:
            self.ignored += 1
            return 0
        key = entry.name, entry.queue_id
        queue = self.queues.get(key)
        if queue is None:
            self.queues[key] = QueueLeases(entry.offset, self.least_pop_ms)
            return 1
        self.out -= queue.out
        return queue.reset(entry.offset)

    def _give_name(self, name: int, group: str, topic: str) -> None:
        if name in self.names or (group, topic) in self.numbers:
            self.ignored += 1
            return
        self.names[name] = group, topic
        self.numbers[group, topic] = name
        self.next_name = max(self.next_name, name + 1)

    def _drop(self, name: int) -> None:
        known = self.names.pop(name, None)
        if known is None:
            self.ignored += 1
            return
        del self.numbers[known]
        for key in [key for key in self.queues if key[0] == name]:
            queue = self.queues.pop(key)
            self.out -= queue.out
            self.least_pop_ms = max(self.least_pop_ms, queue.last_pop_ms)

    def _restore(self, entry: ImageEntry) -> None:
        leases = restored(entry)
        known = self.names.get(entry.name)
        if leases is None or known not in (None, (entry.group, entry.topic)):
            self.ignored += 1
            return
        if known is None:
            other = self.numbers.get((entry.group, entry.topic))
            if other is not None:
                self._drop(other)
            self._give_name(entry.name, entry.group, entry.topic)
        key = entry.name, entry.queue_id
        before = self.queues.get(key)
        self.out += leases.out - (0 if before is None else before.out)
        self.queues[key] = leases

    # Questions

    def find(self, group: str, topic: str, queue_id: int) -> QueueLeases | None:
        """Return a group's leases of a queue; None if the group does not pop the queue."""
        name = self.numbers.get((group, topic))
        return None if name is None else self.queues.get((name, queue_id))

    def names_of(self, group: str | None = None, topic: str | None = None) -> list[int]:
        """
        Return the numbers that stand for a group and a topic.

        :param group: only numbers of this group; None for all groups.
        :param topic: only numbers of this topic; None for all topics.
        """
        return [
            name
            for name, known in self.names.items()
            if group in (None, known[0]) and topic in (None, known[1])
        ]

    def queues_of(self, name: int) -> Iterator[tuple[int, QueueLeases]]:
        """Yield queue id and leases of all queues of one group and topic, by ascending id."""
        for number, queue_id in sorted(key for key in self.queues if key[0] == name):
            yield queue_id, self.queues[number, queue_id]

    # Images

    def numbers_entry(self) -> NumbersEntry:
        """Return an entry with the numbers from which the state goes on."""
        return NumbersEntry(self.next_name, self.least_pop_ms, self.java_end, self.java_born_ms)

    def image(self, key: QueueName) -> ImageEntry | None:
        """Return an entry with the whole state of a queue; None if the state lacks the queue."""
        queue, known = self.queues.get(key), self.names.get(key[0])
        return None if queue is None or known is None else queue.image(*key, *known)

    def images(self) -> list[ImageEntry]:
        """Return the images of all queues, in order."""
        made = [self.image(key) for key in sorted(self.queues)]
        return [image for image in made if image is not None]

    def digest(self) -> str:
        """
        Return the SHA-256 of all images and numbers, in hexadecimal.

        Two states with equal digests have the same leases. `ignored`, `images_begin` and names
        without a queue are not in it.
        """
        return sha256(encode_entries([self.numbers_entry(), *self.images()], 0)).hexdigest()
