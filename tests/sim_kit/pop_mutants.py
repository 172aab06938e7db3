"""Faults of POP consumption, planted on purpose: `tests/sim_kit/pops.py` finds each of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import succeed

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.server.pop import copies, ends, records, service, snapshots
from rmq_ha.server.pop.ends import LeaseEnds
from rmq_ha.server.pop.entries import MoveEntry, PopEntry, SkipEntry
from rmq_ha.server.pop.face import LeaseStatus
from rmq_ha.server.pop.journal import message_at
from rmq_ha.server.pop.leases import LeaseMatch, QueueLeases
from rmq_ha.server.pop.service import PopService
from rmq_ha.server.pop.snapshot import encode_image
from tests.sim_kit.planting import Patches
from tests.sim_kit.pops import PAIR


class PopMutant(NamedTuple):
    """
    A fault that can be planted.

    :ivar fault: a sentence that says the fault.
    :ivar seed: one that found it.
    """

    name: str
    fault: str
    seed: int
    plant: Callable[[Patches], None]
    kind: str = PAIR


def _committed_at_pop(patches: Patches) -> None:
    patches.put(QueueLeases, "committed", property(lambda self: self.next))


def _answered_before_kept(patches: Patches) -> None:
    def at_once(self: Any) -> Any:
        self._call_when_kept(lambda keeping: None)
        return succeed(LeaseStatus.DONE)

    patches.put(PopService, "_when_kept", at_once)


def _any_name_counts(patches: Patches) -> None:
    match = QueueLeases.match

    def loose(self: Any, offset: int, pop_ms: int) -> LeaseMatch:
        lease = self.lease(offset)
        return match(self, offset, pop_ms) if lease is None else LeaseMatch.CURRENT

    patches.put(QueueLeases, "match", loose)


def _change_revives(patches: Patches) -> None:
    match = QueueLeases.match

    def loose(self: Any, offset: int, pop_ms: int) -> LeaseMatch:
        known = match(self, offset, pop_ms)
        return LeaseMatch.CURRENT if known is LeaseMatch.REPEATED else known

    def change(self: Any, receipt: Any, invisible_ms: int) -> Any:
        inner = Patches()
        inner.put(QueueLeases, "match", loose)
        try:
            return changed(self, receipt, invisible_ms)
        finally:
            inner.undo()

    changed = patches.put(PopService, "change", change)

    def revive(self: Any, entry: Any) -> int:
        place = entry.offset - self._base
        if not self._head <= place < len(self._dues):
            return 0
        if not self._dues[place]:
            self.out += 1
        self._pops[place], self._dues[place] = entry.pop_ms, entry.due_ms
        self.last_pop_ms = max(self.last_pop_ms, entry.pop_ms)
        return 1

    patches.put(QueueLeases, "change", revive)


def _old_messages_left_out(patches: Patches) -> None:
    take = ends._Moves.take

    def skip(self: Any, key: Any, leases: Any, offset: int, pop_ms: int) -> bool:
        _, topic = self._state.names[key[0]]
        stored = message_at(self._store, topic, key[1], offset)
        if stored is not None and stored[1].store_timestamp > pop_ms - 200:
            self.gone.append(((key, offset), pop_ms))
            return True
        return take(self, key, leases, offset, pop_ms)

    patches.put(ends._Moves, "take", skip)


def _refused_move_dropped(patches: Patches) -> None:
    take = ends._Moves.take

    def lose(self: Any, key: Any, leases: Any, offset: int, pop_ms: int) -> bool:
        return offset % 7 != 3 and take(self, key, leases, offset, pop_ms)

    patches.put(ends._Moves, "take", lose)
    patches.put(LeaseEnds, "_try_again", lambda self, key, offset, due_ms: None)


def _snapshot_ahead(patches: Patches) -> None:
    encode = encode_image
    patches.put(snapshots, "encode_image", lambda since, image: encode(since + 1, image))


def _files_deleted_too_early(patches: Patches) -> None:
    patches.put(PopService, "releases", lambda self, end: True)


def _order_not_in_journal(patches: Patches) -> None:
    put = records._put_pop

    def plain(out: bytearray, entry: PopEntry, base: int) -> None:
        put(out, entry._replace(is_orderly=False, is_again=False, attempt_id=""), base)

    number, _ = records._WRITERS[PopEntry]
    patches.put(records, "_WRITERS", {**records._WRITERS, PopEntry: (number, plain)})


def _attempt_not_in_journal(patches: Patches) -> None:
    put = records._put_pop

    def plain(out: bytearray, entry: PopEntry, base: int) -> None:
        put(out, entry._replace(attempt_id=""), base)

    number, _ = records._WRITERS[PopEntry]
    patches.put(records, "_WRITERS", {**records._WRITERS, PopEntry: (number, plain)})


def _late_group_misses_messages(patches: Patches) -> None:
    def late(self: Any, wish: Any, queue: Any) -> int:
        return max(0, int(self._end_of(queue.topic, queue.queue_id)) - 1)

    patches.put(PopService, "_first_offset", late)


def _skip_passes_leases(patches: Patches) -> None:
    def skip(self: Any, entry: SkipEntry) -> int:
        if entry.start < self.next:
            return 0
        self.out = 0
        self._begin_at(entry.end)
        return entry.end - entry.start

    patches.put(QueueLeases, "skip", skip)


def _wall_clock_ends_leases(patches: Patches) -> None:
    class ByWall:
        def __init__(self, host: Any) -> None:
            self._host = host

        def __getattr__(self, name: str) -> Any:
            return getattr(self._host, "now_ms" if name == "steady_ms" else name)

    class Store:
        def __init__(self, store: Any) -> None:
            self._store = store
            self.host = ByWall(store.host)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    begin = LeaseEnds.__init__

    def by_wall(self: Any, store: Any, *arguments: Any) -> None:
        begin(self, Store(store), *arguments)  # type: ignore[arg-type]

    patches.put(LeaseEnds, "__init__", by_wall)


def _lease_ends_early(patches: Patches) -> None:
    leased = LeaseEnds.leased

    def early(self: Any, key: Any, offsets: Any, due_ms: int, invisible_ms: int) -> None:
        leased(self, key, offsets, due_ms, invisible_ms // 2)

    patches.put(LeaseEnds, "leased", early)


def _copies_not_counted(patches: Patches) -> None:
    make = copies.copy_for

    def same(record: Any, topic: str, source: Any) -> BrokerMessage:
        copy = make(record, topic, source)
        copy.reconsume_times = record.reconsume_times
        return copy

    patches.put(ends, "copy_for", same)


def _moved_again(patches: Patches) -> None:
    """The copy is put, and the journal says nothing of it."""
    enter: Any = PopService._enter
    forgotten: set[Any] = set()

    def forget(self: Any, entry: Any) -> int:
        name = entry[:2], entry.leases if isinstance(entry, MoveEntry) else ()
        if name[1] and entry.leases[0][0] % 5 == 4 and str(name) not in forgotten:
            forgotten.add(str(name))
            for offset, _ in entry.leases:
                leases = self._replica.state.queues[entry.name, entry.queue_id]
                lease = leases.lease(offset)
                self._ends._add_again((entry.name, entry.queue_id), offset, lease[1], 400)
            return 0
        return int(enter(self, entry))

    patches.put(PopService, "_enter", forget)


def _orderly_does_not_wait(patches: Patches) -> None:
    look: Any = service.__dict__["look_in_order"]

    def open_always(*arguments: Any) -> Any:
        leases = arguments[0]
        every = {offset for offset, _, _ in leases.leases()}
        return look(*arguments[:6], every, *arguments[7:])

    patches.put(service, "look_in_order", open_always)


def _threshold_stays_reached(patches: Patches) -> None:
    end = QueueLeases._end

    def keep(self: Any, offset: int) -> None:
        end(self, offset)
        self.out += 1

    patches.put(QueueLeases, "_end", keep)


def _offset_passes_leases(patches: Patches) -> None:
    def ahead(self: Any) -> None:
        self._head = len(self._dues)

    patches.put(QueueLeases, "_advance", ahead)


POP_MUTANTS = (
    PopMutant("old-left-out", "a message is judged by its store time", 0, _old_messages_left_out),
    PopMutant("order-open", "an orderly queue does not wait", 0, _orderly_does_not_wait),
    PopMutant("early", "leases end after half their time", 0, _lease_ends_early),
    PopMutant("committed-at-pop", "the offset is what was handed out", 0, _committed_at_pop),
    PopMutant("answered-early", "an answer comes before it is kept", 25, _answered_before_kept),
    PopMutant("any-name", "a stale receipt acknowledges", 0, _any_name_counts),
    PopMutant("change-revives", "a change revives what is acknowledged", 0, _change_revives),
    PopMutant("refused-dropped", "a refused move is not repeated", 0, _refused_move_dropped),
    PopMutant("snapshot-ahead", "a snapshot claims one record more", 0, _snapshot_ahead),
    PopMutant("files-deleted", "log files go before images exist", 20, _files_deleted_too_early),
    PopMutant("order-lost", "the journal does not say order", 0, _order_not_in_journal),
    PopMutant("attempt-lost", "the journal does not name attempts", 0, _attempt_not_in_journal),
    PopMutant("late-group", "a new group begins at the end", 0, _late_group_misses_messages),
    PopMutant("skip-passes", "unwanted messages pass leases", 0, _skip_passes_leases),
    PopMutant("wall-clock", "leases end by the wall clock", 7, _wall_clock_ends_leases),
    PopMutant("not-counted", "copies do not count", 0, _copies_not_counted),
    PopMutant("moved-again", "a copy without its record is made again", 0, _moved_again),
    PopMutant("threshold", "what is acknowledged counts as out", 0, _threshold_stays_reached),
    PopMutant("offset-passes", "the offset passes what is out", 0, _offset_passes_leases),
)
"""The quick ones first."""
