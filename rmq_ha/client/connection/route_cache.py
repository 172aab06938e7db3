"""RouteCache: the routes and broker addresses that a client knows.

Spec: remoting.md, sections 11.1, 11.2 and 11.6.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.lookup.asking import Ask, InTurn, drive
from rmq_ha.client.lookup.lookups import topic_route
from rmq_ha.client.rules.errors import MQClientError, NoNameServer
from rmq_ha.client.rules.routes import addresses_of, is_changed


class NameServers:
    """The name servers of a client, which are asked in turn."""

    log = Logger()

    def __init__(
        self,
        calls: Calls,
        addresses: Sequence[str],
        start: int,
        lookup: Callable[[], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        """
        :param start: index of the address to begin with.
        :param lookup: looks up addresses if none are configured; raises `NoNameServer`.
        """
        self._calls = calls
        self._turn = InTurn(addresses, start)
        self._lookup = lookup

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses of all name servers."""
        return self._turn.addresses

    async def look_up(self) -> None:
        """Look the addresses up again; keep the known addresses if the look-up fails."""
        if self._lookup is None:
            return
        try:
            self._turn.addresses = tuple(await self._lookup())
        except NoNameServer as error:
            if not self.addresses:
                raise
            self.log.warn("{reason}; those of before are asked", reason=error)

    async def ask(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if not self.addresses:
            await self.look_up()
        return await drive(self._turn.ask(command, timeout_ms), self._answer)

    def _answer(self, ask: Ask) -> "Deferred[RemotingCommand]":
        return self._calls.invoke(ask.address, ask.command, ask.timeout_ms)


class _CachedRoute:
    """A route in the cache."""

    __slots__ = ("route", "used")

    def __init__(self, route: TopicRoute, used: float) -> None:
        self.route = route
        self.used = used


class RouteCache:
    """
    A cache of routes by topic, and of broker addresses.

    :ivar brokers: broker addresses, by broker name and then by broker id.
    """

    log = Logger()

    def __init__(
        self, clock: IReactorTime, name_servers: NameServers, timeout_ms: int, idle_ms: int
    ) -> None:
        """
        :param timeout_ms: timeout of one request to a name server, in ms.
        :param idle_ms: a route that is not watched is dropped after this time without use, in ms.
        """
        self.brokers: dict[str, dict[int, str]] = {}
        self._clock = clock
        self._name_servers = name_servers
        self._timeout_ms = timeout_ms
        self._idle = idle_ms / 1000
        self._known: dict[str, _CachedRoute] = {}
        self._watched: dict[str, int] = {}
        self._closed = False
        self._fetching: dict[str, list[Deferred[TopicRoute]]] = {}
        self._watchers: list[Callable[[str, TopicRoute], Any]] = []

    def cached(self, topic: str) -> TopicRoute | None:
        """Return the cached route of a topic or None; this counts as a use of the route."""
        known = self._known.get(topic)
        if known is None:
            return None
        known.used = self._clock.seconds()
        return known.route

    def get(self, topic: str) -> "Deferred[TopicRoute]":
        """Return the cached route of a topic or, if the cache has none, fetch it."""
        route = self.cached(topic)
        return self.fetch(topic) if route is None else succeed(route)

    def fetch(self, topic: str) -> "Deferred[TopicRoute]":
        """
        Ask a name server for a topic's route, or wait for the answer to a request under way.

        :returns: fails with `NoRoute`, `NoNameServer` or `BrokerRefused`.
        """
        waiting: Deferred[TopicRoute] = Deferred()
        others = self._fetching.get(topic)
        if others is not None:
            others.append(waiting)
            return waiting
        self._fetching[topic] = [waiting]
        asked = Deferred.fromCoroutine(drive(topic_route(topic), self._answer))
        asked.addBoth(self._fetched, topic)
        return waiting

    def watch(self, topic: str) -> None:
        """Keep a topic's route fresh, until `unwatch` was called as many times as `watch`."""
        self._watched[topic] = self._watched.get(topic, 0) + 1

    def unwatch(self, topic: str) -> None:
        """Undo one `watch` of a topic."""
        left = self._watched.get(topic, 0) - 1
        if left > 0:
            self._watched[topic] = left
        else:
            self._watched.pop(topic, None)

    def on_change(self, callback: Callable[[str, TopicRoute], Any]) -> None:
        """Have `callback(topic, route)` called for each new or changed route."""
        self._watchers.append(callback)

    def forget(self, callback: Callable[[str, TopicRoute], Any]) -> None:
        """Stop calling a callback of `on_change`."""
        if callback in self._watchers:
            self._watchers.remove(callback)

    async def refresh(self) -> None:
        """
        Forget routes that nobody uses, and fetch all others again, one after the other.

        A route that cannot be fetched is kept. If no name server answers, the rest is not fetched.
        """
        earliest = self._clock.seconds() - self._idle
        for topic, known in list(self._known.items()):
            if known.used < earliest and topic not in self._watched:
                del self._known[topic]
        for topic in dict.fromkeys([*self._watched, *self._known]):
            try:
                await self.fetch(topic)
            except NoNameServer as error:
                if not self._closed:
                    self.log.warn("routes are not refreshed: {reason}", reason=error)
                return
            except MQClientError as error:
                self.log.debug("{reason}", reason=error)

    def close(self) -> None:
        """Log no more failures, as the client is stopping."""
        self._closed = True

    def drop_offline(self) -> None:
        """Forget brokers that no route names any more; called before each round of heartbeats."""
        mentioned: set[str] = set()
        for known in self._known.values():
            mentioned |= addresses_of(known.route)
        for name, addresses in list(self.brokers.items()):
            left = {key: item for key, item in addresses.items() if item in mentioned}
            if not left:
                del self.brokers[name]
            elif len(left) != len(addresses):
                self.brokers[name] = left

    def adopt(self, topic: str, route: TopicRoute) -> None:
        """Put a route into the cache, and call the watchers if it is new or changed."""
        old = self._known.get(topic)
        now = self._clock.seconds()
        self._known[topic] = _CachedRoute(route, now if old is None else old.used)
        for item in route.brokers:
            self.brokers[item.broker_name] = dict(sorted(item.addresses.items()))
        if not is_changed(None if old is None else old.route, route):
            return
        for watcher in list(self._watchers):
            try:
                watcher(topic, route)
            except Exception:
                self.log.failure("on a new route of {topic}", topic=topic)

    def _answer(self, ask: Ask) -> Awaitable[RemotingCommand]:
        return self._name_servers.ask(ask.command, self._timeout_ms)

    def _fetched(self, result: TopicRoute | Failure, topic: str) -> None:
        waiting = self._fetching.pop(topic)
        if not isinstance(result, Failure):
            self.adopt(topic, result)
        for later in waiting:
            if isinstance(result, Failure):
                later.errback(result)
            else:
                later.callback(result)


def all_addresses(brokers: Iterable[dict[int, str]], *, slaves: bool) -> list[str]:
    """Return the addresses of all masters and, if `slaves` is set, of all slaves."""
    return [
        address
        for addresses in brokers
        for broker_id, address in addresses.items()
        if slaves or broker_id == 0
    ]
