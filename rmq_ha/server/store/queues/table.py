"""All consume queues of a store.

Spec: store.md, sections 3 and 9.3.
"""

from collections.abc import ItemsView, Mapping, Sequence

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Row
from rmq_ha.base.model.topics import HOLD_TIMES, POP_TOPIC, TIMER_PROGRESS_TOPIC
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.row_list import NOT_FOR_CONSUMERS
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.server.store.queues.ext import BitMapOf, QueueExtension
from rmq_ha.server.store.queues.files import FEWEST_QUEUE_FILES, QueueFiles
from rmq_ha.server.store.queues.queue import ConsumeQueue, Restarted

__all__ = ["ConsumeQueue", "ConsumeQueueTable"]

_NAME_DIGITS = 20
_KEPT_TOPICS = HOLD_TIMES | {TIMER_PROGRESS_TOPIC, POP_TOPIC}
_NOTHING: Mapping[tuple[str, int], int] = {}


class ConsumeQueueTable:
    """
    The consume queues by topic and queue id.

    Call everything in the reactor's thread, except `sync`, which blocks and runs in the worker.

    :param store_path: the store's root directory.
    :param mapped_file_size: bytes of a file; rounded up to whole units.
    :param most_open: descriptors that are kept open, including those of extensions.
    :param extension_file_size: bytes of an extension file; None: no extensions are written.
    :param begins: physical offsets by topic and queue id. Records below do not belong to the queue,
        because it was deleted since. The mapping may change.
    :ivar bit_map_of: makes the bit maps of extensions.
    :ivar restarted: called with topic, queue id and queue offset when a queue begins again that was
        deleted, or whose queue offsets went back.
    """

    def __init__(
        self,
        disk: Disk,
        store_path: str,
        mapped_file_size: int,
        most_open: int = FEWEST_QUEUE_FILES,
        extension_file_size: int | None = None,
        begins: Mapping[tuple[str, int], int] = _NOTHING,
    ) -> None:
        self._disk = disk
        self._root = f"{store_path}/consumequeue"
        self.file_size = -(-mapped_file_size // UNIT_SIZE) * UNIT_SIZE
        if extension_file_size is not None:
            most_open //= 2
        self._files = QueueFiles(disk, self.file_size, most_open)
        self._extension_root = f"{store_path}/consumequeue_ext"
        self._extension_files: QueueFiles | None = None
        if extension_file_size is not None:
            self._extension_files = QueueFiles(disk, extension_file_size, most_open)
        self._begins = begins
        self.bit_map_of: BitMapOf = lambda request: None
        self.restarted: Restarted = lambda topic, queue_id, queue_offset: None
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._odd: list[tuple[str, int]] = []

    # Looking up

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """
        Return a queue that was created with `queue` or with a message; None if there is no such
        queue.
        """
        return self._queues.get((topic, queue_id))

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue. A missing one is made in memory; its first message creates its files."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            directory = f"{self._root}/{topic}/{queue_id}"
            self._queues[key] = queue = ConsumeQueue(
                self._files,
                directory,
                topic,
                queue_id,
                self._extension(topic, queue_id),
                lambda *begin: self.restarted(*begin),
            )
        return queue

    def _extension(self, topic: str, queue_id: int) -> QueueExtension | None:
        """Return the extension of a new or loaded queue; the next unit goes into a new file."""
        files = self._extension_files
        if files is None:
            return None
        directory = f"{self._extension_root}/{topic}/{queue_id}"
        extension = QueueExtension(files, directory, lambda request: self.bit_map_of(request))
        extension.load(self._find_files(directory, files, 1))
        return extension

    def items(self) -> ItemsView[tuple[str, int], ConsumeQueue]:
        """Return all queues by topic and queue id."""
        return self._queues.items()

    @property
    def max_physical_offset(self) -> int:
        """Physical offset after the last record that any queue knows; -1 if there is none."""
        return max((queue.max_physical_offset for queue in self._queues.values()), default=-1)

    def first_file(self) -> str:
        """Return the path of the first file of any queue; empty if no queue has a file."""
        return next((path for queue in self._queues.values() if (path := queue.first_file)), "")

    def forget(self) -> None:
        """Forget all queues, because their files were moved away."""
        self._queues.clear()

    def last_record(self) -> tuple[int, int] | None:
        """
        Return physical offset and size of the last message that any queue knows; None without a
        message.

        :raises StoreError: the disk refuses.
        """
        queues = self._queues.values()
        last = max(queues, key=lambda queue: queue.max_physical_offset, default=None)
        return None if last is None else last.last_record()

    def topic_queue_table(self) -> dict[tuple[str, int], int]:
        """Return the queue offset that the next message gets, by topic and queue id."""
        return {key: queue.max_offset for key, queue in self._queues.items()}

    # Loading and recovery

    def load(self) -> None:
        """
        Find the files of all queues.

        A file of a wrong size is removed, and `damage` of its queue says so.

        :raises StoreError: a queue's directory has a file with a wrong name, or all files have a
            wrong size.

        Spec: store.md, sections 1 and 5.3.
        """
        for topic in self._disk.list_dir(self._root):
            topic_path = f"{self._root}/{topic}"
            if not self._disk.is_dir(topic_path):
                continue
            for name in self._disk.list_dir(topic_path):
                path = f"{topic_path}/{name}"
                if _is_queue_id(name) and self._disk.is_dir(path):
                    queue = self.queue(topic, int(name))
                    queue.load(self._find_files(path, self._files, UNIT_SIZE))
        self._drop_odd()

    def _drop_odd(self) -> None:
        """
        Remove files of a wrong size, if others have the right size: the log still has their
        messages.
        """
        good = any(queue.first_file for queue in self._queues.values())
        for path, size in self._odd:
            if not good:
                raise StoreError(
                    f"{path} has {size} bytes, but mappedFileSizeConsumeQueue is "
                    f"{self.file_size}, and no queue has a file of that size; start with the size "
                    "with which the store was written, or, if this file alone is damaged, remove "
                    "it: it is built anew from the log"
                )
            directory, _, name = path.rpartition("/")
            topic, _, queue_id = directory.removeprefix(self._root + "/").rpartition("/")
            queue = self.queue(topic, int(queue_id))
            queue.damage = f"has a file, {path}, of {size} bytes, which is removed"
            queue.drop_from(int(name))
            self._files.remove(path)
        self._odd.clear()

    def _find_files(self, directory: str, files: QueueFiles, step: int) -> list[int]:
        """Return the starts of a queue's files; each must be a multiple of `step`."""
        starts: list[int] = []
        for name in self._disk.list_dir(directory):
            path = f"{directory}/{name}"
            if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()):
                raise StoreError(f"{path} does not belong there; move it away")
            if int(name) % step:
                raise StoreError(f"{path} starts in the middle of a unit; move it away")
            size = self._disk.size(path)
            if size == 0:
                files.remove(path)  # the process died while it created this file
            elif size == files.file_size:
                starts.append(int(name))
            elif files is self._files:
                self._odd.append((path, size))
            else:
                raise StoreError(
                    f"{path} has {size} bytes, but mappedFileSizeConsumeQueueExt is "
                    f"{files.file_size}; start with the size with which the store was written, or "
                    "remove it: filters then let pass what it knew of"
                )
        return starts

    def recover(self, last_exit_ok: bool = True) -> None:
        """
        Find the end of every queue, and delete what follows.

        :param last_exit_ok: False after a crash: all bytes after the ends are cleared, however far
            away: the disk may have lost a page and kept a later one.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.4.
        """
        for queue in self._queues.values():
            queue.recover(last_exit_ok)

    def truncate(self, physical_offset: int) -> None:
        """
        Forget all records at and after a physical offset, the new end of the log.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.5.
        """
        for queue in self._queues.values():
            queue.truncate(physical_offset)

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """
        Let each queue start at its first message that the log still has.

        :raises StoreError: the disk refuses.
        """
        for queue in self._queues.values():
            queue.correct_min_offset(min_physical_offset)

    # Writing

    def put_rows(self, rows: Rows) -> None:
        """
        Do what `put_requests` does, with one step for each queue whose last unit these units follow
        directly. The rows of other queues go to `put_requests`.
        """
        units, left = rows.units(), set[tuple[str, int]]()
        if units is None:
            self.put_requests(rows)
            return
        queues, begins = self._queues, self._begins
        for run in units:
            key = run[0]
            if key in begins or not (queues.get(key) or self.queue(*key)).extend(*run[1:]):
                left.add(key)
        if left:
            self.put_requests([row for row in rows if row[:2] in left])

    def put_requests(self, requests: Sequence[Row]) -> None:
        """
        Add a unit for each record that consumers may see, with one write for each queue and file.

        :param requests: in log order. Those that were put before change nothing.
        :raises StoreError: the disk refuses; put the same requests again later.

        Spec: store.md, sections 3.2 and 6.2.
        """
        groups: dict[tuple[str, int], list[Row]] = {}
        for request in requests:
            if request[9] & NOT_FOR_CONSUMERS:
                continue
            key = request[:2]
            if key in groups:
                groups[key].append(request)
            else:
                groups[key] = [request]
        queues = self._queues
        for key, group in groups.items():
            if key in self._begins:
                self._put_deleted(key, group)
            else:
                (queues.get(key) or self.queue(*key)).append(group)

    def is_deleted(self, key: tuple[str, int], physical_offset: int) -> bool:
        """
        Return whether a record at that offset does not belong to its queue, because the queue was
        deleted since.
        """
        return physical_offset < self._begins.get(key, physical_offset)

    def _put_deleted(self, key: tuple[str, int], group: list[Row]) -> None:
        """Add the records that came after a queue's deletion."""
        begin = self._begins[key]
        group = [request for request in group if request[2] >= begin]
        if group:
            is_new = key not in self._queues
            self.queue(*key).append(group)
            if is_new:
                self.restarted(*key, group[0][6])

    # Cleaning

    def delete_expired(self, min_physical_offset: int) -> int:
        """
        Delete the files of which the log has deleted all messages; return the number of files.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 9.3.
        """
        return sum(queue.delete_expired(min_physical_offset) for queue in self._queues.values())

    def expired_queues(self, min_physical_offset: int) -> list[tuple[str, int]]:
        """
        Return the queues of which the log has deleted all messages, except those of delayed and of
        timer messages.

        Spec: store.md, section 9.3.
        """
        return [
            key
            for key, queue in self._queues.items()
            if 0 <= queue.max_physical_offset < min_physical_offset and key[0] not in _KEPT_TOPICS
        ]

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """
        Delete a queue and its files; its queue offsets restart at 0.

        A missing queue does no harm.

        :raises StoreError: the disk refuses.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return
        queue.destroy()
        del self._queues[topic, queue_id]
        for root in (self._root, self._extension_root):
            directory = f"{root}/{topic}"
            if not self._disk.list_dir(directory):
                self._files.remove_tree(directory)

    def remove_all(self) -> None:
        """
        Delete every queue, because the log is empty.

        :raises StoreError: the disk refuses.
        """
        for topic, queue_id in list(self._queues):
            self.remove_queue(topic, queue_id)

    # Flushing

    @property
    def dirty_bytes(self) -> int:
        """Bytes put since the last `sync`."""
        return self._files.dirty_bytes

    def sync(self) -> None:
        """
        Bring all units that were put before this call to the disk.

        Blocks: call it in the worker.

        :raises StoreError: the disk refuses.
        """
        if self._extension_files is not None:
            self._extension_files.sync()
        self._files.sync()

    def close(self) -> None:
        if self._extension_files is not None:
            self._extension_files.close()
        self._files.close()


def _is_queue_id(name: str) -> bool:
    digits = name.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(name)) == name
