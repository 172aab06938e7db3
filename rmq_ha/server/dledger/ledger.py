"""The ledger on this member's disk: the entries that the group agrees on.

Spec: dledger.md, chapters 3 and 15; sections 11.5 and 11.6.
"""

from collections.abc import Sequence

from twisted.logger import Logger

from rmq_ha.base.errors import InconsistentLedger, LedgerFull, NotNow, StoreError
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_flags import may_pass
from rmq_ha.base.store_format.dledger import (
    BLANK_SIZE,
    INDEX_FILE_SIZE,
    MAGIC,
    DLedgerCheckpoint,
    SyncedUpTo,
    place_after,
)
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, Entry, Room
from rmq_ha.server.dledger.codes import DLedgerResponseCode
from rmq_ha.server.dledger.ledger_files import LedgerFiles
from rmq_ha.server.dledger.ledger_reader import LedgerReader
from rmq_ha.server.dledger.ledger_recovery import LedgerRecovery, RecoveredLedger
from rmq_ha.server.dledger.ledger_sync import SyncJob
from rmq_ha.server.dledger.term_file import CheckpointFile, disk_error

# These limits keep the files' names (20 digits) and the places in the index (32 bytes an entry)
# within 64-bit numbers.
_INDEX_LIMIT = 1 << 57
_POSITION_LIMIT = 1 << 62


class Ledger(LedgerReader):
    """
    Entries in a row of data files, with an index. They are appended at the end and read anywhere.

    Call every method in the reactor's thread. All of them are quick, except `load`, `sync` and
    `SyncJob.run`, which block.

    :param directory: `dledger-<selfId>`: holds the index, the checkpoint and, without
        `data_directories`, the data files.
    :param file_size: size of a data file in bytes; the same on all members.
    :param data_directories: directories in which data files are found and made.
    :param first_pos: position of the first entry: 0, or the end of an older commit log. It is the
        start of a file.
    :param cached_bytes: size in bytes of the newest entries that stay in memory, so that pushing
        them needs no read.
    :ivar committed_index: the last entry known to be committed; -1: none.
    :ivar committed_pos: end of that entry; 0: none.
    :ivar synced_index: the last entry known to be on the disk.
    :ivar fault: the reason why the last write failed; the next append tries again, unless
        `is_broken`.
    :ivar is_broken: whether a sync has failed. Then nobody knows what is on the disk until a
        restart reads it.
    :ivar refused: the reason why the disk refused the last entry; None: it took that entry.
    :ivar full: the reason why appends are refused while the disk is nearly full; None: they are
        not.
    :ivar short: the reason why appends may soon be refused, namely a disk that fills up; None: it
        has room.
    """

    log = Logger()

    def __init__(
        self,
        disk: Disk,
        directory: str,
        file_size: int,
        *,
        data_directories: Sequence[str] = (),
        first_pos: int = 0,
        index_file_size: int = INDEX_FILE_SIZE,
        cached_bytes: int = 16 << 20,
    ) -> None:
        data = data_directories or [f"{directory}/data"]
        files = LedgerFiles(disk, directory, data, file_size, index_file_size)
        super().__init__(files, first_pos, cached_bytes)
        self.checkpoint_file = CheckpointFile(disk, directory)
        self.committed_index, self.committed_pos = -1, 0
        self.synced_index = -1
        self.fault: str | None = None
        self.is_broken = False
        self.refused: str | None = None
        self.full: str | None = None
        self.short: str | None = None
        self._on_disk = SyncedUpTo()  # the end that the checkpoint file names, or may name
        self._job: SyncJob | None = None

    @property
    def refuses(self) -> str:
        """Return the reason why the ledger takes no entries; empty while it takes them."""
        return self.full or self.fault or self.refused or ""

    @property
    def room(self) -> Room:
        """Return how much room the ledger's disk has left."""
        if self.refuses:
            return Room.NONE
        return Room.SHORT if self.short else Room.FREE

    def load(self) -> None:
        """
        Open the files and find the end of the ledger. Blocks.

        :raises StoreError: the files do not fit each other, or the disk refuses.
        """
        self.files.load()
        checkpoint = self.checkpoint_file.load()
        try:
            recovered = LedgerRecovery(self.files, checkpoint.synced).run()
            self.become(recovered)
            empty = recovered.end_index < 0
            self.files.cut(0 if empty else recovered.end_pos, recovered.end_index + 1)
        except OSError as error:
            raise StoreError(f"cannot recover the ledger: {error}") from error
        self.commit(checkpoint.committed_index)
        self._on_disk = checkpoint.synced or SyncedUpTo()
        self.files.all_dirty_from(self._on_disk.pos, self._on_disk.index)
        self.sync(thorough=True)
        self.log.info(
            "ledger recovered: entries {begin} to {end}, term {term}, {pos} bytes, committed "
            "{committed}",
            begin=self.begin_index,
            end=self.end_index,
            term=self.end_term,
            pos=self.end_pos,
            committed=self.committed_index,
        )

    def close(self) -> None:
        """Close every file without a sync."""
        self.files.close()
        self.recent.clear()

    # Appending

    def append(
        self, term: int, bodies: Sequence[bytes], places: Sequence[int] | None = None
    ) -> list[Entry]:
        """
        Append entries at the leader, all or none, with one write for each data file.

        :param places: the positions that `places` has returned just before; None: compute them.
        :raises ValueError: a body is too long.
        :raises LedgerFull: the disk is full.
        :raises StoreError: the disk refuses for another reason.
        """
        first = self.end_index + 1
        if places is None:
            places = self.places([len(body) for body in bodies])
        entries = [
            Entry(index, term, pos, body)
            for index, (pos, body) in enumerate(zip(places, bodies, strict=True), first)
        ]
        self._write(entries)
        return entries

    def places(self, sizes: Sequence[int]) -> list[int]:
        """
        Return the positions at which entries with bodies of these sizes would be appended.

        :raises ValueError: a size is larger than an entry's body can be.
        """
        positions: list[int] = []
        pos, room_end = self.end_pos, -1
        for size in sizes:
            if pos + size > room_end:
                pos = self.place(size, pos)
                file_end = pos - pos % self.file_size + self.file_size
                room_end = min(file_end - BLANK_SIZE, pos + self.largest_body) - ENTRY_HEADER_SIZE
            positions.append(pos)
            pos += ENTRY_HEADER_SIZE + size
        return positions

    def append_entry(self, entries: Sequence[Entry]) -> None:
        """
        Append the leader's entries at a follower, unchanged: all of them, or none.

        :raises InconsistentLedger: the first entry does not follow the ledger's last one.
        :raises LedgerFull: the disk is full.
        :raises StoreError: the disk refuses.
        """
        index, term, pos = self.end_index, self.end_term, self.end_pos
        for entry in entries:
            if entry.index != index + 1:
                code = DLedgerResponseCode.INCONSISTENT_INDEX
                raise InconsistentLedger(code, f"entry {entry.index} does not follow {index}")
            self._check(entry, term)
            place = self.place(len(entry.body), pos)
            if entry.pos != place:
                raise InconsistentLedger(
                    DLedgerResponseCode.DISK_ERROR,
                    f"entry {index + 1} is for {entry.pos}, but goes to {place} here; "
                    "mappedFileSizeCommitLog has to be the same on all members",
                )
            index, term, pos = index + 1, entry.term, place + entry.size
        self._write(entries)

    def _check(self, entry: Entry, term: int) -> None:
        """
        See that term, index, position, magic and size of an entry are possible in this ledger.

        :param term: term of the preceding entry.
        :raises InconsistentLedger: one of them is not.
        """
        if entry.term < max(term, 0):
            raise InconsistentLedger(
                DLedgerResponseCode.INCONSISTENT_TERM,
                f"entry {entry.index} of term {entry.term} cannot follow one of term {term}",
            )
        if not 0 <= entry.index < _INDEX_LIMIT or entry.pos > _POSITION_LIMIT:
            raise InconsistentLedger(
                DLedgerResponseCode.INCONSISTENT_INDEX,
                f"no ledger comes as far as entry {entry.index} at {entry.pos}",
            )
        if entry.magic != MAGIC or len(entry.body) > self.largest_body:
            raise InconsistentLedger(
                DLedgerResponseCode.INCONSISTENT_STATE,
                f"entry {entry.index} has magic {entry.magic} and {len(entry.body)} bytes; at most "
                f"{self.largest_body} fit",
            )

    def _write(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        if self.full is not None:
            raise LedgerFull(f"the ledger takes no more entries: {self.full}")
        if self.fault is not None:
            self._resume()
        try:
            self.files.write(entries, self.end_pos, self.end_term)
        except OSError as error:
            failure = disk_error(f"cannot write entry {entries[0].index}", error)
            self.refused = str(failure)
            self._refuse(self.refused)
            raise failure from error
        self.refused = None
        last = entries[-1]
        if self.end_index < 0:
            self.begin_index, self.begin_pos = entries[0].index, entries[0].pos
        self.end_index, self.end_term = last.index, last.term
        self.end_pos = last.pos + ENTRY_HEADER_SIZE + len(last.body)
        self.recent.add(entries)

    def _refuse(self, reason: str) -> None:
        """
        Wipe the rest of a failed write. While wiping fails too, the ledger takes no more entries.
        """
        self.fault = reason
        try:
            self._wipe()
        except (OSError, StoreError) as error:
            self.log.error(
                "{reason}; cannot wipe it: {error}: the ledger takes no more entries",
                reason=reason,
                error=error,
            )

    def _resume(self) -> None:
        """
        Wipe the rest of a failed write, so that the ledger takes entries again.

        :raises StoreError: a sync has failed, or the disk still refuses.
        """
        if self.is_broken:
            raise StoreError(f"the ledger takes no more entries: {self.fault}")
        try:
            self._wipe()
        except (OSError, StoreError) as error:
            raise StoreError(f"the ledger takes no more entries: {self.fault}") from error

    def _wipe(self) -> None:
        if self.end_index < 0:
            self.become(RecoveredLedger())
            self.files.cut(0, 0)
        else:
            self.files.cut(self.end_pos, self.end_index + 1)
        self.fault = None

    # Cutting

    def truncate_to(self, entry: Entry) -> None:
        """
        Make this entry the last one: cut the entries after it, or write it at its own position.

        If the ledger does not hold this entry yet, the entries before it have not been compared
        with the leader's. They stay only if they are committed and this entry fits after them.
        Otherwise the ledger begins anew with this entry.

        Spec: dledger.md, section 11.5

        :raises InconsistentLedger: no ledger can hold such an entry; nothing was changed.
        :raises LedgerFull: the disk is full.
        :raises StoreError: the disk refuses for another reason. The ledger may be shorter or empty
            then.
        """
        self._check(entry, 0)
        last = entry.pos % self.file_size + entry.size + BLANK_SIZE
        if entry.pos < 0 or last > self.file_size:
            raise InconsistentLedger(
                DLedgerResponseCode.DISK_ERROR,
                f"no entry of {entry.size} bytes can be at {entry.pos} in files of "
                f"{self.file_size}: mappedFileSizeCommitLog has to be the same on all members",
            )
        if self._holds(entry):
            self._shorten(entry)
            return
        before = self._entry_before(entry)
        if before is None:
            self._empty()
            self.end_index, self.end_pos = -1, entry.pos
        else:
            self._shorten(before)
        self._write([entry])

    def _holds(self, entry: Entry) -> bool:
        try:
            return self.entry(entry.index) == entry
        except StoreError as error:
            self.log.warn(
                "entry {index} is not comparable: {error}", index=entry.index, error=error
            )
            return False

    def _entry_before(self, entry: Entry) -> Entry | None:
        """Return the entry before this one if it may stay; otherwise None."""
        if not self.begin_index <= entry.index - 1 <= self.committed_index or self.end_index < 0:
            return None
        before = self.entry(entry.index - 1)
        if before is None or before.term > entry.term:
            return None
        place = place_after(before.pos + before.size, entry.size, self.file_size)
        return before if place == entry.pos else None

    def _shorten(self, last: Entry) -> None:
        """Cut all entries after `last`."""
        index, pos = last.index, last.pos + last.size
        if index == self.end_index and self.fault is None:
            return
        self._forget_synced(index)
        self.recent.cut(index)
        self.end_index, self.end_term, self.end_pos = index, last.term, pos
        self._cut(pos, index + 1)
        if self.committed_index > index:
            self.committed_index, self.committed_pos = index, pos

    def _empty(self) -> None:
        self._forget_synced(-1)
        self.recent.clear()
        self.become(RecoveredLedger())
        self.committed_index, self.committed_pos = -1, 0
        self._cut(0, 0)

    def _cut(self, pos: int, index: int) -> None:
        try:
            self.files.cut(pos, index)
        except OSError as error:
            self.fault = f"cannot cut the ledger at {pos}: {error}"
            raise StoreError(self.fault) from error

    def _forget_synced(self, index: int) -> None:
        """
        Forget that entries after `index` were synced, since they are going to be cut.

        The checkpoint must not vouch for the entries that will be written in their place. A ledger
        is cut at most once in a leadership, so this may block for a moment.
        """
        if self._on_disk.index > index:
            kept = self._synced_up_to(index)
            self.checkpoint_file.save(
                DLedgerCheckpoint(min(self.committed_index, index), index, kept)
            )
            self._on_disk = kept
        self.synced_index = min(self.synced_index, index)
        if self._job is not None:
            self._job.cut(index)

    def _synced_up_to(self, index: int) -> SyncedUpTo:
        """Return index, term and position of an entry, for the checkpoint; empty without it."""
        located = self.located(index)
        return SyncedUpTo() if located is None else SyncedUpTo(index, located.term, located.pos)

    # Committing and syncing

    def commit(self, index: int) -> None:
        """
        Take entries up to `index` as committed. The committed index never moves back, nor past the
        end.

        :raises StoreError: the disk cannot read the position of the entry.
        """
        index = min(index, self.end_index)
        if index > self.committed_index and (located := self.located(index)) is not None:
            self.committed_index, self.committed_pos = index, located.pos + located.size

    def sync_job(self, thorough: bool = False) -> SyncJob:
        """
        Make the job that syncs everything written so far.

        There is one job at a time: call its `run` in the worker, then `synced`, `put_off` or
        `sync_failed`.

        :param thorough: also sync the index, then write the checkpoint, which vouches for both.
            This is done every few seconds.
        :raises NotNow: the files cannot be opened just now; nothing has changed.
        :raises StoreError: a sync has failed, and the next one would vouch for entries that the
            failed one lost.
        """
        if self.is_broken:
            raise StoreError(f"the ledger is synced no more: {self.fault}")
        if self._job is not None:
            raise ValueError("a sync is running")
        checkpoint = None
        try:
            if thorough:
                synced = self._synced_up_to(self.end_index)
                checkpoint = DLedgerCheckpoint(self.committed_index, self.end_index, synced)
            taken = self.files.take(thorough)
        except (OSError, StoreError) as error:
            if may_pass(error.__cause__ or error):
                raise NotNow(f"cannot open the ledger to sync it: {error}") from error
            raise
        self._job = SyncJob(taken, self.end_index, self.checkpoint_file, checkpoint)
        return self._job

    def synced(self, job: SyncJob) -> int:
        """
        Take the success of a job.

        :returns: the last entry that is on the disk.
        """
        self._job = None
        self.synced_index = max(self.synced_index, job.index)
        if job.is_saved and job.checkpoint is not None and job.checkpoint.synced is not None:
            self._on_disk = job.checkpoint.synced
            # The ledger may have been cut while the job ran. Then the checkpoint that the job saved
            # names an entry that was cut.
            self._forget_synced(job.index)
        self.files.close_idle()
        return self.synced_index

    def put_off(self, job: SyncJob) -> None:
        """Take back a job whose `run` has raised `NotNow`: the next job syncs its files too."""
        self._job = None
        job.give_back()

    def sync_failed(self, job: SyncJob, error: Exception) -> None:
        """
        Take the failure of a job's `run`: from now on no entries are taken and nothing is synced.
        """
        self.is_broken, self.fault = True, str(error)
        self.log.error("the ledger takes no more entries: {error}", error=error)

    def sync(self, thorough: bool = False) -> int:
        """
        Sync everything at once. Blocks, so it is only for start, stop and tests.

        :returns: the last entry that is on the disk.
        :raises StoreError: the disk failed.
        """
        job = self.sync_job(thorough)
        try:
            job.run()
        except StoreError as error:
            self.sync_failed(job, error)
            raise
        return self.synced(job)

    # Expiry

    def drop_files(self, count: int) -> list[str]:
        """
        Drop the oldest data files, except those that are not wholly committed and synced.

        :returns: the paths; the caller deletes them in this order.
        :raises StoreError: the first remaining file does not begin with an entry.
        """
        starts = self.files.data.row.starts
        safe = min(self.committed_pos, self._on_disk.pos)
        while count > 0 and (count >= len(starts) or starts[count] > safe):
            count -= 1
        if count <= 0:
            return []
        header = self.files.header_at(starts[count])
        if header is None:
            raise StoreError(f"{self.files.data.row.path(starts[count])} does not begin well")
        self.begin_index, self.begin_pos = header.index, header.pos
        return self.files.drop_before(header.pos, header.index)
