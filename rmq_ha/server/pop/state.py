"""What is out with all groups, as the journal of POP consumption says. Every replica has it.

`PopState.apply` never fails: what does not fit changes nothing and is counted, so that all replicas
that applied the same entries are equal.

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
"""The number of a group and a topic, and a queue id."""


class PopState:
    """
    The leases of all groups.

    :ivar names: group and topic by their number.
    :ivar queues: the leases by `QueueName`.
    :ivar next_name: the number that the next new group and topic gets.
    :ivar least_pop_ms: lease names of queues that are gone are below; new queues begin here.
    :ivar out: number of messages that are out.
    :ivar ignored: number of entries that did not fit.
    :ivar images_begin: queue offset of the journal record from which on the journal has all of the
        state, in images; -1 if none was completed.
    """

    def __init__(self) -> None:
        self.names: dict[int, tuple[str, str]] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.queues: dict[QueueName, QueueLeases] = {}
        self.next_name = 1
        self.least_pop_ms = 0
        self.out = 0
        self.ignored = 0
        self.images_begin = -1

    def apply(self, entry: Entry) -> int:
        """
        Do what an entry of the journal says.

        :returns: how many messages it changed; 0 if it did not fit, and for entries about names.
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
        elif isinstance(entry, ImagesEntry):
            self.images_begin = max(self.images_begin, entry.begin)
        return 0

    def apply_all(self, entries: Iterable[Entry]) -> None:
        """Do what the entries of one journal record say."""
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
        """Return the leases of a queue; None if the group never popped it."""
        name = self.numbers.get((group, topic))
        return None if name is None else self.queues.get((name, queue_id))

    def names_of(self, group: str | None = None, topic: str | None = None) -> list[int]:
        """Return the numbers of a group's topics, of a topic's groups, or of one of both."""
        return [
            name
            for name, known in self.names.items()
            if group in (None, known[0]) and topic in (None, known[1])
        ]

    def queues_of(self, name: int) -> Iterator[tuple[int, QueueLeases]]:
        """Yield queue id and leases of all queues of a name, in order."""
        for number, queue_id in sorted(key for key in self.queues if key[0] == name):
            yield queue_id, self.queues[number, queue_id]

    # Images

    def image(self, key: QueueName) -> ImageEntry | None:
        """Return the image of a queue; None if there is none."""
        queue, known = self.queues.get(key), self.names.get(key[0])
        return None if queue is None or known is None else queue.image(*key, *known)

    def images(self) -> list[ImageEntry]:
        """Return the images of all queues, in order."""
        made = [self.image(key) for key in sorted(self.queues)]
        return [image for image in made if image is not None]

    def digest(self) -> str:
        """Return a digest; it is equal if and only if the states are."""
        begin = NumbersEntry(self.next_name, self.least_pop_ms)
        return sha256(encode_entries([begin, *self.images()], 0)).hexdigest()
