"""The slave's half of a replication connection in controller mode (AutoSwitchHAClient).

Spec: controller.md, sections 7.3 to 7.6.
"""

from typing import NamedTuple

from rmq_ha.base.errors import (
    DivergedLog,
    NothingInCommon,
    ProtocolViolation,
    ReplicationError,
    StrandedLog,
)
from rmq_ha.base.timing.last_second import LastSecond
from rmq_ha.server.replication.epochs.epochs import BEFORE_CONTROLLERS, Epochs
from rmq_ha.server.replication.epochs.frames import (
    NOWHERE,
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    TablePiece,
    Transfer,
    encode_report,
    encode_slave_handshake,
)
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.tables import Tables
from rmq_ha.server.replication.places import (
    HEAD_SIZE,
    chain_to,
    holds_nothing,
    record_size,
    stretch,
)
from rmq_ha.server.replication.replica import ReplicaBase
from rmq_ha.server.store.log.journal_log import CopiedLog


class Cut(NamedTuple):
    """
    A task to do before anything else: set the tail aside, and remove it from the log on the disk.

    :ivar end: end of the log afterwards.
    :ivar epochs: content of the epoch file afterwards.
    """

    end: int
    epochs: Epochs


class Remember(NamedTuple):
    """A task to do before anything else: write these epochs to the epoch file."""

    epochs: Epochs


class _ComparisonTask(NamedTuple):
    """
    Bytes of this slave's log that the master has to send again, for comparison.

    :ivar start: start of one of this slave's records.
    :ivar at: offset of the next byte to compare; all bytes up to `end` have to be equal.
    :ivar is_proven: whether the master's epochs say who wrote these bytes. Otherwise the bytes are
        from before controller mode; if they differ, the two logs are of different pairs.
    """

    master: MasterHandshake
    start: int
    at: int
    end: int
    is_proven: bool


class EpochReplica(ReplicaBase):
    """
    Appends the bytes that the master sends, once both logs are equal up to this slave's end, and
    reports how far it is.

    While `task` is not None, nothing is appended and nothing reported: the owner of the connection
    does the task, then calls `done`. Differs from 5.3.3 on purpose: it reports at once, waits for
    the disk before a cut or an epoch counts, and refuses a log without epochs and a master whose
    epochs are older than its own.

    Two logs from before controller mode count as logs of one pair only if the last whole record
    that both should have is equal; the master is asked to send it again. The master is also asked
    again for the bytes after `sure_to`: a power loss may have left other bytes there, in places
    that no CRC covers. Tables are taken over only after the handshake, because the handshake shows
    whether the master still leads; the tables of an earlier master must not be taken over.

    :param tables: takes the tables of a rmq-ha master; None: no tables are asked for.
    :ivar sure_to: up to this offset, this log is certainly as its masters wrote it. Initially it is
        the log's end; `SlaveRole` sets it to the confirm offset.
    :ivar master_begins: physical offset of the master's first file; 0: not known.
    :ivar master_end: the master's log ends here or later.
    :ivar task: the task that must be done first; None: there is none.
    :ivar confirm_offset: messages below it may be read here; falls only when the log is cut.
    :ivar epochs: epochs of this slave's log.
    :ivar is_following: whether the handshake is over.
    :ivar rate: rate of the bytes that arrive.
    """

    def __init__(
        self,
        broker_id: int,
        log: CopiedLog,
        epochs: Epochs,
        confirm_offset: int,
        settings: ReplicationSettings,
        now: float,
        tables: Tables | None = None,
    ) -> None:
        super().__init__(log, settings, now)
        self.task: Cut | Remember | None = None
        self.epochs = epochs
        self.confirm_offset = confirm_offset
        self.is_following = False
        self.master_begins = self.master_end = 0
        self.rate = LastSecond()
        self._id = broker_id
        self._settings = settings
        self._tables = tables
        self.sure_to = int(log.max_offset)
        self._reader = MasterReader(takes_tables=tables is not None)
        self._pieces: list[bytes] = []
        self._number = 0
        self._held: Transfer | None = None
        self._comparison: _ComparisonTask | None = None
        self._stranded: StrandedLog | None = None
        self._begins_again = False
        self._reported = NOWHERE

    @property
    def is_comparing(self) -> bool:
        """Whether the handshake waits for bytes that the master has to send again."""
        return self._comparison is not None

    def connected(self, now: float) -> bytes:
        """
        Return the handshake.

        :raises DivergedLog: this slave's log has bytes, but nobody knows which master wrote them.
        """
        if not self.epochs.entries and not holds_nothing(self._log):
            raise DivergedLog(
                f"this slave's log ends at {self._log.max_offset}, but epochFileCheckpoint names "
                "no master that wrote it, so nobody can tell whether it is a log of this set. Move "
                "the store away to begin as a new replica"
            )
        self.last_read = self.last_write = now
        settings = self._settings
        return encode_slave_handshake(
            SlaveHandshake(
                self._id,
                settings.sync_from_last_file,
                settings.async_learner,
                self._tables is not None,
            )
        )

    def receive_data(self, data: bytes, now: float) -> bytes:
        """
        Take bytes that arrived. Return the bytes to send.

        :raises NothingInCommon: no master's epoch is in both logs.
        :raises StrandedLog: the master has deleted the bytes that follow on this slave's log.
        :raises DivergedLog: the master's log does not continue this slave's.
        :raises ReplicationError: no master that may be followed sends these bytes.
        :raises StoreError: this slave's disk refuses.
        """
        self.last_read = now
        self.rate.add(len(data), now)
        self._reader.receive_data(data)
        return self._go_on(now)

    def done(self, now: float) -> bytes:
        """
        Go on after the task is done and on the disk. Take the bytes that came meanwhile.

        Returns and raises the same as `receive_data`.
        """
        task, self.task = self.task, None
        assert task is not None
        self.last_read = now
        self.epochs = task.epochs
        if isinstance(task, Cut):
            if self._log.max_offset != task.end:
                raise ReplicationError(f"this slave's log should end at {task.end} by now")
            self.confirm_offset = min(self.confirm_offset, task.end)
        if self._begins_again:
            raise ReplicationError(
                "this slave's log differed from the master's behind "
                f"{self._log.max_offset}, as after lost power: the bytes behind are set aside, and "
                "replication begins again"
            )
        self.is_following = True
        return self._go_on(now)

    def _go_on(self, now: float) -> bytes:
        """
        Take the frames that have arrived, until a task must be done or no whole frame is left.

        A connection passes these states in order:

        1. Before the handshake, the master may send its tables, which are only collected.
        2. The master's handshake decides how to go on: `_greeted` sets `_stranded`, `_comparison`,
           `task` or `is_following`.
        3. Stranded: one report tells the master where this log ends. The next transfer frame raises
           StrandedLog.
        4. Comparing: one report asks the master for bytes that this log has already. `_compare`
           takes its transfer frames, until all bytes are equal or the log has to be cut.
        5. Following: the collected tables are taken over, and `_take` appends transfer frames.

        :returns: the bytes to send.
        """
        while self.task is None:
            if self._pieces and self.is_following:
                self._take_pieces()
            # A held frame is one whose task is done, or the rest of a frame that was compared.
            frame = self._held or self._reader.next_frame()
            if frame is None:
                break
            self._held = None
            if isinstance(frame, MasterHandshake):
                self._greeted(frame)
                if self._stranded is not None:  # the report tells the master, too
                    self.last_write = now
                    return encode_report(self._stranded.end)
                if self._comparison is not None:
                    self.last_write = now
                    return encode_report(self._comparison.at)
            elif isinstance(frame, TablePiece):
                self._expect(frame)
            elif self._stranded is not None:
                raise self._stranded
            elif self._comparison is not None:
                self._compare(self._comparison, frame)
            else:
                self._take(frame)
        return self.flushed(now)

    def flushed(self, now: float) -> bytes:
        """
        Return the report that is due because more of this log is on the disk; empty when none is.

        The first report also asks the master for the log from the reported offset on. So it waits
        until all of this log may be reported (`ReplicationSettings.counted`).
        """
        counted = self._settings.counted(self._log)
        is_first = self._reported < 0
        if not self.is_following or self.task is not None or counted <= self._reported:
            return b""
        return b"" if is_first and counted < self._log.max_offset else self._report(now)

    # ------------------------------------------------------------ the handshake

    def _greeted(self, master: MasterHandshake) -> None:
        """
        Decide by the master's handshake how to go on: follow, cut the log, compare or be stranded.

        :raises ReplicationError: the master leads no more, or sends a second handshake.
        :raises NothingInCommon: the two logs have no epoch in common.
        """
        if self.is_following:
            raise ReplicationError("the master begins a second time on one connection")
        if self._tables is not None and not self._number:
            self._tables.absent()  # a rmq-ha master sends them before its handshake
        if master.last_epoch < self.epochs.last_epoch:
            raise ReplicationError(
                f"the master leads epoch {master.last_epoch}, and this slave's log has epoch "
                f"{self.epochs.last_epoch}: that master leads no more"
            )
        end = int(self._log.max_offset)
        if not self.epochs.entries:
            self.is_following = True
            return
        if not holds_nothing(self._log) and end < self.master_begins:
            length = self.master_end - self.master_begins
            self._stranded = StrandedLog(end, self.master_begins, length)
            return
        point = self.epochs.consistent_point(end, master.epochs, master.max_offset)
        if point is None and self._is_nothing_kept():
            point = 0
        if point is None:
            raise NothingInCommon(
                max(int(self._log.min_offset), 0),
                f"no epoch of this slave's log ({self.epochs}) is in the master's "
                f"({master.epochs}): move the store away to begin as a new replica, or look which "
                "of the two is right",
            )
        # An epoch that a controller gave proves that both logs are equal below `point`. Then only
        # bytes that a power loss may have changed are compared. Without such a proof, at the end of
        # this method, the last record before `point` has to be equal.
        if self.epochs.is_proven(point) or point <= self._log.min_offset:
            start = self._sure_until(point)
            if start < point:
                self._comparison = _ComparisonTask(master, start, start, point, True)
            else:
                self._meet_at(point, master)
            return
        chain = chain_to(self._log, int(self._log.min_offset), point)
        if chain is None or chain.end != point:
            raise NothingInCommon(
                point,
                f"no record of this slave's log ends at {point}, where the master's has an epoch, "
                "so nobody can tell whether the logs are of one set. Move the store away to begin "
                "as a new replica",
            )
        self._comparison = _ComparisonTask(master, chain.last, chain.last, point, False)

    def _sure_until(self, point: int) -> int:
        """
        Return the end of the last record before `point` that is certainly as its master wrote it.

        The result is never before the start of the file with the byte before `point`, nor before
        the begin of the log, since the master may have deleted earlier files.
        """
        if self.sure_to >= point:
            return point
        log = self._log
        start = max(int(log.min_offset), (point - 1) // log.file_size * log.file_size)
        return self._last_end(start, min(self.sure_to, self._settings.counted(log)))

    def _last_end(self, start: int, place: int) -> int:
        """
        Return the end of the last whole record between `start`, where a record begins, and `place`.
        """
        chain = chain_to(self._log, start, place)
        return start if chain is None else chain.end

    def _is_nothing_kept(self) -> bool:
        """
        Whether this log has its first byte, and no whole message of it is confirmed.

        Then none of its messages was acknowledged or read. The confirm offset may lie within the
        first message, since it counts bytes. A log without a file begins at -1. The answer is false
        for a log that a classic pair began: the confirm offset says nothing about puts that the
        pair acknowledged.
        """
        if self.epochs.entries[0].epoch == BEFORE_CONTROLLERS:
            return False
        end = min(self.confirm_offset, int(self._log.max_offset))
        return self._log.min_offset <= 0 and (end <= 0 or chain_to(self._log, 0, end) is None)

    def _compare(self, task: _ComparisonTask, frame: Transfer) -> None:
        """
        Compare the master's bytes with this slave's. If they differ, the log is of another pair, or
        a crash of this slave changed its bytes.
        """
        if frame.offset == NOWHERE:
            return
        if frame.offset != task.at:
            raise DivergedLog(f"the master sends from {frame.offset}, and was asked for {task.at}")
        size = min(len(frame.body), task.end - task.at)
        ours, theirs = stretch(self._log, task.at, task.at + size), frame.body[:size]
        if ours != theirs:
            if not task.is_proven:
                raise DivergedLog(
                    f"the record that ends at {task.end} differs between this slave's log and the"
                    " master's: these are not the logs of one pair. Look which of the two is right,"
                    " and move the store of the other one away"
                )
            pairs = enumerate(zip(ours, theirs, strict=True))
            first = next(number for number, (own, other) in pairs if own != other)
            self._give_up(task, task.at + first)
            return
        self._comparison = task._replace(at=task.at + size)
        if task.at + size < task.end:
            return
        self._comparison = None
        self._held = frame._replace(offset=task.end, body=frame.body[size:])
        self._meet_at(task.end, task.master)

    def _give_up(self, task: _ComparisonTask, place: int) -> None:
        """Cut the log before the record at `place`, which is not as the master has it."""
        end = self._last_end(task.start, place)
        self._comparison, self._begins_again = None, True
        self.task = Cut(end, self.epochs.cut(end))

    def _meet_at(self, point: int, master: MasterHandshake) -> None:
        """
        Follow the master, since both logs are equal up to `point`; first cut this slave's log there
        if it is longer.
        """
        end = int(self._log.max_offset)
        if point < end:
            if point > self._log.min_offset:
                self._check_boundary(point)
            self.task = Cut(point, self.epochs.cut(point))
            return
        common = Epochs(
            entry
            for entry in self.epochs.entries
            if entry.start < end or entry in master.epochs.entries
        )
        if common == self.epochs:
            self.is_following = True
        else:
            self.task = Remember(common)  # the other epochs have no bytes here, and none will come

    def _check_boundary(self, point: int) -> None:
        """
        Check that a record begins at `point`. A cut within a record would leave bytes that nobody
        can read.
        """
        log = self._log
        room = log.file_size - point % log.file_size
        if record_size(log.read(point, HEAD_SIZE), 0, point, room) > 0:
            return
        leads_there = chain_to(log, int(log.min_offset), point)
        if leads_there is None or leads_there.end != point:
            raise NothingInCommon(
                point,
                f"by the master's epochs this slave's log should be cut at {point}, but no record "
                "begins there: move the store away to begin as a new replica",
            )

    # ------------------------------------------------------------ tables

    def _expect(self, piece: TablePiece) -> None:
        last = self.epochs.last_epoch
        if piece.number != self._number + 1 or piece.epoch < last:
            raise ReplicationError(
                f"the master sends piece {piece.number} of its tables in epoch {piece.epoch}, "
                f"after piece {self._number}, and this slave's log has epoch {last}"
            )
        self._number = piece.number
        self._pieces.append(piece.body)

    def _take_pieces(self) -> None:
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            assert self._tables is not None
            try:
                self._tables.take(piece)
            except ProtocolViolation as error:
                raise ReplicationError(f"the master's tables: {error}") from None

    def closed(self) -> None:
        """Tell the tables that the connection is over."""
        if self._tables is not None:
            self._tables.ended()

    # ------------------------------------------------------------ frames

    def _take(self, frame: Transfer) -> None:
        if not self.is_following:
            raise ReplicationError("the master sends before it has said what it has")
        if frame.offset == NOWHERE:
            return
        log = self._log
        end = int(log.max_offset)
        is_first = end == 0 and (log.min_offset < 0 or frame.offset != 0)
        if frame.offset != end and not is_first:
            raise DivergedLog(f"the master sends from {frame.offset}, this log ends at {end}")
        self._check_fits(frame.offset, len(frame.body))
        if frame.body or not is_first:
            known = self._with_epoch(frame)
            if known is not self.epochs:
                self._held, self.task = frame, Remember(known)
                return
        if frame.body:
            if is_first:
                log.append_raw(frame.offset - frame.offset % log.file_size, b"")
            log.append_raw(frame.offset, frame.body)
        self._confirm(frame.confirm_offset)

    def _with_epoch(self, frame: Transfer) -> Epochs:
        """Return this log's epochs, and that of the frame if it is new."""
        if frame.epoch == self.epochs.last_entry:
            return self.epochs
        try:
            return self.epochs.appended(*frame.epoch)
        except ProtocolViolation as error:
            known = self.epochs.epoch_at(frame.offset)
            raise ReplicationError(
                f"the master sends {frame.offset} as of {frame.epoch}, this slave has it as of "
                f"{known[0] if known else 'no epoch'}: {error}"
            ) from None

    def _confirm(self, offset: int) -> None:
        self.confirm_offset = max(self.confirm_offset, min(offset, int(self._log.max_offset)))

    # ------------------------------------------------------------ time

    def on_time(self, now: float) -> bytes:
        """
        Return the report that is due; empty when none is.

        :raises ReplicationError: the master sent nothing for haHousekeepingInterval.
        """
        self._check_silence(now)
        if self._reported < 0 or self.task is not None or now < self._report_time():
            return self.flushed(now)
        return self._report(now)

    def is_overdue(self, now: float) -> bool:
        """
        Whether the master sent nothing for haHousekeepingInterval although this slave could have
        read it.
        """
        return self.task is None and super().is_overdue(now)

    def deadline(self) -> float | None:
        """
        Return when to call `on_time` if nothing else happens, in seconds; None while there is a
        task.
        """
        if self.task is not None:
            return None
        if self._reported < 0:
            return self._expiry_time()
        return min(self._expiry_time(), self._report_time())

    def _report(self, now: float) -> bytes:
        self._reported = self._settings.counted(self._log)
        self.last_write = now
        return encode_report(self._reported)

    def _report_time(self) -> float:
        return self.last_write + self._settings.ha_send_heartbeat_interval / 1000
