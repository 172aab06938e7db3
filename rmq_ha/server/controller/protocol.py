"""The controller's requests over RocketMQ's remoting: translates frames to decisions and back.

Spec: controller.md, chapter 5 and section 10.3.
"""

from collections.abc import Callable
from typing import Protocol as Shape

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, ITransport
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import Answer, Handler
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.one_by_one import OneByOne
from rmq_ha.base.wire.codes import ResponseCode as RemotingCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.server.controller.codec import (
    decode_header,
    decode_names,
    decode_set,
    encode_properties,
)
from rmq_ha.server.controller.codes import ControllerRequestCode, ControllerResponseCode
from rmq_ha.server.controller.events import Event, encode_event
from rmq_ha.server.controller.group import ControllerGroup, not_leader
from rmq_ha.server.controller.liveness import Liveness
from rmq_ha.server.controller.messages import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    CleanBrokerDataRequest,
    ElectMasterRequest,
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetReplicaInfoRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
    SyncStateSet,
)
from rmq_ha.server.controller.replicas import Decision, ReplicasInfoManager

_MOST_WAITING = 1024
_OUTLIVES_S = 0.25
"""
Time within which a killed process has closed its connections, also on a busy machine, in seconds.
"""


class RemoteSettings(Shape):
    """The configuration that requests show and change."""

    def render(self) -> list[str]:
        """Return a `key=value` line for each key of the configuration."""

    def update(self, text: str) -> "Deferred[bool]":
        """
        Change the configuration.

        :raises ConfigurationError: a value does not fit; nothing was changed.
        :raises RequestRejected: a key must not be changed by a request.
        """


class ControllerRequests:
    """
    Answers brokers and tools. Changes go through the log one after the other: each is decided when
    the previous one is applied.

    :param decided: called with each event once it is applied.
    :param lost: called with each lost connection by which heartbeats came.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        group: ControllerGroup,
        manager: ReplicasInfoManager,
        liveness: Liveness,
        settings: RemoteSettings,
        decided: Callable[[Event], None],
        lost: Callable[[Channel], None],
    ) -> None:
        self._host = host
        self._group = group
        self._manager = manager
        self._liveness = liveness
        self._settings = settings
        self._decided = decided
        self._lost = lost
        self._watched: set[Channel] = set()
        self._line = OneByOne()

    def routes(self) -> dict[int, Handler]:
        return {
            ControllerRequestCode.BROKER_HEARTBEAT: self.heartbeat,
            ControllerRequestCode.ALTER_SYNC_STATE_SET: self.alter_sync_state_set,
            ControllerRequestCode.ELECT_MASTER: self.elect_master,
            ControllerRequestCode.REGISTER_BROKER: self.register_broker,
            ControllerRequestCode.GET_REPLICA_INFO: self.replica_info,
            ControllerRequestCode.GET_METADATA_INFO: self.metadata,
            ControllerRequestCode.GET_SYNC_STATE_DATA: self.sync_state_data,
            ControllerRequestCode.UPDATE_CONTROLLER_CONFIG: self.update_config,
            ControllerRequestCode.GET_CONTROLLER_CONFIG: self.config,
            ControllerRequestCode.CLEAN_BROKER_DATA: self.clean_broker_data,
            ControllerRequestCode.GET_NEXT_BROKER_ID: self.next_broker_id,
            ControllerRequestCode.APPLY_BROKER_ID: self.apply_broker_id,
        }

    # ------------------------------------------------------------ in order

    def decide(self, decide: Callable[[], Decision]) -> "Deferred[Decision]":
        """
        Decide when all earlier requests are done, then commit the decision's event.

        :returns: fires when the event, if there is one, is applied; fails with `RequestRejected`.
        """
        if len(self._line) >= _MOST_WAITING:
            raise RequestRejected(
                RemotingCode.SYSTEM_BUSY, f"{_MOST_WAITING} requests wait for the controller's log"
            )
        return self._line.run(lambda: Deferred.fromCoroutine(self._decided_now(decide)))

    async def _decided_now(self, decide: Callable[[], Decision]) -> Decision:
        self._check_ready()
        decision = decide()
        if decision.event is not None:
            await self._group.propose(encode_event(decision.event))
            self._decided(decision.event)
        return decision

    def _check_ready(self) -> None:
        if not self._group.is_ready:
            raise not_leader()

    def _check_leads(self) -> None:
        if not self._group.leads:
            raise not_leader()

    def _decide_in_order(
        self, request: RemotingCommand, decide: Callable[[], Decision]
    ) -> "Deferred[RemotingCommand]":
        self._check_leads()
        return self.decide(decide).addCallback(_response, request)

    # ------------------------------------------------------------ requests

    def heartbeat(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer BROKER_HEARTBEAT (904): note that a broker lives; every controller does.

        A heartbeat from another place than the registered one says nothing about that place. A
        broker that has moved would otherwise keep its old place alive, and may register the new
        one only when the old one is silent.
        """
        header = decode_header(HeartbeatRequest, request.ext)
        if header.broker_id is None:
            return request.response(
                ControllerResponseCode.INVALID_REQUEST, "Heart beat with empty brokerId"
            )
        known = self._manager.address_of(header.broker_name, header.broker_id)
        if known is not None and known != header.broker_addr:
            return request.response(ControllerResponseCode.SUCCESS, "Heart beat of a new place")
        self._liveness.hear(header, channel, self._now())
        if channel not in self._watched:
            self._watched.add(channel)
            channel.on_close(self._closed)
        return request.response(ControllerResponseCode.SUCCESS, "Heart beat success")

    def _closed(self, channel: Channel) -> None:
        self._watched.discard(channel)
        self._lost(channel)

    def alter_sync_state_set(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer ALTER_SYNC_STATE_SET (1001): the master says which brokers are in sync with it. A set
        that loses a broker is changed only if the master's connection is open 0.25 s later.

        If all brokers are killed at once, the last one sees the others go, and would reduce the set
        to itself. Then no other broker could lead, though the others have every message.
        """
        header = decode_header(AlterSyncStateSetRequest, request.ext)
        proposal = request.read(decode_set)
        if not self._manager.shrinks(header.broker_name, proposal):
            return self._alter(header, proposal, request)
        self._check_leads()
        pause: Deferred[None] = Deferred()
        self._host.clock.callLater(_OUTLIVES_S, pause.callback, None)
        return pause.addCallback(lambda _: self._shrink(channel, header, proposal, request))

    def _shrink(
        self,
        channel: Channel,
        header: AlterSyncStateSetRequest,
        proposal: SyncStateSet,
        request: RemotingCommand,
    ) -> "Deferred[RemotingCommand]":
        if not channel.is_open:
            raise RequestRejected(
                RemotingCode.SYSTEM_ERROR,
                "the connection of the master closed: it may be dying, so the set stays as it is",
            )
        return self._alter(header, proposal, request)

    def _alter(
        self, header: AlterSyncStateSetRequest, proposal: SyncStateSet, request: RemotingCommand
    ) -> "Deferred[RemotingCommand]":
        return self._decide_in_order(
            request, lambda: self._manager.alter_sync_state_set(header, proposal, self._now())
        )

    def elect_master(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer ELECT_MASTER (1002): choose a master for a set that needs another one."""
        header = decode_header(ElectMasterRequest, request.ext)
        return self._decide_in_order(
            request, lambda: self._manager.elect_master(header, self._now())
        )

    def register_broker(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer REGISTER_BROKER (1003): a broker tells its address, and asks who leads."""
        header = decode_header(RegisterBrokerRequest, request.ext)
        return self._decide_in_order(
            request, lambda: self._manager.register_broker(header, self._now())
        )

    def apply_broker_id(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer APPLY_BROKER_ID (1013): give a broker its id."""
        header = decode_header(ApplyBrokerIdRequest, request.ext)
        return self._decide_in_order(request, lambda: self._manager.apply_broker_id(header))

    def clean_broker_data(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer CLEAN_BROKER_DATA (1011): forget brokers."""
        header = decode_header(CleanBrokerDataRequest, request.ext)
        return self._decide_in_order(
            request, lambda: self._manager.clean_broker_data(header, self._now())
        )

    def next_broker_id(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer GET_NEXT_BROKER_ID (1012) with the next free id."""
        self._check_leads()
        header = decode_header(GetNextBrokerIdRequest, request.ext)
        return _response(self._manager.next_broker_id(header), request)

    def replica_info(self, _: Channel, request: RemotingCommand) -> Answer:
        """
        Answer GET_REPLICA_INFO (1004) with the master of a set. The answer waits for the requests
        before it: one of them may elect another master, and the answer may begin the master's
        lease.
        """
        header = decode_header(GetReplicaInfoRequest, request.ext)
        return self._decide_in_order(
            request, lambda: self._manager.replica_info(header.broker_name)
        )

    def sync_state_data(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer GET_SYNC_STATE_DATA (1006) with all facts of some sets."""
        self._check_leads()
        names = request.read(decode_names)
        return _response(self._manager.sync_state_data(names, self._now()), request)

    def metadata(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer GET_METADATA_INFO (1005) with the controllers and their leader; each answers."""
        settings, leader = self._group.settings, self._group.leader_id
        header = GetMetadataResponse(
            group=settings.group,
            controller_leader_id=leader,
            controller_leader_address=settings.peers.get(leader or "", ""),
            is_leader=leader == settings.self_id,
            peers="".join(f"{peer}:{address};" for peer, address in settings.peers.items()),
        )
        return request.response(ControllerResponseCode.SUCCESS, None, ext_fields(header))

    def config(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer GET_CONTROLLER_CONFIG (1010) with the configuration."""
        return request.response(body=encode_properties(self._settings.render()))

    def update_config(self, _: Channel, request: RemotingCommand) -> Answer:
        """Answer UPDATE_CONTROLLER_CONFIG (1009): change the configuration."""
        try:
            written = self._settings.update((request.body or b"").decode("utf-8", "replace"))
        except ConfigurationError as error:
            raise RequestRejected(RemotingCode.SYSTEM_ERROR, str(error)) from None
        return written.addCallback(
            lambda is_written: (
                request.response()
                if is_written
                else request.response(
                    RemotingCode.SYSTEM_ERROR,
                    "changed until the next start: the file could not be written, see the log",
                )
            )
        )

    def _now(self) -> int:
        return self._host.steady_ms()


def _response(decision: Decision, request: RemotingCommand) -> RemotingCommand:
    ext = None if decision.header is None else ext_fields(decision.header)
    return request.response(decision.code, decision.remark, ext, decision.body)


class Knock(Protocol):
    """A protocol that connects, and closes the connection at once."""

    def makeConnection(self, transport: ITransport) -> None:
        transport.loseConnection()


def knock(host: Host, address: str, seconds: float) -> "Deferred[IProtocol]":
    """
    Find out whether somebody listens at an address.

    :returns: fires when somebody does; fails with the error of the connection.
    """
    endpoint = host.network.client(*parse_host_port(address), seconds)
    return endpoint.connect(Factory.forProtocol(Knock))
