"""Hands the leadership over, on an operator's order or to a preferred leader."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.store_format.dledger_values import MemberRole, Room
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.follower import Follower
from rmq_ha.server.dledger.member import NEVER, Member
from rmq_ha.server.dledger.messages import LeadershipTransferRequest, LeadershipTransferResponse
from rmq_ha.server.dledger.quorum import Quorum

_OK = DLedgerResponseCode.SUCCESS


HAND_OVER_S = 2.0
"""How long a leader that stops waits until another member leads, in seconds."""


class HandOverFacts(Protocol):
    """The facts of a `Node` that decide to whom it hands over."""

    @property
    def role(self) -> MemberRole: ...

    @property
    def term(self) -> int: ...

    def watermark(self, peer: str) -> int:
        """Return the last entry that a member is known to have; -1: nothing is known."""


def order_to_best(
    node: HandOverFacts, settings: DLedgerSettings, able: Iterable[str] | None = None
) -> LeadershipTransferRequest | None:
    """
    Make the order with which a leader hands over to the best follower, for example when it stops:
    otherwise the group would have no leader for six seconds.

    :param able: the followers that may be asked; None: all.
    :returns: the order, which this member serves as if an operator had sent it; None: this member
        does not lead, or no follower may be asked.
    """
    followers = list(settings.others if able is None else able)
    if node.role is not MemberRole.LEADER or not followers:
        return None
    best = max(followers, key=node.watermark)
    if node.watermark(best) < 0:
        return None
    return LeadershipTransferRequest(
        group=settings.group,
        remote_id=settings.self_id,
        transfer_id=settings.self_id,
        transferee_id=best,
        term=node.term,
    )


class _Taking(NamedTuple):
    """A request by which this member was asked to take over the lead."""

    request: LeadershipTransferRequest
    token: Any
    deadline: int


class LeadershipTransfer:
    """
    The leader's and the follower's half of a transfer, and the search for a preferred leader.

    Spec: dledger.md, sections 6.6 and 9

    :param room: returns the room on a member's disk. A member with less room than this one is not
        asked to lead, since it would hand over at once.
    :ivar wake: when `tick` has something to do.
    """

    def __init__(
        self,
        member: Member,
        quorum: Quorum,
        follower: Follower,
        room: Callable[[str], Room],
    ) -> None:
        self._member = member
        self._quorum = quorum
        self._follower = follower
        self._room = room
        self._waiting: _Taking | None = None
        self._electing: _Taking | None = None
        self._next_check = NEVER
        self._not_before = 0
        member.observers.append(self._role_changed)

    @property
    def wake(self) -> int:
        """Return when `tick` has something to do, in milliseconds."""
        if self._waiting is None:
            return self._next_check
        return min(self._waiting.deadline, self._next_check)

    def request(self, request: LeadershipTransferRequest, token: Any) -> None:
        """Take an order from an operator, or the request of a leader that hands over."""
        self_id = self._member.self_id
        if self_id == request.transfer_id:
            self._order(request, token)
        elif self_id == request.transferee_id:
            self._take(request, token)
        else:
            self._answer(request, token, DLedgerResponseCode.UNEXPECTED_ARGUMENT)

    def _answer(
        self, request: LeadershipTransferRequest, token: Any, code: int, term: int | None = None
    ) -> None:
        """:param token: token of the request; None: nobody waits for an answer."""
        if token is None:
            return
        answered = request.term if term is None else term
        if code == _OK:
            response = LeadershipTransferResponse(term=answered)
        else:
            response = LeadershipTransferResponse(
                group=request.group,
                remote_id=request.remote_id,
                local_id=request.local_id,
                leader_id=self._member.leader_id,
                term=answered,
                code=code,
            )
        self._member.answer(token, response)

    # The leader's side

    def _order(self, request: LeadershipTransferRequest, token: Any) -> None:
        member = self._member
        transferee = request.transferee_id
        if transferee is None or transferee not in member.settings.peers:
            code: int = DLedgerResponseCode.UNKNOWN_MEMBER
        elif request.term != member.term:
            code = DLedgerResponseCode.INCONSISTENT_TERM
        elif member.role is not MemberRole.LEADER:
            code = DLedgerResponseCode.NOT_LEADER
        elif transferee == member.self_id:
            code = DLedgerResponseCode.UNEXPECTED_ARGUMENT
        elif self._lag(transferee) >= member.settings.max_leadership_transfer_wait_index:
            code = DLedgerResponseCode.FALL_BEHIND_TOO_MUCH
        elif member.transferee is not None:
            code = DLedgerResponseCode.LEADER_TRANSFERRING
        elif self._room(transferee) < self._own_room:
            code = DLedgerResponseCode.DISK_FULL
        else:
            self._start(transferee, request, token)
            return
        self._answer(request, token, code)

    @property
    def _own_room(self) -> Room:
        """Return the room that another leader must have at least."""
        member = self._member
        return member.ledger.room if member.settings.hand_over_when_full else Room.NONE

    def _lag(self, peer: str) -> int:
        """
        Return the number of entries that a member lacks; `NEVER` if none is known to be equal.
        """
        end, mark = self._member.ledger.end_index, self._quorum.watermark(peer)
        return NEVER if mark < 0 <= end else end - mark

    def _start(self, transferee: str, order: LeadershipTransferRequest, token: Any) -> None:
        """
        Ask the transferee to take over. Appends are refused from here on until the transfer has
        ended.
        """
        member = self._member
        member.transferee = transferee
        request = LeadershipTransferRequest(
            group=member.settings.group,
            remote_id=transferee,
            local_id=member.self_id,
            leader_id=member.self_id,
            term=member.term,
            transfer_id=member.self_id,
            transferee_id=transferee,
            take_leadership_ledger_index=member.ledger.end_index,
        )
        context = (order, token, member.term)
        member.call(
            transferee, DLedgerRequestCode.LEADERSHIP_TRANSFER, request, self._taken_over, context
        )

    def _taken_over(
        self,
        peer: str,
        message: LeadershipTransferResponse | None,
        context: tuple[LeadershipTransferRequest, Any, int],
    ) -> None:
        order, token, term = context
        member = self._member
        if member.transferee == peer and member.term == term:
            member.transferee = None
        if message is None:
            self._answer(order, token, DLedgerResponseCode.NETWORK_ERROR)
        else:
            self._answer(order, token, message.code, message.term)

    # The transferee's side

    def _take(self, request: LeadershipTransferRequest, token: Any) -> None:
        member = self._member
        if request.transfer_id is None or request.transfer_id != member.leader_id:
            self._answer(request, token, DLedgerResponseCode.INCONSISTENT_LEADER)
            return
        if self._waiting is not None:
            self._answer(request, token, DLedgerResponseCode.REPEATED_REQUEST)
            return
        deadline = member.now + member.settings.leadership_transfer_wait_timeout
        self._waiting = _Taking(request, token, deadline)

    def progressed(self) -> None:
        """
        Look whether this ledger has reached the old leader's end; to be called after every event.
        """
        waiting, member = self._waiting, self._member
        if waiting is None:
            return
        request = waiting.request
        if request.term != member.term:
            self._waiting = None
            self._answer(request, waiting.token, DLedgerResponseCode.INCONSISTENT_TERM, member.term)
        elif self._has_entry(request.take_leadership_ledger_index):
            self._waiting = None
            self._electing = waiting  # only one: becoming a follower ends an earlier one
            member.term_to_take_leadership = member.term + 1
            member.become_candidate(member.term + 1, increase=True)
        elif member.now >= waiting.deadline:
            self._waiting = None
            self._answer(request, waiting.token, DLedgerResponseCode.TAKE_LEADERSHIP_FAILED)

    def _has_entry(self, index: int) -> bool:
        """Whether the ledger has the entry; with `check_previous`, equal to the leader's."""
        member = self._member
        checks = member.settings.check_previous
        return (self._follower.matched if checks else member.ledger.end_index) >= index

    def _role_changed(self) -> None:
        member, settings = self._member, self._member.settings
        self._next_check = NEVER
        searches = settings.preferred_leader_ids and not settings.is_preferred
        if member.role is MemberRole.LEADER and searches:
            first = member.now + settings.preferred_leader_interval
            self._next_check = max(first, self._not_before)
        if self._electing is None:
            return
        term = member.term_to_take_leadership
        if member.term > term:
            self._finish_taking(DLedgerResponseCode.EXPIRED_TERM)
        elif member.term == term and member.role is MemberRole.LEADER:
            self._finish_taking(_OK)
        elif member.term == term and member.role is MemberRole.FOLLOWER:
            self._finish_taking(DLedgerResponseCode.TAKE_LEADERSHIP_FAILED)
        elif member.term < term and member.role is not MemberRole.CANDIDATE:
            self._finish_taking(DLedgerResponseCode.INTERNAL_ERROR)

    def _finish_taking(self, code: int) -> None:
        taking, self._electing = self._electing, None
        if taking is not None:
            self._answer(taking.request, taking.token, code, self._member.term)

    def tick(self) -> None:
        """
        Search for a preferred leader to hand over to, if this member leads and the time has come.
        """
        member = self._member
        if member.now < self._next_check:
            return
        self._next_check = member.now + member.settings.preferred_leader_interval
        if member.transferee is not None:
            return
        named = member.settings.preferred_leader_ids
        own = self._own_room
        preferred = [peer for peer in named if member.alive.get(peer) and self._room(peer) >= own]
        if preferred:
            best = min(preferred, key=self._lag)
            if self._lag(best) < member.settings.max_leadership_transfer_wait_index:
                retry = member.now + member.settings.preferred_leader_retry
                self._next_check = self._not_before = retry
                self._start(best, LeadershipTransferRequest(), None)
