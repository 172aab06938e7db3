"""Reput: gives new records of the log to queues and index, and tells waiting consumers.

Spec: store.md, section 6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.store_flags import Flag, RunningFlags
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.log.tail import Tail

GATHER_S = 0.005
"""How long records are gathered into a slice, seconds. RocketMQ's reput service sleeps for 1 ms,
whether a consumer waits or not."""
ENOUGH = 3 << 15
"""This many bytes end the gathering. A longer slice would delay answers, and a slave's reports."""
_RETRY_S = 1.0
_READ_PATIENCE = 3
_FLOOD = 3 << 16
"""
A slave whose log grows by so many bytes in one turn is far behind its master: they are most of one
read of its connection.
"""
_FLOOD_SLICES = 8
"""Most slices in one turn of such a slave: a read has so many if records have 128 bytes."""

Target = Callable[[Rows], bool | None]


class _SliceProgress(Enum):
    """How much of a slice was dispatched in one turn."""

    WHOLE = auto()
    PART = auto()
    FAILED = auto()


@dataclass(slots=True)
class _Need:
    """
    A target or the log, without which no slice can be dispatched, and how often it failed.

    :ivar flag: is raised after `patience` failures in a row, and lowered when it works again.
    """

    flag: Flag
    patience: int
    failures: int = 0


class Dispatcher:
    """
    Gives records to all targets, in log order and a slice in each turn.

    Records that come within `gather_s` of the last slice, up to 96 KiB, are gathered while no
    consumer waits or reads. A slice of several records costs little more than a slice of one.

    While a slave is far behind, its master's log is more urgent than the queues: until the slave
    has it, messages are on one disk. So the queues get at most as much time as the log. A slave
    that makes queues as fast as it gets the log does so while the bytes are in memory. A slower one
    reads the rest of the log again afterwards.

    :param config: a slave waits for bytes that it cannot read yet; a master skips them.
    :param reached: called with each slice when all targets have it.
    :param flags: refuses puts after some failures in a row to read the log, or of a target, until
        it works again.
    :param tail: the tail of `log`.
    :ivar position: physical offset up to which everything is dispatched.
    :ivar is_awaited: returns whether a consumer wants to hear of the next record at once.
    :ivar trouble: why the last slice was not dispatched; empty if it was.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        log: JournalLog,
        config: MessageStoreConfig,
        reached: Callable[[Rows], None],
        flags: RunningFlags,
        tail: Tail,
    ) -> None:
        self._clock = clock
        self._log = log
        self._tail = tail
        self._config = config
        self._reached = reached
        self._flags = flags
        self._reading = _Need(Flag.COMMIT_LOG, _READ_PATIENCE)
        self._targets: list[tuple[_Need, Target]] = []
        self._turn: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        self._is_running = False
        self._seen_end = 0
        self._flood_since = self._flood_until = 0.0
        self.gather_s = GATHER_S
        self._gathers_until = 0.0
        self._is_gathering = False
        self.is_awaited: Callable[[], object] = lambda: False
        self._waiting: list[tuple[int, Deferred[None]]] = []
        self.position = 0
        self.trouble = ""

    def add_target(self, flag: Flag, target: Target, patience: int) -> None:
        """
        Have `target` called with every slice, after the targets that were added before.

        :param target: returns False if it did only a part. Then all targets get the slice again in
            the next turn, and must recognize the part that they have.
        :param flag: refuses puts while the target fails.
        :param patience: after so many failures in a row, one a second, the flag is raised.
        """
        self._targets.append((_Need(flag, patience), target))

    @property
    def bytes_behind(self) -> int:
        """Readable bytes that are not dispatched yet; negative after a blank was dispatched."""
        return self._log.readable_end - self.position

    def reached_end(self) -> "Deferred[None]":
        """
        Return a Deferred that fires when all that is readable now is dispatched.

        It never fires if the store stops before.
        """
        later: Deferred[None] = Deferred()
        if self.bytes_behind <= 0:
            later.callback(None)
        else:
            self._waiting.append((self._log.readable_end, later))
            self.hurry()
        return later

    def hurry(self) -> None:
        """
        Dispatch the gathered records now, in several slices if necessary, because a consumer reads.
        """
        if not self._is_gathering:
            return
        before, end = -1, self._log.readable_end
        while self._turn is not None and before < self.position < end:
            before = self.position
            self._at_once(self._turn)

    def _at_once(self, turn: IDelayedCall) -> None:
        turn.cancel()
        self._on_turn()

    def start(self) -> None:
        """Let appends start the dispatcher from now on."""
        self._is_running = True

    def run(self, now: float | None = None) -> None:
        """
        Dispatch a slice now and the rest in the next turns, because the log grew.

        :param now: the time in seconds, if the caller has read the clock.
        """
        if not self._is_running or self._retry is not None:
            return
        if self._turn is not None:
            if self._is_gathering and self._is_enough():
                self._at_once(self._turn)
            return
        if now is None:
            now = self._clock.seconds()
        if now < self._gathers_until and not (
            self._waiting or self.is_awaited() or self._is_enough()
        ):
            self._turn = self._clock.callLater(self._gathers_until - now, self._on_turn)
            self._is_gathering = True
        else:
            self._step(now)

    def _is_enough(self) -> bool:
        """
        Return whether the gathered bytes are enough for a slice.

        If not, they do not count as the bytes of one turn for `_is_flooded`.
        """
        log = self._log
        end = log.max_offset
        if end - self.position >= ENOUGH and log.readable_end - self.position >= ENOUGH:
            return True
        self._seen_end = end
        return False

    def _on_turn(self) -> None:
        self._turn, self._is_gathering = None, False
        if self._is_running and self._retry is None:
            self._step(self._clock.seconds())

    def _step(self, now: float) -> None:
        is_slave = self._config.broker_role is BrokerRole.SLAVE
        self._gathers_until = now + self.gather_s
        has_more = self._beside_flood(now) if is_slave and self._is_flooded() else self.run_slice()
        if has_more:
            wait = self._flood_until - max(now, self._flood_since)
            self._turn = self._clock.callLater(max(0.0, wait), self._on_turn)

    def _is_flooded(self) -> bool:
        """
        Return whether the log grew by `_FLOOD` bytes or more since the last turn. The log of a
        slave grows so fast only while the slave is far behind its master.
        """
        end = self._log.max_offset
        grown, self._seen_end = end - self._seen_end, end
        return grown >= _FLOOD

    def _beside_flood(self, now: float) -> bool:
        """
        Dispatch slices at a slave that is far behind, and share the reactor's time with its log.

        Since `_flood_since`, the log alone had the time. Now at least one slice is dispatched, and
        further slices as long as all of them take no more time than the log had. Until
        `_flood_until`, the log again has the time alone, for as long as the slices took.

        :returns: whether more records may be dispatched at `_flood_until`.
        """
        if now < self._flood_until:
            return True
        ends, has_more, ended = now + now - self._flood_since, True, now
        for count in range(1, _FLOOD_SLICES + 1):
            has_more, ended = self.run_slice(), self._clock.seconds()
            if not has_more or ended + (ended - now) / count > ends:
                break
        self._flood_since, self._flood_until = ended, ended + ended - now
        return has_more

    def stop(self) -> None:
        self._is_running = False
        for timer in (self._turn, self._retry):
            if timer is not None:
                timer.cancel()
        self._turn = self._retry = None
        self._is_gathering = False

    def run_slice(self) -> bool:
        """
        Dispatch one slice of records.

        :returns: whether more records may be dispatched at once.
        """
        log = self._log
        if self.position < log.min_offset:
            self.position = log.min_offset
        readable = log.readable_end
        if self.position >= readable:
            return False
        try:
            is_slave = self._config.broker_role is BrokerRole.SLAVE
            run = self._tail.next_slice(self.position, is_slave)
        except StoreError as error:
            self._wait_and_retry(self._reading, str(error))
            return False
        if self._reading.failures:
            self._works(self._reading)
        if run is None:
            return False
        end, rows = run.end, run.rows
        carried = self._carry(rows) if rows else _SliceProgress.WHOLE
        if carried is not _SliceProgress.WHOLE:
            return carried is _SliceProgress.PART
        # Only now do listeners hear of the records: a pull that they wake reads the queues at once.
        self.position = end
        if rows:
            try:
                self._reached(rows)
            except Exception:  # a listener's fault must not hold up the queues
                self.log.failure("a listener for new messages failed")
        while self._waiting and (self._waiting[0][0] <= end or self.bytes_behind <= 0):
            self._waiting.pop(0)[1].callback(None)
        return end < readable

    def _carry(self, rows: Rows) -> _SliceProgress:
        # If one target fails, the whole slice comes again. The targets before it recognize the
        # repeat.
        for need, target in self._targets:
            try:
                is_part = target(rows) is False
            except Exception as error:
                self._wait_and_retry(need, str(error))
                return _SliceProgress.FAILED
            if need.failures:
                self._works(need)
            if is_part:
                return _SliceProgress.PART
        return _SliceProgress.WHOLE

    def _works(self, need: _Need) -> None:
        need.failures = 0
        self.trouble = ""
        if self._flags.lower(need.flag):
            self.log.info("over: {what}", what=need.flag.value)

    def _wait_and_retry(self, need: _Need, reason: str) -> None:
        """Try the same records again in a second; targets recognize repeats."""
        need.failures += 1
        self.trouble = reason
        self.log.error(
            "cannot dispatch at {position}, attempt {attempt}: {what}: {error}",
            position=self.position,
            attempt=need.failures,
            what=need.flag.value,
            error=reason,
        )
        if need.failures >= need.patience:
            self._flags.hoist(need.flag, reason)
        if self._retry is None and self._is_running:
            self._retry = self._clock.callLater(_RETRY_S, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self.run()
