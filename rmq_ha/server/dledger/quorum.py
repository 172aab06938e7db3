"""The entries that a quorum has stored: watermarks, committed index, and puts that wait for it."""

from collections import deque
from collections.abc import Iterable

from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.server.dledger.actions import CommitIndexMoved, PutsCompleted
from rmq_ha.server.dledger.codes import DLedgerResponseCode
from rmq_ha.server.dledger.durable_index import DurableIndex
from rmq_ha.server.dledger.member import NEVER, Member


def quorum_index(marks: Iterable[int]) -> int:
    """
    Return the highest index that more than half of the members have reached.

    Spec: dledger.md, section 10.3
    """
    falling = sorted(marks, reverse=True)
    return falling[len(falling) // 2]


class Quorum:
    """
    The leader's account of the entries that each member has stored, for one leadership.

    :ivar wake: when `tick` has something to do.
    """

    def __init__(self, member: Member, durable: DurableIndex) -> None:
        self._member = member
        self._durable = durable
        self._is_leading = False
        # By member, the last entry that it has stored; empty while this member does not lead.
        self._marks: dict[str, int] = {}
        self._first_own = 0
        self._last_put = -1
        # Last index and deadline in ms of each run of puts that is not committed yet.
        self._waiting: deque[tuple[int, int]] = deque()
        self._behind_since: dict[str, int] = {}
        self._uncommitted_since: int | None = None
        member.observers.append(self._role_changed)

    @property
    def wake(self) -> int:
        """Return when `tick` has something to do, in milliseconds."""
        return self._waiting[0][1] if self._waiting else NEVER

    @property
    def pending(self) -> int:
        """Return the number of this leadership's entries that are not committed."""
        ledger = self._member.ledger
        return ledger.end_index - max(ledger.committed_index, self._first_own - 1)

    @property
    def stalled_ms(self) -> int:
        """
        Return for how many milliseconds entries of this leader have waited while none was
        committed.
        """
        since = self._uncommitted_since
        return 0 if since is None else self._member.now - since

    def behind_ms(self, peer: str) -> int:
        """
        Return for how many milliseconds a member has lacked entries without acknowledging any.
        """
        return self._member.now - self._behind_since.get(peer, self._member.now)

    def watermark(self, peer: str) -> int:
        """
        Return the last entry known to be stored at a member; -1: none, or this member does not
        lead.
        """
        return self._marks.get(peer, -1)

    def _role_changed(self) -> None:
        member = self._member
        is_leading = member.role is MemberRole.LEADER
        if is_leading == self._is_leading:
            return
        self._is_leading = is_leading
        self._waiting.clear()
        self._behind_since.clear()
        self._uncommitted_since = None
        if is_leading:
            self._first_own, self._last_put = member.ledger.end_index + 1, -1
            self._marks = dict.fromkeys(member.settings.peers, -1)
            if member.ledger.end_index >= 0:
                self._behind_since = dict.fromkeys(member.settings.peers, member.now)
            self.stored()
        else:
            self._marks = {}
            self._fail_puts()

    def _fail_puts(self) -> None:
        """
        Tell the waiting puts that this member does not decide about them any more.

        Spec: dledger.md, section 18.1, weakness 7.
        """
        if self._last_put > self._member.ledger.committed_index:
            self._member.outbox.append(
                PutsCompleted(self._last_put, DLedgerResponseCode.NOT_LEADER)
            )

    def appended(self, last_index: int) -> None:
        """Take note that a put of this leadership has been written, up to `last_index`."""
        member = self._member
        self._last_put = last_index
        self._waiting.append((last_index, member.now + member.settings.max_wait_ack + 1))
        if self._uncommitted_since is None:
            self._uncommitted_since = member.now
        for peer in self._marks:
            self._behind_since.setdefault(peer, member.now)
        self.stored()

    def stored(self) -> None:
        """Take note that more of this member's ledger may count as stored."""
        if self._is_leading:
            self._durable.want(self._member.ledger.end_index)
            self.mark(self._member.self_id, self._durable.index)

    def mark(self, peer: str, index: int) -> None:
        """Take note that a member has certainly stored the entries up to `index`."""
        before, self._marks[peer] = self._marks.get(peer, -1), index
        if index >= self._member.ledger.end_index:
            self._behind_since.pop(peer, None)
        elif index > before or peer not in self._behind_since:
            self._behind_since[peer] = self._member.now
        self._advance()

    def _advance(self) -> None:
        member, ledger = self._member, self._member.ledger
        index = min(quorum_index(self._marks.values()), ledger.end_index)
        if index <= ledger.committed_index:
            return
        # Raft paper, figure 8: an entry of an earlier term may be replaced although a majority has
        # it. It is safe only when an entry of this term follows it at a majority.
        if index < self._first_own and member.settings.commit_own_term_only:
            return
        ledger.commit(index)
        self._uncommitted_since = member.now if self.pending > 0 else None
        member.outbox.append(CommitIndexMoved(index))
        if index >= self._first_own:
            member.outbox.append(PutsCompleted(index, DLedgerResponseCode.SUCCESS))
        while self._waiting and self._waiting[0][0] <= index:
            self._waiting.popleft()

    def tick(self) -> None:
        """End puts that have waited too long; their entries stay in the ledger."""
        now, last = self._member.now, -1
        while self._waiting and self._waiting[0][1] <= now:
            last = self._waiting.popleft()[0]
        if last >= 0:
            code = DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
            self._member.outbox.append(PutsCompleted(last, code))
