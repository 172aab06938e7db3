"""The slave's half of a replication connection (HAClient).

Spec: ha.md, sections 4.7, 5 and 18.
"""

from rmq_ha.config.store import MessageStoreConfig
from rmq_ha.errors import DivergedLog, ReplicationError
from rmq_ha.ha.frames import FrameReader, Piece, encode_report
from rmq_ha.interfaces import ICommitLog


class Replica:
    """
    Appends what the master sends and reports how far the log goes.

    Bodies are appended as they come in, one append for all frames of a chunk; reported are whole
    frames only. Differs from 4.9.7 on purpose: reports at once on connecting, leaves a master
    that is silent, refuses impossible sizes and frames that do not fit into the file.

    :ivar frames: how many whole frames arrived, heartbeats included.
    """

    def __init__(self, log: ICommitLog, config: MessageStoreConfig, now: float) -> None:
        self.frames = 0
        self._log = log
        self._config = config
        self._reader = FrameReader()
        self._whole = self._reported = int(log.max_offset)
        self._last_read = now
        self._last_write = now

    @property
    def last_read(self) -> float:
        """When the master was heard last; the clock's seconds."""
        return self._last_read

    @property
    def reported(self) -> int:
        """What the master was told last."""
        return self._reported

    def connected(self, now: float) -> bytes:
        """The first report: from where we want the log."""
        return self._report(self._log.max_offset, now)

    def receive_data(self, data: bytes, now: float) -> bytes:
        """
        Append what arrived; answer with the new end of our log, if it moved.

        :raises DivergedLog: the master's log does not continue ours.
        :raises ReplicationError: these are no transfer frames.
        :raises StoreError: our disk refuses.
        """
        self._last_read = now
        log = self._log
        file_size = log.file_size
        end = log.max_offset
        run: list[memoryview] = []
        start = 0
        try:
            for piece in self._reader.receive_data(data):
                if piece.size is not None:
                    end = self._accept(piece, end)
                if piece.body:
                    start = start if run else piece.physical_offset
                    run.append(piece.body)
                    end += len(piece.body)
                    if not end % file_size:
                        pieces, run = run, []
                        self._append(start, pieces, data)
                if piece.is_last:
                    self._whole = end
                    self.frames += 1
        finally:
            if run:
                self._append(start, run, data)
        return self._report(self._whole, now) if self._whole > self._reported else b""

    def _append(self, physical_offset: int, pieces: list[memoryview], data: bytes) -> None:
        """One append for pieces that follow one another; no copy when they are all of `data`."""
        whole = len(pieces) == 1 and pieces[0].obj is data and len(pieces[0]) == len(data)
        self._log.append_raw(physical_offset, data if whole else b"".join(pieces))

    def _accept(self, piece: Piece, end: int) -> int:
        """
        Judge a frame by its header; an empty log begins where the master says.

        :returns: the end of our log.
        """
        offset, size, file_size = piece.physical_offset, piece.size or 0, self._log.file_size
        if not end:
            self._log.append_raw(offset - offset % file_size, b"")
            end = int(self._log.max_offset)
            if not size:
                return end
        if offset != end:
            raise DivergedLog(
                f"the master sends from {offset}, our log ends at {end}: were both started with "
                "this store, and the same mappedFileSizeCommitLog?"
            )
        if offset % file_size + size > file_size:
            raise DivergedLog(
                f"{size} bytes at {offset} do not fit into a file of {file_size}: set "
                "mappedFileSizeCommitLog as on the master"
            )
        return end

    def on_time(self, now: float) -> bytes:
        """
        The report that is due, if any.

        :raises ReplicationError: the master sent nothing for haHousekeepingInterval.
        """
        if now >= self._expiry_time():
            raise ReplicationError(f"the master sent nothing for {now - self._last_read:.0f} s")
        return self._report(self._reported, now) if now >= self._report_time() else b""

    def deadline(self) -> float:
        """When to call `on_time` if nothing else happens."""
        return min(self._expiry_time(), self._report_time())

    def _report(self, physical_offset: int, now: float) -> bytes:
        self._reported = physical_offset
        self._last_write = now
        return encode_report(physical_offset)

    def _report_time(self) -> float:
        return self._last_write + self._config.ha_send_heartbeat_interval / 1000

    def _expiry_time(self) -> float:
        return self._last_read + self._config.ha_housekeeping_interval / 1000
