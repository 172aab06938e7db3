"""ClientInstance: the connections, routes and heartbeats of one client.

Spec: remoting.md, sections 11.2 and 11.6.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmq_ha.base.host.process import this_process
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.client import ConnectingTls, RemotingClient
from rmq_ha.base.remoting.signing import SigningCalls
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.std_session import ContextTls
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.connection.forks import OwnConnections
from rmq_ha.client.connection.heartbeats import HeartbeatRounds, Heartbeats
from rmq_ha.client.connection.parts import ConsumerPart, ProducerPart
from rmq_ha.client.connection.pushes import Pushes
from rmq_ha.client.connection.route_cache import NameServers, RouteCache
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoRoute, NotStarted
from rmq_ha.client.rules.routes import choose_address
from rmq_ha.client.rules.send_frames import LANGUAGE
from rmq_ha.client.rules.settings import ADDRESSES_SECONDS, ClientConfig, client_id

VIP_DISTANCE = 2
_FIRST_REFRESH_S = 0.01
_FIRST_HEARTBEAT_S = 1.0


class ClientInstance:
    """
    The connections, routes and heartbeats that producers and consumers of one client share.

    :ivar host: the `rmq_ha.base.seams.Host` with the client's clock, network and disk.
    :ivar settings: the client's settings.
    :ivar process: the `Process` that the client was made in.
    :ivar client_id: the client's id at brokers.
    :ivar open_channel: returns the open connection to an address, or None; for callers that write
        their own frames.
    :ivar must_be_ours: raises `ForkedClient` in a fork of the process that made the client.
    :ivar name_servers: the name servers, which are asked for routes.
    :ivar producers: producers by group, whose name has the namespace.
    :ivar consumers: consumers by group, whose name has the namespace.
    """

    log = Logger()

    def __init__(self, host: Host, settings: ClientConfig) -> None:
        """
        :raises ConfigurationError: no name server is set, or a `tls.*` key is not valid.
        """
        self.host = host
        self.settings = settings
        self.process = settings.process or this_process()
        unique = host.now_ms() * 1_000_000 + host.random.randrange(1_000_000)
        self.client_id = client_id(settings, self.process, unique)
        self.producers: dict[str, ProducerPart] = {}
        self.consumers: dict[str, ConsumerPart] = {}
        servers = settings.servers(self.process.environ)
        lookup = None if servers else self._look_up(settings.address_server())
        self._signer = settings.signer(host.now_ms, host.random)
        self._remoting = self._make_remoting()
        self.open_channel: Callable[[str], Channel | None] = self._remoting.open_channel
        self.must_be_ours: Callable[[], None] = self._remoting.must_be_ours
        self._calls = self._make_calls()
        self.name_servers = NameServers(
            self, servers, host.random.randrange(max(1, len(servers))), lookup
        )
        self.routes = RouteCache(
            host.clock,
            self.name_servers,
            settings.mq_client_api_timeout_ms,
            settings.route_idle_ms,
        )
        self._heartbeats = Heartbeats(
            self,
            self.client_id,
            self.producers,
            self.consumers,
            lambda: self.routes.brokers,
            settings.mq_client_api_timeout_ms,
        )
        self._timers = self._make_timers()
        self._known_addresses: set[str] = set()
        self._rounds = HeartbeatRounds(host.clock, self._heartbeats.send)
        self._state = "new"
        self.routes.on_change(self._route_changed)

    def __repr__(self) -> str:
        return f"<ClientInstance {self.client_id} {self._state}>"

    # Life

    @property
    def is_running(self) -> bool:
        """Whether the client has started and was not stopped."""
        return self._state == "running"

    async def start(self) -> None:
        """
        Start the timers; connections are made with the first request. A second call changes
        nothing.

        :raises NotStarted: the client was stopped: make a new one.
        :raises ForkedClient: this process is a fork of the one that made it.
        """
        self.must_be_ours()
        if self._state == "stopped":
            raise NotStarted(f"the client {self.client_id} was stopped: make a new one")
        if self._state == "new":
            self._state = "running"
            for timer in self._timers:
                timer.start()

    async def stop(self) -> None:
        """Leave all remaining groups and close the connections. A second call changes nothing."""
        if self._state != "running":
            self._state = "stopped"
            return
        self._state = "stopped"
        self.routes.close()
        for timer in self._timers:
            timer.stop()
        self._rounds.stop()
        for group in list(self.consumers):
            await self.unregister_consumer(group)
        for group in list(self.producers):
            await self.unregister_producer(group)
        await self._remoting.stop()

    async def stop_if_unused(self) -> None:
        """Stop if the client has no producer and no consumer any more."""
        if not (self.producers or self.consumers):
            await self.stop()

    # Groups

    def register_producer(self, group: str, part: ProducerPart) -> None:
        """
        Add a producer: the next heartbeat tells brokers of its group, and requests of brokers for
        this group go to `part`.

        :raises MQClientError: this client has a producer of the group already.
        """
        if group in self.producers:
            raise MQClientError(
                f"this client has a producer of the group {group} already: share that producer, as"
                " any number of tasks may send with it; or give this one a group of its own, with"
                " ProducerConfig(producer_group=...)"
            )
        self._register(self.producers, group, part)

    def register_consumer(self, group: str, part: ConsumerPart) -> None:
        """
        Add a consumer: the next heartbeat tells brokers what it subscribes to.

        :raises MQClientError: this client has a consumer of the group already.
        """
        if group in self.consumers:
            raise MQClientError(
                f"this client has a consumer of the group {group} already: subscribe more topics"
                " on it, or run several loops over it; a second member of the group needs a client"
                " of its own"
            )
        self._register(self.consumers, group, part)

    def unregister_producer(self, group: str) -> "Deferred[None]":
        """Take a producer away; fires when brokers were told or do not answer; never fails."""
        if self.producers.pop(group, None) is None:
            return succeed(None)
        return self._rounds.call_after_round(lambda: self._heartbeats.leave(producer_group=group))

    def unregister_consumer(self, group: str) -> "Deferred[None]":
        """Take a consumer away; fires when brokers were told or do not answer; never fails."""
        if self.consumers.pop(group, None) is None:
            return succeed(None)
        return self._rounds.call_after_round(lambda: self._heartbeats.leave(consumer_group=group))

    def heartbeat_now(self) -> "Deferred[None]":
        """
        Send a heartbeat for all groups to all known brokers, now or after the current round.

        :returns: fires when the new round is over; never fails.
        """
        return self._rounds.begin()

    def heartbeat_soon(self) -> None:
        """Send a heartbeat soon, at most one a second, even if many callers want it at once."""
        self._rounds.begin_soon()

    def broker_version(self, address: str) -> int:
        """Return the version in a broker's last answer to a heartbeat; 0 if none has come yet."""
        return self._heartbeats.versions.get(address, 0)

    # Routes

    def route(self, topic: str) -> "Deferred[TopicRoute]":
        """
        Return the route of a topic, from the cache or else from a name server.

        :returns: fails with `NoRoute`, `NoNameServer` or `BrokerRefused`.
        """
        return self.routes.get(topic)

    async def route_or_template(self, topic: str, template: str) -> TopicRoute:
        """Return the `route` of a topic; if the topic has none, its `template_route`."""
        try:
            return await self.route(topic)
        except NoRoute:
            return await self.template_route(topic, template)

    async def template_route(self, topic: str, template: str) -> TopicRoute:
        """
        Return the route of the template topic, after which brokers create a topic without a route.

        :param topic: the topic without a route, for the error.
        :raises NoRoute: the template topic has no route either.
        """
        try:
            # fetched anew, because a cached route may name a master that is gone
            return await self.routes.fetch(template)
        except NoRoute:
            raise NoRoute(
                topic, "no broker has it, and none makes topics by itself: create it"
            ) from None

    def watch_topic(self, topic: str) -> None:
        """Keep the route of a topic fresh."""
        self.routes.watch(topic)

    def unwatch_topic(self, topic: str) -> None:
        """Undo one `watch_topic` of a topic."""
        self.routes.unwatch(topic)

    def on_route_change(self, callback: Callable[[str, TopicRoute], Any]) -> None:
        """Have `callback(topic, route)` called for each new or changed route."""
        self.routes.on_change(callback)

    def forget_route_change(self, callback: Callable[[str, TopicRoute], Any]) -> None:
        """Stop calling a callback of `on_route_change`."""
        self.routes.forget(callback)

    def broker_address(
        self, broker_name: str, broker_id: int = 0, only_this: bool = False
    ) -> tuple[str, int, bool] | None:
        """
        Choose one of the brokers of one name.

        :param broker_id: the preferred broker id; 0 is the master.
        :param only_this: whether no other broker of this name may be chosen.
        :returns: address, broker id, and whether it is a slave; None if no such broker is known.
        """
        addresses = self.routes.brokers.get(broker_name)
        return (
            None if addresses is None else choose_address(addresses, broker_id, only_this=only_this)
        )

    def vip(self, address: str) -> str:
        """Return the address to send to: the port minus 2 if `vip_channel_enabled` is set."""
        if not self.settings.vip_channel_enabled:
            return address
        return str(parse_host_port(address).with_distance(-VIP_DISTANCE))

    # Calls

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: float
    ) -> "Deferred[RemotingCommand]":
        """
        Send a request to a broker.

        :returns: fires with the response, whatever its code; fails with `RemotingTimeout`,
            `RemotingConnectError` or `ProtocolViolation`.
        """
        command.language = LANGUAGE
        return self._calls.invoke(address, command, int(timeout_ms))

    async def call(
        self, address: str, command: RemotingCommand, timeout_ms: float = 0
    ) -> RemotingCommand:
        """
        Send a request to a broker and return its response with the code SUCCESS.

        :param timeout_ms: how long to wait, in ms; 0 for `mq_client_api_timeout_ms`.
        :raises BrokerRefused: the broker answers with another code.
        :raises RemotingError: the broker does not answer.
        """
        timeout_ms = timeout_ms or self.settings.mq_client_api_timeout_ms
        response = await self.invoke(address, command, timeout_ms)
        if response.code:
            raise BrokerRefused(response.code, response.remark, address)
        return response

    def oneway(self, address: str, command: RemotingCommand) -> "Deferred[None]":
        """
        Send a request that gets no response.

        :returns: fires when the connection has the request; fails with `RemotingConnectError`.
        """
        command.language = LANGUAGE
        return self._calls.oneway(address, command)

    def close(self, address: str) -> None:
        """Close the connection to an address, if it is open; the next request connects anew."""
        self._remoting.close(address)

    # Parts

    def _register(self, parts: dict[str, Any], group: str, part: object) -> None:
        parts[group] = part
        if self.routes.brokers:
            self.heartbeat_now()

    def _make_remoting(self) -> OwnConnections:
        settings = self.settings
        host = self.host
        tls: ConnectingTls
        if (context := settings.context()) is not None:
            tls = ContextTls(context)
        else:
            tls = ClientTls(
                settings.tls_options(),
                host.disk.read_bytes,
                host.now_ms,
                enabled=settings.use_tls,
                demanded_by=settings.tls_demanded_by(),
            )
        remoting = RemotingClient(host, settings.remoting(), tls)
        pushes = Pushes(
            self.producers, self.consumers, self.host.now_ms, self._sign, self._about_client
        )
        remoting.routes.update(pushes.handlers())
        return OwnConnections(remoting)

    def _look_up(self, url: str) -> Callable[[], Awaitable[Sequence[str]]]:
        """Return a function that asks the address server at `url` for the name servers."""
        from rmq_ha.client.connection.address_server import look_up

        host, timeout_ms = self.host, self.settings.mq_client_api_timeout_ms
        return lambda: look_up(host.clock, host.network, url, timeout_ms)

    def _make_calls(self) -> Calls:
        signer = self._signer
        return self._remoting if signer is None else SigningCalls(self._remoting, signer)

    def _make_timers(self) -> list[Periodic]:
        settings, clock = self.settings, self.host.clock
        return [
            Periodic(
                clock,
                "refreshing routes",
                lambda: Deferred.fromCoroutine(self.routes.refresh()),
                settings.poll_name_server_interval_ms / 1000,
                _FIRST_REFRESH_S,
            ),
            Periodic(
                clock,
                "heartbeats",
                self._beat,
                settings.heartbeat_broker_interval_ms / 1000,
                _FIRST_HEARTBEAT_S,
            ),
            Periodic(
                clock,
                "looking up name servers",
                lambda: Deferred.fromCoroutine(self.name_servers.look_up()),
                ADDRESSES_SECONDS,
                ADDRESSES_SECONDS,
            ),
        ]

    def _sign(self, command: RemotingCommand) -> RemotingCommand:
        return command if self._signer is None else self._signer.sign(command)

    def _about_client(self) -> Mapping[str, str]:
        return {
            "PROP_NAMESERVER_ADDR": ";".join(self.name_servers.addresses),
            "PROP_CLIENT_VERSION": "V4_9_7",
        }

    # Heartbeats

    def _beat(self) -> "Deferred[None]":
        self.routes.drop_offline()
        return self.heartbeat_now()

    def _route_changed(self, topic: str, route: TopicRoute) -> None:
        """Send a heartbeat at once if a broker is new: it may have requests for this client."""
        now_known = {address for item in self.routes.brokers.values() for address in item.values()}
        if not now_known <= self._known_addresses and (self.producers or self.consumers):
            self.heartbeat_now()
        self._known_addresses = now_known
