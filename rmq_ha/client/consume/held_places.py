"""
HeldPlaces: logs a line when hanging listener calls hold all places of a consumer, so that the
consumer gets no further message. A place is the right to run one call of the listener.
"""

from collections.abc import Collection
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.messages import MessageExt

HELD_SECONDS = 10.0
_AGAIN_SECONDS = 60.0


class HeldCall(Protocol):
    """
    A call of the listener, which holds a place until it is answered.

    :ivar started_ms: when the call began, in ms of a steady clock.
    """

    started_ms: int
    messages: list[MessageExt]
    queue: MessageQueue


class HeldPlaces:
    """
    Logs a line if none of the `consume_concurrency` places gets free while messages wait for one.

    :param running: the calls that hold places. It is read at each look, so that it may change.
    :param most: how many places the consumer has.
    """

    log = Logger()

    def __init__(
        self, clock: IReactorTime, group: str, running: Collection[HeldCall], most: int
    ) -> None:
        self._clock = clock
        self._group = group
        self._running = running
        self._most = most
        self._timer: IDelayedCall | None = None
        self._said: float | None = None

    def watch(self) -> None:
        """
        Note that a message waits for a place. If all are held, look in `HELD_SECONDS` whether any
        place was freed in the meantime.
        """
        if self._timer is None and len(self._running) >= self._most:
            newest = max(call.started_ms for call in self._running)
            self._timer = self._clock.callLater(HELD_SECONDS, self._look, newest)

    def stop(self) -> None:
        """Cancel the next look, as the consumer stops: no line is logged after that."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, newest: int) -> None:
        self._timer = None
        calls, now = list(self._running), self._clock.seconds()
        if len(calls) < self._most:
            return
        if max(call.started_ms for call in calls) == newest and (
            self._said is None or now - self._said >= _AGAIN_SECONDS
        ):
            self._said = now
            oldest = min(calls, key=lambda call: call.started_ms)
            self.log.warn(
                "{group} shows no further message: all {count} places (consume_concurrency) have"
                " been held for {seconds:.0f} s. The first of their messages is {id} of {queue}:"
                " its listener, or the loop that has it, gives no answer.",
                group=self._group,
                count=self._most,
                seconds=HELD_SECONDS,
                id=oldest.messages[0].msg_id,
                queue=oldest.queue,
            )
        self.watch()
