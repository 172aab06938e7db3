"""The slave's half of a replication connection (HAClient).

Spec: ha.md, sections 4.7, 5 and 18.
"""

from collections.abc import Callable
from enum import Enum

from rmq_ha.base.config.fields import LONG_MAX
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import DivergedLog, StrandedLog, UnreadableLog
from rmq_ha.server.replication.classic.comparing import LogComparison
from rmq_ha.server.replication.classic.frames import FramePieceReader, encode_report
from rmq_ha.server.replication.classic.greeting import encode_greeting, greet
from rmq_ha.server.replication.replica import ReplicaBase
from rmq_ha.server.replication.statistics import FOLLOWING
from rmq_ha.server.store.log.journal_log import CopiedLog


class ReplicaStage(Enum):
    """How far a slave has come with its master, for operators."""

    CONNECTED = "connected"
    COMPARING = "comparing"
    AHEAD = "ahead"
    FOLLOWING = FOLLOWING


def _all_readable() -> int | None:
    return None


class ClassicReplica(ReplicaBase):
    """
    Appends the bytes that the master sends, and reports how far the log goes.

    Bodies are appended as they arrive, with one append for all frames of a chunk; only whole frames
    are reported. Differs from 4.9.7 on purpose: it reports at once on connecting, leaves a master
    that is silent, and refuses impossible sizes and frames that do not fit into the file.

    Above all it does not assume that the two logs continue each other. It asks for the log from
    `start` on and compares the bytes with its own. Only when its own end is reached, and all was
    equal, does it append and acknowledge. `start` is the first report. Java masters take that for
    an acknowledgement, so it is not raised before.

    :param start: offset to ask for; with the end of the log, nothing is compared.
    :param unreadable_at: returns the offset of bytes that can never become a record; None: no such
        bytes.
    :param first_offset_max: an empty log refuses to begin beyond this offset.
    :ivar frames: number of whole frames that arrived, heartbeats included.
    :ivar reported: the physical offset that the master was told last.
    """

    read_size = 1 << 18
    """Bytes to read at once. By measurement, 64 KiB and 1 MiB are slower by half."""

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
        self._reader = FramePieceReader()
        self._unreadable_at = unreadable_at
        self._first_offset_max = first_offset_max
        self._start = int(log.max_offset) if start is None else start
        self._whole = self.reported = self._start
        self._master_begins: int | None = None
        self._comparison = (
            None if self._start >= log.max_offset else LogComparison(log, self._start)
        )

    @property
    def stage(self) -> ReplicaStage:
        """Return how far the slave has come. With FOLLOWING, incoming bytes are appended."""
        if not self.frames:
            return ReplicaStage.CONNECTED
        if self._comparison is None:
            return ReplicaStage.FOLLOWING
        return ReplicaStage.AHEAD if self._comparison.is_ahead else ReplicaStage.COMPARING

    def connected(self, now: float) -> bytes:
        """
        Return the first report: the offset from which the log is wanted, with a checksum of the log
        below it.

        :raises StoreError: this slave's log cannot be read.
        """
        report = self._report(self._start, now)
        greeting = None if self._comparison is None else greet(self._log, self._start)
        return report if greeting is None else encode_greeting(greeting)

    def receive_data(self, data: bytes, now: float) -> bytes:
        """
        Append the bytes that arrived. Return a report of the new end of this slave's log, if that
        moved.

        :raises DivergedTail: this slave's log has a record that the master's has not.
        :raises NothingInCommon: the logs differ, and no whole record before that place is equal.
        :raises DamagedMaster: the master sends bytes that are no record, where this slave has other
            bytes.
        :raises StrandedLog: the master has deleted the bytes that follow on this slave's log.
        :raises DivergedLog: the master's log does not continue this slave's.
        :raises UnreadableLog: this slave's log holds bytes that are no record.
        :raises ReplicationError: the bytes are no transfer frames.
        :raises StoreError: this slave's disk refuses.
        """
        self.last_read = now
        self._check_readable()
        log = self._log
        file_size = log.file_size
        end = log.max_offset
        # Pieces that follow each other and are not appended yet; the first one belongs at `start`.
        run: list[memoryview] = []
        start = 0
        try:
            for offset, body, size, is_last in self._reader.receive_data(data):
                if self._comparison is not None:
                    body = self._compare(self._comparison, offset, body, size, now)
                elif size is not None:
                    end = self._accept(offset, size, end)
                if body:
                    start = start if run else end
                    run.append(body)
                    end += len(body)
                    # The log refuses bytes that cross the end of a file.
                    if not end % file_size:
                        pieces, run = run, []
                        self._log.append_raw(start, b"".join(pieces))
                if is_last:
                    self.frames += 1
                    if self._comparison is None:
                        self._whole = end
        # Also when a later frame is refused: the bytes before it are the master's, and the next
        # connection goes on after them.
        finally:
            if run:
                self._log.append_raw(start, b"".join(run))
        return self._report(self._whole, now) if self._whole > self.reported else b""

    def _compare(
        self, comparison: LogComparison, offset: int, body: memoryview, size: int | None, now: float
    ) -> memoryview:
        """Compare one piece. Return the bytes after the end of this slave's log, to be appended."""
        if size is not None:
            if not size and offset > self._log.max_offset:
                self._see_whether_stranded(offset)
                return body
            if offset < comparison.place:
                comparison.begin_at(offset)
            elif offset != comparison.place + comparison.held:
                raise DivergedLog(
                    f"the master sends from {offset}, and was asked for {comparison.place}"
                )
            self._check_fits(offset, size)
            if not size:
                comparison.beat(now)
        rest = comparison.take(body) if body else body
        if comparison.is_done:
            self._check_readable(same=True)
            self._comparison = None
        return rest

    def _see_whether_stranded(self, offset: int) -> None:
        """
        Take a heartbeat from after this log's end. The first tells where the master's log begins,
        the second where it ends; then this slave is stranded.
        """
        if self._master_begins is not None:
            begins = self._master_begins
            if offset <= begins:
                raise DivergedLog(
                    f"the master sends from {offset}, behind the end of this slave's log"
                )
            raise StrandedLog(int(self._log.max_offset), begins, offset - begins)
        self._master_begins = offset

    def _check_readable(self, *, same: bool = False) -> None:
        """
        Check that the log holds no unreadable bytes: the master must not be told that this slave
        has them.
        """
        place = self._unreadable_at()
        if place is None or place >= self._log.max_offset:
            return
        if same:
            raise UnreadableLog(
                f"this slave's log holds no record at {place}, and the master has the same bytes: "
                "no later message can be served here; look at the master's log and disk"
            )
        if self._comparison is None:
            raise UnreadableLog(f"this slave's log holds no record at {place}")

    def _accept(self, offset: int, size: int, end: int) -> int:
        """
        Check the header of a frame. An empty log begins where the master says.

        :returns: the end of this slave's log.
        """
        file_size = self._log.file_size
        if not end:
            self._check_beginning(offset)
            self._log.append_raw(offset - offset % file_size, b"")
            end = int(self._log.max_offset)
            if not size:
                return end
        if offset != end:
            raise DivergedLog(
                f"the master sends from {offset}, and this slave's log ends at {end}: were both "
                "started with this store, and the same mappedFileSizeCommitLog?"
            )
        self._check_fits(offset, size)
        return end

    def _check_beginning(self, offset: int) -> None:
        """Check where an empty log is to begin. A wrong beginning could not be changed later."""
        if offset > self._first_offset_max:
            raise DivergedLog(
                f"the master's log begins at {offset}, beyond haFirstOffsetMax="
                f"{self._first_offset_max}: is it the right master? This slave's "
                "empty log is left as it is"
            )

    def look(self, now: float) -> bytes:
        """
        Check that this slave's log is readable; nothing is to be sent.

        :raises UnreadableLog: it holds bytes that are no record.
        """
        self._check_readable()
        return b""

    def on_time(self, now: float) -> bytes:
        """
        Return the report that is due; empty when none is.

        :raises NothingInCommon: the master has sent nothing from the requested offset on.
        :raises UnreadableLog: this slave's log holds bytes that are no record.
        :raises ReplicationError: the master sent nothing for haHousekeepingInterval.
        """
        self._check_readable()
        if self._comparison is not None:
            self._comparison.on_time(now)
        self._check_silence(now)
        return self._report(self.reported, now) if now >= self._report_time() else b""

    def deadline(self) -> float:
        """Return when to call `on_time` if nothing else happens, in seconds."""
        soon = min(self._expiry_time(), self._report_time())
        compared = None if self._comparison is None else self._comparison.deadline()
        return soon if compared is None else min(soon, compared)

    def _report(self, physical_offset: int, now: float) -> bytes:
        self.reported = physical_offset
        self.last_write = now
        return encode_report(physical_offset)

    def _report_time(self) -> float:
        """
        Return when the next report is due, in seconds.

        While this slave compares, it reports only after two heartbeat intervals. A Java master
        closes the connection at the second report that is larger than its log. Until then its
        heartbeats can tell this slave where the master's log ends.
        """
        beats = 1 if self._comparison is None else 2
        return self.last_write + beats * self._intervals.ha_send_heartbeat_interval / 1000
