"""Writes the snapshot of the state of POP consumption now and then, a few images a turn."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import Host
from rmq_ha.server.pop.entries import NumbersEntry
from rmq_ha.server.pop.journal import PopJournal, PopLog
from rmq_ha.server.pop.replica import PopReplica
from rmq_ha.server.pop.snapshot import SnapshotEnd, encode_image, encode_snapshot
from rmq_ha.server.pop.state import PopState, QueueName

_EVERY_BYTES = 64 << 20
_EVERY_S = 60.0
_SLICE_BYTES = 64 << 10


class _Draft:
    """
    A snapshot that is being made over several turns.

    :ivar begin: queue offset of the first journal record that a start has to apply.
    :ivar read_bytes: bytes of the journal that the snapshot saves a start from reading.
    :ivar left: the queues of which no image was made yet; the last one is next.
    :ivar images: each queue with the bytes of its image.
    :ivar end: queue offset behind the last record that an image has; -1 while images are missing.
    """

    def __init__(self, state: PopState, begin: int, read_bytes: int) -> None:
        self.state = state
        self.begin = begin
        self.read_bytes = read_bytes
        self.left = sorted(state.queues, reverse=True)
        self.images: list[tuple[QueueName, bytes]] = []
        self.end = -1
        self.numbers = NumbersEntry(0, 0)
        self.images_begin = -1


class PopSnapshots:
    """
    Makes snapshots, and writes each when the disk has all journal records that are in it.

    :param path: the file.
    :param may_look: returns whether all entries that the state has are appended to the journal.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        journal: PopJournal,
        replica: PopReplica,
        log: Callable[[], PopLog],
        path: str,
        may_look: Callable[[], bool],
    ) -> None:
        self._host = host
        self._journal = journal
        self._replica = replica
        self._log = log
        self._path = path
        self._may_look = may_look
        self._draft: _Draft | None = None
        self._is_armed = False
        self._writing: Deferred[Any] | None = None
        self._written_end = 0
        self._written_at = host.clock.seconds()

    def forget(self) -> None:
        """Drop a snapshot that is being made, because the state is loaded again."""
        self._draft = None

    def look(self) -> None:
        """Begin a snapshot if 60 s or 64 MiB of the journal have passed, or go on with one."""
        if self._draft is None:
            self._begin()
        elif self._draft.end >= 0:
            self._write()
        self._arm()

    def _begin(self) -> None:
        replica = self._replica
        state, end = replica.state, replica.next
        if state is None or self._writing is not None or end == self._written_end:
            return
        is_late = self._host.clock.seconds() - self._written_at >= _EVERY_S
        if is_late or replica.read_bytes >= _EVERY_BYTES:
            self._draft = _Draft(state, end, replica.read_bytes)

    def _arm(self) -> None:
        if self._draft is not None and self._draft.end < 0 and not self._is_armed:
            self._is_armed = True
            self._host.clock.callLater(0, self._on_turn)

    def _on_turn(self) -> None:
        self._is_armed = False
        draft, replica = self._draft, self._replica
        if draft is None or draft.end >= 0:
            return
        if draft.state is not replica.state:
            self._draft = None
        elif self._may_look():
            self._slice(draft)
            self._arm()
        # Else the next `look` goes on: it comes when what is under way has been appended.

    def _slice(self, draft: _Draft) -> None:
        size = 0
        while draft.left and size < _SLICE_BYTES:
            key = draft.left.pop()
            image = draft.state.image(key)
            if image is not None:
                data = encode_image(self._replica.next, image)
                draft.images.append((key, data))
                size += len(data)
        if not draft.left:
            state = draft.state
            draft.end = self._replica.next
            draft.numbers = state.numbers_entry()
            draft.images_begin = state.images_begin
            draft.images = [item for item in draft.images if item[0][0] in state.names]
            self._write()

    def _write(self) -> None:
        """Write the snapshot, if the disk has all journal records that are in it."""
        draft = self._draft
        if draft is None or self._writing is not None or self._journal.end < draft.end:
            return
        queue = self._journal.queue
        try:
            unit = None if queue is None else queue.unit(draft.end - 1)
        except StoreError:
            return
        if unit is None or self._log().flushed_offset < unit[0] + unit[1]:
            return
        data = encode_snapshot(
            SnapshotEnd(draft.end, unit[0], unit[1]),
            draft.begin,
            draft.numbers,
            draft.images_begin,
            [data for _, data in draft.images],
        )
        self._draft = None
        self._writing = self._host.worker.call(self._host.disk.replace, self._path, data)
        self._writing.addCallbacks(self._was_written, self._failed, callbackArgs=(draft,))

    def _was_written(self, _: object, draft: _Draft) -> None:
        self._writing = None
        self._written_end = draft.end
        self._written_at = self._host.clock.seconds()
        if draft.state is self._replica.state:
            self._replica.read_bytes -= draft.read_bytes

    def _failed(self, failure: Any) -> None:
        self._writing = None
        self._written_at = self._host.clock.seconds()
        self.log.warn(
            "cannot write {path}, so the next start reads more of the POP journal: {error}",
            path=self._path,
            error=failure.value,
        )

    async def stop(self) -> None:
        """Wait until no write is under way."""
        self._draft = None
        if self._writing is not None:
            await self._writing
