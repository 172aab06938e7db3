"""Heartbeats to brokers: who lives in this client.

Spec: remoting.md, sections 7.1, 7.2 and 11.2.
"""

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.wire.bodies import HeartbeatData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.parts import ConsumerPart, ProducerPart
from rmq_ha.client.connection.route_cache import all_addresses
from rmq_ha.client.rules.errors import code_name


class Heartbeats:
    """
    Tells all brokers of a client's groups.

    :ivar versions: broker address to the version that it last answered with.
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
        """:param brokers: broker name to broker id to address."""
        self.versions: dict[str, int] = {}
        self._calls = calls
        self._client_id = client_id
        self._producers = producers
        self._consumers = consumers
        self._brokers = brokers
        self._timeout_ms = timeout_ms
        self._silent: set[str] = set()

    def addresses(self) -> list[str]:
        """Of masters; of slaves too as soon as there are consumers."""
        return all_addresses(self._brokers().values(), slaves=bool(self._consumers))

    def send(self) -> "Deferred[None]":
        """
        One to each broker.

        :returns: fires when all have answered, or failed; never fails.
        """
        addresses = self.addresses()
        if not addresses or not (self._producers or self._consumers):
            return succeed(None)
        body = HeartbeatData(
            self._client_id,
            [part.heartbeat_data() for part in self._consumers.values()],
            list(self._producers),
        ).encode()
        self._silent.intersection_update(addresses)
        for gone in set(self.versions).difference(addresses):
            del self.versions[gone]
        return _all([self._send(address, body) for address in addresses])

    def leave(self, producer_group: str = "", consumer_group: str = "") -> "Deferred[None]":
        """
        Tell all brokers that a group has left this client.

        :returns: fires when all have answered, or failed; never fails.
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
            calls.append(asked.addCallbacks(self._left, self._failed, (address,), {}, (address,)))
        return _all(calls)

    def _send(self, address: str, body: bytes) -> "Deferred[None]":
        request = RemotingCommand(RequestCode.HEART_BEAT, None, body)
        asked = self._calls.invoke(address, request, self._timeout_ms)
        return asked.addCallbacks(self._answered, self._failed, (address,), {}, (address,))

    def _answered(self, response: RemotingCommand, address: str) -> None:
        if response.code:
            self._complain(address, f"{code_name(response.code)}: {response.remark}")
            return
        self.versions[address] = response.version
        if address in self._silent:
            self._silent.discard(address)
            self.log.info("{address} answers heartbeats again", address=address)

    def _left(self, response: RemotingCommand, address: str) -> None:
        self.log.debug("left {address}: {code}", address=address, code=response.code)

    def _failed(self, failure: Failure, address: str) -> None:
        self._complain(address, failure.getErrorMessage())

    def _complain(self, address: str, reason: str) -> None:
        """Once, until it answers again."""
        if address not in self._silent:
            self._silent.add(address)
            self.log.warn("{address} takes no heartbeat: {reason}", address=address, reason=reason)


def _all(calls: "list[Deferred[None]]") -> "Deferred[None]":
    return DeferredList(calls).addCallback(lambda _: None)
