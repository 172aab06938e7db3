"""Decides when a master with a full or failing disk hands over, and to which slave.

Spec: controller.md, sections 5.1 and 10.4 (ELECT_MASTER with designateElect).
"""

from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.bodies import decode_kv_table
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.controller.codec import decode_replicas, encode_names
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.replication.epochs.roles.designation import TIMEOUT_MS, designate

LOOK_S = 0.5
REFUSES_S = 2.0
"""
How long writes must fail before a master hands over, in seconds. After a single failure, the next
write may succeed.
"""
AGAIN_S = 5.0
LEAST_PAUSE_S = 60.0
MOST_PAUSE_S = 3600.0
"""
Limit of the pause between two hand-overs of one broker, in seconds. Each pause is twice the one
before, beginning with LEAST_PAUSE_S.
"""


class FullMaster(Protocol):
    """The facts of a master that decide whether, and to whom, it can hand over."""

    def why_not_stored(self) -> str:
        """
        Return why its disk takes no messages; empty: it takes them, or this broker does not lead.
        """

    def complete(self) -> frozenset[int]:
        """Return the ids of the slaves that are in sync and have the whole log."""

    @property
    def controller(self) -> str | None:
        """Return the address of the controllers' leader; None: not known."""

    def admit_puts(self, admitted: bool) -> None:
        """Decide whether messages come into the log while this broker leads."""


class MasterResignation:
    """
    Asks the controllers to elect another broker of the set while this one leads and its disk
    refuses messages.

    It names only a slave that has the whole log and room on its disk, so no message is lost.
    Without such a slave the master keeps its place: its messages can still be read.

    :param set_name: names of cluster and broker.
    :param is_full_from: a disk that is at least this full (0 to 1) has no room.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        calls: Calls,
        owner: FullMaster,
        set_name: tuple[str, str],
        is_full_from: float,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._owner = owner
        self._set_name = set_name
        self._is_full_from = is_full_from
        self._since: float | None = None
        self._not_before = 0.0
        self._pause = LEAST_PAUSE_S
        self._told = ""
        self._look = Periodic(clock, "a look whether the disk takes messages", self._step, LOOK_S)

    def start(self) -> None:
        """Begin to look at the disk."""
        self._look.start()

    def stop(self) -> "Deferred[None]":
        """End the looks; fires when a hand-over under way is over."""
        return self._look.stop()

    def _step(self) -> "Deferred[None] | None":
        now, reason = self._clock.seconds(), self._owner.why_not_stored()
        if not reason:
            self._since, self._told = None, ""
            if now >= self._not_before + MOST_PAUSE_S:
                self._pause = LEAST_PAUSE_S
            return None
        if self._since is None:
            self._since = now
        if now < max(self._since + REFUSES_S, self._not_before):
            return None
        self._not_before = now + AGAIN_S
        return Deferred.fromCoroutine(self._hand_over(reason))

    async def _hand_over(self, reason: str) -> None:
        controller = self._owner.controller
        complete = self._owner.complete()
        if controller is None or not complete:
            self._tell(reason, "no slave in sync has the whole log")
            return
        try:
            chosen, why_none = await self._emptiest_slave(controller, complete)
            if chosen is None:
                self._tell(reason, why_none)
            else:
                await self._order(controller, chosen, reason)
        except (RemotingError, ProtocolViolation) as error:
            self._tell(reason, f"it could not be asked for: {error}")

    async def _emptiest_slave(
        self, controller: str, complete: frozenset[int]
    ) -> tuple[int | None, str]:
        """Return the id of the slave with the emptiest disk; or None, and why there is none."""
        ask = RemotingCommand(
            ControllerRequestCode.GET_SYNC_STATE_DATA, body=encode_names([self._set_name[1]])
        )
        answer = await self._calls.invoke(controller, ask, TIMEOUT_MS)
        known = answer.read(decode_replicas).get(self._set_name[1])
        rooms: list[tuple[float, int]] = []
        told = []
        for replica in () if known is None else known.in_sync:
            if replica.broker_id not in complete or not replica.alive:
                continue
            used = await self._disk_ratio_of(replica.address)
            told.append(f"{replica.address} is {used:.0%} full" if used >= 0 else replica.address)
            if 0 <= used < self._is_full_from:
                rooms.append((used, replica.broker_id))
        if rooms:
            return min(rooms)[1], ""
        return None, f"no slave in sync has room ({', '.join(told) or 'none answers'})"

    async def _disk_ratio_of(self, address: str) -> float:
        """Return how full the disk of a broker's log is, 0 to 1; -1: the broker does not say."""
        try:
            ask = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await self._calls.invoke(address, ask, TIMEOUT_MS)
            return float(answer.read(decode_kv_table).get("commitLogDiskRatio", "-1"))
        except (RemotingError, ProtocolViolation, ValueError) as error:
            self.log.debug("{peer} does not say how full it is: {why}", peer=address, why=error)
            return -1.0

    async def _order(self, controller: str, chosen: int, reason: str) -> None:
        self._owner.admit_puts(False)  # the successor would lack later messages
        is_done = False
        try:
            if chosen in self._owner.complete():
                is_done = await self._elect(controller, chosen, reason)
        finally:
            if not is_done:
                self._owner.admit_puts(True)

    async def _elect(self, controller: str, chosen: int, reason: str) -> bool:
        self.log.warn(
            "this master hands over to broker {chosen}, which has all messages and room: {reason}",
            chosen=chosen,
            reason=reason,
        )
        refusal = await designate(self._calls, controller, self._set_name, chosen)
        if refusal:
            self._tell(reason, refusal)
            return False
        self._not_before = self._clock.seconds() + self._pause
        self._pause = min(2 * self._pause, MOST_PAUSE_S)
        return True

    def _tell(self, reason: str, why: str) -> None:
        """Log a reason why no slave can take over, once until the reason changes."""
        if why != self._told:
            self._told = why
            self.log.error(
                "this master takes no messages and cannot hand over: {why}. Free disk space here, "
                "or start a slave that has room ({reason})",
                why=why,
                reason=reason,
            )
