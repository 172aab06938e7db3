"""Reput: what is in the log gets into queues and index, and waiting consumers hear of it.

Spec: store.md, section 6.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.errors import StoreError
from rmq_ha.model.message import DispatchRequest
from rmq_ha.store.commitlog import CommitLog
from rmq_ha.store.format.commitlog import BLANK
from rmq_ha.store.scan import MORE, READ_SIZE, scan

SLICE = 256
_RETRY_S = 1.0
_BULK = 1 << 17
"""Bytes in one turn that only a slave far behind gets."""
_BULK_SLICE_EVERY_S = 0.05

Target = Callable[[list[DispatchRequest]], None]


class Dispatcher:
    """
    Carries records, in log order and a slice a turn, to everyone who builds on them.

    :param is_slave: a slave waits for bytes that it cannot read yet; a master skips them.
    :param reached: gets the store timestamp of the newest record of each slice.
    :param stuck: a target failed that often in a row; gets its name and the reason.
    :ivar position: physical offset up to which everything is dispatched.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        log: CommitLog,
        is_slave: bool,
        reached: Callable[[list[DispatchRequest]], None],
        stuck: Callable[[str, str | None], None],
    ) -> None:
        self._clock = clock
        self._log = log
        self._is_slave = is_slave
        self._reached = reached
        self._stuck = stuck
        self._targets: list[tuple[str, Target, int]] = []
        self._failures = 0
        self._turn: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        self._told_at = -1
        self._needed_end = 0
        self._is_running = False
        self._seen_end = 0
        self._next_slice = 0.0
        self.position = 0

    def add_target(self, name: str, target: Target, patience: int) -> None:
        """
        Have `target` called with every slice, after those added before.

        :param name: what the log and the running flags call it.
        :param patience: failures in a row, one a second, until the store refuses puts.
        """
        self._targets.append((name, target, patience))

    @property
    def behind(self) -> int:
        """Bytes of the log that are not dispatched yet; negative behind a blank that is."""
        return self._log.max_offset - self.position

    def start(self) -> None:
        """From now on appends wake the dispatcher."""
        self._is_running = True

    def run(self) -> None:
        """The log grew: dispatch a slice now and the rest in the next turns."""
        if self._is_running and self._retry is None and self._turn is None:
            self._step()

    def _on_turn(self) -> None:
        self._turn = None
        self.run()

    def _step(self) -> None:
        if self._gives_way() or self.run_slice():
            self._turn = self._clock.callLater(0, self._on_turn)

    def _gives_way(self) -> bool:
        """
        A slave that is catching up takes in its master's log first: queues can be built later.

        Some slices are dispatched all the same, so that consumers see it move.
        """
        if not self._is_slave:
            return False
        end = self._log.max_offset
        grown, self._seen_end = end - self._seen_end, end
        now = self._clock.seconds()
        if grown >= _BULK and now < self._next_slice:
            return True
        self._next_slice = now + _BULK_SLICE_EVERY_S
        return False

    def stop(self) -> None:
        """No more turns."""
        self._is_running = False
        for timer in (self._turn, self._retry):
            if timer is not None:
                timer.cancel()
        self._turn = self._retry = None

    def run_slice(self) -> bool:
        """
        Dispatch up to a slice of records.

        :returns: whether there may be more at once.
        """
        log = self._log
        self.position = max(self.position, log.min_offset)
        if self.position >= log.max_offset or self._needed_end > log.max_offset:
            return False
        requests, more = self._pending_slice(), True
        try:
            if requests:
                end = requests[-1].physical_offset + requests[-1].size
            else:
                requests, end, more = self._read_slice()
        except StoreError as error:
            self._wait_and_retry("commit log", str(error), 1)
            return False
        if requests and not self._carry(requests):
            return False
        self.position = end
        if requests:
            self._tell_reached(requests)
        return more and end < log.max_offset

    def _pending_slice(self) -> list[DispatchRequest]:
        """From what the append left behind, if that starts exactly here and is contiguous."""
        pending, position = self._log.pending, self.position
        while pending and pending[0].physical_offset < position:
            pending.popleft()
        requests: list[DispatchRequest] = []
        while pending and len(requests) < SLICE and pending[0].physical_offset == position:
            request = pending.popleft()
            requests.append(request)
            position += request.size
        return requests

    def _read_slice(self) -> tuple[list[DispatchRequest], int, bool]:
        """From the log: the records, the position behind them, and whether to go on at once."""
        position = self.position
        size = max(READ_SIZE, self._needed_end - position)
        found = scan(self._log.read(position, size), position, self._log.delay_levels, SLICE)
        end = position + found.size
        next_file = self._log.row.start_of(position) + self._log.file_size
        self._needed_end = 0
        if found.verdict == BLANK:
            return found.requests, next_file, True
        if found.verdict == MORE:
            needed_end = end + found.needed
            is_here = needed_end <= self._log.max_offset
            if is_here or (self._is_slave and needed_end <= next_file):
                self._needed_end = needed_end
                return found.requests, end, is_here
        if found.verdict > 0:
            self._tell(end, f"a record of {found.verdict} bytes whose parts do not fit; skipped")
            return found.requests, end + found.verdict, True
        return found.requests, *self._beyond_unreadable(end, next_file)

    def _beyond_unreadable(self, end: int, next_file: int) -> tuple[int, bool]:
        if self._is_slave:
            self._tell(end, "unreadable; waiting for more from the master")
            return end, False
        self._tell(end, "unreadable; skipping to the next file or the end of the log")
        return min(next_file, self._log.max_offset), True

    def _tell(self, offset: int, what: str) -> None:
        if offset != self._told_at:
            self._told_at = offset
            self.log.error(
                "the commit log at {physical_offset}: {what}", physical_offset=offset, what=what
            )

    def _tell_reached(self, requests: list[DispatchRequest]) -> None:
        try:
            self._reached(requests)
        except Exception:  # a listener's fault must not hold up the queues
            self.log.failure("a listener for new messages failed")

    def _carry(self, requests: list[DispatchRequest]) -> bool:
        for name, target, patience in self._targets:
            try:
                target(requests)
            except Exception as error:
                self._wait_and_retry(name, str(error), patience)
                return False
        if self._failures:
            self._failures = 0
            self._stuck("", None)
        return True

    def _wait_and_retry(self, name: str, reason: str, patience: int) -> None:
        """Come back in a second to the same records; targets know repeats."""
        self._failures += 1
        self.log.error(
            "cannot dispatch to {target}, attempt {attempt}: {error}",
            target=name,
            attempt=self._failures,
            error=reason,
        )
        if self._failures == patience:
            self._stuck(name, reason)
        if self._retry is None and self._is_running:
            self._retry = self._clock.callLater(_RETRY_S, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self.run()
