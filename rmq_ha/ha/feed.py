"""The master's half of one replication connection (HAConnection).

Spec: ha.md, sections 4.2 to 4.4, 5 and 18.
"""

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.errors import ReplicationError
from rmq_ha.ha.frames import MAX_BODY_SIZE, ReportReader, encode_frame
from rmq_ha.interfaces import ICommitLog
from rmq_ha.model.status import BrokerRole

GATHER_SECONDS = 0.1
"""How long two unacknowledged frames may hold back a third that is not full."""


class Feed:
    """
    Decides what one slave is sent, and believes it no more than it can know.

    `receive_data` takes its reports, `next_frame` gives what to write; call that after every
    event until it is empty. A slave that asks for bytes that are deleted here gets heartbeats
    and does not count (`is_stranded`): closing would make it come back every five seconds.

    Differs from 4.9.7 on purpose: a first report that is negative or beyond our log, and an
    acknowledgement beyond what was sent here, are refused.

    With two frames unacknowledged a SYNC_MASTER gathers what is put meanwhile, up to a full
    frame, and sends it at the next acknowledgement (group commit by itself). Two, so that one is
    on its way while the slave appends the other. A slave that is slow to acknowledge gets the
    frame after GATHER_SECONDS all the same.

    :ivar requested: the first report; None before.
    :ivar sent: end of what was sent; the next frame starts here.
    :ivar acked: the slave holds everything below, down to `base`.
    :ivar base: where the log of a slave that came with nothing begins; else 0.
    """

    def __init__(self, log: ICommitLog, configuration: BrokerConfiguration, now: float) -> None:
        self.requested: int | None = None
        self.sent = 0
        self.acked = 0
        self.base = 0
        self._log = log
        self._store = configuration.store
        self._ours = configuration.ours
        self._reader = ReportReader()
        self._last_frame_start = 0
        self._gathers = False
        self._paused = False
        self._last_read = now
        self._last_write = now

    @property
    def is_stranded(self) -> bool:
        """It needs bytes that are deleted here."""
        return self.requested is not None and self.sent < int(self._log.min_offset)

    @property
    def is_serving(self) -> bool:
        """A slave is at the other end: it has said where it is, and can be served."""
        return self.requested is not None and self.sent >= int(self._log.min_offset)

    @property
    def lag(self) -> int:
        """Bytes of our log that it has not acknowledged."""
        return max(0, int(self._log.max_offset) - self.acked)

    def receive_data(self, data: bytes, now: float) -> bool:
        """
        Take what the slave sent.

        :returns: whether it held a complete report.
        :raises ReplicationError: a report that cannot be true.
        """
        self._last_read = now
        offset = self._reader.receive_data(data)
        if offset is None:
            return False
        if self.requested is None:
            self._begin(offset)
        elif not 0 <= offset <= self.sent:
            raise ReplicationError(
                f"the slave acknowledges {offset}, but was sent bytes up to {self.sent}"
            )
        self.acked = max(self.acked, offset)
        return True

    def _begin(self, offset: int) -> None:
        end = self._log.max_offset
        if offset < 0:
            raise ReplicationError(f"the slave asks for {offset}; is it a RocketMQ slave?")
        if offset > end:
            raise ReplicationError(
                f"the slave's log ends at {offset}, ahead of ours at {end}: stop it and either "
                "promote it, or move its commitlog, consumequeue and index away"
            )
        self.requested = offset
        if offset == 0:
            self.base = end - end % self._log.file_size
        self.sent = offset or self.base

    def pause(self) -> None:
        """The transport is full: nothing leaves before `resume`."""
        self._paused = True

    def resume(self) -> None:
        """The transport is empty again."""
        self._paused = False

    def next_frame(self, now: float) -> bytes:
        """What to write now; empty when nothing is to be sent."""
        if self.requested is None or self._paused:
            return b""
        if now >= self._heartbeat_time():
            self._last_write = now
            return encode_frame(self.sent)
        limit = max(self._store.ha_transfer_batch_size, self._ours.ha_transfer_batch_max)
        limit = min(limit, MAX_BODY_SIZE)
        self._gathers = (
            self.acked < self._last_frame_start
            and 0 < self._log.max_offset - self.sent < limit
            and now < self._last_write + GATHER_SECONDS
        )
        body = b"" if self._gathers else self._log.read(self.sent, limit)
        if not body:
            return b""
        if self._store.broker_role is BrokerRole.SYNC_MASTER:
            self._last_frame_start = self.sent
        frame = encode_frame(self.sent, body)
        self.sent += len(body)
        self._last_write = now
        return frame

    def on_time(self, now: float) -> None:
        """
        See whether the slave is still there. A heartbeat that is due comes from `next_frame`.

        :raises ReplicationError: it said nothing for haHousekeepingInterval.
        """
        if now >= self._expiry_time():
            raise ReplicationError(f"the slave said nothing for {now - self._last_read:.0f} s")

    def deadline(self) -> float:
        """When to call `on_time` and `next_frame` if nothing else happens."""
        if self.requested is None or self._paused:
            return self._expiry_time()
        soon = self._last_write + GATHER_SECONDS if self._gathers else self._heartbeat_time()
        return min(soon, self._heartbeat_time(), self._expiry_time())

    def _heartbeat_time(self) -> float:
        return self._last_write + self._store.ha_send_heartbeat_interval / 1000

    def _expiry_time(self) -> float:
        return self._last_read + self._store.ha_housekeeping_interval / 1000
