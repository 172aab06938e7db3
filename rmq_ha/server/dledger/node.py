"""The core of a DLedger member: it makes all decisions, without I/O."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import msgspec

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.dledger_values import (
    Entry,
    MemberRole,
    MemberStanding,
    Room,
    TermVote,
)
from rmq_ha.server.dledger.actions import Action, ILedger
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.durable_index import DurableIndex
from rmq_ha.server.dledger.election import Election
from rmq_ha.server.dledger.follower import Follower
from rmq_ha.server.dledger.heartbeat import HeartBeats
from rmq_ha.server.dledger.member import Member
from rmq_ha.server.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    GroupMessage,
    HeartBeatResponse,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
    PushEntryResponse,
    VoteResponse,
)
from rmq_ha.server.dledger.push import Pusher
from rmq_ha.server.dledger.quorum import Quorum
from rmq_ha.server.dledger.transfer import LeadershipTransfer

_RESPONSES: dict[int, type[GroupMessage]] = {
    DLedgerRequestCode.METADATA: MetadataResponse,
    DLedgerRequestCode.APPEND: AppendEntryResponse,
    DLedgerRequestCode.GET: GetEntriesResponse,
    DLedgerRequestCode.VOTE: VoteResponse,
    DLedgerRequestCode.HEART_BEAT: HeartBeatResponse,
    DLedgerRequestCode.PUSH: PushEntryResponse,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: LeadershipTransferResponse,
}


class _CorePart(Protocol):
    """A part of the core that has work to do at certain times."""

    @property
    def wake(self) -> int: ...

    def tick(self) -> None:
        """Do the work that is due."""


class Node:
    """
    Takes requests, answers and the time, and fills `outbox` with actions. It polls nothing and does
    no I/O.

    Spec: dledger.md, sections 7 to 13, 17 and 18.2

    :param term_vote: the state that was persisted last.
    :param now_ms: time of a monotonic clock in milliseconds.
    """

    def __init__(
        self,
        settings: DLedgerSettings,
        ledger: ILedger,
        term_vote: TermVote,
        random: Random,
        now_ms: int,
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.member = Member(settings, ledger, term_vote, random, now_ms)
        self._durable = DurableIndex(self.member)
        self.quorum = Quorum(self.member, self._durable)
        self._follower = Follower(self.member, self._durable)
        self._pushers = {peer: Pusher(self.member, self.quorum, peer) for peer in settings.others}
        self._heart_beats = HeartBeats(self.member, self._followed)
        self._transfer = LeadershipTransfer(self.member, self.quorum, self._follower, self._room)
        self._election = Election(self.member)
        self._leading: tuple[_CorePart, ...] = (
            self._heart_beats,
            self.quorum,
            self._transfer,
            *self._pushers.values(),
        )
        self._following: tuple[_CorePart, ...] = (self._election, self._follower, self._transfer)
        self._appends: deque[tuple[Entry, Any, AppendEntryRequest, int]] = deque()
        self._handlers: dict[int, Callable[[Any, Any], None]] = {
            DLedgerRequestCode.METADATA: self._metadata,
            DLedgerRequestCode.APPEND: self._append,
            DLedgerRequestCode.GET: self._get,
            DLedgerRequestCode.VOTE: self._election.request,
            DLedgerRequestCode.HEART_BEAT: self._heart_beats.request,
            DLedgerRequestCode.PUSH: self._follower.request,
            DLedgerRequestCode.LEADERSHIP_TRANSFER: self._transfer.request,
        }

    @property
    def outbox(self) -> list[Action]:
        """The actions to do, in order. The caller that carries them out empties the list."""
        return self.member.outbox

    @property
    def next_wake(self) -> int:
        """Return the time at which `tick` has something to do, in milliseconds."""
        return min([part.wake for part in self._parts])

    @property
    def _parts(self) -> tuple[_CorePart, ...]:
        """Return the parts that can have something to do in this role."""
        return self._leading if self.member.role is MemberRole.LEADER else self._following

    @property
    def role(self) -> MemberRole:
        """Return leader, follower or candidate."""
        return self.member.role

    @property
    def term(self) -> int:
        return self.member.term

    @property
    def leader_id(self) -> str | None:
        """Return the id of the leader, as far as this member knows it."""
        return self.member.leader_id

    @property
    def transferee(self) -> str | None:
        """Return the id of the member to which this leader is handing over; None: to none."""
        return self.member.transferee

    @property
    def is_diverged(self) -> bool:
        """Whether the leader has another entry where this member has a committed one."""
        return self._follower.is_diverged

    def watermark(self, peer: str) -> int:
        """
        Return the last entry known to be stored at a member; always -1 at a member that does not
        lead.
        """
        return self.quorum.watermark(peer)

    @property
    def stalled_ms(self) -> int:
        """
        Return for how many milliseconds entries of this leader have waited while none was
        committed.
        """
        return self.quorum.stalled_ms

    def standing(self, peer: str) -> MemberStanding:
        pusher = self._pushers[peer]
        return MemberStanding(
            self.quorum.watermark(peer),
            pusher.peer_begin,
            self.quorum.behind_ms(peer),
            self._room(peer),
        )

    def tick(self, now_ms: int) -> None:
        """
        Do the work that is due at the time of `next_wake`. A call that comes early does no harm.
        """
        self.member.now = now_ms
        for part in self._parts:
            part.tick()
        self._settle()

    def request(self, code: int, message: GroupMessage, token: Any, now_ms: int) -> None:
        """
        Take the request of a peer or an operator.

        :param message: an instance of the class that belongs to the code.
        :param token: comes back in the `AnswerRequest`; not None.
        """
        self.member.now = now_ms
        if message.remote_id != self.settings.self_id:
            self._refuse(code, message, token, DLedgerResponseCode.UNKNOWN_MEMBER)
        elif message.group != self.settings.group:
            self._refuse(code, message, token, DLedgerResponseCode.UNKNOWN_GROUP)
        elif code not in self._handlers:
            self._refuse(code, message, token, DLedgerResponseCode.UNSUPPORTED)
        else:
            self._handlers[code](message, token)
        self._settle()

    def response(self, peer: str, call_id: int, message: GroupMessage | None, now_ms: int) -> None:
        """
        Take the result of a `SendRequest`.

        :param message: the answer; None: the call failed or timed out.
        """
        self.member.now = now_ms
        self.member.called(call_id, message)
        self._settle()

    def why_not_append(self) -> int:
        """
        Return 200 if this member takes an append; otherwise the response code that refuses it.
        """
        member = self.member
        if member.role is not MemberRole.LEADER:
            return DLedgerResponseCode.NOT_LEADER
        if member.transferee is not None:
            return DLedgerResponseCode.LEADER_TRANSFERRING
        if self.quorum.pending >= self.settings.max_pending_requests:
            return DLedgerResponseCode.LEADER_PENDING_FULL
        return DLedgerResponseCode.SUCCESS

    def appended(self, last_index: int, now_ms: int) -> None:
        """
        Take note that this leader has written entries up to `last_index` with `ledger.append`.
        """
        self.member.now = now_ms
        self.quorum.appended(last_index)
        for pusher in self._pushers.values():
            pusher.pump()
        self._settle()

    def synced(self, index: int, now_ms: int) -> None:
        """
        Take the end of a `Sync`.

        :param index: the last entry on the disk, as `Ledger.synced` returned it.
        """
        self.member.now = now_ms
        self._durable.synced(index)
        self.quorum.stored()
        self._follower.stored()
        self._settle()

    def _settle(self) -> None:
        """
        Act at once on the consequences of the last event: a transfer, an increase of the term,
        answers.
        """
        self._transfer.progressed()
        while self.member.wants_increase:
            self._election.increase()
            self._election.tick()
        if self._appends:
            self._answer_appends()

    def _room(self, peer: str) -> Room:
        """
        Return how much room a member's disk has. Java's members tell it only by refusing an entry.
        """
        if self._pushers[peer].refusal:
            return Room.NONE
        return self._heart_beats.rooms.get(peer, Room.FREE)

    def _followed(self, peer: str) -> None:
        self._pushers[peer].followed()

    def _refuse(self, code: int, message: GroupMessage, token: Any, reason: int) -> None:
        response = _RESPONSES.get(code, GroupMessage)
        self.member.answer(
            token,
            response(
                group=message.group,
                remote_id=message.remote_id,
                local_id=message.local_id,
                leader_id=self.member.leader_id,
                term=message.term,
                code=reason,
            ),
        )

    # Requests from clients of a stand-alone group (dledger.md, section 6.5)

    def _metadata(self, request: MetadataRequest, token: Any) -> None:
        response = MetadataResponse(
            group=request.group,
            remote_id=request.remote_id,
            local_id=request.local_id,
            leader_id=self.member.leader_id,
            peers=dict(self.settings.peers),
        )
        self.member.answer(token, self._with_status(response) if request.status else response)

    def _with_status(self, response: MetadataResponse) -> MetadataResponse:
        member, ledger = self.member, self.ledger
        leads = member.role is MemberRole.LEADER
        marks = {peer: self.quorum.watermark(peer) for peer in self.settings.peers}
        return msgspec.structs.replace(
            response,
            role=member.role.value,
            current_term=member.term,
            voted_for=member.voted_for,
            begin_index=ledger.begin_index,
            end_index=ledger.end_index,
            committed_index=ledger.committed_index,
            transferee=member.transferee,
            watermarks=marks if leads else None,
        )

    def _get(self, request: GetEntriesRequest, token: Any) -> None:
        if self.member.role is not MemberRole.LEADER:
            self._refuse(DLedgerRequestCode.GET, request, token, DLedgerResponseCode.NOT_LEADER)
            return
        try:
            entry = self.ledger.entry(request.begin_index)
        except (StoreError, OSError):
            self._refuse(DLedgerRequestCode.GET, request, token, DLedgerResponseCode.DISK_ERROR)
            return
        if entry is None:
            self._refuse(
                DLedgerRequestCode.GET, request, token, DLedgerResponseCode.INDEX_OUT_OF_RANGE
            )
            return
        self.member.answer(token, GetEntriesResponse(group=request.group, entries=(entry,)))

    def _append(self, request: AppendEntryRequest, token: Any) -> None:
        reason = self.why_not_append()
        if not self.settings.serve_append and reason == DLedgerResponseCode.SUCCESS:
            reason = DLedgerResponseCode.UNSUPPORTED
        elif reason == DLedgerResponseCode.SUCCESS and not request.body:
            reason = DLedgerResponseCode.REQUEST_WITH_EMPTY_BODYS
        if reason != DLedgerResponseCode.SUCCESS:
            self._refuse(DLedgerRequestCode.APPEND, request, token, reason)
            return
        try:
            (entry,) = self.ledger.append(self.member.term, [request.body])
        except (StoreError, OSError, ValueError):
            self._refuse(DLedgerRequestCode.APPEND, request, token, DLedgerResponseCode.DISK_ERROR)
            return
        deadline = self.member.now + self.settings.max_wait_ack
        self._appends.append((entry, token, request, deadline))
        self.appended(entry.index, self.member.now)

    def _answer_appends(self) -> None:
        """
        Answer the oldest appends as far as their result is known.

        It is known when an entry is committed, when it waited for `max_wait_ack`, or when this
        member leads no more: then another leader decides whether the entry is committed.
        """
        ledger, is_leader = self.ledger, self.member.role is MemberRole.LEADER
        while self._appends:
            entry, token, request, deadline = self._appends[0]
            is_committed = entry.index <= ledger.committed_index
            if is_leader and not is_committed and self.member.now <= deadline:
                return
            self._appends.popleft()
            if is_committed and is_leader:
                response = AppendEntryResponse(
                    group=request.group,
                    leader_id=self.member.leader_id,
                    term=entry.term,
                    index=entry.index,
                    pos=entry.pos,
                )
                self.member.answer(token, response)
            else:
                late = DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
                reason = late if is_leader else DLedgerResponseCode.NOT_LEADER
                self._refuse(DLedgerRequestCode.APPEND, request, token, reason)
