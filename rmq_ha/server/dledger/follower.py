"""A follower's half of replication: it applies the leader's pushes."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger

from rmq_ha.base.errors import InconsistentLedger, LedgerFull, StoreError
from rmq_ha.base.store_format.dledger_values import Entry, MemberRole
from rmq_ha.server.dledger.actions import CommitIndexMoved
from rmq_ha.server.dledger.codes import DLedgerResponseCode, PushType
from rmq_ha.server.dledger.durable_index import DurableIndex
from rmq_ha.server.dledger.member import NEVER, Member
from rmq_ha.server.dledger.messages import PushEntryRequest, PushEntryResponse

_OK = DLedgerResponseCode.SUCCESS
_INCONSISTENT = DLedgerResponseCode.INCONSISTENT_STATE
_ALARM_PAUSE_MS = 60_000


@dataclass(slots=True)
class _WaitingPush:
    """
    A push that cannot be applied, or cannot be answered, yet.

    :ivar since: when the push began to wait, in milliseconds.
    :ivar index: the entry that has to be stored before the answer; -1: the push is not applied yet.
    :ivar size: bytes of its entries; 0 if it is applied already.
    """

    request: PushEntryRequest
    token: Any
    since: int = 0
    index: int = -1
    size: int = 0


def _entries(request: PushEntryRequest) -> tuple[Entry, ...]:
    if request.batch_entry:
        return request.batch_entry
    return () if request.entry is None else (request.entry,)


class Follower:
    """
    Applies pushes in order, and answers each push once its entries count as stored.

    Spec: dledger.md, sections 11.3 to 11.7

    :ivar matched: the last entry that the current leader has shown to be equal to its own, with all
        earlier entries. With `check_previous`, new entries are appended only after this one.
    """

    log = Logger()

    def __init__(self, member: Member, durable: DurableIndex) -> None:
        self._member = member
        self._durable = durable
        # Pushes by their first index, of which earlier entries are still missing. `_gap_at` is when
        # `tick` looks at them.
        self._early: dict[int, _WaitingPush] = {}
        self._early_bytes = 0
        self._gap_at = NEVER
        # Pushes that are applied, and answered once their entries are stored.
        self._unstored: deque[_WaitingPush] = deque()
        self._term = -1
        self.matched = -1
        self._assumed = -1  # last entry that is taken for the leader's, see `_role_changed`
        self._differs_at = -1
        self._alarm_at = -NEVER
        member.observers.append(self._role_changed)

    @property
    def wake(self) -> int:
        """Return when `tick` has something to do, in milliseconds."""
        return self._gap_at

    def _role_changed(self) -> None:
        member = self._member
        if member.role is not MemberRole.FOLLOWER:
            self._drop_early(DLedgerResponseCode.NOT_FOLLOWER)
            unstored, self._unstored = self._unstored, deque()
            for waiting in unstored:
                self._answer(waiting.token, waiting.request, DLedgerResponseCode.NOT_FOLLOWER)
        if member.term != self._term:
            self._term = member.term
            ledger = member.ledger
            self.matched = -1
            # A ledger that ends with an entry of this term came from this term's leader, unless the
            # disk is of another group. Java compares only when it has something to append.
            self._assumed = ledger.end_index if ledger.end_term == member.term else -1

    @property
    def _trusted_index(self) -> int:
        """
        Return the last entry that this follower believes to be equal to the leader's. Entries up to
        it are committed with the leader's commit index, and not cut off.
        """
        return max(self.matched, self._assumed)

    @property
    def is_diverged(self) -> bool:
        """Whether the leader has another entry where this member has a committed one."""
        return self._differs_at > self.matched

    def request(self, request: PushEntryRequest, token: Any) -> None:
        entries = _entries(request)
        if request.type is not PushType.COMMIT and not self._is_well_formed(request, entries):
            self._answer(token, request, DLedgerResponseCode.UNEXPECTED_ARGUMENT)
        elif self._member.role is not MemberRole.FOLLOWER:
            self._answer(token, request, DLedgerResponseCode.NOT_FOLLOWER)
        elif request.type is PushType.APPEND:
            self._take_append(request, entries, token)
        elif request.type is PushType.COMMIT:
            self._answer(token, request, self._take_commit(request))
        else:
            self._drop_early(DLedgerResponseCode.REPEATED_PUSH)
            compares = request.type is PushType.COMPARE
            code = (self._compare if compares else self._truncate)(request, entries[0])
            self._finish(request, token, code, entries[0].index)

    @staticmethod
    def _is_well_formed(request: PushEntryRequest, entries: tuple[Entry, ...]) -> bool:
        if not entries or entries[0].index < 0:
            return False
        first = entries[0].index
        return len(entries) == 1 or (
            request.type is PushType.APPEND
            and all(entry.index == first + n for n, entry in enumerate(entries))
        )

    def _is_from_leader(self, request: PushEntryRequest) -> bool:
        member = self._member
        return request.term == member.term and request.leader_id == member.leader_id

    # Answers

    def _answer(self, token: Any, request: PushEntryRequest, code: int) -> None:
        ledger, entries = self._member.ledger, _entries(request)
        self._member.answer(
            token,
            PushEntryResponse(
                group=request.group,
                term=request.term,
                code=code,
                index=entries[0].index if entries else None,
                count=len(entries),
                begin_index=ledger.begin_index,
                end_index=ledger.end_index,
            ),
        )

    def _finish(self, request: PushEntryRequest, token: Any, code: int, index: int) -> None:
        """Answer a push. A success vouches for the entries, so it waits until they are stored."""
        if code == _OK and index > self._durable.index:
            self._drop_given_up()
            self._unstored.append(_WaitingPush(request, token, self._member.now, index))
            self._durable.want(index)
        else:
            self._answer(token, request, code)

    def _drop_given_up(self) -> None:
        """
        Answer DISK_ERROR to requests that have waited longer than the leader's timeout.

        The leader repeats them, so on a disk whose sync never ends they would pile up.
        """
        limit = self._member.now - self._member.settings.rpc_timeout
        while self._unstored and self._unstored[0].since < limit:
            waiting = self._unstored.popleft()
            self._answer(waiting.token, waiting.request, DLedgerResponseCode.DISK_ERROR)

    def stored(self) -> None:
        """Answer the pushes whose entries are stored by now."""
        limit, end = self._durable.index, self._member.ledger.end_index
        unstored, self._unstored = self._unstored, deque()
        for waiting in unstored:
            if waiting.index <= limit:
                self._answer(waiting.token, waiting.request, _OK)
            elif waiting.index > end:  # the entries were cut off meanwhile
                self._answer(waiting.token, waiting.request, _INCONSISTENT)
            else:
                self._unstored.append(waiting)
        if self._unstored:
            self._durable.want(self._unstored[-1].index)

    # APPEND

    def _take_append(
        self, request: PushEntryRequest, entries: tuple[Entry, ...], token: Any
    ) -> None:
        first = entries[0].index
        if not self._is_from_leader(request):
            self._answer(token, request, _INCONSISTENT)
        elif first in self._early:
            self._answer(token, request, DLedgerResponseCode.REPEATED_PUSH)
        elif first > self._member.ledger.end_index + 1:
            self._hold(request, entries, token)
        else:
            self._apply(request, entries, token)
            while self._early:
                following = self._release(self._member.ledger.end_index + 1)
                if following is None:
                    break
                self._apply(following.request, _entries(following.request), following.token)

    def _hold(self, request: PushEntryRequest, entries: tuple[Entry, ...], token: Any) -> None:
        """Keep a push whose preceding entries are still on their way."""
        settings, now = self._member.settings, self._member.now
        size = sum(entry.size for entry in entries)
        if (
            len(self._early) >= settings.max_waiting_pushes
            or self._early_bytes + size > settings.max_waiting_bytes
        ):
            self._answer(token, request, DLedgerResponseCode.PUSH_REQUEST_IS_FULL)
            return
        self._early[entries[0].index] = _WaitingPush(request, token, now, size=size)
        self._early_bytes += size
        self._gap_at = min(self._gap_at, now + settings.max_push_timeout + 1)

    def _release(self, index: int) -> _WaitingPush | None:
        early = self._early.pop(index, None)
        if early is not None:
            self._early_bytes -= early.size
            if not self._early:
                self._gap_at = NEVER
        return early

    def _drop_early(self, code: int) -> None:
        early, self._early = self._early, {}
        self._early_bytes, self._gap_at = 0, NEVER
        for waiting in early.values():
            self._answer(waiting.token, waiting.request, code)

    def tick(self) -> None:
        """
        Apply a push that has waited too long for earlier entries. That fails, so the leader
        compares again.
        """
        member = self._member
        if member.now < self._gap_at:
            return
        limit = member.now - member.settings.max_push_timeout
        overdue = [index for index, waiting in self._early.items() if waiting.since < limit]
        if overdue:
            self._gap_at = member.now + member.settings.max_push_timeout
            waiting = self._release(min(overdue))
            if waiting is not None:
                self._apply(waiting.request, _entries(waiting.request), waiting.token)
        else:
            oldest = min(waiting.since for waiting in self._early.values())
            self._gap_at = oldest + member.settings.max_push_timeout + 1

    def _apply(self, request: PushEntryRequest, entries: tuple[Entry, ...], token: Any) -> None:
        code = self._append(request, entries)
        self._finish(request, token, code, entries[-1].index)
        if code == _OK:
            self._commit(request)

    def _append(self, request: PushEntryRequest, entries: tuple[Entry, ...]) -> int:
        """
        Check that entries which the ledger has already are equal to the pushed ones, then write the
        new ones.
        """
        ledger, last = self._member.ledger, entries[-1].index
        known = ledger.end_index + 1 - entries[0].index
        if known < 0:
            return _INCONSISTENT
        if known:
            try:
                is_same = all(ledger.entry(entry.index) == entry for entry in entries[:known])
            except (StoreError, OSError) as error:
                return self._refusal_code("read again", entries[0], error)
            if not is_same:
                return _INCONSISTENT
            self.matched = max(self.matched, min(last, ledger.end_index))
            entries = entries[known:]
        if not entries:
            return _OK
        # Nothing is appended behind entries that this leader has not shown to be equal to its own.
        if self._member.settings.check_previous and self.matched != ledger.end_index:
            return _INCONSISTENT
        code = self._write(request, entries)
        if code == _OK:
            self.matched = last
        return code

    def _write(self, request: PushEntryRequest, entries: tuple[Entry, ...]) -> int:
        term = self._member.ledger.end_term
        for entry in entries:
            if not term <= entry.term <= request.term:
                return _INCONSISTENT
            term = entry.term
        try:
            self._member.ledger.append_entry(entries)
        except (StoreError, OSError) as error:
            return self._refusal_code("append", entries[0], error)
        return _OK

    def _refusal_code(self, what: str, entry: Entry, error: Exception) -> int:
        """
        Log that the ledger failed, and return the code to answer. The leader must not compare again
        at once because of a full or broken disk.
        """
        self.log.warn(
            "{self_id} cannot {what} entry {index} of term {term}: {reason}",
            self_id=self._member.self_id,
            what=what,
            index=entry.index,
            term=entry.term,
            reason=str(error),
        )
        if isinstance(error, InconsistentLedger):
            return _INCONSISTENT
        if isinstance(error, LedgerFull):
            return DLedgerResponseCode.DISK_FULL
        return DLedgerResponseCode.DISK_ERROR

    # COMPARE, TRUNCATE, COMMIT

    def _compare(self, request: PushEntryRequest, entry: Entry) -> int:
        is_leader = self._is_from_leader(request)
        if not is_leader and self._member.settings.check_leader:
            if request.term != self._member.term:
                return DLedgerResponseCode.INCONSISTENT_TERM
            return DLedgerResponseCode.INCONSISTENT_LEADER
        ledger = self._member.ledger
        try:
            own = ledger.entry(entry.index)
        except (StoreError, OSError) as error:
            return self._refusal_code("compare", entry, error)
        if own != entry:
            if is_leader and own is not None:
                self._is_another(request, entry.index)
            return _INCONSISTENT
        if is_leader:
            self.matched = max(self.matched, entry.index)
        return _OK

    def _truncate(self, request: PushEntryRequest, entry: Entry) -> int:
        """
        Cut or rewrite the ledger so that `entry` is its last. Spec: dledger.md, section 11.5, with
        the two checks of section 18.2.
        """
        member, ledger = self._member, self._member.ledger
        if not self._is_from_leader(request) or entry.term > request.term:
            return _INCONSISTENT
        try:
            is_same = ledger.entry(entry.index) == entry
        except (StoreError, OSError) as error:
            return self._refusal_code("compare", entry, error)
        settings = member.settings
        if settings.check_previous and entry.index < self._trusted_index:
            return _OK if is_same else _INCONSISTENT
        committed = ledger.committed_index
        if settings.keep_committed and (
            entry.index < committed or (entry.index == committed and not is_same)
        ):
            self._differs(request, entry.index)
            return _INCONSISTENT
        self._durable.truncated(entry.index)
        try:
            ledger.truncate_to(entry)
        except (StoreError, OSError) as error:
            return self._refusal_code("truncate to", entry, error)
        self.matched = entry.index
        self._commit(request)
        return _OK

    def _is_another(self, request: PushEntryRequest, index: int) -> None:
        """
        Take note that the leader has another entry at `index`. So an entry of the leader's term is
        no proof any more that this ledger equals the leader's.
        """
        self._assumed = -1
        if index <= self._member.ledger.committed_index:
            self._differs(request, index)

    def _differs(self, request: PushEntryRequest, index: int) -> None:
        """
        Keep the committed entries and raise an alarm, once a minute at most: one of the two members
        has lost data, and an operator must find out which.
        """
        committed = self._member.ledger.committed_index
        self._differs_at = max(self._differs_at, committed)
        if self._member.now < self._alarm_at:
            return
        self._alarm_at = self._member.now + _ALARM_PAUSE_MS
        self.log.critical(
            "{self_id} keeps its ledger: {leader}, which leads term {term}, has something else, or "
            "nothing, about entry {index}, though entries up to {committed} are committed; one of "
            "the two has lost data: stop the group and compare the ledgers",
            self_id=self._member.self_id,
            index=index,
            leader=request.leader_id,
            term=request.term,
            committed=committed,
        )

    def _take_commit(self, request: PushEntryRequest) -> int:
        """
        Move this member's commit index to the leader's.

        A commit request of any other member is ignored. The answer is 406 when the leader has
        committed entries beyond the last one that is known to be equal here: the leader then
        compares again.
        """
        if self._is_from_leader(request):
            self._commit(request)
            end = self._member.ledger.end_index
            checks = self._member.settings.check_previous
            if checks and self.matched < min(request.commit_index, end):
                return _INCONSISTENT
        elif not self._member.settings.check_leader and request.term >= self._member.term:
            self._commit(request)
        return _OK

    def _commit(self, request: PushEntryRequest) -> None:
        """
        Commit as far as the request says and the ledger reaches. Spec: dledger.md, section 10.4.
        """
        ledger = self._member.ledger
        index = min(request.commit_index, ledger.end_index)
        if self._member.settings.check_previous:
            index = min(index, self._trusted_index)
        if index > ledger.committed_index and index >= ledger.begin_index >= 0:
            ledger.commit(index)
            self._member.outbox.append(CommitIndexMoved(index))
