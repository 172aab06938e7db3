"""Writes the POP journal: the entries of one turn of the reactor become one record."""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.model.message import Draft, Row
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import POP_TOPIC
from rmq_ha.server.pop.entries import Entry
from rmq_ha.server.pop.journal import PopStore
from rmq_ha.server.pop.records import VERSION, put_entry
from rmq_ha.server.pop.varints import put_number
from rmq_ha.server.store.log.append import DraftGroup
from rmq_ha.server.store.settle import Others

_MOST_BODY = 1 << 20
_RETRY_S = 0.1


class Keeping(Enum):
    """How safely the log keeps a record of the journal."""

    KEPT = auto()
    """The record is on all disks and brokers that the configuration asks for."""
    STORED = auto()
    """The record is in the log, but not on all disks and brokers that are asked for."""
    LOST = auto()
    """The record is not in the log, or nobody knows whether it is."""


Told = Callable[[Keeping], object]


class _JournalPut:
    """
    One put of journal records, whose outcome is not known yet.

    :ivar number: grows with each put. If a put is kept, all puts with smaller numbers are.
    :ivar waiting: functions that are called with the outcome.
    """

    __slots__ = ("number", "waiting")

    def __init__(self, number: int, waiting: list[Told]) -> None:
        self.number = number
        self.waiting = waiting


class PopWriter:
    """
    Appends the entries of each turn to the journal, while this broker is the master.

    An entry is applied to the state before it is added here, so it must come into the log. Entries
    that the store refused are put again every 100 ms, until the broker is not the master any more.

    :param appended: called with the number of records that were appended, and their size in bytes.
    :param disordered: called when the journal and the state do not agree any more: a record got
        another queue offset than `expected` said, or entries could not be encoded.
    :param expected: returns the queue offset that the next record should get.
    """

    log = Logger()

    def __init__(
        self,
        store: PopStore,
        appended: Callable[[int, int], object],
        disordered: Callable[[], object],
        expected: Callable[[], int],
    ) -> None:
        self._store = store
        self._appended = appended
        self._disordered = disordered
        self._expected = expected
        self._entries: list[Entry] = []
        self._waiting: list[Told] = []
        self._puts: dict[_JournalPut, None] = {}
        self._is_armed = False
        self._retry: IDelayedCall | None = None
        self._count = self._kept = self._doubted = 0
        self._told_refusal = ""
        self.is_stopped = True

    @property
    def is_refused(self) -> bool:
        """Whether the store refused the last record, so that nothing should be added."""
        return self._retry is not None

    @property
    def is_idle(self) -> bool:
        """Whether all entries are appended."""
        return not self._entries

    def start(self) -> None:
        """Take entries from now on."""
        self.is_stopped = False
        self._doubted = self._count

    def stop(self) -> None:
        """Drop the entries that were not appended, and tell all who wait that theirs are LOST."""
        self.is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._entries = []
        waiting, self._waiting = self._waiting, []
        for put in self._puts:
            waiting += put.waiting
            put.waiting = []
        self._puts.clear()
        _tell(waiting, Keeping.LOST)

    def add(self, entry: Entry) -> None:
        """Have an entry appended at the end of this turn."""
        self._entries.append(entry)
        self._arm()

    def wait(self, told: Told) -> bool:
        """
        Have a function called once when it is known how safely all entries so far are kept.

        :returns: False if the function was not noted, because no put is under way and nobody knows
            whether the last record is kept. Then add any entry, and call this again.
        """
        if self._entries:
            self._waiting.append(told)
        elif self._puts:
            next(reversed(self._puts)).waiting.append(told)
        elif self._kept > self._doubted:
            told(Keeping.KEPT)
        else:
            return False
        return True

    def _arm(self) -> None:
        if not self._is_armed and self._retry is None:
            self._is_armed = True
            self._store.host.soon(self._on_turn)

    def _on_turn(self) -> None:
        self._is_armed = False
        if not self.is_stopped and self._retry is None:
            self.flush()

    def _on_retry(self) -> None:
        self._retry = None
        self.flush()

    def flush(self) -> None:
        """Append the entries of this turn to the journal now, in as many records as they need."""
        entries, self._entries = self._entries, []
        waiting, self._waiting = self._waiting, []
        if not entries:
            return
        store = self._store
        now_ms = store.host.now_ms()
        try:
            bodies, ends = _bodies(entries, now_ms)
        except Exception:
            # The state has entries that the journal will never have.
            self.log.failure(
                "the entries of a turn cannot be written, so the journal is read again"
            )
            _tell(waiting, Keeping.LOST)
            self._disordered()
            return
        self._count += 1
        put = _JournalPut(self._count, waiting)
        self._puts[put] = None
        group = self._put([self._draft(body, now_ms) for body in bodies], put)
        stored = len(bodies) if not group.faults else min(group.faults)
        if stored:
            places = [row[6] for row in group.rows]
            expected = self._expected()
            self._appended(stored, sum(len(body) for body in bodies[:stored]))
            if places != list(range(expected, expected + len(places))):
                self._disordered()
                return
        if stored < len(bodies):
            self._entries = entries[ends[stored - 1] if stored else 0 :] + self._entries
            self._refused(group.faults[stored])
        else:
            self._told_refusal = ""

    def _put(self, drafts: list[Draft], put: _JournalPut) -> DraftGroup:
        """Put drafts of records; return which of them the log took, before they are safe."""

        def settled(
            status: PutMessageStatus, rows: Sequence[Row | None], others: Others, now: float
        ) -> None:
            last = others.get(len(drafts) - 1, status)
            self._settled(put, last, is_stored=rows[-1] is not None)

        return self._store.put_drafts(drafts, True, settled)

    def _settled(self, put: _JournalPut, status: PutMessageStatus, *, is_stored: bool) -> None:
        if put not in self._puts:
            return
        del self._puts[put]
        keeping = Keeping.LOST
        if is_stored and status is PutMessageStatus.PUT_OK:
            keeping = Keeping.KEPT
        elif is_stored and status.is_stored:
            keeping = Keeping.STORED
        if keeping is Keeping.KEPT:
            self._kept = max(self._kept, put.number)
        else:
            self._doubted = max(self._doubted, put.number)
        _tell(put.waiting, keeping)

    def _refused(self, status: PutMessageStatus) -> None:
        if status.name != self._told_refusal:
            self._told_refusal = status.name
            self.log.error(
                "the POP journal takes no record, and is tried again every 100 ms: {status}",
                status=status.name,
            )
        self._retry = self._store.host.clock.callLater(_RETRY_S, self._on_retry)

    def _draft(self, body: bytes, now_ms: int) -> Draft:
        host = self._store.configuration.store_host
        return (POP_TOPIC, 0, body, host, host, now_ms, 0, 0, 0, 0, "", "", None, "")


def _bodies(entries: Sequence[Entry], now_ms: int) -> tuple[list[bytes], list[int]]:
    """Return the bodies of records, and for each the number of entries up to its end."""
    bodies: list[bytes] = []
    ends: list[int] = []
    head = bytearray((VERSION,))
    put_number(head, now_ms)
    body = bytearray(head)
    for place, entry in enumerate(entries):
        item = bytearray()
        put_entry(item, entry, now_ms)
        if len(body) > len(head) and len(body) + len(item) > _MOST_BODY:
            bodies.append(bytes(body))
            ends.append(place)
            body = bytearray(head)
        body += item
    bodies.append(bytes(body))
    ends.append(len(entries))
    return bodies, ends


def _tell(waiting: list[Told], keeping: Keeping) -> None:
    for told in waiting:
        told(keeping)
