"""The gRPC door of a broker: its port for clients of RocketMQ 5, which speak gRPC instead of
RocketMQ's own protocol, remoting.

`rmq_ha.server.grpc.front` turns calls of clients into verbs such as `send`, `pop` and `settle`
(`BrokerVerbs`). `_Verbs` passes them on to the processors that also serve remoting.

Spec: grpc.md, sections 12 to 14.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.interfaces import ICallAccess
from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.model.flags import PERM_READ, PERM_WRITE
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.remoting.protocol import PeerLimits
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.seams import Host
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.pop_headers import PopHeader
from rmq_ha.base.wire.send_header import SendHeader
from rmq_ha.base.wire.versions import V5_0_0
from rmq_ha.server.broker.door_routes import DoorRoutes, door_address
from rmq_ha.server.broker.pop_requests import PopProcessors
from rmq_ha.server.broker.processors.end_transaction import EndTransactionProcessor
from rmq_ha.server.broker.processors.send import SendMessageProcessor
from rmq_ha.server.broker.processors.send_back import SendBackProcessor
from rmq_ha.server.broker.processors.timers import TimerProcessor
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.broker.tables.clients import ClientChannelInfo
from rmq_ha.server.broker.transactions.fates import HalfPlace
from rmq_ha.server.door import (
    ClientChannel,
    ClientFacts,
    DoorCaller,
    DoorProducer,
    DoorQueues,
    MessageSender,
    Need,
    Poller,
    PopOutcome,
    SendOutcome,
    Settlement,
)
from rmq_ha.server.grpc.extra import missing_package
from rmq_ha.server.pop.face import LeaseChange, LeaseStatus, Pops, Receipt
from rmq_ha.server.store.journal import Journal
from rmq_ha.server.store.message_store import DefaultMessageStore

EXPIRY_S = 5.0
_READ_WRITE = PERM_READ | PERM_WRITE
_FRONT = "rmq_ha.server.grpc.front"


class DoorParts(Protocol):
    """The parts of a broker that stand behind the door."""

    host: Host
    configuration: BrokerConfiguration
    journal: Journal
    store: DefaultMessageStore
    tables: BrokerTables
    sends: SendMessageProcessor
    end_transactions: EndTransactionProcessor
    timer_requests: TimerProcessor
    send_backs: SendBackProcessor
    pop_processors: PopProcessors
    validators: list[Any]

    @property
    def identity(self) -> BrokerIdentity: ...

    @property
    def pops(self) -> Pops: ...


class BrokerDoor:
    """
    The gRPC door: a broker's port for clients of RocketMQ 5.

    :param routes: finds the queues of topics on other brokers.
    :param limits: the limits for all connections of the port together.
    :raises ConfigurationError: a package is missing, or the access control cannot check calls of
        gRPC.
    """

    def __init__(
        self, broker: DoorParts, routes: DoorRoutes, tls: ServerTls, limits: PeerLimits
    ) -> None:
        self._configuration = configuration = broker.configuration
        _check_possible(configuration, broker.validators)
        # Only these modules need protobuf, which a broker without this port need not have.
        service = import_module(f"{_FRONT}.service")
        self._settings_class: Any = import_module(f"{_FRONT}.limits").FrontSettings
        server: Any = import_module("rmq_ha.server.grpc.server")
        self.service: Any = service.MessagingService(
            _Verbs(broker, routes),
            self._settings,
            broker.host.clock,
            broker.identity.broker_name,
        )
        self.server: Any = server.GrpcServer(
            broker.host, configuration.ours, self.service.methods(), tls, limits
        )
        self._shared: RemotingServer | None = None
        self._expiry = Periodic(broker.host.clock, "gRPC client expiry", self._expire, EXPIRY_S)

    def listen(self, interface: str) -> "Deferred[Any]":
        """
        Accept clients.

        :returns: fires with the listening port; fails with Twisted's `CannotListenError`.
        """
        self._expiry.start()
        listening: Deferred[Any] = self.server.listen(
            self._configuration.ours.grpc_server_port, interface
        )
        return listening

    def share(self, remoting: RemotingServer) -> None:
        """Accept clients on the ports of a server for remoting, instead of a port of its own."""
        self._expiry.start()
        self._shared = remoting
        remoting.build_http2 = self.server.build_plain

    def drain(self) -> None:
        """
        Have all clients leave their connections, because this broker is not the master any more.

        New connections are accepted: a slave answers questions for routes.
        """
        self.server.drain()
        for client in list(self.service.clients.all()):
            client.reconnect()

    async def stop(self) -> None:
        """Let open calls end, and accept no more clients."""
        await self._expiry.stop()
        if self._shared is not None:
            self._shared.build_http2 = None
        self.drain()
        for client in list(self.service.clients.all()):
            client.end_streams()
        await self.server.stop()

    def facts(self) -> Mapping[str, Any]:
        """Return the state of this port for operators, see `DoorFacts`."""
        implementation: Any = import_module("google.protobuf.internal.api_implementation")
        return {
            "protobuf": str(implementation.Type()),
            "refused_consumers": self.service.clients.refused_consumers,
        }

    def _expire(self) -> "Deferred[None]":
        self.service.clients.expire()
        self.service.consumers.renewals.look()
        return succeed(None)

    def _settings(self) -> Any:
        ours, store = self._configuration.ours, self._configuration.store
        return self._settings_class(
            max_body=store.max_message_size,
            refuses_empty_bodies=ours.enable_message_body_empty_check,
            max_properties=ours.user_property_max_num,
            max_properties_size=ours.max_user_property_size,
            max_group_size=ours.max_message_group_size,
            max_recovery_s=ours.max_transaction_recovery_second,
            max_delay_ms=ours.max_delay_time_mills or ours.timer_max_delay_sec * 1000,
            default_type=ours.grpc_default_message_type,
            checks_types=ours.enable_topic_message_type_check,
            producer_attempts=ours.grpc_client_producer_max_attempts,
            backoff_initial_ms=ours.grpc_client_producer_backoff_initial_millis,
            backoff_max_ms=ours.grpc_client_producer_backoff_max_millis,
            backoff_multiplier=ours.grpc_client_producer_backoff_multiplier,
        )


class _Verbs:
    """
    The work that the broker does for clients at the door, by the same processors that serve
    remoting; see `BrokerVerbs`.
    """

    def __init__(self, broker: DoorParts, routes: DoorRoutes) -> None:
        self._host = broker.host
        self._configuration = broker.configuration
        self._role = broker.journal.role
        self._store = broker.store
        self._topics = broker.tables.topics
        self._producers = broker.tables.producers
        self._consumers = broker.tables.door_consumers
        self._sends = broker.sends
        self._ends = broker.end_transactions
        self._timers = broker.timer_requests
        self._controls = broker.validators
        self._groups = broker.tables.groups
        self._pops = broker.pops
        self._pop_messages, self._pop_acks = broker.pop_processors[:2]
        self._send_backs = broker.send_backs
        self._routes = routes
        self._broker_name = broker.identity.broker_name

    @property
    def is_slave(self) -> bool:
        return self._role.is_slave

    @property
    def serves_timers(self) -> bool:
        return self._store.timers.is_enabled

    def now_ms(self) -> int:
        return self._host.now_ms()

    def topic(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    def route(self, topic: str) -> "Deferred[list[DoorQueues]]":
        return Deferred.fromCoroutine(self._route(topic))

    async def _route(self, topic: str) -> list[DoorQueues]:
        own = [] if self.is_slave else self._own_queues(topic)
        return own + await self._routes.find(topic)

    def _own_queues(self, topic: str) -> list[DoorQueues]:
        config, door = self._topics.get(topic), door_address(self._configuration)
        if config is None or door is None:
            return []
        allowed = self._configuration.broker.broker_permission
        perm = config.perm if allowed & _READ_WRITE == _READ_WRITE else allowed
        queues = (config.read_queue_nums, config.write_queue_nums, perm)
        return [DoorQueues(self._broker_name, MASTER_ID, door, *queues)]

    def authorize(self, caller: DoorCaller, needs: Sequence[Need]) -> str:
        account = ""
        for control in self._controls:
            grant = control.admit(caller, needs)
            account = account if grant is None else grant.account
        return account

    def send(
        self, sender: MessageSender, header: SendHeader, body: bytes
    ) -> "Deferred[SendOutcome]":
        return self._sends.store_send(sender, header, body, V5_0_0)

    def settle(
        self, physical_offset: int, queue_offset: int, group: str, unique_id: str, *, commits: bool
    ) -> "Deferred[Settlement]":
        place = HalfPlace(queue_offset, physical_offset)
        return self._ends.settle(place, group, unique_id, is_commit=commits)

    def take_back(
        self, born: Address, topic: str, handle: str
    ) -> "tuple[str, Deferred[Settlement]]":
        return self._timers.take_back(born, topic, handle, topic)

    @property
    def serves_pops(self) -> bool:
        return self._pops.is_enabled

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        try:
            return self._groups.find(name)
        except RequestRejected:  # a broker that does not lead for sure creates none
            return None

    def pop(self, poller: Poller, header: PopHeader) -> "Deferred[PopOutcome]":
        return self._pop_messages.take(poller, header)

    def acknowledge(self, client: str, receipt: Receipt) -> "Deferred[LeaseStatus]":
        return self._pop_acks.acknowledge(client, receipt)

    def change(self, client: str, receipt: Receipt, invisible_ms: int) -> "Deferred[LeaseChange]":
        return self._pop_acks.change_lease(client, receipt, invisible_ms)

    def bury(self, sender: MessageSender, receipt: Receipt) -> "Deferred[Settlement]":
        read = self._store.get_message(
            receipt.group, receipt.topic, receipt.queue_id, receipt.offsets[0], 1, None
        )
        if read is None or not read.messages:
            raise RequestRejected(ResponseCode.NO_MESSAGE, "the message is not there any more")
        record = decode_record(read.messages[0])
        return self._send_backs.bury(sender, receipt.group, record.physical_offset)

    def register_producer(self, group: str, producer: DoorProducer, facts: ClientFacts) -> None:
        self._producers.register(group, self._info(producer, facts))

    def forget_producer(self, producer: DoorProducer) -> None:
        self._producers.channel_closed(producer)

    def register_consumer(
        self,
        group: str,
        consumer: ClientChannel,
        facts: ClientFacts,
        subscriptions: Sequence[SubscriptionData],
    ) -> None:
        self._consumers.register(group, self._info(consumer, facts), subscriptions)

    def forget_consumer(self, consumer: ClientChannel) -> None:
        self._consumers.forget(consumer)

    def _info(self, client: ClientChannel, facts: ClientFacts) -> ClientChannelInfo:
        return ClientChannelInfo(
            client,
            facts.client_id,
            facts.language,
            facts.version,
            self._host.now_ms(),
            self._host.steady_ms(),
            facts.account or None,
            sdk=facts.sdk,
        )


def _check_possible(configuration: BrokerConfiguration, validators: Sequence[Any]) -> None:
    port = configuration.ours.grpc_server_port
    why = missing_package()
    if not why and not all(map(_knows_calls, validators)):
        why = (
            f"aclPlugIn={configuration.ours.acl_plug_in} has a plugin that knows no calls of gRPC, "
            "so nobody would be checked: use aclPlugIn=plain, or a plugin with ICallAccess"
        )
    if why:
        raise ConfigurationError(f"grpcServerPort={port}: {why}")


def _knows_calls(validator: Any) -> bool:
    return bool(ICallAccess.providedBy(validator))
