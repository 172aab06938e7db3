"""DLedger's requests over RocketMQ's remoting: translates frames to messages of the core and back.

Spec: dledger.md, chapter 5.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import Handler
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.members import Members
from rmq_ha.server.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    GroupMessage,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)

_CLASSES: dict[int, tuple[type[GroupMessage], type[GroupMessage]]] = {
    DLedgerRequestCode.METADATA: (MetadataRequest, MetadataResponse),
    DLedgerRequestCode.APPEND: (AppendEntryRequest, AppendEntryResponse),
    DLedgerRequestCode.GET: (GetEntriesRequest, GetEntriesResponse),
    DLedgerRequestCode.VOTE: (VoteRequest, VoteResponse),
    DLedgerRequestCode.HEART_BEAT: (HeartBeatRequest, HeartBeatResponse),
    DLedgerRequestCode.PUSH: (PushEntryRequest, PushEntryResponse),
    DLedgerRequestCode.LEADERSHIP_TRANSFER: (LeadershipTransferRequest, LeadershipTransferResponse),
}
Answered = Deferred[GroupMessage]


class PeerRequests:
    """
    The request handlers of the port to which the other members connect.

    :param serve: called with the code, the message and a Deferred to answer with.
    :param refused: called with host, code and reason for each request that does not reach the core.
    """

    def __init__(
        self,
        serve: Callable[[int, GroupMessage, Answered], None],
        members: Members,
        refused: Callable[[str, int, str], None],
    ) -> None:
        self._serve = serve
        self._members = members
        self._refused = refused

    def routes(self) -> dict[int, Handler]:
        """Return the handler of each request code. No member of DLedger serves PULL."""
        return dict.fromkeys(_CLASSES, self.handle)

    def handle(self, channel: Channel, request: RemotingCommand) -> "Deferred[RemotingCommand]":
        """
        Have the core answer a request. A stranger gets 401, and its body is not read.

        :raises ProtocolViolation: the body cannot be read; the peer gets code 1 with the reason.
        """
        asked, answers = _CLASSES[request.code]
        host = host_of(channel.remote_text)
        message = GroupMessage()
        reason = self._members.refusal_unread(request.code, host)
        if not reason:
            message = decode_body(asked, request.body)
            reason = self._members.refusal(request.code, message, host)
        answered: Answered = Deferred()
        if reason:
            self._refused(host, request.code, reason)
            answered.callback(
                answers(
                    group=message.group,
                    remote_id=message.remote_id,
                    local_id=message.local_id,
                    code=DLedgerResponseCode.UNKNOWN_MEMBER,
                )
            )
        else:
            self._serve(request.code, message, answered)
        return answered.addCallback(_frame, request)


def _frame(message: GroupMessage, request: RemotingCommand) -> RemotingCommand:
    """Make the response frame. Its header always says 200; the result code is in the body."""
    return request.response(DLedgerResponseCode.SUCCESS, None, None, encode_body(message))


def request_frame(code: int, message: GroupMessage) -> RemotingCommand:
    return RemotingCommand(int(code), body=encode_body(message))


def read_response(code: int, response: RemotingCommand) -> GroupMessage:
    """
    Read the answer of a member.

    :param code: code of the request.
    :raises RemotingError: the frame is not an answer of DLedger.
    """
    if response.body is None:
        raise RemotingError(f"code {response.code}: {response.reason}")
    try:
        return decode_body(_CLASSES[code][1], response.body)
    except ProtocolViolation as error:
        raise RemotingError(str(error)) from error
