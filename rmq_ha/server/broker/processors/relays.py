"""Relays an operator's requests to a client, through its broker: codes 307, 309 and 223.

Spec: remoting.md, sections 2.4 and 7.6.
"""

from typing import Any, cast

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import ProtocolViolation, RemotingTimeout, RequestRejected
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.bodies import MessageQueue, decode_queue_table
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.offset_bodies import ConsumerStatusBody
from rmq_ha.base.wire.versions import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, version_name
from rmq_ha.server.broker.client_calls import ClientCalls
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.processors.query import RecordReader, record_by_id
from rmq_ha.server.broker.tables.clients import ClientChannelInfo, ConsumerManager
from rmq_ha.server.broker.tables.door_consumers import DoorConsumers

RELAY_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000
MOST_RELAYS = 4096

_NOT_FOR_CLIENTS = ("AccessKey", "SecurityToken", "Signature")
"""Header fields by which an operator signs; a client must not see them."""


class RelayProcessor:
    """
    Sends an operator's request on to members of a consumer group. The answer of a single member is
    returned unchanged.

    :param broker_name: sent to a client that is to consume a message of this broker.
    """

    log = Logger()

    def __init__(
        self,
        *,
        store: RecordReader,
        consumers: ConsumerManager,
        door_consumers: DoorConsumers,
        broker_name: str,
    ) -> None:
        self._door_consumers = door_consumers
        self._store = store
        self._consumers = consumers
        self._broker_name = broker_name
        self._calls = ClientCalls(MOST_RELAYS, "questions of operators")

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    def running_info(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand | None]":
        """Relay GET_CONSUMER_RUNNING_INFO (307): one member of a group reports its own state."""
        return self._relay(request, dict(fields.header(request)), request.body)

    def consume_directly(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand | None]":
        """Relay CONSUME_MESSAGE_DIRECTLY (309) together with the message that `msgId` names."""
        ext = dict(fields.header(request))
        ext["brokerName"] = self._broker_name
        return self._relay(request, ext, self._message(fields.text(ext, "msgId")))

    def consumer_status(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand | None]":
        """
        Answer INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) with the offsets that each member, or one
        member, holds.
        """
        header = fields.header(request)
        topic, group = fields.text(header, "topic"), fields.text(header, "group")
        client_id = header.get("clientAddr", "").strip()
        members = members_that_can(self._consumers, group)
        if not members:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        question = RemotingCommand(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group}
        )
        offsets: dict[str, dict[MessageQueue, int]] = {}
        asked = []
        for member in members:
            if not client_id or member.client_id == client_id:
                # A member that cannot be asked is left out; the answers of the members before it
                # count.
                asking = maybeDeferred(
                    self._calls.invoke, cast(Channel, member.channel), question, STATUS_TIMEOUT_MS
                )
                asked.append(asking.addCallback(self._note_status, member.client_id, offsets))
        return DeferredList(asked, consumeErrors=True).addCallback(
            lambda _: request.response(body=ConsumerStatusBody(offsets).encode())
        )

    def _note_status(
        self,
        answer: RemotingCommand,
        client_id: str,
        offsets: dict[str, dict[MessageQueue, int]],
    ) -> None:
        """Add a member's offsets; leave out a member that failed or answered something else."""
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return
        try:
            table = decode_queue_table(answer.body, "messageQueueTable")
            offsets[client_id] = {queue: int(offset) for queue, offset in table.items()}
        except (ProtocolViolation, TypeError, ValueError, OverflowError) as error:
            self.log.warn("the status of {client} cannot be read: {e}", client=client_id, e=error)

    def _message(self, message_id: str) -> bytes:
        record = record_by_id(self._store, message_id)
        if record is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"no message of this broker has the offsetMsgId {message_id[:60]!r}",
            )
        return record

    def _why_not(self, group: str, client_id: str) -> str:
        of_grpc = self._door_consumers.members(group)
        if any(client.client_id == client_id for client in of_grpc):
            return (
                f"The Consumer <{group}> <{client_id}> is a client of gRPC, and rmq-ha asks only "
                "clients of remoting for this: look into the log of that program"
            )
        return f"The Consumer <{group}> <{client_id}> not online"

    def _relay(
        self, request: RemotingCommand, ext: dict[str, str], body: bytes | None
    ) -> "Deferred[RemotingCommand | None]":
        group, client_id = fields.text(ext, "consumerGroup"), ext.get("clientId", "null")
        member = self._consumers.find_client(group, client_id)
        if member is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, self._why_not(group, client_id))
        if member.version < V3_1_8_SNAPSHOT:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        for name in _NOT_FOR_CLIENTS:
            ext.pop(name, None)
        answer: Deferred[Any] = self._calls.invoke(
            cast(Channel, member.channel),
            RemotingCommand(request.code, ext, body),
            RELAY_TIMEOUT_MS,
        )
        return answer.addErrback(_unanswered, group, client_id)


def members_that_can(consumers: ConsumerManager, group: str) -> list[ClientChannelInfo]:
    """
    Return all members of a group; none if the group is not online.

    :raises RequestRejected: a member is too old for pushes about offsets.
    """
    info = consumers.group(group)
    members = [] if info is None else list(info.members.values())
    for member in members:
        if member.version < V3_0_7_SNAPSHOT:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "the client does not support this feature. "
                f"version={version_name(member.version)} ({member.client_id})",
            )
    return members


def _unanswered(failure: Failure, group: str, client_id: str) -> None:
    error = failure.value
    if isinstance(error, RemotingTimeout):
        raise RequestRejected(
            ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
        )
    raise RequestRejected(
        ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
    )
