"""IndexService: finds messages by key and time in a row of IndexFiles.

Spec: store.md, section 4.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from errno import EIO

from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError, CorruptRecord, StoreError
from rmq_ha.base.model.message import Row
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.checkpoint import NOTHING_WHOLE, CompletePositions
from rmq_ha.base.store_format.index import (
    FILE_NAME_LENGTH,
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    ROLLBACK,
    SLOT_SIZE,
    Entry,
    IndexHeader,
    file_name,
    index_file_size,
    index_keys,
    key_hash,
)
from rmq_ha.server.store.index.file import IndexFile

_NO_PART = (-1, 0)


class IndexService:
    """
    The IndexFiles of a store.

    Call everything in the reactor's thread, except `sync`, which blocks and runs in the worker.

    :param store_path: the store's root directory.
    :param now_ms: the wall clock, which names new files.
    :raises ConfigurationError: the files would have no room for any key.
    :ivar is_whole: whether the last `load` after a power loss found the file and the number of
        items that the complete positions of the checkpoint name.
    :ivar damage: why files were removed at the start; empty if none were.
    :ivar on_file_full: None, or called when a file has got its last item, with the store time of
        that item's record. The owner then has `sync` run in the worker. After that it raises the
        checkpoint's index time to the time that it was told.
    """

    log = Logger()

    def __init__(
        self,
        disk: Disk,
        store_path: str,
        max_hash_slot_num: int,
        max_index_num: int,
        now_ms: Callable[[], int],
    ) -> None:
        if max_hash_slot_num < 1 or max_index_num < 2:
            raise ConfigurationError(
                f"maxHashSlotNum {max_hash_slot_num} must be at least 1, maxIndexNum "
                f"{max_index_num} at least 2"
            )
        self._disk = disk
        self._directory = f"{store_path}/index"
        self._slots = max_hash_slot_num
        self._items = max_index_num
        self._now_ms = now_ms
        self._files: list[IndexFile] = []
        self._full: list[IndexFile] = []
        self._part = _NO_PART
        self.damage = ""
        self.is_whole = False
        self.on_file_full: Callable[[int], None] | None = None

    def load(
        self,
        last_exit_ok: bool,
        index_msg_timestamp: int,
        *,
        is_killed: bool = False,
        whole: CompletePositions = NOTHING_WHOLE,
    ) -> None:
        """
        Read the headers of all files.

        After a crash delete files that are newer than the checkpoint.

        :param last_exit_ok: the disk lost no write.
        :param index_msg_timestamp: the checkpoint's index time, ms.
        :param is_killed: the process may have died while it wrote an item into the last file.
        :param whole: after lost power, positions that are known to be on the disk; `is_whole` says
            whether the index has them.

        A damaged file is removed with all later ones, and `damage` says why.

        :raises StoreError: all files have another size than the settings give, or the disk refuses.

        Spec: store.md, section 4.5.
        """
        files = self._find_files()
        # The checkpoint's positions count items of one file. Without that file they prove nothing,
        # and the load goes by store times, as after any other crash.
        if whole.index_file and not any(_number(path) == whole.index_file for path, _ in files):
            whole = NOTHING_WHOLE
        self.is_whole = whole.offset > 0
        size = index_file_size(self._slots, self._items)
        good = any(other == size for _, other in files)
        for number, (path, other) in enumerate(files):
            if other == size:
                # Only the newest file was being written when the process was killed.
                is_last = is_killed and number + 1 == len(files)
                if not self.is_whole:
                    self._load(path, last_exit_ok, index_msg_timestamp, is_last)
                elif _number(path) < whole.index_file:
                    self._load(path, True, 0, False)
                elif _number(path) == whole.index_file and whole.index_count > 1:
                    self._load(path, True, 0, False, whole.index_count)
                else:
                    # Lost power may have torn this file. The records after `whole.offset` are
                    # dispatched again.
                    self._remove(path)
            elif good or self._is_cut(path, other):
                self.damage = f"{path} has {other} bytes instead of {size}"
            else:
                raise StoreError(
                    f"{path} has {other} bytes, but maxHashSlotNum and maxIndexNum make it {size}; "
                    "start with the settings with which the store was written, or delete the "
                    "index directory and with it the keys of old messages"
                )
            if self.damage:
                self.is_whole = False
                for later, _ in files[number:]:  # the items must be in the order of the log
                    self._remove(later)
                return

    def _find_files(self) -> list[tuple[str, int]]:
        """Return path and size of each file that is not empty; remove empty ones."""
        files: list[tuple[str, int]] = []
        for name in self._disk.list_dir(self._directory):
            path = f"{self._directory}/{name}"
            if not (name.isascii() and name.isdigit()) or self._disk.is_dir(path):
                continue
            if size := self._disk.size(path):
                files.append((path, size))
            else:
                self._remove(path)  # the process died while it created this file
        return files

    def _load(
        self,
        path: str,
        last_exit_ok: bool,
        index_msg_timestamp: int,
        is_half_put: bool,
        whole_count: int = 0,
    ) -> None:
        """
        Read a file and append it to `_files`; set `damage` if it is corrupt or the disk cannot read
        it.
        """
        file = IndexFile(self._disk, path, self._slots, self._items)
        try:
            file.load()
            if is_half_put:
                file.undo_half_put()
            if whole_count:
                file.restore(whole_count)
        except CorruptRecord as error:
            self.damage = str(error)
            return
        except StoreError as error:
            if getattr(error.__cause__, "errno", 0) != EIO:
                raise
            self.damage = str(error)
            return
        finally:
            file.close()
        if not last_exit_ok and file.header.end_timestamp > index_msg_timestamp:
            self._remove(path)
        else:
            self._files.append(file)

    def _is_cut(self, path: str, size: int) -> bool:
        """Return whether the file was written with these settings and lost its end."""
        if not HEADER_SIZE + SLOT_SIZE * self._slots + 2 * ITEM_SIZE <= size:
            return False
        if size >= index_file_size(self._slots, self._items):
            return False
        file = self._disk.open(path, size)
        try:
            header = IndexHeader.decode(file.pread(HEADER_SIZE, 0))
            item = file.pread(ITEM_SIZE, HEADER_SIZE + SLOT_SIZE * self._slots + ITEM_SIZE)
        finally:
            file.close()
        key_hash, physical_offset, seconds, _ = ITEM.unpack(item)
        begins = (header.begin_physical_offset, 0)
        return key_hash != 0 and (physical_offset, seconds) == begins

    @property
    def reached(self) -> int:
        """Physical offset of the last indexed record; 0 if the index is empty."""
        return self._files[-1].header.end_physical_offset if self._files else 0

    @property
    def reached_timestamp(self) -> int:
        """Store time of the last indexed record, ms; 0 if the index is empty."""
        return self._files[-1].header.end_timestamp if self._files else 0

    def _remove(self, path: str) -> None:
        try:
            self._disk.remove(path)
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error}") from error

    @property
    def place(self) -> tuple[int, int]:
        """
        The number in the newest file's name, and how many items the file counts; 0 and 0 without
        files.
        """
        file = self._files[-1] if self._files else None
        return (0, 0) if file is None else (_number(file.path), file.header.index_count)

    def headers(self) -> list[tuple[str, IndexHeader]]:
        """Return path and header of each file, oldest first."""
        return [(file.path, file.header) for file in self._files]

    # Writing

    def put_rows(self, rows: Rows, most: int = sys.maxsize) -> bool:
        """
        Do what `put_requests` does, in one step if the newest file has room for all keys.
        """
        file = self._files[-1] if self._files and self._part is _NO_PART else None
        count = -1 if file is None else file.put_rows(rows, most)
        if file is None or count < 0:
            return self.put_requests(rows, most)
        if count and file.header.index_count >= self._items:
            self._became_full(file)
        return True

    def put_requests(self, requests: Sequence[Row], most: int = sys.maxsize) -> bool:
        """
        Index the unique key and the keys of each record.

        :param requests: in log order. Those that were indexed before change nothing, except the
            last one.
        :param most: most keys in this call, as a single record may have many thousands.
        :returns: whether all keys are indexed. If not, put the same requests again to continue.
        :raises StoreError: the disk refuses; put the same requests again later.

        Spec: store.md, sections 4.2 and 4.3.
        """
        begun, keys_in = self._part
        part = _NO_PART
        reached = self._files[-1].header.end_physical_offset if self._files else 0
        reached = begun if begun > reached else reached
        entries: list[Entry] = []
        left = most
        for request in requests:
            topic, _, physical_offset, _, _, timestamp, _, keys, uniq_key, sys_flag, _, _ = request
            # "Below", not "up to": a kill may have come between two keys of the record at
            # `reached`. Its keys go in again, as an item that stands twice does no harm and a
            # missing one hides a message.
            if physical_offset < reached or sys_flag & ROLLBACK == ROLLBACK:
                continue
            # A record may have more keys than this call may still put. The next call continues
            # within the record.
            first = keys_in if physical_offset == begun else 0
            last = first + max(0, left)
            names = index_keys(keys, uniq_key)
            for name in names[first:last]:
                entries.append((key_hash(topic, name), physical_offset, timestamp))
            if last < len(names):
                part = (physical_offset, last)
                break
            left = most - len(entries)
        while entries:
            file = self._files[-1] if self._files else self._next()
            room = file.room
            if not room:
                file = self._next()
                room = file.room
            now, entries = entries[:room], entries[room:]
            file.put(now)
            if len(now) == room:
                self._became_full(file)
        self._part = part
        return part is _NO_PART

    def _next(self) -> IndexFile:
        last = self._files[-1] if self._files else None
        path = f"{self._directory}/{self._new_name()}"
        file = IndexFile(self._disk, path, self._slots, self._items)
        try:
            file.create(last.header if last else None)
        except StoreError:
            file.close()
            self._remove(path)
            raise
        self._files.append(file)
        return file

    def _new_name(self) -> str:
        """
        Return the local time as a name that sorts after all existing names, even twice in a ms or
        after the clock was set back.
        """
        name = file_name(self._now_ms())
        if self._files:
            last = self._files[-1].path.rpartition("/")[2]
            if name <= last:
                name = f"{int(last) + 1:0{FILE_NAME_LENGTH}d}"
        return name

    def _became_full(self, file: IndexFile) -> None:
        for older in self._files[:-1]:
            if older not in self._full:
                older.close()
        self._full.append(file)
        if self.on_file_full is not None:
            self.on_file_full(file.header.end_timestamp)

    # Looking up

    def find(
        self, topic: str, key: str, max_nums: int, begin: int, end: int, places: list[int]
    ) -> Iterator[None]:
        """
        Collect the physical offsets of records with a key.

        Records with other keys of the same hash may be among them.

        :param begin: earliest store time, ms, exact to a second; `end` is the latest.
        :param places: gets physical offsets, newest first.
        :returns: an iterator that does a part of the search in each step. Files may be added and
            removed between steps.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 4.4.
        """
        hashed = key_hash(topic, key)
        for file in self._files[::-1]:
            if file not in self._files:
                return  # this file and all older ones expired during the search
            if file.overlaps(begin, end):
                try:
                    for _ in file.find(hashed, max_nums, begin, end, places):
                        yield
                        if file not in self._files:
                            return
                except CorruptRecord as error:
                    self.log.error("an index chain is broken: {error}", error=error)
                if file is not self._files[-1] and file not in self._full:
                    file.close()
            if file.header.begin_timestamp < begin or len(places) >= max_nums:
                return

    # Cleaning and flushing

    def truncate(self, physical_offset: int) -> None:
        """
        Remove all records at and after `physical_offset`, the new end of the log.

        :raises StoreError: the disk refuses.
        """
        self._part = _NO_PART
        while self._files and self._files[-1].header.begin_physical_offset >= physical_offset:
            file = self._files.pop()
            if file in self._full:
                self._full.remove(file)
            file.close()
            self._remove(file.path)
        if self._files:
            self._files[-1].truncate(physical_offset)
            if self._files[-1].room and self._files[-1] in self._full:
                self._full.remove(self._files[-1])

    def delete_expired(self, min_physical_offset: int) -> int:
        """
        Delete files whose records the log has deleted, but never the newest; return how many.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 9.3.
        """
        deleted = 0
        while len(self._files) > 1:
            file = self._files[0]
            if file.header.end_physical_offset >= min_physical_offset:
                break
            if file not in self._full:
                file.close()
            self._remove(file.path)
            del self._files[0]
            deleted += 1
        return deleted

    def sync(self) -> None:
        """
        Bring all items that were put before this call to the disk.

        Blocks: call it in the worker.

        :raises StoreError: the disk refuses; the next call tries the remaining files again.
        """
        while self._full:
            self._full[0].sync()
            del self._full[0]
        for file in self._files[-1:]:
            if file.is_dirty:
                file.sync()

    def close(self) -> None:
        """Release descriptors and maps; the next use opens them again."""
        for file in (*self._full, *self._files):
            file.close()


def _number(path: str) -> int:
    """
    Return the file name as a number.

    It is the local time when the file was made, and later names are higher.
    """
    return int(path.rpartition("/")[2])
