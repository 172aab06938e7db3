"""Puts that wait for a quorum, and the status that their clients get.

Spec: dledger.md, section 10.5.
"""

from collections import deque

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.model.status import Decided, PutMessageStatus
from rmq_ha.server.dledger.codes import DLedgerResponseCode

_STATUS = {
    DLedgerResponseCode.SUCCESS: PutMessageStatus.PUT_OK,
    DLedgerResponseCode.INCONSISTENT_LEADER: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    DLedgerResponseCode.NOT_LEADER: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    DLedgerResponseCode.LEADER_NOT_READY: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    DLedgerResponseCode.DISK_FULL: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT: PutMessageStatus.OS_PAGECACHE_BUSY,
    DLedgerResponseCode.LEADER_PENDING_FULL: PutMessageStatus.OS_PAGECACHE_BUSY,
}


def status_of(code: int) -> PutMessageStatus:
    """Translate the group's code into the status of a put."""
    if code not in _STATUS:
        return PutMessageStatus.UNKNOWN_ERROR
    return _STATUS[DLedgerResponseCode(code)]


class WaitingPuts:
    """
    The puts that wait for a quorum, in the order of their entries; one item for each run of puts.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, Decided]] = deque()
        self._drained: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, decided: Decided) -> None:
        self._waiting.append((index, decided))

    def complete(self, index: int, code: int) -> None:
        """End the puts of all entries up to `index`."""
        self._tell(index, status_of(code))

    def fail(self) -> None:
        """Refuse all puts that still wait, since this member will decide none of them any more."""
        self._tell(1 << 62, PutMessageStatus.SERVICE_NOT_AVAILABLE)

    def drained(self) -> "Deferred[None]":
        """Return a Deferred that fires when no put waits."""
        if not self._waiting:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._drained.append(done)
        return done

    def _tell(self, index: int, status: PutMessageStatus) -> None:
        waiting, now = self._waiting, self._clock.seconds()
        while waiting and waiting[0][0] <= index:
            waiting.popleft()[1](status, now)
        if not waiting:
            drained, self._drained = self._drained, []
            for done in drained:
                done.callback(None)
