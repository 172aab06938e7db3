"""The master's half of one replication connection (HAConnection).

Spec: ha.md, sections 4.2 to 4.4, 5 and 18.
"""

from enum import Enum

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import AheadOfMaster, ReplicationError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.server.replication.classic.frames import MAX_BODY_SIZE, ReportReader, encode_frame
from rmq_ha.server.replication.classic.greeting import (
    Greeting,
    GreetingProgress,
    GreetingReader,
    log_checksum,
)
from rmq_ha.server.replication.feed import FeedBase, Stage
from rmq_ha.server.replication.places import HEAD_SIZE, begins_at, record_size
from rmq_ha.server.store.log.journal_log import LogBytes

GATHER_SECONDS = 0.1
"""How long two unacknowledged frames may delay a third one that is not full, in seconds."""

SOON_SECONDS = 0.002
"""
How long one unacknowledged frame may delay a second one, in seconds. A slave near by acknowledges
within that time.
"""

ASYNC_SECONDS = 0.005
"""
How long an ASYNC_MASTER gathers bytes after a frame, in seconds. No put waits for them. Java's
master gathers for 0.1 s.
"""

DOUBT_SECONDS = 1.0
"""
How long a too large first report may still turn out to be a greeting, in seconds. All words of a
greeting come in one write.
"""

_END_BEATS = 2
_JAVA_BATCH_SIZE = MessageStoreConfig().ha_transfer_batch_size


class Common(Enum):
    """The relation between a slave's log and this broker's, as far as it is known."""

    UNKNOWN = "unknown"
    """
    The slave sent no checksum of its log, or this broker has deleted the bytes that the checksum
    covers.
    """
    VERIFIED = "verified"
    """The checksum that the slave sent for the bytes before its first report is right."""
    DIFFERENT = "different"
    """
    The checksum is wrong, or the slave's log is longer. The slave is sent bytes that it has, and
    compares them.
    """


class Feed(FeedBase):
    """
    Decides which bytes one slave is sent, and believes its reports only as far as they can be true.

    `receive_data` takes the slave's reports. `next_frame` returns the bytes to write; call it after
    every event until it returns none. A slave that asks for bytes that are deleted here gets
    heartbeats and does not count (`is_stranded`): if the connection were closed, the slave would
    come back every five seconds.

    Differs from 4.9.7 on purpose: a negative first report is refused, and so is one beyond this
    log's end, and an acknowledgement beyond the bytes that were sent here. The first report alone
    acknowledges nothing, since it proves nothing. A later, larger report proves that the slave has
    taken bytes that were sent here.

    A slave of rmq-ha greets with a checksum (`greeting`). If the checksum is right, the slave is
    believed. If it is wrong, or the slave's log is longer, the log is sent from an earlier offset
    on, so that the slave finds where the two logs differ first. Two heartbeats at the end of this
    log tell the slave at once that the log ends there. If the slave needs deleted bytes, the first
    heartbeat tells where this log begins and the second where it ends. A broker that is itself a
    slave sends no other slave bytes for comparison: that slave might set aside messages that no
    other broker has.

    While a frame that held all new bytes is unacknowledged, a master gathers the next puts, up to a
    full frame, and sends them at the acknowledgement (group commit): a frame costs both ends more
    than the messages in it. After SOON_SECONDS it sends them anyway, so that a distant slave
    receives one frame while it appends another. A SYNC_MASTER, whose puts wait in any case, delays
    a third frame by up to GATHER_SECONDS. An ASYNC_MASTER gathers for ASYNC_SECONDS, whether frames
    are acknowledged or not.

    :ivar proven: offset up to which the slave has proven that it has the log; puts are
        acknowledged by this.
    :ivar common: the relation of the two logs that the greeting proved.
    :ivar ceiling: a first report above this offset is refused, unless the greeting proves it; None:
        no limit.
    :ivar is_within: whether the first report lies within a record. Either a frame was cut there, or
        the slave's log is another one; nobody can tell unless the slave proves its log.
    :ivar base: this connection proves nothing about bytes below this offset: the slave may lack
        them, for example because its log was once empty.
    :ivar stage: the slave's progress when `advance_stage` was called last.
    """

    def __init__(self, log: LogBytes, configuration: BrokerConfiguration, now: float) -> None:
        super().__init__(log, configuration.store, now)
        self.proven = 0
        self.stage = Stage.NEW
        self.common = Common.UNKNOWN
        self.ceiling: int | None = None
        self.base = 0
        self.is_within = False
        self._greeting = GreetingReader()
        self._doubt: AheadOfMaster | None = None
        self._doubted_until = 0.0
        self._end_beats_to_send = 0
        self._store = configuration.store
        self._ours = configuration.ours
        self._reader = ReportReader()
        self._last_frame_start = 0
        self._gathers_until = 0.0
        self._last_frame_reached_end = False

    @property
    def is_stranded(self) -> bool:
        """Whether the slave needs bytes that are deleted here."""
        return self.requested is not None and self.sent < int(self._log.min_offset)

    @property
    def is_serving(self) -> bool:
        """Whether the slave has said where it is, and can be sent the bytes that it needs."""
        return self.requested is not None and self.sent >= int(self._log.min_offset)

    def advance_stage(self) -> bool:
        """Update `stage`. Return whether it has changed."""
        before = self.stage
        if self.is_stranded:
            self.stage = Stage.STRANDED
        else:
            self.stage = Stage.CATCHING_UP if self.lag else Stage.CAUGHT_UP
        return self.stage is not before

    def receive_data(self, data: bytes, now: float) -> bool:
        """
        Take bytes that the slave sent.

        Only a whole report counts as a sign of life, since every slave sends a report at once.

        :returns: whether the bytes completed a report.
        :raises ReplicationError: a report that cannot be true.
        :raises StoreError: this broker's log cannot be read.
        """
        if self._greeting.progress is not GreetingProgress.OPEN:
            offset = self._reader.receive_data(data)
            if offset is None:
                return False
            self._last_read = now
            heartbeat = self._last_write + self._store.ha_send_heartbeat_interval / 1000
            is_unchanged = self.sent == self._log.max_offset and now < heartbeat
            self.has_sent_all = self.has_sent_all and is_unchanged
            return self._reported(offset)
        words = self._reader.receive_all(data)
        if not words:
            return False
        self._last_read = now
        return self._receive_first(words, now)

    def _receive_first(self, words: list[int], now: float) -> bool:
        """Take the first words of a connection. Return whether they hold a report that counts."""
        greeting = self._greeting
        for word in words:
            if greeting.progress is GreetingProgress.OPEN:
                greeting.receive_word(word)
                if greeting.greeting is not None:
                    self._greeted(greeting.greeting)
        if greeting.is_marked:
            return False
        if (
            greeting.progress is GreetingProgress.OPEN
            and begins_at(words[-1]) > self._log.max_offset
        ):
            self._doubt = self._ahead_error(words[-1])
            self._doubted_until = now + DOUBT_SECONDS
            return False
        return self._reported(words[-1])

    def _reported(self, offset: int) -> bool:
        if self._doubt is not None:
            raise self._doubt
        if self.requested is None:
            self._begin(offset)
        elif not (0 <= offset <= self.sent or 0 <= offset <= self.requested):
            raise ReplicationError(
                f"the slave acknowledges {offset}, but was sent bytes up to {self.sent}"
            )
        if offset > self.sent:
            return True
        if offset > self.acked:
            self.acked = offset
        if self.requested is not None and offset > self.requested:
            self.proven = self.acked
        return True

    def _begin(self, offset: int) -> None:
        end, start = int(self._log.max_offset), begins_at(offset)
        if offset < 0:
            raise ReplicationError(f"the slave asks for {offset}; is it a RocketMQ slave?")
        if start > end:
            raise self._ahead_error(offset)
        if self.ceiling is not None and start > self.ceiling:
            raise AheadOfMaster(
                self.ceiling,
                f"the slave's log ends at {offset}; before, it was ahead of this broker's, which "
                f"ended at {self.ceiling} then: from there on the slave has other bytes. Move its "
                "commitlog, consumequeue and index away (or, if they are a copy of this broker's, "
                "restart this broker)",
            )
        self.requested = offset
        self.base = start if offset else end - end % self._log.file_size
        self.sent = offset or self.base
        room = self._log.file_size - start % self._log.file_size
        self.is_within = record_size(self._log.read(start, HEAD_SIZE), 0, start, room) == 0

    def _ahead_error(self, offset: int) -> AheadOfMaster:
        end = int(self._log.max_offset)
        return AheadOfMaster(
            end,
            f"the slave's log ends at {offset}, ahead of this broker's, which ends at {end}: stop "
            "the slave, and either promote it, or move its commitlog, consumequeue and index away; "
            f"until its log ends at {end} or less, it is refused",
        )

    def _greeted(self, greeting: Greeting) -> None:
        """
        Compare the greeting of a rmq-ha slave with this broker's log.

        :raises ReplicationError: the logs differ, and this broker is a slave itself.
        :raises StoreError: this broker's log cannot be read.
        """
        place, window = greeting.place, greeting.window
        low, end = max(int(self._log.min_offset), 0), int(self._log.max_offset)
        self._end_beats_to_send = _END_BEATS
        self.has_sent_all = False
        if place <= end and place - window < low:
            return
        self.requested, self._doubt, self.base = place, None, place
        self.is_introduced = True
        if place <= end and log_checksum(self._log, place - window, place) == greeting.checksum:
            self.common = Common.VERIFIED
            self.sent = max(self.sent, place)
            self.acked = self.proven = place
            self.base = place - window
        elif self._store.broker_role is BrokerRole.SLAVE:
            raise ReplicationError(
                f"the slave's log ends at {place}, and differs from this broker's, which ends at "
                f"{end}. This broker is a slave, too, so the difference proves nothing: a slave "
                "sets its tail aside for a master only"
            )
        else:
            self.common = Common.DIFFERENT
            self.sent = max(low, min(place, end) - window)

    def next_frame(self, now: float) -> bytes:
        """
        Return the next bytes to write; empty when there is nothing to send.

        In this order: a heartbeat for a stranded slave, a heartbeat that is due, and new bytes of
        the log, unless they have to be gathered for longer. If there are no new bytes, a heartbeat
        may tell a comparing slave that the log ends.
        """
        self.has_sent_all = False
        if self.requested is None or self._paused:
            return b""
        if self._end_beats_to_send and self.is_stranded:
            return self._stranded_beat(now)
        if now >= self._last_write + self._store.ha_send_heartbeat_interval / 1000:
            self._last_write = now
            return encode_frame(self.sent)
        unsent = self._log.max_offset - self.sent
        self._gathers_until = 0.0
        if unsent <= 0:
            return self._end_beat(now) if self._end_beats_to_send else b""
        # haTransferBatchSize, unless it has its default; then rmq-ha's haTransferBatchMax
        limit = self._store.ha_transfer_batch_size
        if limit == _JAVA_BATCH_SIZE:
            limit = self._ours.ha_transfer_batch_max
        if limit > MAX_BODY_SIZE:
            limit = MAX_BODY_SIZE
        role = self._store.broker_role
        is_async = role is BrokerRole.ASYNC_MASTER
        if unsent < limit and (is_async or self.acked < self.sent):
            until = self._last_write
            if role is BrokerRole.SYNC_MASTER and self.acked < self._last_frame_start:
                until += GATHER_SECONDS
            elif self._last_frame_reached_end:
                until += ASYNC_SECONDS if is_async else SOON_SECONDS
            if now < until:
                self._gathers_until = until
                limit = 0
        body = self._log.read(self.sent, limit) if limit else b""
        if not body:
            return self._end_beat(now) if self._end_beats_to_send else b""
        self._last_frame_start = self.sent
        frame = encode_frame(self.sent, body)
        size = len(body)
        self.sent += size
        self._last_frame_reached_end = size == unsent
        self.has_sent_all = self._last_frame_reached_end and not self._end_beats_to_send
        self._last_write = now
        return frame

    def _stranded_beat(self, now: float) -> bytes:
        """
        Return the first heartbeat, which tells a rmq-ha slave where this broker's log begins, or
        the second, which tells where it ends.
        """
        self._end_beats_to_send -= 1
        self._last_write = now
        return encode_frame(
            int(self._log.min_offset if self._end_beats_to_send else self._log.max_offset)
        )

    def _end_beat(self, now: float) -> bytes:
        """
        Return a heartbeat that tells a comparing slave where this broker's log ends; empty: more of
        the log has to be sent first.
        """
        if self.sent != self._log.max_offset:
            return b""
        self._end_beats_to_send -= 1
        self._last_write = now
        return encode_frame(self.sent)

    def on_time(self, now: float) -> None:
        """
        See `FeedBase.on_time`.

        :raises AheadOfMaster: the first report was larger than this log, and no greeting followed
            it in time.
        """
        if self._doubt is not None and now >= self._doubted_until:
            raise self._doubt
        super().on_time(now)

    def deadline(self) -> float:
        """Return when to call `on_time` and `next_frame` if nothing else happens, in seconds."""
        expires = self._expiry_time()
        if self._doubt is not None:
            return min(self._doubted_until, expires)
        if self.requested is None or self._paused:
            return expires
        beats = self._last_write + self._store.ha_send_heartbeat_interval / 1000
        if self._gathers_until:
            beats = min(beats, self._gathers_until)
        return beats if beats < expires else expires
