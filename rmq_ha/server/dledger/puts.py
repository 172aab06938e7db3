"""Puts that wait for a quorum, and what their clients hear.

Spec: dledger.md, section 10.5.
"""

from collections import deque

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.model.status import Decided, PutMessageStatus
from rmq_ha.server.dledger.codes import ResponseCode

_STATUS = {
    ResponseCode.SUCCESS: PutMessageStatus.PUT_OK,
    ResponseCode.INCONSISTENT_LEADER: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.NOT_LEADER: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.LEADER_NOT_READY: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.DISK_FULL: PutMessageStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.WAIT_QUORUM_ACK_TIMEOUT: PutMessageStatus.OS_PAGECACHE_BUSY,
    ResponseCode.LEADER_PENDING_FULL: PutMessageStatus.OS_PAGECACHE_BUSY,
}


def status_of(code: int) -> PutMessageStatus:
    """What a put ends with, by the group's code."""
    if code not in _STATUS:
        return PutMessageStatus.UNKNOWN_ERROR
    return _STATUS[ResponseCode(code)]


class WaitingPuts:
    """In the order of their entries, one for each run of puts."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, Decided]] = deque()
        self._drained: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, decided: Decided) -> None:
        self._waiting.append((index, decided))

    def complete(self, index: int, code: int) -> None:
        """All up to an entry are decided."""
        self._tell(index, status_of(code))

    def fail(self) -> None:
        """Nothing will be decided here any more."""
        self._tell(1 << 62, PutMessageStatus.SERVICE_NOT_AVAILABLE)

    def drained(self) -> "Deferred[None]":
        """Fires when none is left."""
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
