"""The state of this member: role, term, vote and leader, and its messages to others."""

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.store_format.dledger_values import MemberRole, TermVote
from rmq_ha.server.dledger.actions import (
    Action,
    AnswerRequest,
    ILedger,
    Persist,
    RoleChanged,
    SendRequest,
)
from rmq_ha.server.dledger.messages import GroupMessage

NEVER = 1 << 62
_MAX_TERM_JUMP = 1 << 32
"""
The largest jump of the term that is believed. No honest member is that far ahead, and one forged
term must not use up all possible terms.
"""
Handler = Callable[[str, Any, Any], None]


class Member:
    """
    This member's state, and the outbox of actions that the core demands.

    Spec: dledger.md, section 7

    :ivar now: time of a monotonic clock in milliseconds, set at every entry into the core.
    :ivar known_max_term: the largest term that this member has heard of as a candidate; -1: none.
    :ivar transferee: the member to which this leader is handing over; None: to none.
    :ivar term_to_take_leadership: the term in which this member shall lead, because it was asked
        to take over; -1: none.
    :ivar wants_increase: whether the term shall be raised at once (upstream's
        `needIncreaseTermImmediately`).
    :ivar last_heard: time of the leader's last heartbeat.
    :ivar last_quorum: the last time at which a quorum answered this leader's heartbeats.
    :ivar alive: by peer, whether its last heartbeat call got an answer.
    :ivar observers: called after every change of role, leader or term, before `RoleChanged` goes
        out.
    """

    def __init__(
        self,
        settings: DLedgerSettings,
        ledger: ILedger,
        term_vote: TermVote,
        random: Random,
        now: int,
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.random = random
        self.now = now
        self.role = MemberRole.CANDIDATE
        self.term = term_vote.term
        self.voted_for = term_vote.voted_for
        if ledger.end_term > self.term:  # the last entry reached the disk, but its term did not
            self.term, self.voted_for = ledger.end_term, None
        self.known_max_term = -1
        self.leader_id: str | None = None
        self.transferee: str | None = None
        self.term_to_take_leadership = -1
        self.wants_increase = False
        self.last_heard = now
        self.last_quorum = now
        self.alive: dict[str, bool] = {}
        self.observers: list[Callable[[], None]] = []
        self.outbox: list[Action] = []
        self._calls: dict[int, tuple[str, Handler, Any]] = {}
        self._call_ids = count(1)
        self._told: tuple[MemberRole, str | None] = (MemberRole.CANDIDATE, None)

    @property
    def self_id(self) -> str:
        return self.settings.self_id

    @property
    def is_taking_leadership(self) -> bool:
        """Whether this is a preferred leader in the term for which it was asked to lead."""
        return self.settings.is_preferred and self.term == self.term_to_take_leadership

    def become_candidate(self, term: int, *, increase: bool = False) -> None:
        """
        Become a candidate, without a change of this member's term.

        :param term: a term that is in use in the group. A smaller or impossibly large one changes
            nothing.
        :param increase: raise the term at once.
        """
        if not self.term <= term <= self.term + _MAX_TERM_JUMP:
            return
        self.known_max_term = max(self.known_max_term, term)
        self.wants_increase |= increase
        self._set_role(MemberRole.CANDIDATE, None)

    def become_follower(self, leader_id: str) -> None:
        """Follow the leader of the current term."""
        self.last_heard = self.now
        self._set_role(MemberRole.FOLLOWER, leader_id)

    def become_leader(self) -> None:
        self.last_quorum = self.now
        self._set_role(MemberRole.LEADER, self.self_id)

    def raise_term(self) -> None:
        """Begin the next term, without a vote yet; only for candidates."""
        self.term = self.known_max_term if self.known_max_term > self.term else self.term + 1
        self.voted_for = None
        self.persist()
        self._changed()

    def vote_for(self, candidate: str) -> None:
        if self.voted_for != candidate:
            self.voted_for = candidate
            self.persist()

    def persist(self) -> None:
        """Persist term and vote. Later actions in the outbox wait until both are on the disk."""
        self.outbox.append(Persist(TermVote(self.term, self.voted_for)))

    def _set_role(self, role: MemberRole, leader_id: str | None) -> None:
        self.transferee = None
        self.role, self.leader_id = role, leader_id
        self._changed()

    def _changed(self) -> None:
        for observer in self.observers:
            observer()
        if self._told != (self.role, self.leader_id):
            self._told = (self.role, self.leader_id)
            self.outbox.append(RoleChanged(self.role, self.term, self.leader_id))

    def call(
        self, peer: str, code: int, message: GroupMessage, handler: Handler, context: Any
    ) -> None:
        """
        Send a request.

        :param handler: called once with the peer, its answer (None: none came) and the context.
        """
        call_id = next(self._call_ids)
        self._calls[call_id] = (peer, handler, context)
        self.outbox.append(SendRequest(peer, call_id, code, message, self.settings.rpc_timeout))

    def called(self, call_id: int, message: GroupMessage | None) -> None:
        """Pass the answer to a request on to its handler. An unknown id is ignored."""
        call = self._calls.pop(call_id, None)
        if call is not None:
            peer, handler, context = call
            handler(peer, message, context)

    def answer(self, token: Any, message: GroupMessage) -> None:
        self.outbox.append(AnswerRequest(token, message))

    def random_between(self, low: int, high: int) -> int:
        return low + self.random.randrange(max(high - low, 1))
