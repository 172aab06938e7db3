"""Heartbeats: a leader keeps its role by them, and the other members learn who leads."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rmq_ha.base.store_format.dledger_values import MemberRole, Room
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.member import NEVER, Member
from rmq_ha.server.dledger.messages import HeartBeatRequest, HeartBeatResponse


@dataclass(eq=False)
class _HeartbeatRound:
    """One round of heartbeats. `codes` has the answer code of each peer, and this member's own."""

    term: int
    deadline: int
    codes: dict[str, int] = field(default_factory=dict)
    max_term: int = -1


class HeartBeats:
    """
    The leader's rounds of heartbeats, and the follower's answers.

    Spec: dledger.md, sections 8.5 and 8.6

    :param followed: called with each peer that has answered a heartbeat of the current term with
        200.
    :ivar wake: when `tick` has something to do.
    :ivar rooms: by peer, the room on its disk according to its last answer.
    """

    def __init__(self, member: Member, followed: Callable[[str], None]) -> None:
        self._member = member
        self._followed = followed
        self._round: _HeartbeatRound | None = None
        self._next = NEVER
        self._refusals: Counter[str] = Counter()
        self.rooms: dict[str, Room] = {}
        member.observers.append(self._role_changed)

    @property
    def wake(self) -> int:
        """Return when `tick` has something to do, in milliseconds."""
        return self._next if self._round is None else self._round.deadline

    def _role_changed(self) -> None:
        self._round = None
        self._refusals.clear()
        self.rooms.clear()
        self._next = self._member.now if self._member.role is MemberRole.LEADER else NEVER

    def tick(self) -> None:
        """End the round whose deadline has passed, and begin the next round when it is due."""
        current, now = self._round, self._member.now
        if current is not None and now >= current.deadline:
            self._conclude(current)
        if now >= self._next:
            self._beat()

    def _beat(self) -> None:
        member, settings = self._member, self._member.settings
        interval = settings.heart_beat_interval
        self._next = member.now + interval + 1
        current = self._round = _HeartbeatRound(member.term, member.now + interval)
        current.codes[member.self_id] = DLedgerResponseCode.SUCCESS
        for peer in settings.others:
            request = HeartBeatRequest(
                group=settings.group,
                remote_id=peer,
                local_id=member.self_id,
                leader_id=member.self_id,
                term=member.term,
            )
            member.call(peer, DLedgerRequestCode.HEART_BEAT, request, self._answered, current)

    def _answered(
        self, peer: str, message: HeartBeatResponse | None, current: _HeartbeatRound
    ) -> None:
        member = self._member
        code = DLedgerResponseCode.NETWORK_ERROR if message is None else message.code
        member.alive[peer] = code != DLedgerResponseCode.NETWORK_ERROR
        if member.role is not MemberRole.LEADER or member.term != current.term:
            return
        if message is not None:
            self.rooms[peer] = next((room for room in Room if room == message.room), Room.FREE)
        if code == DLedgerResponseCode.SUCCESS:
            self._refusals[peer] = 0
            self._followed(peer)
        elif message is not None and code == DLedgerResponseCode.EXPIRED_TERM:
            current.max_term = max(current.max_term, message.term)
            if self._is_stuck(peer, message.term):
                member.become_candidate(message.term, increase=True)
                return
        if current is self._round:
            current.codes[peer] = code
            self._look(current)

    def _is_stuck(self, peer: str, term: int) -> bool:
        """
        Whether the peer has a larger term, so that it can neither lead nor follow. True only after
        several refusals.
        """
        settings = self._member.settings
        if term <= self._member.term or not settings.heed_larger_term:
            return False
        self._refusals[peer] += 1
        return self._refusals[peer] >= settings.max_heart_beat_leak

    def _look(self, current: _HeartbeatRound) -> None:
        """
        End the round if it is decided: a quorum has answered with success, or all have answered.
        """
        settings = self._member.settings
        successes = sum(code == DLedgerResponseCode.SUCCESS for code in current.codes.values())
        if successes >= settings.quorum or len(current.codes) == len(settings.peers):
            self._conclude(current)

    def _conclude(self, current: _HeartbeatRound) -> None:
        """
        End the round and act on it. Spec: dledger.md, section 8.5: the first rule that matches
        counts.
        """
        self._round = None
        member, settings = self._member, self._member.settings
        codes = Counter(current.codes.values())
        successes = codes[DLedgerResponseCode.SUCCESS]
        if successes >= settings.quorum:
            member.last_quorum = member.now
        elif successes + codes[DLedgerResponseCode.TERM_NOT_READY] >= settings.quorum:
            self._next = member.now + settings.state_interval
        elif current.max_term > member.term:
            member.become_candidate(current.max_term, increase=True)
        elif (
            codes[DLedgerResponseCode.INCONSISTENT_LEADER]
            or member.now - member.last_quorum > settings.leader_silence
        ):
            member.become_candidate(member.term)

    def request(self, request: HeartBeatRequest, token: Any) -> None:
        code, term = self._judge(request)
        room = self._member.ledger.room
        said = None if room is Room.FREE else room.value
        self._member.answer(token, HeartBeatResponse(code=code, term=term, room=said))

    def _judge(self, request: HeartBeatRequest) -> tuple[int, int]:
        """
        Decide on a leader's heartbeat. Spec: dledger.md, section 8.6: the order matters.

        :returns: code and term of the answer.
        """
        member, leader = self._member, request.leader_id
        if leader is None or leader not in member.settings.peers:
            return DLedgerResponseCode.UNKNOWN_MEMBER, member.term
        if leader == member.self_id:
            return DLedgerResponseCode.UNEXPECTED_MEMBER, member.term
        if request.term < member.term:
            return DLedgerResponseCode.EXPIRED_TERM, member.term
        if request.term > member.term:
            member.become_candidate(request.term, increase=True)
            return DLedgerResponseCode.TERM_NOT_READY, -1
        if member.leader_id is None:
            member.become_follower(leader)
        elif member.leader_id == leader:
            member.last_heard = member.now
        else:
            return DLedgerResponseCode.INCONSISTENT_LEADER, -1
        return DLedgerResponseCode.SUCCESS, -1
