"""
A store's directory that a broker left, or writes at the moment.

Spec: store.md, sections 1, 5.1, 5.2 and 12; dledger.md, section 3.
"""

from collections.abc import Iterator

from rmq_ha.base.host.files import files_of
from rmq_ha.base.store_format.commitlog import store_timestamp_of
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.store.parts import Queue, StoredIndexFile
from rmq_ha.lake.scan.store.scanning import SPLIT_SIZE, Gap, Split, pieces, splits_of
from rmq_ha.ops.offline.directory import StoreFiles

_HEAD = 91


def open_store(
    uri: str,
    *,
    commit_log: str | None = None,
    index_sizes: tuple[int, int] | None = None,
    damaged: bool = False,
) -> "StoreDirectory":
    """
    Open a store by its root directory (`storePathRootDir`).

    :param uri: a path, `file://...`, a URI that pyarrow opens, or a result of
        `rmq_ha.lake.spark.host.staging.stage`.
    :param commit_log: `storePathCommitLog`, if that is set; several directories have commas between
        them. A DLedger's is `.../dledger-<id>/data`.
    :param index_sizes: `maxHashSlotNum` and `maxIndexNum`, if they are not the default.
    :param damaged: read a log or a queue even if files of it are missing; the caller looks at
        `holes` and `Queue.faults`.
    :raises CannotDecide: there is no store, or it is damaged; the text says what to do.
    """
    files, root = files_of(uri)
    store = StoreDirectory(uri, files, root, commit_log, damaged, index_sizes)
    store.log_files()
    return store


class StoreDirectory(StoreFiles):
    """A store with its records, units and index."""

    def splits(
        self, split_size: int = SPLIT_SIZE, stop: int | None = None, start: int = 0
    ) -> list[Split]:
        """Return the records of the log as splits, those that start from `start` to `stop`."""
        bound = self.max_offset()
        return splits_of(
            self._log_files, split_size, start, bound if stop is None else min(stop, bound)
        )

    # Queues

    def queue(self, topic: str, queue_id: int) -> Queue:
        """
        Return a queue; an empty one if it has no files.

        :raises CannotDecide: a file of it is missing, and the store was not opened as damaged.
        """
        return Queue(self.files, topic, queue_id, *self._parts(topic, queue_id), self._damaged)

    def queue_alone(self, topic: str, queue_id: int) -> Queue:
        """
        Return a queue without reading the log, which would take longer.

        :raises CannotDecide: a file of it is missing.
        """
        return Queue(self.files, topic, queue_id, self._row("consumequeue", topic, queue_id))

    def store_time_of(self, physical_offset: int) -> int:
        """Return when the record at an offset was stored, in ms; 0 if there is none."""
        for file in reversed(self._log_files):
            if file.base <= physical_offset < file.end:
                try:
                    head = self.files.read(file.path, physical_offset - file.base, _HEAD)
                except FileNotFoundError:
                    return 0
                return store_timestamp_of(head)
        return 0

    # Index, tables and the rest

    def index_files(self) -> list[StoredIndexFile]:
        """
        Return the index files, oldest first.

        :raises CannotDecide: the number of slots of a file is not known.
        """
        files, unreadable = self.index_parts()
        for fault in unreadable:
            raise fault
        return [file for file in files if isinstance(file, StoredIndexFile)]

    def open_index(self, path: str, size: int, sizes: tuple[int, int] | None) -> StoredIndexFile:
        """:raises CannotDecide: the number of slots of the file is not known."""
        return StoredIndexFile(self.files, path, size, sizes)


def scan(store: StoreDirectory, split: Split) -> Iterator[Records]:
    """
    Yield all records that start in a split.

    :raises CannotDecide: the file vanished.
    """
    for piece in pieces(store.files, split):
        if isinstance(piece, Records):
            yield piece


def scan_with_gaps(store: StoreDirectory, split: Split) -> Iterator[Records | Gap]:
    """
    Yield all records that start in a split, and the gaps between them.

    :raises CannotDecide: the file vanished.
    """
    return pieces(store.files, split)
