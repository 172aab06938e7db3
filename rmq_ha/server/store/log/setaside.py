"""Copies stretches that a log has to give up into folders of their own, which are never served.

Spec: store.md, sections 3.5 and 5.6 (how a log is cut).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from rmq_ha.base.errors import StoreError
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.seams import Disk
from rmq_ha.base.wire import fastjson
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import file_name
from rmq_ha.server.store.log.search import whole_records

FOLDER = "setaside"
ABOUT = "about.json"
_CHUNK = 1 << 20


class TailAside(NamedTuple):
    """
    A stretch of the log that was set aside.

    :ivar folder: path of the folder that holds its bytes.
    :ivar start: physical offset of its first byte, and now the end of the log.
    :ivar end: physical offset after its last byte.
    :ivar messages: number of whole messages in it.
    """

    folder: str
    start: int
    end: int
    messages: int


def folder_for(disk: Disk, root: str, what: str, now_ms: int) -> str:
    """Return the path of a folder that does not exist yet, named by `what` and the local time."""
    when = datetime.fromtimestamp(now_ms / 1000).strftime("%Y%m%d%H%M%S")
    path = folder = f"{root}/{FOLDER}/{what}-{when}"
    again = 1
    while disk.exists(folder):  # an earlier attempt in the same second
        again += 1
        folder = f"{path}-{again}"
    return folder


class Keeper:
    """
    Copies stretches of a log aside. Blocks: call it in the worker, or at a start.

    A file `about.json` describes the stretch: `from`, `to`, `messages` (number of whole ones),
    `topics` (messages of each), `why`, `time` (ms), `owed` (see `local/refetch.py`). It is written
    last, so a folder without it is not complete.

    :param root: the store's root directory.
    """

    def __init__(self, disk: Disk, root: str, log: CommitLog) -> None:
        self._disk = disk
        self._root = root
        self._log = log

    def keep(
        self, kind: str, start: int, end: int, why: str, now_ms: int, *, is_owed: bool = False
    ) -> TailAside:
        """
        Copy the bytes between two physical offsets into a folder, and sync it.

        A copy that fails is removed: a slave tries again every few seconds, and the pieces of each
        attempt would fill the space that an operator makes free.

        :param kind: the first word of the folder's name.
        :param is_owed: no broker may lead with this log before it has these bytes again.
        :raises OSError: the disk refuses, or is full.
        :raises StoreError: a file is missing.
        """
        folder = folder_for(self._disk, self._root, f"{kind}-{start}-{end}", now_ms)
        try:
            return self._keep_in(folder, start, end, why, now_ms, is_owed)
        except (OSError, StoreError):
            self.discard(folder)
            raise

    def discard(self, folder: str) -> None:
        """Delete a copy whose bytes are still in the log. If the disk refuses, the copy stays."""
        with suppress(OSError):
            self._disk.remove_tree(folder)

    def _keep_in(
        self, folder: str, start: int, end: int, why: str, now_ms: int, is_owed: bool
    ) -> TailAside:
        row = self._log.row
        topics: Counter[str] = Counter()
        for file_start in list(row.starts):  # the cleaner may shorten the row meanwhile
            begin, stop = max(start, file_start), min(end, file_start + row.file_size)
            if begin < stop:
                self._copy(file_start, begin, stop, f"{folder}/{file_name(begin)}")
                for batch in self.records(begin, stop):
                    topics.update(row[0] for row in batch)
        self.tell(TailAside(folder, start, end, topics.total()), topics, why, now_ms, is_owed)
        return TailAside(folder, start, end, topics.total())

    def tell(
        self,
        aside: TailAside,
        topics: Mapping[str, int],
        why: str,
        now_ms: int,
        is_owed: bool = False,
    ) -> None:
        """
        Write `about.json`.

        :param topics: number of messages by topic.
        :raises OSError: the disk refuses.
        """
        about = {
            "from": aside.start,
            "to": aside.end,
            "messages": aside.messages,
            "topics": dict(sorted(topics.items())),
            "why": why,
            "time": now_ms,
            "owed": is_owed,
        }
        self._disk.replace(f"{aside.folder}/{ABOUT}", fastjson.pretty(about))

    def records(self, begin: int, end: int) -> Iterator[Rows]:
        """
        Yield the whole records in a stretch of one file, in batches.

        :raises OSError: the disk refuses.
        """
        row = self._log.row
        file_start = row.start_of(begin)
        file = row.file(file_start)
        return whole_records(
            lambda size, position: file.pread(size, position - file_start),
            begin,
            end,
            self._log.delay_levels,
            next_data=lambda position: file_start + file.next_data(position - file_start),
        )

    def _copy(self, file_start: int, begin: int, end: int, path: str) -> None:
        source = self._log.row.file(file_start)
        target = self._disk.open(path, end - begin)
        try:
            for position in range(begin, end, _CHUNK):
                data = source.pread(min(_CHUNK, end - position), position - file_start)
                if data.lstrip(b"\0"):  # zeros need not be written, and take no space
                    target.pwrite(data, position - begin)
            target.sync()
        finally:
            target.close()
