"""Puts that wait for a replica (GroupTransferService).

Spec: ha.md, sections 4.6 and 7.2.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.model.status import PutMessageStatus

W = TypeVar("W")


def status_without_waiting(
    config: MessageStoreConfig, next_offset: int, best_reported: int | None, best_proven: int
) -> PutMessageStatus | None:
    """
    Return the status with which a put of a SYNC_MASTER ends at once; None: it has to wait.

    The keys are read at each call: UPDATE_BROKER_CONFIG applies to the next message.

    :param next_offset: end of the put's records.
    :param best_reported: the highest offset that a connected slave has reported; None without a
        slave.
    :param best_proven: the highest offset that a connected slave has proven to have.
    """
    if best_reported is None or next_offset - best_reported >= config.ha_slave_fallbehind_max:
        return PutMessageStatus.SLAVE_NOT_AVAILABLE
    return PutMessageStatus.PUT_OK if best_proven >= next_offset else None


_WaitingOffset = tuple[int, float, W, int]
"""
The offset and the deadline of one waiter, the waiter, and the start of its bytes. A class instead
of a tuple would cost two more calls for each run of puts.
"""


class GroupTransfer(Generic[W]):
    """
    The waiters for offsets, each with a deadline.

    Offsets and deadlines both rise with time, so one queue serves all and its head is always the
    next. If slaveTimeout is lowered while puts wait, a new entry has an earlier deadline than
    entries before it. From then on the next deadline is searched for in the whole queue, until the
    queue is empty.
    """

    def __init__(self) -> None:
        self._entries: deque[_WaitingOffset[W]] = deque()
        self._sorted = True

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, offset: int, deadline: float, waiter: W, start: int = 0) -> None:
        """
        Wait until `offset` is acknowledged, at most until `deadline`.

        :param waiter: any object; `reached`, `on_time` or `drain` returns it once.
        :param start: start of the bytes for which it waits.
        """
        entries = self._entries
        entry = offset, deadline, waiter, start
        if not entries or (entries[-1][0] <= offset and entries[-1][1] <= deadline):
            entries.append(entry)
            return
        self._sorted = False
        position = len(entries)
        while position and entries[position - 1][0] > offset:
            position -= 1
        entries.insert(position, entry)

    def reached(self, offset: int, base: int = 0) -> list[W]:
        """
        Return the waiters whose bytes a slave has, since it acknowledged `offset`.

        :param base: start of the slave's log; the slave lacks bytes below it.
        """
        entries = self._entries
        done = []
        below = []
        while entries and entries[0][0] <= offset:
            entry = entries.popleft()
            # A slave whose log begins after these bytes does not have them, wherever its log ends.
            if entry[3] >= base:
                done.append(entry[2])
            else:
                below.append(entry)
        if below:
            entries.extendleft(reversed(below))
        self._sorted = self._sorted or not entries
        return done

    def take_kept(self, is_kept: Callable[[int], bool]) -> list[W]:
        """
        Return the waiters whose bytes are kept. It is for controller mode, where several slaves
        decide that.

        :param is_kept: whether enough brokers hold the log up to an offset.
        """
        entries = self._entries
        done = []
        while entries and is_kept(entries[0][0]):
            done.append(entries.popleft()[2])
        self._sorted = self._sorted or not entries
        return done

    def on_time(self, now: float) -> list[W]:
        """Return the waiters whose time is up."""
        entries = self._entries
        expired = []
        if self._sorted:
            while entries and entries[0][1] <= now:
                expired.append(entries.popleft()[2])
            return expired
        expired = [waiter for _, deadline, waiter, _ in entries if deadline <= now]
        self._entries = deque(entry for entry in entries if entry[1] > now)
        self._sorted = not self._entries
        return expired

    def deadline(self) -> float | None:
        """Return when `on_time` has something to do next, in seconds; None: nobody waits."""
        if not self._entries:
            return None
        if self._sorted:
            return self._entries[0][1]
        return min(entry[1] for entry in self._entries)

    def drain(self) -> list[W]:
        """Return all waiters, at a stop."""
        waiters = [entry[2] for entry in self._entries]
        self._entries.clear()
        self._sorted = True
        return waiters
