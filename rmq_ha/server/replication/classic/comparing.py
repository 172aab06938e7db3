"""The comparison with which a slave checks the master's bytes against its log, up to its log's end.

Spec: ha.md, sections 14.2 and 18.
"""

from rmq_ha.base.errors import CorruptRecord, DamagedMaster, DivergedTail, NothingInCommon
from rmq_ha.base.store_format.commitlog import BLANK_MAGIC, decode_record
from rmq_ha.server.replication.classic.greeting import DEPTH
from rmq_ha.server.replication.places import WINDOWS, begins_at, chain_to, lowest_place, record_size
from rmq_ha.server.store.log.journal_log import LogBytes

FIRST_STEP = 1 << 16
STEP_GROWTH = 16
QUIET_SECONDS = 1.0
"""
How long a slave waits for bytes after a heartbeat. A master that has the requested bytes sends them
at once, or right after one heartbeat.
"""


class StartSearch:
    """
    The offset from which the next connection compares: first that of the slave's last whole record,
    then further and further back while nothing equal is found.
    """

    def __init__(self, log: LogBytes) -> None:
        self._log = log
        self._place: int | None = None
        self._step = FIRST_STEP

    def place(self, unreadable_at: int | None) -> int:
        """
        Return the offset to report; 0 for an empty log.

        A log that is too small for a greeting is compared as a whole. A report of a later offset
        could be refused again and again as ahead of the master, and nobody would find where the
        logs part.

        :param unreadable_at: offset of bytes that are no record; the comparison begins before them.
        :raises StoreError: the disk cannot read this slave's log.
        """
        end, low = int(self._log.max_offset), lowest_place(self._log)
        if not end:
            return 0
        if self._place is not None:
            return min(max(low, self._place), end)
        if unreadable_at is not None:
            end = min(end, unreadable_at)
        chain = chain_to(self._log, max(int(self._log.min_offset), 0), end)
        place = max(low, end - WINDOWS[-1] if chain is None else chain.last)
        return low if place < low + DEPTH else place

    def go_back(self, start: int) -> bool:
        """
        Let the next connection compare from further back, since no equal record was found from
        `start` on.

        :returns: whether this slave's log has anything before `start`.
        """
        low = lowest_place(self._log)
        if start <= low:
            self.reset()
            return False
        self._place = max(low, start - self._step)
        self._step *= STEP_GROWTH
        return True

    def reset(self) -> None:
        """Let the next connection begin at the last whole record."""
        self._place = None
        self._step = FIRST_STEP


class LogComparison:
    """
    One connection's comparison of the master's log with this slave's, from `start` on.

    This slave's log is cut only where the master provably has something else, or nothing. The cut
    comes after a whole record that is equal, and only if the master has a whole record in its
    place. A bad disk of the master must not replace a good copy.

    :ivar start: offset where the comparison begins; lower than the requested one if the master
        begins lower.
    :ivar place: both logs are equal up to this offset.
    :ivar is_ahead: the master seems to end at `place`, but this slave's log goes on.
    """

    def __init__(self, log: LogBytes, start: int) -> None:
        self.start = self.place = start
        self._log = log
        self._beats = 0
        self._quiet_since: float | None = None
        # The start of the first record that differs, and the master's bytes from there on.
        self._cut: int | None = None
        self._theirs = bytearray()

    @property
    def is_ahead(self) -> bool:
        """Whether the master seems to end at `place`, although this slave's log goes on."""
        return self._beats > 0

    @property
    def is_done(self) -> bool:
        """Whether all bytes up to the end of this slave's log were equal."""
        return self.place >= int(self._log.max_offset)

    @property
    def held(self) -> int:
        """
        Return the number of bytes after `place` that differ from this slave's and are not judged
        yet.
        """
        return 0 if self._cut is None else self._cut + len(self._theirs) - self.place

    def begin_at(self, offset: int) -> None:
        """Start at an offset that the master chose, at or below the requested one."""
        self.start = self.place = offset
        self._cut = None
        self._theirs.clear()
        self._beats = 0

    def take(self, body: memoryview) -> memoryview:
        """
        Compare the master's next bytes, which belong at `place`.

        :returns: the bytes after the end of this slave's log.
        :raises DivergedTail: the master has another record at `place`.
        :raises NothingInCommon: the master has another record at `place`, and no whole record
            before it was equal.
        :raises DamagedMaster: the master's bytes at `place` are no record.
        :raises StoreError: the disk cannot read this slave's log.
        """
        self._beats = 0
        if self._cut is not None:
            self._judge(body)
            return body[:0]
        body = self._from_our_beginning(body)
        own = self._log.read(self.place, len(body))
        if own == bytes(body[: len(own)]):
            self.place += len(own)
            rest = body[len(own) :]
            if rest and not self.is_done:
                raise NothingInCommon(self.start, f"this slave's log has nothing at {self.place}")
            return rest
        pairs = zip(own, body, strict=False)
        same = next(at for at, (ours, theirs) in enumerate(pairs) if ours != theirs)
        self.place += same
        self._cut = self._common_end()
        # Collect from the start of the record: only a whole record of the master proves that it has
        # another one there, and not a bad sector.
        self._theirs += self._log.read(self._cut, self.place - self._cut)
        self._judge(body[same:])
        return body[:0]

    def _from_our_beginning(self, body: memoryview) -> memoryview:
        """Skip bytes before this slave's first file: there is nothing to compare them with."""
        before = max(int(self._log.min_offset), 0) - self.place
        if before <= 0:
            return body
        self.place += min(before, len(body))
        self.start = self.place
        return body[before:]

    def beat(self, now: float) -> None:
        """
        Take a heartbeat. A master may send one before data, but not two.

        :raises DivergedTail: the master has nothing at `place`, where this slave has something.
        :raises NothingInCommon: the master has nothing at `place`, and no whole record before it
            was equal.
        """
        self._beats += 1
        self._quiet_since = now
        if self._beats > 1 and self._cut is None:
            end = self._common_end()
            raise DivergedTail(end, f"the master's log ends at {self.place}, before this slave's")

    def deadline(self) -> float | None:
        """Return when to call `on_time`, in seconds; None: it need not be called."""
        nothing_yet = self._beats == 1 and self.place == self.start
        if not nothing_yet or self._quiet_since is None:
            return None
        return self._quiet_since + QUIET_SECONDS

    def on_time(self, now: float) -> None:
        """:raises NothingInCommon: the master has sent nothing from the requested offset on."""
        deadline = self.deadline()
        if deadline is not None and now >= deadline:
            raise NothingInCommon(self.start, f"the master has nothing at {self.start}")

    def _common_end(self) -> int:
        """
        Return the start of the record that holds `place`, if a whole record before it is equal.

        :raises NothingInCommon: no whole record before `place` is equal.
        """
        chain = chain_to(self._log, begins_at(self.start), self.place)
        if chain is None:
            raise NothingInCommon(
                self.start, f"the master's log differs from this slave's from {self.place} on"
            )
        return chain.end

    def _judge(self, more: memoryview) -> None:
        """Collect the master's differing bytes until they are a whole record, or cannot be one."""
        assert self._cut is not None
        theirs, cut = self._theirs, self._cut
        theirs += more
        room = self._log.file_size - cut % self._log.file_size
        size = record_size(theirs, 0, cut, room)
        if size < 0 or (size > len(theirs) and not _is_blank(theirs)):
            return
        if size and (_is_blank(theirs) or _is_record(theirs)):
            raise DivergedTail(cut, f"from {cut} on the master's log differs from this slave's")
        raise DamagedMaster(
            f"at {cut} the master sends bytes that are no whole record, and this slave has other "
            "bytes there: the slave keeps its copy; look at the master's disk"
        )


def _is_blank(data: bytearray) -> bool:
    return data[4:8] == BLANK_MAGIC.to_bytes(4, "big")


def _is_record(data: bytearray) -> bool:
    try:
        decode_record(bytes(data), check_crc=True)
    except CorruptRecord:
        return False
    return True
