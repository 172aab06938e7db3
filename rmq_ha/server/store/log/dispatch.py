"""Reput: what is in the log gets into queues and index, and waiting consumers hear of it.

Spec: store.md, section 6.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Row
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_flags import Flag, RunningFlags
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.log.tail import Tail

GATHER_S = 0.005
"""RocketMQ's reput service sleeps for 1 ms, whether somebody waits for it or not."""
ENOUGH = 3 << 15
"""Bytes with which it ends: a longer slice would hold up answers, and a slave's reports."""
_RETRY_S = 1.0
_READ_PATIENCE = 3
_BULK = 3 << 16
"""Bytes in one turn that only a slave far behind gets: most of what it reads at once."""
_BULK_SLICE_EVERY_S = 0.05

Target = Callable[[Sequence[Row]], bool | None]


class _SliceProgress(Enum):
    """How far a slice got in one turn."""

    WHOLE = auto()
    PART = auto()
    FAILED = auto()


@dataclass(slots=True)
class _Need:
    """
    Something without which no slice can be dispatched, and how it goes.

    :ivar flag: goes up when it failed `patience` times in a row, and down when it works again.
    """

    flag: Flag
    patience: int
    failures: int = 0


class Dispatcher:
    """
    Carries records, in log order and a slice a turn, to everyone who builds on them.

    What comes within `gather_s` of the last slice, up to 96 KiB, waits until then where nobody
    waits for it or reads: a slice of several costs little more than one of a single record.

    :param config: a slave waits for bytes that it cannot read yet; a master skips them.
    :param reached: gets each slice when all targets have it.
    :param flags: while the log cannot be read, or a target fails, puts are refused.
    :param tail: of `log`.
    :ivar position: physical offset up to which everything is dispatched.
    :ivar is_awaited: somebody wants to hear of the next record at once.
    :ivar trouble: why the last slice did not get there; empty when it did.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        log: JournalLog,
        config: MessageStoreConfig,
        reached: Callable[[Sequence[Row]], None],
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
        self._next_slice = 0.0
        self.gather_s = GATHER_S
        self._gathers_until = 0.0
        self._is_gathering = False
        self.is_awaited: Callable[[], object] = lambda: False
        self._waiting: list[tuple[int, Deferred[None]]] = []
        self.position = 0
        self.trouble = ""

    def add_target(self, flag: Flag, target: Target, patience: int) -> None:
        """
        Have `target` called with every slice, after those added before.

        :param target: returns False when it did a part only: then all get the slice once more in
            the next turn, and know what they have of it.
        :param flag: refuses puts while it fails.
        :param patience: failures in a row, one a second, until then.
        """
        self._targets.append((_Need(flag, patience), target))

    @property
    def behind(self) -> int:
        """Bytes that may be read, and are not dispatched yet; negative behind a blank that is."""
        return self._log.readable_end - self.position

    def reached_end(self) -> "Deferred[None]":
        """
        Fires when all that may be read of the log now is dispatched.

        It never does when the store stops before.
        """
        later: Deferred[None] = Deferred()
        if self.behind <= 0:
            later.callback(None)
        else:
            self._waiting.append((self._log.readable_end, later))
            self.hurry()
        return later

    def hurry(self) -> None:
        """Somebody reads: what is gathered by now is dispatched before, were it several slices."""
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
        """From now on appends wake the dispatcher."""
        self._is_running = True

    def run(self, now: float | None = None) -> None:
        """
        The log grew: dispatch a slice now and the rest in the next turns.

        :param now: what the clock says, for whoever has asked it.
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
        """For a slice; if not, what came by now is not what came in one turn."""
        if self.behind >= ENOUGH:
            return True
        self._seen_end = self._log.max_offset
        return False

    def _on_turn(self) -> None:
        self._turn, self._is_gathering = None, False
        if self._is_running and self._retry is None:
            self._step(self._clock.seconds())

    def _step(self, now: float) -> None:
        is_slave = self._config.broker_role is BrokerRole.SLAVE
        self._gathers_until = now + self.gather_s
        if (is_slave and self._gives_way(now)) or self.run_slice():
            self._turn = self._clock.callLater(0, self._on_turn)

    def _gives_way(self, now: float) -> bool:
        """
        A slave that is catching up takes in its master's log first: queues can be built later.

        Some slices are dispatched all the same, so that consumers see it move.
        """
        end = self._log.max_offset
        grown, self._seen_end = end - self._seen_end, end
        if grown >= _BULK and now < self._next_slice:
            return True
        self._next_slice = now + _BULK_SLICE_EVERY_S
        return False

    def stop(self) -> None:
        self._is_running = False
        for timer in (self._turn, self._retry):
            if timer is not None:
                timer.cancel()
        self._turn = self._retry = None
        self._is_gathering = False

    def run_slice(self) -> bool:
        """
        Dispatch up to a slice of records.

        :returns: whether there may be more at once.
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
        self.position = end
        if rows:
            try:
                self._reached(rows)
            except Exception:  # a listener's fault must not hold up the queues
                self.log.failure("a listener for new messages failed")
        while self._waiting and (self._waiting[0][0] <= end or self.behind <= 0):
            self._waiting.pop(0)[1].callback(None)
        return end < readable

    def _carry(self, rows: Sequence[Row]) -> _SliceProgress:
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
        """Come back in a second to the same records; targets know repeats."""
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
