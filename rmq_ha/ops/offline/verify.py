"""
Finds the faults of a store that no broker writes to, and their consequences.

Spec: store.md, sections 3, 4 and 5.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide, CorruptRecord, ProtocolViolation
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, is_system
from rmq_ha.base.store_format.checkpoint import CHECKPOINT_SIZE
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.base.store_format.deleted_queues import decode_beginnings
from rmq_ha.base.store_format.index import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE, IndexHeader
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.queues import OfflineQueue
from rmq_ha.ops.offline.records import Damage, records
from rmq_ha.ops.offline.timer_rules import (
    FoundTimerFault,
    TimerAudit,
    TimerFault,
    is_timer_record,
)

QUEUES, INDEX, CHECKPOINT = "queues", "index", "checkpoint"
_NOT_FOR_CONSUMERS = 0x4
_TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


class StoreFinding(NamedTuple):
    """
    One fault or oddity.

    :ivar place: a file, with a physical offset if it has one, or a queue.
    :ivar text: the fault.
    :ivar meaning: the consequence for messages.
    :ivar mend: the part that can be built anew from the log; empty: no part has to be, or can be.
    :ivar is_fault: whether messages are or will be lost; otherwise the next start mends it.
    """

    code: str
    place: str
    text: str
    meaning: str
    mend: str = ""
    is_fault: bool = True


class _CheckedQueue:
    """A queue as the log has it and as its files have it."""

    def __init__(self, files: OfflineQueue) -> None:
        self.files = files
        self.missing = self.wrong = 0
        self.first_missing: DispatchRequest | None = None
        self.first_wrong: DispatchRequest | None = None

    def look(self, request: DispatchRequest) -> None:
        unit = self.files.unit(request.queue_offset)
        if unit is None:
            self.missing += 1
            self.first_missing = self.first_missing or request
        elif unit[:2] != (request.physical_offset, request.size):
            self.wrong += 1
            self.first_wrong = self.first_wrong or request


class VerifyResult(NamedTuple):
    """
    The result of `verify`.

    :ivar records: how many messages the log has.
    """

    findings: list[StoreFinding]
    records: int


def verify(store: StoreFiles, step: Callable[[], object] = lambda: None) -> VerifyResult:
    """
    Read all of the log, and compare the files that are built from it.

    :param step: called after each thousandth record.
    :raises CannotDecide: there is no classic log, or it cannot be read.
    """
    findings = list(_log_holes(store))
    topics = _known_topics(store, findings)
    begins = _beginnings(store, findings)
    on_disk = frozenset(store.topics_on_disk())
    queues: dict[tuple[str, int], _CheckedQueue] = {}
    forgotten: Counter[str] = Counter()
    timers, timer_faults = TimerAudit(), list[FoundTimerFault]()
    count = 0
    for stretch in records(store):
        if isinstance(stretch, Damage):
            findings.append(_damage(stretch))
            continue
        count += 1
        if count % 1000 == 0:
            step()
        request, data = stretch
        timers.saw(request.store_timestamp)
        if is_timer_record(request.topic, request.properties_string):
            timer_faults += timers.take(
                request.topic,
                request.properties,
                request.physical_offset,
                request.queue_offset,
                request.store_timestamp,
            )
        elif request.topic == TIMER_PROGRESS_TOPIC:
            timers.take_frontier(decode_record(data).body, request.physical_offset)
        key = request.topic, request.queue_id
        # Messages from before the beginning of a queue's present life are of a deleted topic.
        if request.sys_flag & _NOT_FOR_CONSUMERS or request.physical_offset < begins.get(key, 0):
            continue
        is_known = topics is None or request.topic in topics or is_system(request.topic)
        if not is_known and key not in on_disk:
            forgotten[request.topic] += 1
            continue
        if key not in queues:
            queues[key] = _CheckedQueue(store.queue(*key))
        queues[key].look(request)
    # What a damaged log lacks may be the deliveries.
    if not any(item.code in ("log-hole", "log-damaged") for item in findings):
        timer_faults += timers.end()
    findings += _of_timers(store, timer_faults)
    # A restored backup has the log, the tables and `abort` only. What is built from the log is
    # absent there, which is no damage.
    is_new = store.abort and not on_disk and not _has_checkpoint(store)
    findings += _to_build(store, len(queues)) if is_new else _of_queues(store, queues)
    findings += [
        StoreFinding(
            "topic-unknown",
            topic,
            f"the log has {number} messages of it, topics.json has not",
            "it was deleted; its messages go with their files",
            is_fault=False,
        )
        for topic, number in sorted(forgotten.items())
    ]
    if not is_new:
        findings += [*_index(store), *_checkpoint(store), *_abort(store)]
    return VerifyResult(findings, count)


def _log_holes(store: StoreFiles) -> Iterator[StoreFinding]:
    for hole in store.holes:
        yield StoreFinding(
            "log-hole",
            f"{hole.between}, {hole.start}",
            f"{hole.end - hole.start} bytes of the log are in no file",
            "their messages are lost here: copy the file from a replica",
        )


def _damage(damage: Damage) -> StoreFinding:
    return StoreFinding(
        "log-damaged",
        f"{damage.path}, {damage.start}",
        f"{damage.end - damage.start} bytes are no whole record, or its body is not as it was",
        "these messages are lost here: copy the file from a replica; docs/operations.md, "
        '"Damaged stores"',
    )


_TIMER_MEANINGS = {
    TimerFault.DELIVERED_TWICE: ("were delivered again", "consumers get them twice"),
    TimerFault.DELIVERED_EARLY: (
        "were delivered before they were due",
        "consumers got them early: was the clock of a master set?",
    ),
    TimerFault.RECALLED_DELIVERED: (
        "were recalled, and delivered all the same",
        "producers were told that nobody gets them, and consumers did",
    ),
}
_NOT_DELIVERED = "are past their time, and the log has neither a delivery nor a recall of them"


def _of_timers(store: StoreFiles, faults: Sequence[FoundTimerFault]) -> Iterator[StoreFinding]:
    """Yield a finding for each kind of fault, with the place of the first."""
    kinds: dict[tuple[TimerFault, bool], list[FoundTimerFault]] = {}
    for item in faults:
        kinds.setdefault((item.fault, item.is_passed_over), []).append(item)
    for (fault, is_passed_over), items in sorted(kinds.items()):
        first = min(items, key=lambda item: item.place)
        if fault is not TimerFault.NOT_DELIVERED:
            text, meaning = _TIMER_MEANINGS[fault]
        elif is_passed_over:
            text = _NOT_DELIVERED
            meaning = "a record of progress says that they were delivered: send them again"
        else:
            text, meaning = (
                _NOT_DELIVERED,
                "the next start with timerWheelEnable=true delivers them",
            )
        yield StoreFinding(
            fault.lower().replace("_", "-"),
            f"{store.root}, {first.place}",
            f"{len(items)} timer messages {text}; the first is that of {first.source}",
            meaning,
            is_fault=is_passed_over or fault is not TimerFault.NOT_DELIVERED,
        )


def _known_topics(store: StoreFiles, findings: list[StoreFinding]) -> frozenset[str] | None:
    for name in _TABLES:
        try:
            store.config(name)
        except CannotDecide as error:
            meaning = "what it says is lost: copy it from a replica"
            findings.append(
                StoreFinding("table-damaged", f"{store.root}/config/{name}", str(error), meaning)
            )
    try:
        table = store.topics()
    except CannotDecide:
        return None
    return None if table is None else frozenset(table.topics)


def _beginnings(store: StoreFiles, findings: list[StoreFinding]) -> dict[tuple[str, int], int]:
    name = "deletedQueues.json"
    try:
        data = store.config(name)
        return {} if data is None else decode_beginnings(data)
    except (CannotDecide, ProtocolViolation) as error:
        meaning = "messages of deleted topics may come back"
        findings.append(
            StoreFinding("table-damaged", f"{store.root}/config/{name}", str(error), meaning)
        )
        return {}


def _of_queues(
    store: StoreFiles, seen: dict[tuple[str, int], _CheckedQueue]
) -> Iterator[StoreFinding]:
    # Queues without any message in the log are checked, too.
    for key in store.topics_on_disk():
        if key not in seen:
            seen[key] = _CheckedQueue(store.queue(*key))
    for (topic, queue_id), queue in sorted(seen.items()):
        place = f"{store.root}/consumequeue/{topic}/{queue_id}"
        for fault in queue.files.faults:
            yield StoreFinding(
                "queue-files", place, fault, "consumers do not get what is there", QUEUES
            )
        if queue.first_missing is not None:
            first = queue.first_missing
            yield StoreFinding(
                "queue-lacks",
                f"{place}, {first.queue_offset}",
                f"it lacks {queue.missing} messages of the log, from {first.physical_offset} on",
                "consumers do not get them before it is built anew",
                QUEUES,
            )
        if queue.first_wrong is not None:
            first = queue.first_wrong
            yield StoreFinding(
                "queue-wrong",
                f"{place}, {first.queue_offset}",
                f"{queue.wrong} units do not lead to their messages, the first to that at "
                f"{first.physical_offset}",
                "consumers get these messages late or not at all",
                QUEUES,
            )
        behind = queue.files.written_offset - queue.files.max_offset
        if behind > 0:
            yield StoreFinding(
                "queue-ahead",
                f"{place}, {queue.files.max_offset}",
                f"its last {behind} units lead behind the end of the log",
                "the log lost its end, as in a crash; a start cuts them",
                QUEUES,
                is_fault=False,
            )
        odd = sum(row.size % UNIT_SIZE for row in queue.files.row)
        if odd:
            yield StoreFinding(
                "queue-files", place, f"{odd} bytes too many", "a file was cut", QUEUES
            )


def _to_build(store: StoreFiles, queues: int) -> Iterator[StoreFinding]:
    """
    Yield the finding for a store as `restore` leaves it: with log, tables and the mark of a crash
    only.
    """
    yield StoreFinding(
        "restored",
        store.root,
        f"{queues} queues, the index and the checkpoint are not built yet",
        "a restored store is like that: its first start reads all of the log and builds them",
        QUEUES,
        is_fault=False,
    )


def _index(store: StoreFiles) -> Iterator[StoreFinding]:
    for entry in store.files.list(f"{store.root}/index"):
        path = f"{store.root}/index/{entry.name}"
        why = ""
        try:
            header = IndexHeader.decode(store.files.read(path, 0, HEADER_SIZE))
        except (CorruptRecord, OSError) as error:
            why = str(error)
        else:
            slots = entry.size - HEADER_SIZE - header.index_count * ITEM_SIZE
            if slots < header.hash_slot_count * SLOT_SIZE:
                why = f"{header.index_count} items do not fit into its {entry.size} bytes"
            elif header.end_physical_offset > store.max_offset():
                why = f"it leads to {header.end_physical_offset}, behind the end of the log"
        if why:
            meaning = "messages are not found by their keys; consumers do not need it"
            yield StoreFinding("index-wrong", path, why, meaning, INDEX)


def _has_checkpoint(store: StoreFiles) -> bool:
    return any(entry.name == "checkpoint" for entry in store.files.list(store.root))


def _checkpoint(store: StoreFiles) -> Iterator[StoreFinding]:
    path = f"{store.root}/checkpoint"
    entries = [entry for entry in store.files.list(store.root) if entry.name == "checkpoint"]
    meaning = "after a stop that was not clean all of the log is read"
    if not entries:
        yield StoreFinding("checkpoint", path, "it is missing", meaning, CHECKPOINT, is_fault=False)
    elif entries[0].size != CHECKPOINT_SIZE:
        text = f"it has {entries[0].size} bytes, not {CHECKPOINT_SIZE}"
        yield StoreFinding("checkpoint", path, text, meaning, CHECKPOINT)
    else:
        times = store.checkpoint()
        if times is not None and times.flushed_offset > store.max_offset():
            text = f"it says that the log is on the disk up to {times.flushed_offset}"
            text += f", and the log ends at {store.max_offset()}"
            yield StoreFinding("checkpoint", path, text, "the log lost its end", "")


def _abort(store: StoreFiles) -> Iterator[StoreFinding]:
    if store.abort:
        yield StoreFinding(
            "abort",
            f"{store.root}/abort",
            "its last broker did not stop in an orderly way",
            "the next start reads what was written last, and mends queues and index by itself",
            is_fault=False,
        )
