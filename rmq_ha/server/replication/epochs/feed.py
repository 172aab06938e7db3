"""The master's half of one replication connection in controller mode (AutoSwitchHAConnection).

Spec: controller.md, sections 7.1 and 7.2.
"""

from typing import NamedTuple, Protocol

from rmq_ha.base.errors import ReplicationError
from rmq_ha.base.timing.last_second import LastSecond
from rmq_ha.server.replication.epochs.epochs import OPEN_END, Epoch, Epochs
from rmq_ha.server.replication.epochs.frames import (
    MAX_BODY_SIZE,
    NOWHERE,
    TRANSFER_SIZE,
    MasterHandshake,
    SlaveHandshake,
    SlaveReader,
    Transfer,
    encode_master_handshake,
    encode_transfer,
)
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.tables import TableEntry, TableFeed, Tables
from rmq_ha.server.replication.feed import FeedBase, Stage
from rmq_ha.server.store.log.journal_log import LogBytes

CONFIRM_SECONDS = 0.1
"""Longest time until an idle slave is told of a higher confirm offset, in seconds."""


class Report(NamedTuple):
    """
    A slave's report of its log's end, which may be believed.

    :ivar reached: whether the slave has reached its goal. The goal is the end that this log had
        when the slave reached the previous goal, or at its first report.
    """

    broker_id: int
    offset: int
    reached: bool
    is_learner: bool


class Term(Protocol):
    """
    The facts that all connections of a master share.

    :ivar epochs: epochs of the log; read for each frame, so that no frame has an outdated epoch.
    :ivar confirm_offset: the confirm offset, which slaves are told.
    :ivar led_from: end of the log when this broker began to lead.
    """

    @property
    def epochs(self) -> Epochs:
        """Return the epochs of the log."""

    @property
    def confirm_offset(self) -> int:
        """Return the offset up to which the log may be read."""

    @property
    def led_from(self) -> int:
        """Return the end that the log had when this broker began to lead."""

    def sent_to(self, broker_id: int) -> int:
        """
        Return the offset up to which a broker was sent the log in this epoch, on any connection.
        """

    def sending(self, broker_id: int, end: int) -> None:
        """Note that a broker is sent the log up to `end`."""


class EpochFeed(FeedBase):
    """
    Decides which bytes one slave is sent, and believes its reports only as far as they can be true.

    `receive_data` takes the slave's bytes. `next_frame` returns the bytes to write; call it after
    every event until it returns none. Differs from 5.3.3 on purpose: a report beyond the bytes that
    this broker was sent in this epoch, or below an earlier report, closes the connection. Each
    frame names the epoch of its bytes by the present list. A slave that takes tables gets all of
    them before the handshake is answered: once it reports, it has them.

    :param tables: tables of this broker; None: no slave gets any.
    :ivar slave: the slave's handshake; None: it has not come yet.
    :ivar rate: rate of the frames of the log, headers included.
    """

    def __init__(
        self,
        log: LogBytes,
        term: Term,
        settings: ReplicationSettings,
        now: float,
        tables: Tables | None = None,
    ) -> None:
        super().__init__(log, settings, now)
        self.slave: SlaveHandshake | None = None
        self.rate = LastSecond()
        self._term = term
        self._settings = settings
        self._tables = tables
        self._stream: TableFeed | None = None
        self._reader = SlaveReader()
        self._owed_handshakes = 0
        self._goal = 0
        self._told = 0
        self._next_second: float | None = None

    @property
    def broker_id(self) -> int | None:
        return None if self.slave is None else self.slave.broker_id

    @property
    def stage(self) -> Stage:
        return Stage.STRANDED if self.is_stranded else Stage.CAUGHT_UP

    @property
    def is_stranded(self) -> bool:
        """Whether the slave asked for bytes that are deleted here, or that belong to no epoch."""
        return self.requested is not None and (
            self.sent < int(self._log.min_offset) or self._epoch_at(self.sent) is None
        )

    @property
    def why_stranded(self) -> str:
        """Return for operators why the slave is stranded, and what they can do."""
        entries = self._term.epochs.entries
        begins = max(int(self._log.min_offset), entries[0].start if entries else 0)
        return (
            f"it holds the log up to {self.requested}, and the log begins here at {begins}: what "
            "lies between is deleted. A slave of rmq-ha fetches all anew by itself "
            "(haRefetchStrandedStore); move another one's store away, and start it again"
        )

    def receive_data(self, data: bytes, now: float) -> list[Report]:
        """
        Take bytes that the slave sent.

        :raises ReplicationError: they say something that cannot be true.
        """
        reports = []
        for said in self._reader.receive_data(data):
            self._last_read = now
            if isinstance(said, SlaveHandshake):
                self._greeted(said)
            else:
                reports.append(self._take_report(said))
        return reports

    def _greeted(self, slave: SlaveHandshake) -> None:
        if slave.broker_id <= 0:
            raise ReplicationError(f"a slave says that its id is {slave.broker_id}")
        if self.requested is not None or (self.slave is not None and self.slave != slave):
            raise ReplicationError("a slave begins a second time on one connection")
        if self.slave is None and slave.takes_tables and self._tables is not None:
            self._stream = TableFeed(self._tables, self._term.epochs.last_epoch)
        self.slave, self.is_introduced = slave, True
        self._owed_handshakes += 1

    def _take_report(self, offset: int) -> Report:
        slave = self.slave
        if slave is None:
            raise ReplicationError("a slave reports before it said who it is")
        if self.requested is None:
            self._begin(slave, offset)
        elif not self.acked <= offset <= max(self.sent, self.acked):
            raise ReplicationError(
                f"broker {slave.broker_id} reports {offset}, after {self.acked}, and was sent "
                f"the log up to {self.sent}"
            )
        self.acked = offset
        reached = offset >= self._goal
        if reached:
            self._goal = int(self._log.max_offset)
        return Report(slave.broker_id, offset, reached, slave.is_learner)

    def _begin(self, slave: SlaveHandshake, offset: int) -> None:
        """
        Take a first report. Each byte that it names, the slave had before this epoch, or this
        broker has sent it.

        :raises ReplicationError: the report is larger than possible.
        """
        known = self._known_to(slave)
        if not 0 <= offset <= known:
            raise ReplicationError(
                f"broker {slave.broker_id} says that it holds {offset}, and nobody can have sent "
                f"it more than {known} in this epoch"
            )
        self.requested = offset
        self.sent = offset or self._first_offset(slave)
        self._goal = int(self._log.max_offset)

    def _known_to(self, slave: SlaveHandshake) -> int:
        """Return the highest offset up to which the slave can have this log."""
        known = max(self._term.led_from, self._term.sent_to(slave.broker_id))
        return min(known, int(self._log.max_offset))

    def _first_offset(self, slave: SlaveHandshake) -> int:
        """
        Return the offset at which an empty slave begins; `NOWHERE` while this log has no file.
        """
        low, end, size = int(self._log.min_offset), int(self._log.max_offset), self._log.file_size
        return max(low, (end - 1) // size * size) if slave.syncs_from_last_file and end else low

    def table_changed(self, entry: TableEntry, now: float) -> bool:
        """
        Take a changed entry of a table.

        :returns: whether `deadline` has changed.
        """
        return self._stream is not None and self._stream.changed(entry, now)

    def next_frame(self, now: float) -> bytes:
        """Return the next bytes to write; empty when there is nothing to send."""
        if self._paused or self.slave is None:
            return b""
        if self._stream is not None:
            frame = self._stream.next_frame(now)
            if frame:
                return frame  # does not put a heartbeat off, since it says nothing of the log
        if self._owed_handshakes:
            self._owed_handshakes -= 1
            self._last_write = now
            return encode_master_handshake(self._handshake(self.slave))
        if self.requested is None:
            return b""
        if self.sent == NOWHERE:
            self.sent = self._first_offset(self.slave)
        if self._stream is not None and self.sent < self._log.max_offset:
            frame = self._stream.before_log()
            if frame:
                return frame
        transfer = self._piece(self.slave, now)
        if transfer is None:
            if now < self._heartbeat_time():
                return b""
            transfer = self._heartbeat()
        self._last_write = now
        frame = encode_transfer(transfer)
        self.rate.add(len(frame), now)
        return frame

    def _handshake(self, slave: SlaveHandshake) -> MasterHandshake:
        """
        Make the handshake. It names the part of this log that the slave can have, not the log's
        end.

        A master that restarts goes on in its epoch. It may have lost bytes that the slave has, and
        may have other bytes in their place by now.
        """
        epochs = self._term.epochs
        return MasterHandshake(self._known_to(slave), epochs.last_epoch, epochs)

    def _epoch_at(self, offset: int) -> tuple[Epoch, int] | None:
        return self._term.epochs.epoch_at(max(offset, 0))

    def _piece(self, slave: SlaveHandshake, now: float) -> Transfer | None:
        """
        Return the next bytes, of one epoch and one file; None: there are none for this slave now.
        """
        epoch_and_end = self._epoch_at(self.sent)
        if epoch_and_end is None or self.sent >= self._log.max_offset:
            return None
        epoch, end = epoch_and_end
        limit = min(self._settings.ha_transfer_batch_size, MAX_BODY_SIZE, self._allowed_bytes(now))
        body = self._log.read(self.sent, min(limit, end - self.sent))
        if not body:
            return None
        frame = Transfer(self.sent, epoch, self._confirm_offset_to_send(), body)
        self.sent += len(body)
        self._term.sending(slave.broker_id, self.sent)
        return frame

    def _allowed_bytes(self, now: float) -> int:
        """
        Return the bytes that may still be sent in this second (`haFlowControlEnable`). If none are
        left, the deadline is the next second.
        """
        most = self._settings.max_transfer_per_second
        if not most:
            return MAX_BODY_SIZE
        left = max(0, most - self.rate.in_this_second(now) - TRANSFER_SIZE)
        self._next_second = None if left else float(int(now) + 1)
        return left

    def _heartbeat(self) -> Transfer:
        epoch_and_end = self._epoch_at(self.sent)
        epoch = self._term.epochs.entries[-1] if epoch_and_end is None else epoch_and_end[0]
        return Transfer(self.sent, epoch, self._confirm_offset_to_send())

    def _confirm_offset_to_send(self) -> int:
        self._told = min(self._term.confirm_offset, OPEN_END)
        return self._told

    def deadline(self) -> float:
        """Return when to call `on_time` and `next_frame` if nothing else happens, in seconds."""
        if self.requested is None or self._paused:
            return self._expiry_time()
        time = min(self._heartbeat_time(), self._expiry_time())
        due = None if self._stream is None else self._stream.deadline
        return min(moment for moment in (time, due, self._next_second) if moment is not None)

    def _heartbeat_time(self) -> float:
        """
        Return when a heartbeat is due. It is due soon if the slave has bytes that may be read, and
        was not told yet that they may be.
        """
        pause = self._settings.ha_send_heartbeat_interval / 1000
        if self._told < min(self.acked, self._term.confirm_offset):
            pause = min(pause, CONFIRM_SECONDS)
        return self._last_write + pause
