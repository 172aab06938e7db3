"""Decides about a log that ends too early: whether it is damaged, and whether to keep the records
after its end.

Spec: store.md, sections 5.4 and 5.6.
"""

from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.commitlog import BLANK_MAGIC, BLANK_SIZE, record_size_at
from rmq_ha.server.store.local.refetch import RefetchLog, RefetchStretch
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.setaside import Keeper, TailAside

_MAGIC_AT = 4


class Promise(NamedTuple):
    """
    The part of the log that must exist.

    :ivar end: physical offset up to which the log was on the disk.
    :ivar stamp: ms; all messages that were stored before were on the disk.
    :ivar source: the origin of these facts, in words for people.
    """

    end: int
    stamp: int
    source: str


class RecordsBehind(NamedTuple):
    """
    The whole records after the end of the log.

    :ivar messages: number of records.
    :ivar end: physical offset after the last record; 0 without records.
    :ivar promised: number of records that must exist.
    :ivar files: paths of the files that hold the records.
    """

    messages: int
    end: int
    promised: int
    files: list[str]


class DamagedLog:
    """
    Decides what to do at the place where reading a log stopped, before the log is cut there.

    Whole records may also follow the end that a crash made: the disk got later pages and not the
    earlier ones. Nobody was promised these records. A promised record that cannot be read any more
    is damage.

    :param is_slave: this store can get all messages again from its master.
    :param may_cut: the operator allowed the cut with `keepDamagedLog=false`.
    """

    log = Logger()

    def __init__(self, log: CommitLog, keeper: Keeper, *, is_slave: bool, may_cut: bool) -> None:
        self._row = log.row
        self._keeper = keeper
        self._is_slave = is_slave
        self._may_cut = may_cut

    def settle_owed(self, end: int, owed_log: RefetchLog) -> None:
        """
        Check, before the log is cut, whether the stretches that this store gave up as a slave have
        come back.

        :param end: physical offset after the last record that could be read.
        :raises StoreError: a master would lead without a stretch, and no operator allowed it.
        :raises OSError: the disk refuses.
        """
        for owed in list(owed_log.open()):
            if self._is_short(end, owed.end):
                if self._is_slave:
                    continue
                if not self._may_cut:
                    raise StoreError(self._debt(end, owed))
                self.log.warn("{debt}", debt=self._debt(end, owed))
            owed_log.close(owed)

    def settle(self, end: int, newest: int, promise: Promise, now_ms: int) -> TailAside | None:
        """
        Judge the end of the log before it is cut, and set whole records after it aside.

        :param end: physical offset after the last record that could be read.
        :param newest: store time of the newest record before `end`, ms.
        :returns: what was set aside; None if nothing whole follows the end.
        :raises StoreError: the log is damaged, and no operator allowed to cut it.
        :raises OSError: the disk refuses.
        """
        behind = self._records_behind(end, newest, promise)
        is_damage = behind.promised > 0 or self._is_short(end, promise.end)
        if is_damage and not (self._is_slave or self._may_cut):
            raise StoreError(self._refusal(end, behind, promise))
        stop = max(behind.end, self._last_of(promise.end) if is_damage else 0)
        if stop <= end:
            return None
        why = self._reason(end, behind, promise, is_damage)
        try:
            aside = self._keeper.keep(
                "damaged", end, stop, why, now_ms, is_owed=is_damage and self._is_slave
            )
        except OSError as error:
            if is_damage:
                raise
            self.log.error(
                "cannot keep {count} whole messages behind {end} that were never promised: {error}",
                count=behind.messages,
                end=end,
                error=error,
            )
            return None
        self.log.warn(
            "{why}; what lies from {start} to {end}, {messages} whole messages, is set aside in "
            "{folder} and not served; read it with rmqha-admin store dump {folder} --commit-log "
            "{folder}, and delete the folder when nobody needs it",
            why=why,
            **aside._asdict(),
        )
        return aside

    def _records_behind(self, end: int, newest: int, promise: Promise) -> RecordsBehind:
        """
        Find the whole records after the end.

        Store times never decrease in a log, so a record counts as stored no earlier than records
        before it. A power loss may tear the store time itself, which no checksum covers.
        """
        count = promised = last = 0
        files: list[str] = []
        for start in self._row.starts:
            before = count
            for batch in self._keeper.records(max(start, end), start + self._row.file_size):
                count += len(batch)
                for _, _, place, size, _, stamp, *_ in batch:
                    last = place + size
                    newest = max(newest, stamp)
                    promised += last <= promise.end or 0 < newest < promise.stamp
            if count > before:
                files.append(self._row.path(start))
        return RecordsBehind(count, last, promised, files)

    def _is_short(self, end: int, promised: int) -> bool:
        """
        Return whether promised bytes are missing, and not just the rest of a record or a blank.
        """
        if end >= promised:
            return False
        start = self._row.start_of(end)
        if start not in self._row.starts:
            return True
        head = self._row.file(start).pread(BLANK_SIZE, end - start)
        missing = promised - end
        if missing < BLANK_SIZE:
            return False
        if int.from_bytes(head[_MAGIC_AT:], "big") == BLANK_MAGIC:
            return promised > start + self._row.file_size
        return record_size_at(head, 0, len(head)) <= missing

    def _last_of(self, promised: int) -> int:
        """Return the promised end, or the end of the last file if that is lower."""
        starts = self._row.starts
        return min(promised, starts[-1] + self._row.file_size) if starts else 0

    def _refusal(self, end: int, behind: RecordsBehind, promise: Promise) -> str:
        path = self._path_at(end)
        if behind.messages:
            lost = (
                f"{behind.messages} whole messages follow, up to {behind.end}, in "
                f"{', '.join(behind.files)}"
            )
        else:
            lost = f"{promise.end - end} bytes are missing"
        return (
            f"the commit log is damaged at {end}, in {path}: {lost}; they were on the disk, as "
            f"{promise.source} says, and would be lost if the log were cut there. Restore the file "
            "from a copy, or make a slave that has them the master. To do without them, start "
            f"once with keepDamagedLog=false: the log then ends at {end}, and what lies behind is "
            "set aside"
        )

    def _debt(self, end: int, owed: RefetchStretch) -> str:
        return (
            f"the commit log ends at {end}, and went on to {owed.end}: as a slave this store set "
            f"aside what was behind damage, as {owed.path} says, and stopped before its master had "
            "given it all anew. Start it as a slave of one that has it, or make that one the "
            f"master. To do without, start once with keepDamagedLog=false: the log then ends at "
            f"{end}, and what was set aside stays there"
        )

    def _reason(self, end: int, behind: RecordsBehind, promise: Promise, is_damage: bool) -> str:
        where = f"the commit log cannot be read at {end}, in {self._path_at(end)}"
        if not is_damage:
            return f"{where}: a crash came before that was on the disk"
        if self._is_slave:
            return f"{where}: damage; all from there on comes from the master once more"
        return f"{where}: damage, and keepDamagedLog=false"

    def _path_at(self, end: int) -> str:
        start = self._row.start_of(end)
        return self._row.path(start) if start in self._row.starts else self._row.directories[0]
