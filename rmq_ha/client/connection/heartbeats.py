"""Heartbeats, which tell brokers of the producers and consumers of this client.

Spec: remoting.md, sections 7.1, 7.2 and 11.2.
"""

from collections.abc import Callable, Iterator, Mapping

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.parts import ConsumerPart, ProducerPart
from rmq_ha.client.connection.route_cache import all_addresses
from rmq_ha.client.rules.errors import code_name

_PATIENCE_S = 0.25
_SOON_S = 1.0
MOST_SUBSCRIPTIONS = 2_000
"""Most subscriptions in a heartbeat for several groups; rmq-ha's brokers take this by default."""


class Heartbeats:
    """
    Tells all brokers which groups a client has.

    :ivar versions: from a broker's address to the version in its last answer.
    """

    log = Logger()

    def __init__(
        self,
        calls: Calls,
        client_id: str,
        producers: Mapping[str, ProducerPart],
        consumers: Mapping[str, ConsumerPart],
        brokers: Callable[[], Mapping[str, dict[int, str]]],
        timeout_ms: int,
    ) -> None:
        """:param brokers: returns broker addresses, by broker name and then by broker id."""
        self.versions: dict[str, int] = {}
        self._calls = calls
        self._client_id = client_id
        self._producers = producers
        self._consumers = consumers
        self._brokers = brokers
        self._timeout_ms = timeout_ms
        self._silent: set[str] = set()

    def addresses(self) -> list[str]:
        """Return the addresses of masters and, if the client has consumers, of slaves."""
        return all_addresses(self._brokers().values(), slaves=bool(self._consumers))

    def send(self) -> "Deferred[None]":
        """
        Send a heartbeat to each broker; several, one after the other, if the groups have more than
        `MOST_SUBSCRIPTIONS`.

        :returns: fires when all brokers have answered or failed to; never fails.
        """
        addresses = self.addresses()
        if not addresses or not (self._producers or self._consumers):
            return succeed(None)
        self._silent.intersection_update(addresses)
        for gone in set(self.versions).difference(addresses):
            del self.versions[gone]
        return Deferred.fromCoroutine(self._send_all(addresses))

    async def _send_all(self, addresses: list[str]) -> None:
        for body in self._bodies():  # a body is made when brokers have answered the last
            await _all([self._send(address, body) for address in addresses])

    def _bodies(self) -> Iterator[bytes]:
        """
        Yield encoded heartbeats for all groups, each with at most `MOST_SUBSCRIPTIONS`, or with one
        consumer group. All subscriptions of one group are in one heartbeat, as brokers forget those
        that a group's heartbeat leaves out.
        """
        producers = list(map(ProducerData, self._producers))
        consumers, count = list[ConsumerData](), 0
        for part in list(self._consumers.values()):
            data = part.heartbeat_data()
            if consumers and count + len(data.subscriptions) > MOST_SUBSCRIPTIONS:
                yield HeartbeatData(self._client_id, consumers, producers).encode()
                producers, consumers, count = [], [], 0
            consumers.append(data)
            count += len(data.subscriptions)
        yield HeartbeatData(self._client_id, consumers, producers).encode()

    def leave(self, producer_group: str = "", consumer_group: str = "") -> "Deferred[None]":
        """
        Tell all brokers that a group has left this client.

        :returns: fires when all brokers have answered or failed to; never fails.
        """
        ext = {"clientID": self._client_id}
        if producer_group:
            ext["producerGroup"] = producer_group
        if consumer_group:
            ext["consumerGroup"] = consumer_group
        calls = []
        for address in all_addresses(self._brokers().values(), slaves=bool(consumer_group)):
            request = RemotingCommand(RequestCode.UNREGISTER_CLIENT, dict(ext))
            asked = self._calls.invoke(address, request, self._timeout_ms)
            calls.append(
                asked.addCallbacks(self._note_leave, self._failed, (address,), {}, (address,))
            )
        return _all(calls)

    def _send(self, address: str, body: bytes) -> "Deferred[None]":
        request = RemotingCommand(RequestCode.HEART_BEAT, None, body)
        asked = self._calls.invoke(address, request, self._timeout_ms)
        return asked.addCallbacks(self._answered, self._failed, (address,), {}, (address,))

    def _answered(self, response: RemotingCommand, address: str) -> None:
        if response.code:
            self._complain(address, f"{code_name(response.code)}: {response.reason}")
            return
        self.versions[address] = response.version
        if address in self._silent:
            self._silent.discard(address)
            self.log.info("{address} answers heartbeats again", address=address)

    def _note_leave(self, response: RemotingCommand, address: str) -> None:
        self.log.debug("left {address}: {code}", address=address, code=response.code)

    def _failed(self, failure: Failure, address: str) -> None:
        self._complain(address, failure.getErrorMessage())

    def _complain(self, address: str, reason: str) -> None:
        """Log that a broker takes no heartbeat: once, until it answers again."""
        if address not in self._silent:
            self._silent.add(address)
            self.log.warn("{address} takes no heartbeat: {reason}", address=address, reason=reason)


class HeartbeatRounds:
    """
    A client's rounds of heartbeats, one at a time, even if many callers want a round.

    :param send: sends a round; its Deferred fires when the round is over, and never fails.
    """

    def __init__(self, clock: IReactorTime, send: "Callable[[], Deferred[None]]") -> None:
        self._clock = clock
        self._send = send
        self._is_stopped = False
        self._current: Deferred[None] | None = None
        self._next: Deferred[None] | None = None
        self._soon: IDelayedCall | None = None
        self._last_soon = -_SOON_S

    def begin(self) -> "Deferred[None]":
        """Begin a round now or after the current one; fires when the new round is over."""
        if self._current is not None:
            if self._next is None:
                self._next = Deferred()
            return _end_of(self._next)
        self._current = Deferred()
        done = _end_of(self._current)
        self._send().addBoth(self._end_round)
        return done

    def begin_soon(self) -> None:
        """Begin a round now, but not sooner than a second after the last round of this method."""
        if self._is_stopped or (self._soon is not None and self._soon.active()):
            return
        wait = max(0.0, self._last_soon + _SOON_S - self._clock.seconds())
        if wait:
            self._soon = self._clock.callLater(wait, self._begin_now)
        else:
            self._begin_now()

    def call_after_round(self, leave: "Callable[[], Deferred[None]]") -> "Deferred[None]":
        """
        Call `leave` after the round that is under way, at the latest in a quarter of a second.

        If a broker read a heartbeat after a group has left, it would keep the group for 2 minutes.
        """
        if self._current is None:
            return leave()
        ended = _end_of(self._current).addTimeout(_PATIENCE_S, self._clock, lambda _, __: None)
        return ended.addCallback(lambda _: leave())

    def stop(self) -> None:
        """Drop rounds that wait; a later call of `begin` still begins a round."""
        self._is_stopped = True
        if self._soon is not None and self._soon.active():
            self._soon.cancel()

    def _begin_now(self) -> None:
        self._last_soon = self._clock.seconds()
        self.begin()

    def _end_round(self, _: object) -> None:
        ended, self._current = self._current, None
        waiting, self._next = self._next, None
        assert ended is not None
        ended.callback(None)
        if waiting is not None:
            again = succeed(None) if self._is_stopped else self.begin()
            again.chainDeferred(waiting)


def _end_of(round_: "Deferred[None]") -> "Deferred[None]":
    """Return a new Deferred for one caller, which fires when the round is over."""
    end: Deferred[None] = Deferred()
    round_.chainDeferred(end)
    return end


def _all(calls: "list[Deferred[None]]") -> "Deferred[None]":
    return DeferredList(calls).addCallback(lambda _: None)
