"""The state of POP consumption of one broker: loaded at a start, then following the journal.

Spec: pop.md, section 13.5.
"""

from collections.abc import Callable, Iterator

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.slices import in_slices
from rmq_ha.server.pop.entries import DropEntry, Entry, ImagesEntry, NameEntry, NumbersEntry
from rmq_ha.server.pop.journal import PopJournal
from rmq_ha.server.pop.records import UnknownEntry
from rmq_ha.server.pop.snapshot import PopSnapshot, decode_snapshot
from rmq_ha.server.pop.state import PopState

_RECORDS_A_SLICE = 32
_LEAST_WORK, _WORK_A_SLICE = 50, 5000
"""Work is counted in runs of images, each of which takes about 2 microseconds."""
_AGAIN_S = 5.0


class PopReplica:
    """
    Loads the state from snapshot and journal, and then applies new journal records to it.

    :param path: path of the snapshot.
    :param loaded: called when the state is loaded, after each `begin`.
    :ivar on_failure: called when the state cannot be loaded; that is tried again every 5 s.
    :ivar state: None while it is being loaded, and if a newer broker wrote the journal.
    :ivar next: queue offset of the first journal record that is not applied.
    :ivar read_bytes: bytes of the journal that were applied since the last snapshot.
    :ivar lost: number of records that were damaged or missing.
    """

    log = Logger()

    def __init__(
        self, host: Host, journal: PopJournal, path: str, loaded: Callable[[], object]
    ) -> None:
        self._host = host
        self._journal = journal
        self._path = path
        self._loaded = loaded
        self._loads = 0
        self._again: IDelayedCall | None = None
        self._since: dict[tuple[int, int], int] = {}
        self.on_failure: Callable[[], object] = lambda: None
        self.state: PopState | None = None
        self.next = 0
        self.read_bytes = 0
        self.lost = 0

    # Loading

    def begin(self) -> None:
        """Load the state in slices, because the store opened, or the log was cut."""
        self.end()
        work = self._load(self._loads)
        in_slices(self._host.clock, work).addErrback(self._load_failed, self._loads)

    def end(self) -> None:
        """Forget the state."""
        self._loads += 1
        self.state = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _load(self, number: int) -> Iterator[None]:
        state = PopState()
        self._since = {}
        self.read_bytes = 0
        snapshot = self._snapshot()
        queue = self._journal.queue
        self.next = 0 if queue is None else queue.min_offset
        if snapshot is not None:
            self.next = snapshot.begin
            state.apply(snapshot.numbers)
            state.images_begin = snapshot.images_begin
            work = 0
            for since, image in snapshot.images:
                state.apply(image)
                self._since[image.name, image.queue_id] = since
                work += _LEAST_WORK + len(image.runs)
                if work >= _WORK_A_SLICE:
                    work = 0
                    yield
                    if number != self._loads:
                        return
        first = self.next
        while not self._is_level:
            self._take(state, _RECORDS_A_SLICE)
            yield
            if number != self._loads:
                return
        self._since = {}
        if snapshot is None and first > 0 and state.images_begin < first:
            self.log.warn(
                "the records of the POP journal before {first} are deleted and nothing replaces "
                "them: groups begin at their offsets, and get again what they acknowledged above",
                first=first,
            )
        self.state = state
        if state.out:
            self.log.info("{count} messages are out with POP consumers", count=state.out)
        self._loaded()

    def _load_failed(self, failure: object, number: int) -> None:
        if number != self._loads:
            return
        self.log.error("POP consumers get no messages yet: {failure}", failure=failure)
        self._again = self._host.clock.callLater(_AGAIN_S, self._on_again)
        self.on_failure()

    def _on_again(self) -> None:
        self._again = None
        self.begin()

    def _snapshot(self) -> PopSnapshot | None:
        """Return the snapshot; None if there is none, or none that fits this log."""
        try:
            snapshot = decode_snapshot(self._host.disk.read_bytes(self._path))
        except FileNotFoundError:
            return None
        except (OSError, CorruptRecord) as error:
            self.log.warn(
                "{path} is left out, and the whole POP journal is read: {error}",
                path=self._path,
                error=error,
            )
            return None
        queue, place = self._journal.queue, snapshot.place
        unit = None if queue is None else queue.unit(place.end - 1)
        if queue is None or unit is None or unit[:2] != (place.physical_offset, place.size):
            self.log.warn(
                "{path} is left out, and the whole POP journal is read: the snapshot is of another "
                "log, or of a part of it that is gone",
                path=self._path,
            )
            return None
        return snapshot if queue.min_offset <= snapshot.begin else None

    # Following

    @property
    def _is_level(self) -> bool:
        return self.next >= self._journal.end

    def follow(self) -> None:
        """
        Apply the journal records that are dispatched and not applied yet, if the state is loaded.

        :raises StoreError: the disk refuses.
        """
        state = self.state
        while state is not None and not self._is_level:
            try:
                self._take(state, _RECORDS_A_SLICE)
            except UnknownEntry as error:
                self.log.error(
                    "POP consumers get no messages of this broker: {error}: install the version "
                    "that its master has",
                    error=error,
                )
                self.end()
                return

    def _take(self, state: PopState, count: int) -> None:
        queue = self._journal.queue
        if queue is None:
            return
        self.next = max(self.next, queue.min_offset)
        units = queue.units(self.next, count)
        if not units:
            self.next = min(queue.next_file_offset(self.next), queue.max_offset)
        for unit in units:
            try:
                entries = self._journal.entries_of(unit)
            except UnknownEntry:
                raise
            except CorruptRecord as error:
                self.lost += 1
                self.log.error(
                    "the record at {place} of the POP journal is left out: {error}",
                    place=unit[0],
                    error=error,
                )
                entries = []
            self.apply(state, entries)
            self.next += 1
            self.read_bytes += unit[1]

    def apply(self, state: PopState, entries: list[Entry]) -> None:
        """
        Apply the entries of the record with the queue offset `next`.

        While a snapshot is loaded, entries are passed over that the image of their queue has.
        """
        if not self._since:
            state.apply_all(entries)
            return
        for entry in entries:
            if isinstance(
                entry, (NameEntry, DropEntry, NumbersEntry, ImagesEntry)
            ) or self.next >= self._since.get((entry.name, entry.queue_id), 0):
                state.apply(entry)

    def appended(self, records: int, size: int) -> None:
        """
        Take note of journal records that this broker wrote, and whose entries it has applied.

        :param size: bytes of the records.
        """
        self.next += records
        self.read_bytes += size
