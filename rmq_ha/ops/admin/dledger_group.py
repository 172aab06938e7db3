"""
A client of a DLedger group, whose members may run rmq-ha or Java: it asks for their state and
orders transfers.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from twisted.internet.defer import Deferred, gatherResults

from rmq_ha.base.errors import ProtocolViolation, RemotingError, RmqHaError
from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode, PushType
from rmq_ha.server.dledger.messages import (
    GroupMessage,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
)

R = TypeVar("R", bound=GroupMessage)
Invoke = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]
_NEVER = -1  # a term that no member ever had: members refuse such requests and change nothing
_REMOTING_SUCCESS = (200, 0)


class GroupRefused(RmqHaError):
    """
    A member answered with another code than success.

    :ivar code: DLedger's response code.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class MemberStatus:
    """
    The state of one member; a value that the member does not tell is None.

    :ivar kind: `rmq-ha`, or `Java`, which tells less.
    :ivar lag: how many entries of the leader's ledger the member lacks.
    :ivar problem: why the member's state is not known.
    """

    member: str
    address: str
    kind: str | None = None
    role: str | None = None
    term: int | None = None
    leader: str | None = None
    begin: int | None = None
    end: int | None = None
    committed: int | None = None
    lag: int | None = None
    problem: str | None = None


class GroupClient:
    """
    Asks the members of one group; only `transfer` changes anything.

    Spec: dledger.md, sections 5 and 6

    :param peers: `host:port` by member id.
    :param invoke: sends a request to an address; fails with `RemotingError`.
    """

    def __init__(self, group: str, peers: Mapping[str, str], invoke: Invoke) -> None:
        self.group = group
        self.peers = peers
        self._invoke = invoke

    async def status(self) -> list[MemberStatus]:
        """Return the state of all members, which are asked at the same time."""
        asked = [Deferred.fromCoroutine(self._member(name)) for name in self.peers]
        members: list[MemberStatus] = await gatherResults(asked)
        leader = leader_of(members)
        if leader is not None and leader.end is not None:
            for member in members:
                if member.end is not None:
                    member.lag = max(0, leader.end - member.end)
        return members

    async def transfer(self, to: str) -> int | None:
        """
        Hand leadership over to a member.

        :returns: the new term; None: this member leads already.
        :raises GroupRefused: leadership was not handed over.
        :raises RemotingError: a member does not answer.
        """
        if to not in self.peers:
            raise GroupRefused(
                f"{to} is not a member of {self.group}, which has {', '.join(self.peers)}",
                DLedgerResponseCode.UNKNOWN_MEMBER,
            )
        members = await self.status()
        leader = leader_of(members)
        if leader is None or leader.term is None:
            raise GroupRefused(_no_leader_text(members), DLedgerResponseCode.NOT_LEADER)
        if leader.member == to:
            return None
        request = LeadershipTransferRequest(
            group=self.group,
            remote_id=leader.member,
            transfer_id=leader.member,
            transferee_id=to,
            term=leader.term,
        )
        code = DLedgerRequestCode.LEADERSHIP_TRANSFER
        answer = await self._ask(leader.member, code, request, LeadershipTransferResponse)
        if answer.code != DLedgerResponseCode.SUCCESS:
            raise GroupRefused(why_not_transferred(answer.code, leader.member, to), answer.code)
        return answer.term

    async def _ask(self, name: str, code: int, request: GroupMessage, kind: type[R]) -> R:
        command = RemotingCommand(code, None, encode_body(request))
        answer = await self._invoke(self.peers[name], command)
        if answer.code not in _REMOTING_SUCCESS or not answer.body:
            raise ProtocolViolation(
                f"{self.peers[name]} answers code {answer.code} ({answer.reason}): is that the"
                " port of dLegerPeers?"
            )
        return decode_body(kind, answer.body)

    async def _member(self, name: str) -> MemberStatus:
        status = MemberStatus(name, self.peers[name])
        try:
            request = MetadataRequest(group=self.group, remote_id=name, status=True)
            metadata = await self._ask(name, DLedgerRequestCode.METADATA, request, MetadataResponse)
            if metadata.code != DLedgerResponseCode.SUCCESS:
                status.problem = _not_this_member(metadata.code, self.group, name)
            elif metadata.role is not None:
                _take_ours(status, metadata)
            else:
                await self._java(status, metadata)
        except (RemotingError, ProtocolViolation) as error:
            status.problem = str(error)
        return status

    async def _java(self, status: MemberStatus, metadata: MetadataResponse) -> None:
        """
        Fill in the state of a member that runs Java. Its answer to METADATA lacks the term and the
        ends of the ledger. They are in its refusals of two requests that it never accepts.
        """
        # The term `_NEVER` is older than every term, so neither request changes the member.
        name = status.member
        status.kind = "Java"
        status.leader = metadata.leader_id
        if metadata.leader_id is None:
            status.role = MemberRole.CANDIDATE.value
        else:
            leads = metadata.leader_id == name
            status.role = (MemberRole.LEADER if leads else MemberRole.FOLLOWER).value
        other = next((peer for peer in self.peers if peer != name), None)
        if other is not None:
            beat = HeartBeatRequest(
                group=self.group, remote_id=name, local_id=other, leader_id=other, term=_NEVER
            )
            refused = await self._ask(name, DLedgerRequestCode.HEART_BEAT, beat, HeartBeatResponse)
            if refused.code == DLedgerResponseCode.EXPIRED_TERM:
                status.term = refused.term
        push = PushEntryRequest(
            group=self.group,
            remote_id=name,
            local_id=other,
            leader_id=other,
            term=_NEVER,
            type=PushType.COMMIT,
            commit_index=_NEVER,
        )
        ends = await self._ask(name, DLedgerRequestCode.PUSH, push, PushEntryResponse)
        status.begin, status.end = ends.begin_index, ends.end_index


def _take_ours(status: MemberStatus, metadata: MetadataResponse) -> None:
    status.kind = "rmq-ha"
    status.role, status.term = metadata.role, metadata.current_term
    status.leader = metadata.leader_id
    status.begin, status.end = metadata.begin_index, metadata.end_index
    status.committed = metadata.committed_index


def leader_of(members: list[MemberStatus]) -> MemberStatus | None:
    """
    Return the member that says that it leads, in the highest term. A leader that was cut off says
    so as well, in a lower term.
    """
    leaders = [member for member in members if member.role == MemberRole.LEADER.value]
    return max(leaders, key=lambda member: -1 if member.term is None else member.term, default=None)


def _no_leader_text(members: list[MemberStatus]) -> str:
    silent = [f"{member.member}: {member.problem}" for member in members if member.problem]
    text = "nobody of the group says that it leads"
    return f"{text} ({'; '.join(silent)})" if silent else f"{text}; an election may be on its way"


def _not_this_member(code: int, group: str, name: str) -> str:
    if code == DLedgerResponseCode.UNKNOWN_GROUP:
        return f"it is in another group than {group}"
    if code == DLedgerResponseCode.UNKNOWN_MEMBER:
        return f"it is another member than {name}"
    return f"it answers {describe(code)}"


def describe(code: int) -> str:
    """Return a response code with its name."""
    known = code in DLedgerResponseCode.__members__.values()
    return f"{code} {DLedgerResponseCode(code).name}" if known else str(code)


_TRANSFER_FAILED = {
    DLedgerResponseCode.NETWORK_ERROR: "{leader} cannot reach {to}, or had no answer within 3 s",
    DLedgerResponseCode.UNKNOWN_MEMBER: (
        "{leader} takes no orders from this host (dLegerOperatorHosts), or knows no {to}"
    ),
    DLedgerResponseCode.EXPIRED_TERM: "another election came between; ask again",
    DLedgerResponseCode.NOT_LEADER: "{leader} does not lead any more; ask again",
    DLedgerResponseCode.INCONSISTENT_TERM: "the term has changed meanwhile; ask again",
    DLedgerResponseCode.INCONSISTENT_LEADER: "{to} does not follow {leader} (yet); ask again",
    DLedgerResponseCode.UNEXPECTED_ARGUMENT: "{leader} does not take the order for its own",
    DLedgerResponseCode.REPEATED_REQUEST: "{to} is taking over already",
    DLedgerResponseCode.FALL_BEHIND_TOO_MUCH: (
        "{to} lacks 1000 entries or more; wait until it has caught up"
    ),
    DLedgerResponseCode.TAKE_LEADERSHIP_FAILED: (
        "{to} lacked entries for more than a second, or another was elected; ask again"
    ),
    DLedgerResponseCode.DISK_FULL: (
        "{to} has less room on its disk than {leader} and would hand over again at once; free disk "
        "space there, or mend that disk"
    ),
    DLedgerResponseCode.LEADER_TRANSFERRING: "{leader} is handing over to a member already",
    DLedgerResponseCode.INTERNAL_ERROR: "{to} gave up; ask again",
}


def why_not_transferred(code: int, leader: str, to: str) -> str:
    """
    Return the reason why a transfer failed, as text.

    Spec: dledger.md, sections 6.6 and 9
    """
    text = (
        _TRANSFER_FAILED.get(DLedgerResponseCode(code))
        if code in set(DLedgerResponseCode)
        else None
    )
    words = text.format(leader=leader, to=to) if text else "the transfer failed"
    return f"{words} ({describe(code)})"
