"""A store directory: what a broker left, or is writing right now.

Spec: store.md, sections 1, 5.1, 5.2 and 12; dledger.md, section 3.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from rmq_ha.errors import ProtocolViolation
from rmq_ha.spark.host.files import Files, files_of
from rmq_ha.spark.log.records import Records
from rmq_ha.spark.log.walk import Layout
from rmq_ha.spark.result import CannotDecide
from rmq_ha.spark.store.end import end_of_log
from rmq_ha.spark.store.index_files import IndexFile
from rmq_ha.spark.store.log_files import LogFile, is_number, log_files, numbered
from rmq_ha.spark.store.picking import pick_records
from rmq_ha.spark.store.queues import LogBounds, Queue, RowFile
from rmq_ha.spark.store.scanning import SPLIT_SIZE, Gap, Split, pieces, splits_of
from rmq_ha.store.format.checkpoint import CheckpointTimes
from rmq_ha.store.format.commitlog import store_timestamp_of
from rmq_ha.wire.bodies import (
    TopicTable,
    decode_delay_offsets,
    decode_group_table,
    decode_offset_table,
    decode_topic_table,
)

_HEAD = 91


def open_store(
    uri: str, *, commit_log: str | None = None, index_sizes: tuple[int, int] | None = None
) -> "StoreDirectory":
    """
    A store, by its root directory (`storePathRootDir`).

    :param uri: a path, `file://...`, a URI that pyarrow opens, or what `files.stage` returned.
    :param commit_log: `storePathCommitLog`, if that is set; with commas if there are several. A
        DLedger's is `.../dledger-<id>/data`.
    :param index_sizes: `maxHashSlotNum` and `maxIndexNum`, if they are not the default.
    :raises CannotDecide: there is no store; says what to do.
    """
    files, root = files_of(uri)
    store = StoreDirectory(uri, files, root, commit_log, index_sizes)
    store.log_files()
    return store


class StoreDirectory:
    """
    A store. May be pickled.

    What it tells of the log's files and ends is as it was when it was first asked: a store that
    moves is read up to there.

    :ivar notes: what a person should know about how it was read.
    """

    def __init__(
        self,
        uri: str,
        files: Files,
        root: str,
        commit_log: str | None = None,
        index_sizes: tuple[int, int] | None = None,
    ) -> None:
        self.uri = uri
        self.root = root
        self.files = files
        self.notes: list[str] = []
        self._commit_log = commit_log
        self._index_sizes = index_sizes

    # The log

    def log_files(self) -> list[LogFile]:
        """
        The log's files in order.

        :raises CannotDecide: some are missing.
        """
        return list(self._log_files)

    @cached_property
    def _log_files(self) -> list[LogFile]:
        return log_files(self.files, self.root, self._commit_log)

    @property
    def layout(self) -> Layout:
        """Of what is written now; a broker that joined a DLedger has older files in the other."""
        return self._log_files[-1].layout

    def min_offset(self) -> int:
        """Where the first file begins."""
        return self._log_files[0].base

    def max_offset(self) -> int:
        """Where the last complete record ends."""
        return self._max_offset

    @cached_property
    def _max_offset(self) -> int:
        return end_of_log(self.files, self._log_files)

    def splits(
        self, split_size: int = SPLIT_SIZE, stop: int | None = None, start: int = 0
    ) -> list[Split]:
        """
        All records of the log, in parts.

        :param stop: up to there; None: up to `max_offset`.
        :param start: only those that start there or behind.
        """
        bound = self.max_offset()
        return splits_of(
            self._log_files, split_size, start, bound if stop is None else min(stop, bound)
        )

    # Queues

    def topics_on_disk(self) -> list[tuple[str, int]]:
        """Topic and queue id of every consume queue."""
        return sorted(self._queue_rows)

    @cached_property
    def _queue_rows(self) -> dict[tuple[str, int], None]:
        base = f"{self.root}/consumequeue"
        found: dict[tuple[str, int], None] = {}
        for topic in self.files.list(base):
            if topic.is_directory:
                for queue in self.files.list(f"{base}/{topic.name}"):
                    if queue.is_directory and _is_queue_id(queue.name):
                        found[topic.name, int(queue.name)] = None
        return found

    def queue(self, topic: str, queue_id: int) -> Queue:
        """
        A queue; an empty one if there is none.

        :raises CannotDecide: a file is missing in it.
        """
        bounds = LogBounds(self.min_offset(), self.max_offset())
        row = self._row(f"{self.root}/consumequeue/{topic}/{queue_id}")
        extension = self._row(f"{self.root}/consumequeue_ext/{topic}/{queue_id}")
        return Queue(self.files, topic, queue_id, row, extension, bounds)

    def queue_alone(self, topic: str, queue_id: int) -> Queue:
        """
        A queue's units, without a look at the log, which takes longer.

        :raises CannotDecide: a file is missing in it.
        """
        row = self._row(f"{self.root}/consumequeue/{topic}/{queue_id}")
        return Queue(self.files, topic, queue_id, row)

    def _row(self, directory: str) -> list[RowFile]:
        return [
            RowFile(f"{directory}/{entry.name}", int(entry.name), entry.size)
            for entry in numbered(self.files.list(directory))
        ]

    def read_records(self, offsets: Any, sizes: Any) -> Records:
        """
        Records at these places of the log, in this order.

        Those that are not there (deleted, damaged, or not written yet) are left out: compare
        `len`, or `physical_offset`. Call it for some MiB at a time.
        """
        return pick_records(
            self.files,
            self._log_files,
            np.asarray(offsets, np.int64),
            np.asarray(sizes, np.int64),
            self.max_offset(),
        )

    def store_time_of(self, physical_offset: int) -> int:
        """When the record that begins there was stored, ms; 0 if there is none."""
        for file in reversed(self._log_files):
            if file.base <= physical_offset < file.end:
                try:
                    head = self.files.read(file.path, physical_offset - file.base, _HEAD)
                except FileNotFoundError:
                    return 0
                return store_timestamp_of(head)
        return 0

    # Index, tables and the rest

    def index_files(self) -> list[IndexFile]:
        """
        The index files, oldest first.

        :raises CannotDecide: how many slots they have is not known.
        """
        base = f"{self.root}/index"
        return [
            IndexFile(self.files, f"{base}/{entry.name}", entry.size, self._index_sizes)
            for entry in self.files.list(base)
            if not entry.is_directory and entry.name.isdecimal()
        ]

    def config(self, name: str) -> bytes | None:
        """
        A table's file, or its `.bak` where that is missing, empty or damaged; None: neither.

        :param name: `topics.json`, `consumerOffset.json`, `delayOffset.json` or
            `subscriptionGroup.json`; others are returned unread.
        :raises CannotDecide: it and its backup are damaged.
        """
        path = f"{self.root}/config/{name}"
        faults = []
        for one in (path, f"{path}.bak"):
            try:
                data = self.files.read(one)
            except FileNotFoundError:
                continue
            except OSError as error:
                faults.append(f"{one} cannot be read: {error}")
                continue
            if not data:
                faults.append(f"{one} is empty")
                continue
            try:
                _DECODERS.get(name, _as_it_is)(data)
            except ProtocolViolation as error:
                faults.append(f"{one} is damaged: {error}")
                continue
            if one != path:
                fault = faults[0] if faults else f"{path} is missing"
                self.notes.append(f"{fault}; read {one} in its place")
            return data
        if any("empty" not in fault for fault in faults):
            raise CannotDecide(
                f"{'; '.join(faults)}. Repair it (any JSON editor will do), or copy the file from "
                "another replica"
            )
        return None

    def topics(self) -> TopicTable | None:
        """`topics.json`."""
        data = self.config("topics.json")
        return None if data is None else decode_topic_table(data)

    def checkpoint(self) -> CheckpointTimes:
        """The checkpoint; zeros when there is none."""
        try:
            return CheckpointTimes.decode(self.files.read(f"{self.root}/checkpoint"))
        except FileNotFoundError:
            return CheckpointTimes()

    @property
    def abort(self) -> bool:
        """A broker has it open, or was killed."""
        return any(entry.name == "abort" for entry in self.files.list(self.root))


def scan(store: StoreDirectory, split: Split) -> Iterator[Records]:
    """
    All records that start in a split.

    :raises CannotDecide: the file vanished.
    """
    for piece in pieces(store.files, split):
        if isinstance(piece, Records):
            yield piece


def scan_with_gaps(store: StoreDirectory, split: Split) -> Iterator[Records | Gap]:
    """
    The same, and what stands between records and is none.

    :raises CannotDecide: the file vanished.
    """
    return pieces(store.files, split)


def _is_queue_id(name: str) -> bool:
    """As a broker writes it."""
    return is_number(name) and int(name) < 1 << 31 and str(int(name)) == name


def _as_it_is(data: bytes) -> bytes:
    return data


_DECODERS: dict[str, Any] = {
    "topics.json": decode_topic_table,
    "subscriptionGroup.json": decode_group_table,
    "consumerOffset.json": decode_offset_table,
    "delayOffset.json": decode_delay_offsets,
}
