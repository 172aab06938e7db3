"""Has a slave elected before a master stops.

Spec: controller.md, section 10.4 (ELECT_MASTER with designateElect).
"""

from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmq_ha.base.remoting.calls import Calls
from rmq_ha.server.replication.epochs.roles.designation import designate

_LOOK_S = 0.02


class StoppingMaster(Protocol):
    """A master whose process was told to stop."""

    @property
    def is_master(self) -> bool:
        """Whether this broker leads, as far as it knows."""

    @property
    def is_following(self) -> bool:
        """Whether this broker follows the master of its epoch."""

    @property
    def others_in_sync(self) -> frozenset[int]:
        """Return the ids of the other brokers that are in sync."""

    def complete(self) -> frozenset[int]:
        """Return the ids of the slaves that are in sync and have the whole log."""

    @property
    def controller(self) -> str | None:
        """Return the address of the controllers' leader; None: not known."""

    def admit_puts(self, admitted: bool) -> None:
        """Decide whether messages come into the log while this broker leads."""


class Departure:
    """
    Has a slave elected once, before the process of a master stops. The master takes no messages
    from the beginning on, also if no slave takes over. It still serves all other requests.

    Without it, the controllers have to notice that this broker is gone. On a machine that vanishes
    together with its broker, such as a pod, that takes `controllerHeartBeatTimeoutMills`.

    :param set_name: names of cluster and broker.
    :param most_s: how long it may take, in seconds.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        calls: Calls,
        owner: StoppingMaster,
        set_name: tuple[str, str],
        most_s: float,
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._owner = owner
        self._set_name = set_name
        self._deadline = clock.seconds() + most_s

    async def hand_over(self) -> None:
        """
        Refuse messages, wait for a slave that has all of them, and have it elected.

        Returns when this broker follows the elected one, or when that cannot be.
        """
        owner = self._owner
        if not owner.is_master:
            return
        owner.admit_puts(False)  # the successor would lack later messages
        refusal = await self._elect_one()
        if refusal:
            self.log.warn(
                "nobody takes over from this master before it stops: {refusal}", refusal=refusal
            )
            return
        while not owner.is_following and not self._is_over:
            await self._pause()

    async def _elect_one(self) -> str:
        """Have a slave elected; return why not, or nothing."""
        owner = self._owner
        while owner.is_master and owner.others_in_sync:
            complete = owner.complete()
            if complete and owner.controller is not None:
                chosen = min(complete)
                self.log.info("this master stops, and hands over to broker {id}", id=chosen)
                return await designate(self._calls, owner.controller, self._set_name, chosen)
            if self._is_over:
                return "no slave in sync has the whole log, or no controller is known"
            await self._pause()
        return "no other broker is in sync" if owner.is_master else ""

    @property
    def _is_over(self) -> bool:
        return self._clock.seconds() >= self._deadline

    def _pause(self) -> "Deferred[None]":
        later: Deferred[None] = Deferred()
        self._clock.callLater(_LOOK_S, later.callback, None)
        return later
