"""Elections: a candidate's rounds of votes, and the answers to the votes of other candidates."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.server.dledger.codes import DLedgerRequestCode, VoteResult
from rmq_ha.server.dledger.member import Member
from rmq_ha.server.dledger.messages import VoteRequest, VoteResponse

_BIGGER_LEDGER = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)
_LARGER_TERM = (VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)


class VoteOutcome(Enum):
    """The outcome of a round of votes; the names are upstream's."""

    WAIT_TO_REVOTE = "keep the term"
    REVOTE_IMMEDIATELY = "ask again now"
    PASSED = "won"
    WAIT_TO_VOTE_NEXT = "raise the term"


@dataclass(eq=False)
class _VoteRound:
    """
    One round of votes.

    :ivar answers: the answer of each peer; None: the call failed.
    """

    term: int
    deadline: int
    answers: dict[str, VoteResponse | None] = field(default_factory=dict)


@dataclass(slots=True)
class VoteTally:
    """
    The counted answers of a round.

    Spec: dledger.md, section 8.4

    :ivar valid: number of answers with a result that this member knows.
    :ivar accepted: number of members that voted for this candidate.
    :ivar not_ready: number of peers that have to raise their term first, and may accept then.
    :ivar bigger_ledger: number of peers that refused because their ledgers are ahead.
    :ivar has_leader: whether a peer refused because it has a leader.
    :ivar max_term: the largest term among peers that refused because their term is larger; -1: no
        peer did.
    """

    valid: int = 0
    accepted: int = 0
    not_ready: int = 0
    bigger_ledger: int = 0
    has_leader: bool = False
    max_term: int = -1

    @classmethod
    def count(cls, answers: dict[str, VoteResponse | None]) -> "VoteTally":
        given = [answer for answer in answers.values() if answer is not None]
        results = Counter(answer.vote_result for answer in given)
        terms = [answer.term for answer in given if answer.vote_result in _LARGER_TERM]
        return cls(
            valid=len(given) - results[VoteResult.UNKNOWN],
            accepted=results[VoteResult.ACCEPT],
            not_ready=results[VoteResult.REJECT_TERM_NOT_READY],
            bigger_ledger=sum(results[result] for result in _BIGGER_LEDGER),
            has_leader=results[VoteResult.REJECT_ALREADY_HAS_LEADER] > 0,
            max_term=max(terms, default=-1),
        )


class Election:
    """
    Asks for votes while this member is a candidate, and answers the candidates that ask for its
    vote.

    Spec: dledger.md, sections 8.1 to 8.4

    :ivar wake: when `tick` has something to do.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._round: _VoteRound | None = None
        self._next_vote = member.now
        may_have_led = member.voted_for == member.self_id
        self._outcome = (
            VoteOutcome.WAIT_TO_VOTE_NEXT
            if may_have_led and member.settings.new_term_after_restart
            else VoteOutcome.WAIT_TO_REVOTE
        )
        member.observers.append(self._role_changed)

    @property
    def wake(self) -> int:
        """Return when `tick` has something to do, in milliseconds."""
        member = self._member
        if member.role is MemberRole.FOLLOWER:
            return member.last_heard + member.settings.leader_silence + 1
        return self._next_vote if self._round is None else self._round.deadline

    def _role_changed(self) -> None:
        member = self._member
        if self._round is not None and (
            member.role is not MemberRole.CANDIDATE or member.term != self._round.term
        ):
            self._round = None
        if member.role is MemberRole.FOLLOWER:
            self._outcome = VoteOutcome.WAIT_TO_REVOTE

    def tick(self) -> None:
        """Act on deadlines that have passed: become a candidate, end a round or begin one."""
        member = self._member
        if member.role is MemberRole.FOLLOWER and member.now >= self.wake:
            member.become_candidate(member.term)
        if member.role is not MemberRole.CANDIDATE:
            return
        if self._round is not None:
            if member.now >= self._round.deadline:
                self._conclude(self._round)
        elif member.now >= self._next_vote:
            self._vote()

    def increase(self) -> None:
        """
        Raise the term of this candidate at once.

        The candidate then pauses so that others can vote first, unless it was asked to take the
        lead. Spec: dledger.md, section 8.2, step 3.
        """
        member = self._member
        member.wants_increase = False
        self._outcome = VoteOutcome.WAIT_TO_REVOTE
        member.raise_term()  # `_role_changed` then ends a running round
        is_asked = member.term == member.term_to_take_leadership
        at_once = is_asked and member.settings.take_leadership_at_once
        self._next_vote = member.now + (0 if at_once else self._pause())

    def _pause(self) -> int:
        """Return the time to pause before the next vote, in milliseconds."""
        member, settings = self._member, self._member.settings
        if member.is_taking_leadership:
            return member.random_between(
                settings.min_take_leadership_vote_interval,
                settings.max_take_leadership_vote_interval,
            )
        return member.random_between(settings.min_vote_interval, settings.max_vote_interval)

    def _vote(self) -> None:
        member = self._member
        settings, ledger = member.settings, member.ledger
        if self._outcome is VoteOutcome.WAIT_TO_VOTE_NEXT:
            member.raise_term()
        wait = settings.vote_timeout + member.random_between(0, settings.vote_timeout // 2)
        current = self._round = _VoteRound(member.term, member.now + wait)
        requests = {
            peer: VoteRequest(
                group=settings.group,
                remote_id=peer,
                local_id=member.self_id,
                leader_id=member.self_id,
                term=member.term,
                ledger_end_index=ledger.end_index,
                ledger_end_term=ledger.end_term,
                transfer=member.term == member.term_to_take_leadership,
            )
            for peer in settings.peers
        }
        own = requests.pop(member.self_id)
        current.answers[member.self_id] = self._response(own, is_self=True)
        for peer, request in requests.items():
            member.call(peer, DLedgerRequestCode.VOTE, request, self._answered, current)
        self._look(current)

    def _answered(self, peer: str, message: VoteResponse | None, current: _VoteRound) -> None:
        if current is self._round:
            current.answers[peer] = message
            self._look(current)

    def _look(self, current: _VoteRound) -> None:
        """End the round if more answers cannot change its outcome (dledger.md, section 8.2)."""
        tally, settings = VoteTally.count(current.answers), self._member.settings
        if (
            tally.has_leader
            or tally.accepted + tally.not_ready >= settings.quorum
            or len(current.answers) == len(settings.peers)
        ):
            self._conclude(current)

    def _conclude(self, current: _VoteRound) -> None:
        """End the round and act on its outcome. Spec: dledger.md, section 8.4."""
        self._round = None
        member, settings = self._member, self._member.settings
        tally = VoteTally.count(current.answers)
        self._outcome, more = self._parse(tally, current.term)
        if self._outcome is VoteOutcome.PASSED:
            member.become_leader()
        elif self._outcome is VoteOutcome.REVOTE_IMMEDIATELY:
            self._next_vote = member.now + settings.state_interval
        else:
            self._next_vote = member.now + self._pause() + more
            member.become_candidate(tally.max_term)

    def _parse(self, tally: VoteTally, term: int) -> tuple[VoteOutcome, int]:
        """
        Decide the outcome of a round.

        :returns: the outcome, and milliseconds to add to the pause before the next vote.
        """
        settings = self._member.settings
        quorum = settings.quorum
        if tally.max_term > term:
            return VoteOutcome.WAIT_TO_VOTE_NEXT, 0
        if tally.has_leader:
            return VoteOutcome.WAIT_TO_REVOTE, settings.leader_silence
        if tally.valid < quorum:
            return VoteOutcome.WAIT_TO_REVOTE, 0
        if tally.valid - tally.bigger_ledger < quorum:
            return VoteOutcome.WAIT_TO_REVOTE, settings.small_ledger_pause
        if tally.accepted >= quorum:
            return VoteOutcome.PASSED, 0
        if tally.accepted + tally.not_ready >= quorum:
            return VoteOutcome.REVOTE_IMMEDIATELY, 0
        return VoteOutcome.WAIT_TO_VOTE_NEXT, 0

    def request(self, request: VoteRequest, token: Any) -> None:
        """Answer the vote request of another candidate."""
        self._member.answer(token, self._response(request, is_self=False))

    def _response(self, request: VoteRequest, *, is_self: bool) -> VoteResponse:
        member = self._member
        result = self._judge(request, is_self)
        term = member.term
        if result is VoteResult.REJECT_TERM_SMALL_THAN_LEDGER:
            term = member.ledger.end_term
        elif result is VoteResult.REJECT_TERM_NOT_READY:
            member.become_candidate(request.term, increase=True)
        elif result is VoteResult.ACCEPT and request.leader_id is not None:
            member.vote_for(request.leader_id)
        return VoteResponse(
            group=request.group,
            local_id=request.local_id,
            remote_id=request.remote_id,
            leader_id=request.leader_id,
            term=term,
            vote_result=result,
        )

    def _judge(self, request: VoteRequest, is_self: bool) -> VoteResult:
        """Decide on a vote request. Spec: dledger.md, section 8.3: the order matters."""
        member = self._member
        if request.leader_id not in member.settings.peers:
            return VoteResult.REJECT_UNKNOWN_LEADER
        if request.leader_id == member.self_id and not is_self:
            return VoteResult.REJECT_UNEXPECTED_LEADER
        verdict = self._judge_ledger(request)
        if verdict is not None:
            return verdict
        if request.term < member.term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM
        if request.term > member.term:
            if self._sticks_to_leader(request):
                return VoteResult.REJECT_ALREADY_HAS_LEADER
            return VoteResult.REJECT_TERM_NOT_READY
        if member.voted_for not in (None, request.leader_id):
            if member.leader_id is not None:
                return VoteResult.REJECT_ALREADY_HAS_LEADER
            return VoteResult.REJECT_ALREADY_VOTED
        if request.term < member.ledger.end_term:
            return VoteResult.REJECT_TERM_SMALL_THAN_LEDGER
        if (
            not is_self
            and member.is_taking_leadership
            and member.ledger.end_term == request.ledger_end_term
            and member.ledger.end_index >= request.ledger_end_index
        ):
            return VoteResult.REJECT_TAKING_LEADERSHIP
        return VoteResult.ACCEPT

    def _judge_ledger(self, request: VoteRequest) -> VoteResult | None:
        """
        Refuse a candidate whose ledger is behind this one, so that it raises nobody's term. None:
        the candidate's ledger is good enough.
        """
        ledger = self._member.ledger
        if request.ledger_end_term < ledger.end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM
        if (
            request.ledger_end_term == ledger.end_term
            and request.ledger_end_index < ledger.end_index
        ):
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        return None

    def _sticks_to_leader(self, request: VoteRequest) -> bool:
        """
        Whether to refuse a larger term because the leader was heard of recently. Spec: dledger.md,
        section 18.2; off by default.
        """
        member = self._member
        if request.transfer or request.leader_id == member.transferee:
            return False
        heard = member.last_quorum if member.role is MemberRole.LEADER else member.last_heard
        return member.leader_id is not None and member.now - heard < member.settings.sticky_leader
