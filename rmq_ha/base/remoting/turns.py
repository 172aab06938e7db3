"""Turns: shares each turn of the reactor among connections and addresses.

Spec: remoting.md, section 1.2.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.quotas import Quotas
from rmq_ha.base.seams import Soon

_WINDOW_S = 0.05
"""
Seconds after which the used shares begin anew, as in a next turn, while no connection waits. Turns
are not counted while no peer uses much.
"""


class ServedConnection(Protocol):
    @property
    def host(self) -> str:
        """The peer's address without its port."""

    def go_on(self) -> None:
        """Serve the remaining requests, as this connection's turn has come."""


class Turns:
    """
    The shares of connections and addresses in the turns of the reactor. A chunk may have hundreds
    of requests of a millisecond each. Requests beyond the share of their connection or address wait
    for the next turn, and other connections are served before.

    Waiting connections of an address go on in their order, so that each gets its share. At most one
    more chunk is read from a waiting connection. Time beyond the share of an address is taken from
    its shares in the next turns: after a request of 60 ms, with a share of 5 ms, others have a
    dozen turns for themselves. If no other connection has requests, these turns pass at once.

    :ivar put_off: how many times a connection had to wait for the next turn.
    :ivar quotas: the quotas of addresses and accounts, whose waits are longer than a turn.
    :ivar charging: 0 while no quota is set; a new number each time that quotas are set again.
    """

    def __init__(
        self, clock: IReactorTime, config: NettyServerConfig, soon: Soon | None = None
    ) -> None:
        """:param soon: `Host.soon`; None: the clock's timers of 0 seconds."""
        self._clock = clock
        self._soon: Soon = partial(clock.callLater, 0) if soon is None else soon
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
        """
        Return for how many seconds a connection of an address may be served now. If the result is
        not above 0, the connection has to wait.
        """
        if now - self._since > _WINDOW_S and not self._waiting:
            self._begin(now)
        own, of_host = self._config.turn_millis, self._config.turn_millis_per_ip
        share = own / 1000 if own else inf
        if of_host:
            left = of_host / 1000
            if host in self._used:
                left -= self._used[host]
            if left < share:
                return left
        return share

    def note_turn(self, host: str, seconds: float) -> None:
        """Note for how many seconds a connection of an address was served."""
        if host in self._used:
            seconds += self._used[host]
        used = self._used[host] = seconds
        if 0 < self._config.turn_millis_per_ip / 2000 < used:
            self._arm()  # the next turn begins anew: no share is of more than one

    def wait(self, connection: ServedConnection, seconds: float) -> None:
        """Let a connection go on after some seconds or, with 0, in the next turn."""
        if seconds:
            call_later: Callable[..., IDelayedCall] = self._clock.callLater
            self._held_back[connection] = call_later(seconds, self._let_go, connection)
            return
        self.put_off += 1
        self._queue(connection)

    def forget(self, connection: ServedConnection) -> None:
        """Forget a connection that is gone, whether it waited or not."""
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
            self._soon(self._next)

    def _begin(self, now: float) -> None:
        self._since = now
        share = self._config.turn_millis_per_ip / 1000
        owed = {host: used - share for host, used in self._used.items() if used > share}
        self._used = owed if share else {}
        if self.quotas.is_any != bool(self.charging):
            self._periods += 1
            self.charging = self._periods if self.quotas.is_any else 0

    def _next(self) -> None:
        """
        Begin a turn: serve the waiting connections, one of each address in rotation, while the
        share of the address lasts.
        """
        # `left` is how many connections of a host waited at the beginning of this turn. Connections
        # that begin to wait meanwhile have to wait for the next turn.
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
