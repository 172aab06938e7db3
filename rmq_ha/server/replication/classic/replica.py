"""The slave's half of a replication connection (HAClient).

Spec: ha.md, sections 4.7, 5 and 18.
"""

from collections.abc import Callable
from enum import Enum

from rmq_ha.base.config.fields import LONG_MAX
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import DivergedLog, StrandedLog, UnreadableLog
from rmq_ha.server.replication.classic.comparing import Comparison
from rmq_ha.server.replication.classic.frames import FrameReader, Piece, encode_report
from rmq_ha.server.replication.classic.greeting import encode_greeting, greet
from rmq_ha.server.replication.replica import ReplicaBase
from rmq_ha.server.replication.statistics import FOLLOWING
from rmq_ha.server.store.log.journal_log import CopiedLog

_MUCH = 1 << 17
"""Bytes that come at once while a slave catches up."""


class ReplicaStage(Enum):
    """How far a slave has come with its master, for those who look at it."""

    CONNECTED = "connected"
    COMPARING = "comparing"
    AHEAD = "ahead"
    FOLLOWING = FOLLOWING


def _all_readable() -> int | None:
    return None


class Replica(ReplicaBase):
    """
    Appends what the master sends and reports how far the log goes.

    Bodies are appended as they come in, one append for all frames of a chunk; reported are whole
    frames only. Differs from 4.9.7 on purpose: reports at once on connecting, leaves a master
    that is silent, refuses impossible sizes and frames that do not fit into the file.

    Above all it takes nobody's word that the two logs continue each other: it asks from `start` on,
    compares what comes with what it has, and only when its own end is reached, and all was equal,
    does it append and acknowledge. `start` is the first report, which Java masters take for an
    acknowledgement; it is not raised before.

    :param start: what to ask for; the end of the log: compare nothing.
    :param unreadable_at: tells where the log holds what can never become a record, None: nowhere.
    :param first_offset_max: an empty log does not begin beyond it.
    :ivar frames: how many whole frames arrived, heartbeats included.
    :ivar reported: the physical offset that the master was told last.
    """

    read_size = 1 << 18
    """Measured: 64 KiB and 1 MiB are slower by half."""

    def __init__(
        self,
        log: CopiedLog,
        config: MessageStoreConfig,
        now: float,
        start: int | None = None,
        unreadable_at: Callable[[], int | None] = _all_readable,
        first_offset_max: int = LONG_MAX,
    ) -> None:
        super().__init__(log, config, now)
        self.frames = 0
        self._reader = FrameReader()
        self._unreadable_at = unreadable_at
        self._first_offset_max = first_offset_max
        self._start = int(log.max_offset) if start is None else start
        self._whole = self.reported = self._start
        self._master_begins: int | None = None
        self._comparison = None if self._start >= log.max_offset else Comparison(log, self._start)

    @property
    def stage(self) -> ReplicaStage:
        """How far it has come; FOLLOWING: what comes is appended."""
        if not self.frames:
            return ReplicaStage.CONNECTED
        if self._comparison is None:
            return ReplicaStage.FOLLOWING
        return ReplicaStage.AHEAD if self._comparison.is_ahead else ReplicaStage.COMPARING

    def connected(self, now: float) -> bytes:
        """
        The first report: from where we want the log, with a checksum of what lies below.

        :raises StoreError: our log cannot be read.
        """
        report = self._report(self._start, now)
        greeting = None if self._comparison is None else greet(self._log, self._start)
        return report if greeting is None else encode_greeting(greeting)

    def receive_data(self, data: bytes, now: float) -> bytes:
        """
        Append what arrived; answer with the new end of our log, if it moved.

        :raises DivergedTail: our log has something that the master's has not.
        :raises StrandedLog: the master has deleted what follows on our log.
        :raises DivergedLog: the master's log does not continue ours.
        :raises UnreadableLog: our log holds what is no record.
        :raises ReplicationError: these are no transfer frames.
        :raises StoreError: our disk refuses.
        """
        self.last_read = now
        self._check_readable()
        log = self._log
        file_size = log.file_size
        end = log.max_offset
        run: list[memoryview] = []
        start = 0
        try:
            for piece in self._reader.receive_data(data):
                body = piece.body
                if self._comparison is not None:
                    body = self._compare(self._comparison, piece, now)
                elif piece.size is not None:
                    end = self._accept(piece, end)
                if body:
                    start = start if run else end
                    run.append(body)
                    end += len(body)
                    if not end % file_size:
                        pieces, run = run, []
                        self._append(start, pieces, data)
                if piece.is_last:
                    self.frames += 1
                    if self._comparison is None:
                        self._whole = end
        finally:
            if run:
                self._append(start, run, data)
        return self._report(self._whole, now) if self._whole > self.reported else b""

    def _compare(self, comparison: Comparison, piece: Piece, now: float) -> memoryview:
        """Compare one piece; what lies behind our end is returned, to be appended."""
        if piece.size is not None:
            offset = piece.physical_offset
            if not piece.size and offset > self._log.max_offset:
                self._see_whether_stranded(offset)
                return piece.body
            if offset < comparison.place:
                comparison.begin_at(offset)
            elif offset != comparison.place + comparison.held:
                raise DivergedLog(
                    f"the master sends from {offset}, and was asked for {comparison.place}"
                )
            self._check_fits(offset, piece.size)
            if not piece.size:
                comparison.beat(now)
        rest = comparison.take(piece.body) if piece.body else piece.body
        if comparison.is_done:
            self._check_readable(same=True)
            self._comparison = None
        return rest

    def _see_whether_stranded(self, offset: int) -> None:
        """Two heartbeats lie behind our end: where the master's log begins, and where it ends."""
        if self._master_begins is not None:
            begins = self._master_begins
            if offset <= begins:
                raise DivergedLog(f"the master sends from {offset}, behind the end of our log")
            raise StrandedLog(int(self._log.max_offset), begins, offset - begins)
        self._master_begins = offset

    def _check_readable(self, *, same: bool = False) -> None:
        """Nobody is told that we hold what we cannot read."""
        place = self._unreadable_at()
        if place is None or place >= self._log.max_offset:
            return
        if same:
            raise UnreadableLog(
                f"what our log holds at {place} is no record, and the master has the same bytes: "
                "nothing behind it can be served here; look at the master's log and disk"
            )
        if self._comparison is None:
            raise UnreadableLog(f"what our log holds at {place} is no record")

    def _append(self, physical_offset: int, pieces: list[memoryview], data: bytes) -> None:
        """One append for pieces that follow one another; none of much is copied before."""
        if len(data) < _MUCH:
            self._log.append_raw(physical_offset, b"".join(pieces))
            return
        for piece in pieces:
            self._log.append_raw(physical_offset, piece)
            physical_offset += len(piece)

    def _accept(self, piece: Piece, end: int) -> int:
        """
        Judge a frame by its header; an empty log begins where the master says.

        :returns: the end of our log.
        """
        offset, size, file_size = piece.physical_offset, piece.size or 0, self._log.file_size
        if not end:
            self._check_beginning(offset)
            self._log.append_raw(offset - offset % file_size, b"")
            end = int(self._log.max_offset)
            if not size:
                return end
        if offset != end:
            raise DivergedLog(
                f"the master sends from {offset}, our log ends at {end}: were both started with "
                "this store, and the same mappedFileSizeCommitLog?"
            )
        self._check_fits(offset, size)
        return end

    def _check_beginning(self, offset: int) -> None:
        """Where our log begins is for good: a master's mistake there, or a lie, would stay."""
        if offset > self._first_offset_max:
            raise DivergedLog(
                f"the master's log begins at {offset}, beyond haFirstOffsetMax="
                f"{self._first_offset_max}: is it ours? Our empty log is left as it is"
            )

    def look(self, now: float) -> bytes:
        """
        Nothing is to be sent; but may our log still be vouched for?

        :raises UnreadableLog: it holds what is no record.
        """
        self._check_readable()
        return b""

    def on_time(self, now: float) -> bytes:
        """
        The report that is due, if any.

        :raises NothingInCommon: it has nothing where we asked for it.
        :raises UnreadableLog: our log holds what is no record.
        :raises ReplicationError: the master sent nothing for haHousekeepingInterval.
        """
        self._check_readable()
        if self._comparison is not None:
            self._comparison.on_time(now)
        self._check_silence(now)
        return self._report(self.reported, now) if now >= self._report_time() else b""

    def deadline(self) -> float:
        """When to call `on_time` if nothing else happens."""
        soon = min(self._expiry_time(), self._report_time())
        compared = None if self._comparison is None else self._comparison.deadline()
        return soon if compared is None else min(soon, compared)

    def _report(self, physical_offset: int, now: float) -> bytes:
        self.reported = physical_offset
        self.last_write = now
        return encode_report(physical_offset)

    def _report_time(self) -> float:
        """While we compare, after two heartbeats: a Java master closes when it hears twice of more
        than it has, and its heartbeats are what tells us."""
        beats = 1 if self._comparison is None else 2
        return self.last_write + beats * self._intervals.ha_send_heartbeat_interval / 1000
