"""Puts that wait for a replica (GroupTransferService).

Spec: ha.md, sections 4.6 and 7.2.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.model.status import BrokerRole, PutMessageStatus

W = TypeVar("W")


def status_without_waiting(
    config: MessageStoreConfig, next_offset: int, claimed: int | None, vouched: int
) -> PutMessageStatus | None:
    """
    How a put ends at once; None: it has to wait.

    The keys are read at each call: UPDATE_BROKER_CONFIG applies to the next message.

    :param next_offset: the end of the put's record(s).
    :param claimed: the most that a connected slave says it holds; None without a slave.
    :param vouched: the most that one has shown to hold.
    """
    if config.broker_role is not BrokerRole.SYNC_MASTER:
        return PutMessageStatus.PUT_OK
    if claimed is None or next_offset - claimed >= config.ha_slave_fallbehind_max:
        return PutMessageStatus.SLAVE_NOT_AVAILABLE
    return PutMessageStatus.PUT_OK if vouched >= next_offset else None


class _Entry(NamedTuple, Generic[W]):
    offset: int
    deadline: float
    waiter: W
    start: int


class GroupTransfer(Generic[W]):
    """
    Who waits for which offset, and how long.

    Offsets and deadlines both rise with time, so one queue serves all and its head is always the
    next, whatever comes. An entry that comes out of order (slaveTimeout was lowered while others
    wait) is put in its place, and deadlines are searched for until the queue is empty again.
    """

    def __init__(self) -> None:
        self._entries: deque[_Entry[W]] = deque()
        self._sorted = True

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, offset: int, deadline: float, waiter: W, start: int = 0) -> None:
        """
        Wait until `offset` is acknowledged, at most until `deadline`.

        :param waiter: anything; it is returned once, by `reached`, `on_time` or `drain`.
        :param start: where what it waits for begins.
        """
        entries = self._entries
        entry = _Entry(offset, deadline, waiter, start)
        if not entries or (entries[-1].offset <= offset and entries[-1].deadline <= deadline):
            entries.append(entry)
            return
        self._sorted = False
        position = len(entries)
        while position and entries[position - 1].offset > offset:
            position -= 1
        entries.insert(position, entry)

    def reached(self, offset: int, base: int = 0) -> list[W]:
        """
        A slave acknowledged `offset`: the waiters that have what they wanted.

        :param base: where the slave's log begins; what lies below it is not on that slave.
        """
        entries = self._entries
        done = []
        below = []
        while entries and entries[0].offset <= offset:
            entry = entries.popleft()
            if entry.start >= base:
                done.append(entry.waiter)
            else:
                below.append(entry)
        entries.extendleft(reversed(below))
        self._sorted = self._sorted or not entries
        return done

    def take_kept(self, is_kept: Callable[[int], bool]) -> list[W]:
        """
        The waiters that have what they wanted, where no slave alone decides that.

        :param is_kept: whether enough brokers hold the log up to an offset.
        """
        entries = self._entries
        done = []
        while entries and is_kept(entries[0].offset):
            done.append(entries.popleft().waiter)
        self._sorted = self._sorted or not entries
        return done

    def on_time(self, now: float) -> list[W]:
        """The waiters whose time is up."""
        entries = self._entries
        expired = []
        if self._sorted:
            while entries and entries[0].deadline <= now:
                expired.append(entries.popleft().waiter)
            return expired
        expired = [entry.waiter for entry in entries if entry.deadline <= now]
        self._entries = deque(entry for entry in entries if entry.deadline > now)
        self._sorted = not self._entries
        return expired

    def deadline(self) -> float | None:
        """When `on_time` has something to do next."""
        if not self._entries:
            return None
        if self._sorted:
            return self._entries[0].deadline
        return min(entry.deadline for entry in self._entries)

    def drain(self) -> list[W]:
        """Everybody, at stop."""
        waiters = [entry.waiter for entry in self._entries]
        self._entries.clear()
        self._sorted = True
        return waiters
