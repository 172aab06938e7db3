"""How a turn of the reactor is divided: no connection, and no address, has all of it.

Spec: remoting.md, section 1.2.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from math import inf
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.quotas import Quotas

_WINDOW_S = 0.05
"""Forgets what was taken, as turns are not counted while nobody takes much."""


class ServedConnection(Protocol):
    @property
    def host(self) -> str:
        """The peer's address without its port."""

    def go_on(self) -> None:
        """Its turn has come: serve what is left of its requests."""


class Turns:
    """
    A chunk may hold hundreds of requests of a millisecond each: what does not fit into the share of
    its connection, or of its address, waits for the next turn, and others are served before.

    Who waits goes on in the order in which he came, so that each connection of an address gets its
    share. A chunk more is read from it meanwhile, at most. What a request took beyond the share of
    its address is paid back from the shares of the next turns: after one of 60 ms, with a share of
    5 ms, others have a dozen turns without it. They pass at once when nobody else has anything to
    do.

    :ivar put_off: how often somebody had to wait for the next turn.
    :ivar quotas: of addresses and accounts, in which a wait is longer.
    :ivar charging: 0 while there is no quota, and another number each time that there is one again.
    """

    def __init__(self, clock: IReactorTime, config: NettyServerConfig) -> None:
        self._clock = clock
        self._config = config
        self._used: dict[str, float] = {}
        self._since = 0.0
        self._waiting: dict[str, OrderedDict[ServedConnection, None]] = {}
        self._is_armed = False
        self._held_back: dict[ServedConnection, IDelayedCall] = {}
        self.put_off = 0
        self.quotas = Quotas(config)
        self._periods = self.charging = int(self.quotas.is_any)

    def share(self, host: str, now: float) -> float:
        """Seconds that a connection of this address may take now; none: it has to wait."""
        if now - self._since > _WINDOW_S and not self._waiting:
            self._begin(now)
        own, of_host = self._config.turn_millis, self._config.turn_millis_per_ip
        share = own / 1000 if own else inf
        return min(share, of_host / 1000 - self._used.get(host, 0.0)) if of_host else share

    def note_turn(self, host: str, seconds: float) -> None:
        """A connection of this address was served for so long."""
        used = self._used[host] = self._used.get(host, 0.0) + seconds
        if 0 < self._config.turn_millis_per_ip / 2000 < used:
            self._arm()  # the next turn begins anew: no share is of more than one

    def wait(self, connection: ServedConnection, seconds: float) -> None:
        """It has more than its share: have it go on then, or with 0 in the next turn."""
        if seconds:
            call_later: Callable[..., IDelayedCall] = self._clock.callLater
            self._held_back[connection] = call_later(seconds, self._let_go, connection)
            return
        self.put_off += 1
        self._queue(connection)

    def forget(self, connection: ServedConnection) -> None:
        """It is gone, whether it waited or not."""
        waiting = self._waiting.get(connection.host)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.host]
        call = self._held_back.pop(connection, None)
        if call is not None:
            call.cancel()

    def _let_go(self, connection: ServedConnection) -> None:
        del self._held_back[connection]
        self._queue(connection)

    def _queue(self, connection: ServedConnection) -> None:
        self._waiting.setdefault(connection.host, OrderedDict())[connection] = None
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._clock.callLater(0, self._next)

    def _begin(self, now: float) -> None:
        self._since = now
        share = self._config.turn_millis_per_ip / 1000
        owed = {host: used - share for host, used in self._used.items() if used > share}
        self._used = owed if share else {}
        if self.quotas.is_any != bool(self.charging):
            self._periods += 1
            self.charging = self._periods if self.quotas.is_any else 0

    def _next(self) -> None:
        """Addresses by turns; what the share of one leaves over is not even looked at."""
        self._is_armed = False
        self._begin(self._clock.seconds())
        rounds = deque((host, len(waiting)) for host, waiting in self._waiting.items())
        while rounds:
            host, left = rounds.popleft()
            waiting = self._waiting.get(host)
            if left and waiting and self.share(host, self._since) > 0:
                connection, _ = waiting.popitem(last=False)
                connection.go_on()
                rounds.append((host, left - 1))
        self._waiting = {host: waiting for host, waiting in self._waiting.items() if waiting}
        if self._waiting:
            self._arm()
