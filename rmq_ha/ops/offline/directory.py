"""
Opens the store of a stopped or a running broker: its files, its tables, and the ends of its log.

Spec: store.md, sections 1, 5.1, 5.2 and 12; dledger.md, section 3.
"""

from bisect import bisect_right
from functools import cached_property
from typing import Any

from rmq_ha.base.errors import CannotDecide, ProtocolViolation
from rmq_ha.base.store_files import Files
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.wire.bodies import (
    GroupTable,
    TopicTable,
    decode_delay_offsets,
    decode_offset_table,
)
from rmq_ha.ops.offline.chain import Layout
from rmq_ha.ops.offline.end import end_of_log
from rmq_ha.ops.offline.index_files import OfflineIndexFile
from rmq_ha.ops.offline.log_files import (
    Hole,
    LogFile,
    holes_in,
    is_number,
    log_files,
    numbered_entries,
)
from rmq_ha.ops.offline.queues import LogBounds, OfflineQueue, RowFile


class StoreFiles:
    """
    A store on the disk. The object can be pickled.

    The files and the ends of the log are those of the first time that they were asked for. A store
    that grows is read up to the end that it had then.

    :param commit_log: `storePathCommitLog`, if that is set; several directories have commas between
        them. A DLedger's is `.../dledger-<id>/data`.
    :param damaged: read a log or a queue even if files of it are missing; the caller looks at
        `holes` and `OfflineQueue.faults`.
    :param index_sizes: `maxHashSlotNum` and `maxIndexNum`, if they are not the default.
    :ivar index_hint: slots and items for index files whose own numbers cannot be found; see
        `index_parts`.
    :ivar notes: remarks for the operator on how the store was read.
    """

    def __init__(
        self,
        uri: str,
        files: Files,
        root: str,
        commit_log: str | None = None,
        damaged: bool = False,
        index_sizes: tuple[int, int] | None = None,
    ) -> None:
        self.uri = uri
        self.root = root
        self.files = files
        self.notes: list[str] = []
        self._commit_log = commit_log
        self._damaged = damaged
        self._index_sizes = index_sizes
        self.index_hint: tuple[int, int] | None = None
        self._found_sizes: dict[tuple[str, int], tuple[int, int]] = {}

    # The log

    def log_files(self) -> list[LogFile]:
        """
        Return the log's files in order.

        :raises CannotDecide: files are missing.
        """
        return list(self._log_files)

    @cached_property
    def _log_files(self) -> list[LogFile]:
        row = log_files(self.files, self.root, self._commit_log)
        for hole in () if self._damaged else holes_in(row):
            raise CannotDecide(
                f"the log has no bytes from {hole.start} to {hole.end} (between {hole.between}): a"
                " file is missing or was cut. Copy it from a replica"
            )
        return row

    @property
    def holes(self) -> list[Hole]:
        return holes_in(self._log_files)

    @property
    def layout(self) -> Layout:
        """Layout of the last file: a broker that joined DLedger has classic older files."""
        return self._log_files[-1].layout

    def min_offset(self) -> int:
        return self._log_files[0].base

    def max_offset(self) -> int:
        """Return the physical offset where the last whole record ends."""
        return self._max_offset

    @cached_property
    def _max_offset(self) -> int:
        return end_of_log(self.files, self._log_files)

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the log from a physical offset on; fewer if the file lacks some."""
        number = bisect_right(self._log_files, offset, key=lambda file: file.base) - 1
        if number < 0:
            return b""
        file = self._log_files[number]
        return bytes(self.files.read(file.path, offset - file.base, size))

    # Queues

    def topics_on_disk(self) -> list[tuple[str, int]]:
        """Return topic and queue id of every consume queue."""
        return sorted(self._queue_rows)

    @cached_property
    def _queue_rows(self) -> dict[tuple[str, int], None]:
        base = f"{self.root}/consumequeue"
        queues: dict[tuple[str, int], None] = {}
        for topic in self.files.list(base):
            if topic.is_directory:
                for queue in self.files.list(f"{base}/{topic.name}"):
                    if queue.is_directory and _is_queue_id(queue.name):
                        queues[topic.name, int(queue.name)] = None
        return queues

    def queue(self, topic: str, queue_id: int) -> OfflineQueue:
        """
        Return a queue; an empty one if it has no files.

        :raises CannotDecide: a file of it is missing, and the store was not opened as damaged.
        """
        parts = self._parts(topic, queue_id)
        return OfflineQueue(self.files, topic, queue_id, *parts, self._damaged)

    def queue_within(self, topic: str, queue_id: int, bounds: LogBounds) -> OfflineQueue:
        """
        Return a queue as `queue` does, with the messages of a part of the log only.

        :param bounds: that part.
        """
        row = self._row("consumequeue", topic, queue_id)
        extension = self._row("consumequeue_ext", topic, queue_id)
        return OfflineQueue(self.files, topic, queue_id, row, extension, bounds, self._damaged)

    def _parts(self, topic: str, queue_id: int) -> tuple[list[RowFile], list[RowFile], LogBounds]:
        return (
            self._row("consumequeue", topic, queue_id),
            self._row("consumequeue_ext", topic, queue_id),
            LogBounds(self.min_offset(), self.max_offset()),
        )

    def _row(self, kind: str, topic: str, queue_id: int) -> list[RowFile]:
        directory = f"{self.root}/{kind}/{topic}/{queue_id}"
        return [
            RowFile(f"{directory}/{entry.name}", int(entry.name), entry.size)
            for entry in numbered_entries(self.files.list(directory))
        ]

    # Index

    def open_index(self, path: str, size: int, sizes: tuple[int, int] | None) -> OfflineIndexFile:
        """
        Open an index file.

        :param size: bytes of the file.
        :param sizes: its numbers of slots and items; None if they are not known.
        :raises CannotDecide: these numbers do not fit, or cannot be found.
        """
        return OfflineIndexFile(self.files, path, size, sizes)

    def index_parts(self) -> tuple[list[OfflineIndexFile], list[CannotDecide]]:
        """
        Return the index files, oldest first, and the faults of those that cannot be read.

        A file whose number of slots cannot be found is taken to have as many as another file of its
        size.
        """
        base = f"{self.root}/index"
        files: dict[str, OfflineIndexFile] = {}
        unknown: dict[str, tuple[int, CannotDecide]] = {}
        for entry in self.files.list(base):
            if not entry.is_directory and entry.name.isdecimal():
                path = f"{base}/{entry.name}"
                sizes = self._index_sizes or self._found_sizes.get((path, entry.size))
                try:
                    files[path] = self.open_index(path, entry.size, sizes)
                except CannotDecide as error:
                    unknown[path] = entry.size, error
        filled = [file for file in files.values() if file.count]
        self._found_sizes = {(file.path, file.size): (file.slots, file.items) for file in filled}
        known = {file.size: (file.slots, file.items) for file in filled}
        unreadable = []
        for path, (size, fault) in unknown.items():
            sizes = known.get(size, self.index_hint)
            if self._index_sizes is not None or sizes is None:
                unreadable.append(fault)
                continue
            try:
                files[path] = self.open_index(path, size, sizes)
            except CannotDecide:
                unreadable.append(fault)
        return [files[path] for path in sorted(files)], unreadable

    # Tables

    def config(self, name: str) -> bytes | None:
        """
        Return the content of a table's file; of its `.bak` if the file is missing, empty or
        damaged; None if neither exists.

        :param name: `topics.json`, `consumerOffset.json`, `delayOffset.json` or
            `subscriptionGroup.json`; the content of other files is not checked.
        :raises CannotDecide: the file and its backup are damaged.
        """
        path = f"{self.root}/config/{name}"
        faults = []
        for copy in (path, f"{path}.bak"):
            try:
                data = self.files.read(copy)
            except FileNotFoundError:
                continue
            except OSError as error:
                faults.append(f"{copy} cannot be read: {error}")
                continue
            if not data:
                faults.append(f"{copy} is empty")
                continue
            try:
                _DECODERS.get(name, _as_it_is)(data)
            except ProtocolViolation as error:
                faults.append(f"{copy} is damaged: {error}")
                continue
            if copy != path:
                fault = faults[0] if faults else f"{path} is missing"
                self.notes.append(f"{fault}; read {copy} in its place")
            return data
        if any("empty" not in fault for fault in faults):
            raise CannotDecide(
                f"{'; '.join(faults)}. Repair it (any JSON editor will do), or copy the file from "
                "another replica"
            )
        return None

    def topics(self) -> TopicTable | None:
        """
        Return the table of topics; None if there is no file.

        :raises CannotDecide: the file and its backup are damaged.
        """
        data = self.config("topics.json")
        return None if data is None else TopicTable.decode(data)

    def checkpoint(self) -> CheckpointTimes | None:
        """Return the checkpoint; None if there is no file."""
        try:
            return CheckpointTimes.decode(self.files.read(f"{self.root}/checkpoint"))
        except FileNotFoundError:
            return None

    @property
    def abort(self) -> bool:
        """Whether the file `abort` exists: a broker has the store open, or was killed."""
        return any(entry.name == "abort" for entry in self.files.list(self.root))


def _is_queue_id(name: str) -> bool:
    return is_number(name) and int(name) < 1 << 31 and str(int(name)) == name


def _as_it_is(data: bytes) -> bytes:
    return data


_DECODERS: dict[str, Any] = {
    "topics.json": TopicTable.decode,
    "subscriptionGroup.json": GroupTable.decode,
    "consumerOffset.json": decode_offset_table,
    "delayOffset.json": decode_delay_offsets,
}
