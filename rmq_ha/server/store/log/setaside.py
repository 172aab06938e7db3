"""What a log has to give up is kept in a folder of its own, where nobody serves it.

Spec: store.md, sections 3.5 and 5.6 (how a log is cut).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Row
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

    :ivar folder: where its bytes are.
    :ivar start: physical offset of its first byte; the log ends there now.
    :ivar end: physical offset behind its last byte.
    :ivar messages: whole ones in it.
    """

    folder: str
    start: int
    end: int
    messages: int


def folder_for(disk: Disk, root: str, what: str, now_ms: int) -> str:
    """A folder that is not there yet: what it is, and the local time."""
    when = datetime.fromtimestamp(now_ms / 1000).strftime("%Y%m%d%H%M%S")
    path = folder = f"{root}/{FOLDER}/{what}-{when}"
    again = 1
    while disk.exists(folder):  # an earlier attempt, in the same second
        again += 1
        folder = f"{path}-{again}"
    return folder


class Keeper:
    """
    Copies stretches of a log aside. Blocks: for the worker, or for a start.

    A file `about.json` says what it is: `from`, `to`, `messages` (whole ones), `topics` (messages
    of each), `why`, `time` (ms), `owed` (see `local/refetch.py`). It is written last: a
    folder without it is not complete.

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
        Bring what lies between two physical offsets to the disk once more.

        What fails leaves nothing behind: a slave tries again every few seconds, and pieces of each
        attempt would take the room that an operator makes.

        :param kind: the first word of the folder's name.
        :param is_owed: nobody may lead with this log before it has these bytes again.
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
        """What was kept there is still in the log; a disk that refuses this keeps it twice."""
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

        :param topics: how many messages of each.
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

    def records(self, begin: int, end: int) -> Iterator[Sequence[Row]]:
        """
        The whole records in a stretch of one file, by the batch.

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
                if data.lstrip(b"\0"):  # else it reads as zero, and takes no room
                    target.pwrite(data, position - begin)
            target.sync()
        finally:
            target.close()
