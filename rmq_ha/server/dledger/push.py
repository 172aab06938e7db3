"""The leader's half of replication: one pusher for each peer."""

from collections.abc import Callable
from enum import Enum

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode, PushType
from rmq_ha.server.dledger.member import NEVER, Member
from rmq_ha.server.dledger.messages import PushEntryRequest, PushEntryResponse
from rmq_ha.server.dledger.quorum import Quorum

_SECOND = 1000
_BATCH_ENTRIES = 4096
_Handler = Callable[..., None]


class _PushState(Enum):
    IDLE = "this member does not lead, or the peer does not follow it yet"
    COMPARE = "looking for the last entry that both have"
    TRUNCATE = "cutting the peer's ledger behind it"
    APPEND = "pushing what comes after it"


class Pusher:
    """
    Brings one peer's ledger to the state of the leader's.

    Spec: dledger.md, sections 11.1, 11.2, 12 and 13

    :ivar wake: when `tick` has something to do.
    :ivar refusal: the code with which the peer's disk last refused an entry; 0: it took the last
        one.
    :ivar peer_begin: the peer's first entry, as its last answer said; -1: the peer has no entry, or
        has not answered yet.
    """

    log = Logger()

    def __init__(self, member: Member, quorum: Quorum, peer: str) -> None:
        self._member = member
        self._quorum = quorum
        self.peer = peer
        self.wake = NEVER
        self._state = _PushState.IDLE
        self._epoch = object()
        self._is_asking = False
        self._pause_until = 0
        self._compare_index = -1
        self._mismatch = NEVER
        self._write_index = 0
        # By first index of a push without an answer: its time in ms, number of entries, and bytes.
        self._pending: dict[int, tuple[int, int, int]] = {}
        self._pending_bytes = 0
        self._last_push = 0
        self.refusal = 0
        self.peer_begin = -1
        self._has_progressed = True
        self._second = 0
        self._second_bytes = 0
        member.observers.append(self._role_changed)

    def _role_changed(self) -> None:
        self._enter(_PushState.IDLE)
        self.wake = NEVER
        self.refusal, self.peer_begin = 0, -1

    def _enter(self, state: _PushState) -> None:
        """
        Go into a state. Answers to earlier pushes have no meaning any more, so they will be
        ignored.
        """
        self._state = state
        self._epoch = object()
        self._is_asking = False
        self._pending.clear()
        self._pending_bytes = 0

    def followed(self) -> None:
        """
        Begin to push, since the peer follows this leader; before that it would refuse pushes.
        """
        if self._state is _PushState.IDLE:
            self._compare(0)

    def tick(self) -> None:
        """Call `pump` if its time has come."""
        if self._member.now >= self.wake:
            self.pump()

    def pump(self) -> None:
        """
        Send the pushes that can be sent now. Call it after an append, after an answer, and at
        `wake`.
        """
        try:
            if self._state is _PushState.APPEND:
                self._push()
            elif self._state is _PushState.COMPARE and not self._is_asking:
                self._ask()
        except (StoreError, OSError) as error:
            self.log.error(
                "{self_id} cannot read what {peer} needs: {reason}",
                self_id=self._member.self_id,
                peer=self.peer,
                reason=str(error),
            )
            self._compare(self._member.settings.retry_pause)

    # COMPARE and TRUNCATE

    def _compare(self, pause: int) -> None:
        """Start to compare from the end of the ledger, after a pause in milliseconds."""
        self._enter(_PushState.COMPARE)
        self._compare_index, self._mismatch = -1, NEVER
        self._pause_until = self.wake = self._member.now + pause
        if not pause:
            self.pump()

    def _ask(self) -> None:
        ledger = self._member.ledger
        if self._member.now < self._pause_until:
            return
        self.wake = NEVER
        if ledger.end_index < 0:
            return
        if not ledger.begin_index <= self._compare_index <= ledger.end_index:
            self._compare_index, self._mismatch = ledger.end_index, NEVER
        self._is_asking = True
        self._send_one(PushType.COMPARE, self._compare_index, self._compared)

    def _send_one(self, kind: PushType, index: int, handler: _Handler) -> None:
        entry = self._member.ledger.entry(index)
        if entry is None:
            raise StoreError(f"entry {index} is not there any more")
        self._send(self._request(kind, entry=entry), handler, index)

    def _request(
        self, kind: PushType, entry: Entry | None = None, batch: tuple[Entry, ...] = ()
    ) -> PushEntryRequest:
        member = self._member
        return PushEntryRequest(
            group=member.settings.group,
            remote_id=self.peer,
            local_id=member.self_id,
            leader_id=member.self_id,
            term=member.term,
            type=kind,
            commit_index=member.ledger.committed_index,
            entry=entry,
            batch_entry=batch,
        )

    def _send(self, request: PushEntryRequest, handler: _Handler, *what: int) -> None:
        self._last_push = self._member.now
        context = (self._epoch, handler, what)
        self._member.call(self.peer, DLedgerRequestCode.PUSH, request, self._answered, context)

    def _answered(
        self,
        _: str,
        message: PushEntryResponse | None,
        context: tuple[object, _Handler, tuple[int, ...]],
    ) -> None:
        """
        Pass an answer on to its handler, unless the pusher has gone into another state since the
        push.
        """
        epoch, handler, what = context
        if epoch is self._epoch:
            if message is not None:
                self.peer_begin = message.begin_index
            handler(message, *what)

    def _compared(self, message: PushEntryResponse | None, index: int) -> None:
        """Act on the answer to a COMPARE. Spec: dledger.md, section 11.2."""
        self._is_asking = False
        if message is None or message.code not in (
            DLedgerResponseCode.SUCCESS,
            DLedgerResponseCode.INCONSISTENT_STATE,
        ):
            self._compare(self._member.settings.retry_pause)
        elif message.code == DLedgerResponseCode.SUCCESS:
            self._is_equal(index, message.end_index)
        else:
            self._is_different(index, message.begin_index, message.end_index)

    def _is_equal(self, index: int, peer_end: int) -> None:
        """
        Take note that the peer has this entry. Its later entries may be equal to the leader's too,
        so compare those.
        """
        mine = self._member.ledger.end_index
        if peer_end == index:
            self._append_from(index)
        elif index < peer_end <= mine and self._mismatch > index + 1:
            self._compare_index = min(peer_end, self._mismatch - 1)
            self.pump()
        else:
            self._truncate(index)

    def _is_different(self, index: int, peer_begin: int, peer_end: int) -> None:
        begin = self._member.ledger.begin_index
        if index <= peer_end:  # different; an entry after the peer's end is only missing
            self._mismatch = min(self._mismatch, index)
        following = peer_end if index > peer_end else index - 1
        if index < peer_begin or following < begin:  # no entry in common
            self._truncate(begin)
        else:
            self._compare_index = following
            self.pump()

    def _truncate(self, index: int) -> None:
        self._enter(_PushState.TRUNCATE)
        try:
            self._send_one(PushType.TRUNCATE, index, self._truncated)
        except (StoreError, OSError):
            self._compare(self._member.settings.retry_pause)

    def _truncated(self, message: PushEntryResponse | None, index: int) -> None:
        if message is not None and message.code == DLedgerResponseCode.SUCCESS:
            self._append_from(index)
        else:
            self._compare(self._member.settings.retry_pause)

    # APPEND

    def _append_from(self, index: int) -> None:
        self._enter(_PushState.APPEND)
        self._write_index = index + 1
        self._has_progressed = False
        self._quorum.mark(self.peer, index)
        self.pump()

    def _push(self) -> None:
        self._push_again()
        ledger = self._member.ledger
        while self._write_index <= ledger.end_index:
            if self._write_index < ledger.begin_index:
                self._compare(0)
                return
            room, budget = self._room()
            if room <= 0 or budget <= 0:
                break
            entries = ledger.entries(self._write_index, *self._read_limits(room, budget))
            if not entries:
                raise StoreError(f"entry {self._write_index} cannot be read")
            self._push_entries(entries)
        self._push_commit()
        self._set_wake()

    def _room(self) -> tuple[int, int]:
        """Return the numbers of requests and of bytes that may be sent now."""
        settings, ledger = self._member.settings, self._member.ledger
        limit = settings.max_in_flight
        if settings.is_enable_batch_push:
            limit = settings.max_batches_in_flight
        room = limit - len(self._pending)
        budget = settings.max_push_bytes - self._pending_bytes
        second = self._member.now // _SECOND
        if second != self._second:
            self._second, self._second_bytes = second, 0
        if ledger.end_index - self._write_index <= settings.throttle_entries or room <= 0:
            return room, budget
        first = ledger.entry(self._write_index)
        if first is None or ledger.end_pos - first.pos <= settings.peer_push_throttle_point:
            return room, budget
        return room, min(budget, settings.peer_push_quota - self._second_bytes)

    def _read_limits(self, room: int, budget: int) -> tuple[int, int]:
        """Return the numbers of bytes and of entries to read for `room` requests."""
        settings = self._member.settings
        if not settings.is_enable_batch_push:
            return budget, room
        return min(budget, room * settings.max_batch_push_size), _BATCH_ENTRIES

    def _push_entries(self, entries: list[Entry]) -> None:
        settings = self._member.settings
        if not settings.is_enable_batch_push:
            for entry in entries:
                self._push_batch((entry,), entry.size)
            return
        batch: list[Entry] = []
        size = 0
        for entry in entries:
            batch.append(entry)
            size += entry.size
            if size >= settings.max_batch_push_size:
                self._push_batch(tuple(batch), size)
                batch, size = [], 0
        if batch:
            self._push_batch(tuple(batch), size)

    def _push_batch(self, batch: tuple[Entry, ...], size: int) -> None:
        first, count = batch[0].index, len(batch)
        if first not in self._pending:
            self._pending_bytes += size
            self._second_bytes += size
            self._write_index = first + count
        self._pending[first] = (self._member.now, count, size)
        if self._member.settings.is_enable_batch_push:
            request = self._request(PushType.APPEND, batch=batch)
        else:
            (entry,) = batch
            request = self._request(PushType.APPEND, entry)
        self._send(request, self._pushed, first, count)

    def _push_again(self) -> None:
        """Push the oldest unanswered entries again if they have waited too long."""
        if not self._pending:
            return
        first, (since, count, size) = next(iter(self._pending.items()))
        if self._member.now - since > self._member.settings.max_push_timeout:
            batch = self._member.ledger.entries(first, size, count)
            if len(batch) < count:
                raise StoreError(f"entries from {first} on are not there any more")
            self._push_batch(tuple(batch), size)

    def _push_commit(self) -> None:
        member = self._member
        if (
            self._write_index > member.ledger.end_index
            and member.now - self._last_push > member.settings.commit_interval
        ):
            self._send(self._request(PushType.COMMIT), self._commit_pushed)

    def _set_wake(self) -> None:
        member, settings = self._member, self._member.settings
        self.wake = NEVER
        if self._pending:
            since = next(iter(self._pending.values()))[0]
            self.wake = since + settings.max_push_timeout + 1
        if self._write_index > member.ledger.end_index:
            self.wake = min(self.wake, self._last_push + settings.commit_interval + 1)
        elif self._second_bytes >= settings.peer_push_quota:
            self.wake = min(self.wake, (self._second + 1) * _SECOND)

    def _pushed(self, message: PushEntryResponse | None, first: int, count: int) -> None:
        if message is None:
            self._compare(self._member.settings.retry_pause)
        elif message.code == DLedgerResponseCode.SUCCESS and message.term == self._member.term:
            self._is_stored(first, min(max(message.count, 1), count))
        elif message.code in (DLedgerResponseCode.DISK_FULL, DLedgerResponseCode.DISK_ERROR):
            self.refusal = message.code
        elif message.code == DLedgerResponseCode.INCONSISTENT_STATE:
            self._compare(0 if self._has_progressed else self._member.settings.retry_pause)

    def _is_stored(self, first: int, count: int) -> None:
        """
        Take the peer's word that it has these entries; of a batch it may have stored only the first
        part.
        """
        pending = self._pending.pop(first, None)
        if pending is not None:
            self._pending_bytes -= pending[2]
            if count < pending[1]:
                self._compare(0)
                return
        self._has_progressed, self.refusal = True, 0
        before = self._quorum.watermark(self.peer)
        self._quorum.mark(self.peer, max(before, first + count - 1))
        self.pump()

    def _commit_pushed(self, message: PushEntryResponse | None) -> None:
        """
        Compare again if the peer has fewer entries than it once acknowledged, or does not know
        whether its entries are the leader's: it was restarted.
        """
        if message is None or self._pending:
            return
        if message.code == DLedgerResponseCode.INCONSISTENT_STATE or (
            message.code == DLedgerResponseCode.SUCCESS
            and message.end_index < self._quorum.watermark(self.peer)
        ):
            self._compare(0)
