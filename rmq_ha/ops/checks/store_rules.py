"""
Rules about a store as a whole: holes in its log, the log's end, the checkpoint and the tables.

A log that ends in the middle of a record is judged by what the next start does. After a crash
(`abort` exists) the start wipes such a record, and the finding is a WARN. After a clean stop all
records that the queues know were on the disk. So a queue that goes on behind the log's end, or a
checkpoint that says that more was flushed, means that messages were lost, and is an ERROR. Bytes
behind the end that no queue knows were never acknowledged, and are an INFO.

Spec: store.md, sections 5.1, 5.2 and 5.4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide, ProtocolViolation
from rmq_ha.base.store_format.checkpoint import CHECKPOINT_SIZE, CheckpointTimes
from rmq_ha.base.store_format.deleted_queues import decode_beginnings
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.log_files import Hole
from rmq_ha.ops.offsets.findings import Finding, Severity

_TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
_DELETED = "deletedQueues.json"


def judge_holes(name: str, holes: Sequence[Hole]) -> Iterator[Finding]:
    """Yield findings for the holes in a log."""
    for hole in holes:
        yield finding(
            "LOG_HOLE",
            f"{hole.end - hole.start} bytes between {hole.between}.",
            broker=name,
            physical_offset=hole.start,
            expected=f"bytes up to {hole.end}",
            actual="no file",
        )


class TailState(NamedTuple):
    """
    The end of the log of one store.

    :ivar end: physical offset behind the last whole record.
    :ivar known: physical offset behind the last record that the store's queues have an entry for;
        `topic` to `queue_offset` name that record.
    :ivar abort: whether the file `abort` exists: a broker has the store open, or was killed.
    """

    side: str
    end: int
    known: int
    topic: str
    queue_id: int
    queue_offset: int
    abort: bool
    residue: bool


def judge_tail(state: TailState) -> Iterator[Finding]:
    """Yield findings for a log that ends before its queues do, or in the middle of a record."""
    if state.known > state.end:
        yield finding(
            "TORN_TAIL",
            severity=Severity.WARN if state.abort else None,
            broker=state.side,
            topic=state.topic,
            queue_id=state.queue_id,
            queue_offset=state.queue_offset,
            physical_offset=state.end,
            expected=f"records up to {state.known}",
            actual=f"records up to {state.end}",
        )
    elif state.residue:
        yield finding("TAIL_RESIDUE", broker=state.side, physical_offset=state.end)


def tail_findings(
    name: str, store: StoreFiles, ends: Iterable[tuple[int, tuple[str, int], int]]
) -> Iterator[Finding]:
    """
    Yield findings about the end of a store's log.

    :param ends: for each queue the physical offset behind the last record that it has an entry for,
        its topic and queue id, and the queue offset of that record.
    """
    known, key, last = max(ends, default=(-1, ("", -1), -1))
    end = store.max_offset()
    residue = has_residue(store, end)
    return judge_tail(TailState(name, end, known, *key, last, store.abort, residue))


def has_residue(store: StoreFiles, end: int) -> bool:
    """Return whether the next 8 bytes behind the end of the log are not all 0."""
    return any(
        any(store.files.read(file.path, end - file.base, 8))
        for file in store.log_files()
        if file.base <= end < file.end
    )


class CheckpointState(NamedTuple):
    """
    The checkpoint of a store, and the log that it is compared with.

    :ivar size: bytes of the file; -1 if it is missing.
    :ivar times: the content of the file; all times are 0 if it is missing.
    :ivar newest: store time of the newest message, ms since the epoch.
    """

    size: int
    times: CheckpointTimes
    end: int
    newest: int


def checkpoint_state(store: StoreFiles, end: int, newest: int) -> CheckpointState:
    entries = [entry for entry in store.files.list(store.root) if entry.name == "checkpoint"]
    times = store.checkpoint() or CheckpointTimes()
    return CheckpointState(entries[0].size if entries else -1, times, end, newest)


def judge_checkpoint(name: str, state: CheckpointState) -> Iterator[Finding]:
    """Yield findings for a checkpoint that is missing, damaged, or ahead of the log."""
    size, times, end, newest = state
    if size < 0:
        yield finding("CHECKPOINT_MISSING", broker=name)
    elif size != CHECKPOINT_SIZE:
        yield finding(
            "CHECKPOINT_DAMAGED",
            broker=name,
            expected=f"{CHECKPOINT_SIZE} bytes",
            actual=f"{size} bytes",
        )
    elif min(times) < 0:
        yield finding("CHECKPOINT_DAMAGED", broker=name, actual=str(min(times)))
    elif max(times[:3]) > newest:
        yield finding(
            "CHECKPOINT_AHEAD",
            broker=name,
            expected=f"at most {newest}",
            actual=str(max(times[:3])),
        )
    if times.flushed_offset > end:
        yield finding(
            "LOG_CUT",
            broker=name,
            physical_offset=end,
            expected=f"records up to {times.flushed_offset}",
            actual=f"records up to {end}",
        )


def judge_tables(name: str, store: StoreFiles) -> Iterator[Finding]:
    """Yield findings for tables that are damaged, or of which only the backup can be read."""
    for table in _TABLES:
        known = len(store.notes)
        try:
            store.config(table)
        except CannotDecide as error:
            yield finding("TABLE_DAMAGED", f"{error}.", broker=name, actual=table)
            continue
        for note in store.notes[known:]:
            yield finding(
                "TABLE_DAMAGED",
                f"{note}.",
                severity=Severity.WARN,
                broker=name,
                actual=table,
            )
    try:
        queue_beginnings(store)
    except CannotDecide as error:
        yield finding("TABLE_DAMAGED", f"{error}.", broker=name, actual=_DELETED)


def queue_beginnings(store: StoreFiles) -> Mapping[tuple[str, int], int]:
    """
    Return the physical offset where the present life of a queue begins, by topic and queue id.
    Only queues are in it of whose name a topic was deleted; older messages belong to that topic.

    :raises CannotDecide: the table is damaged.
    """
    try:
        data = store.config(_DELETED)
        return {} if data is None else decode_beginnings(data)
    except ProtocolViolation as error:
        path = f"{store.root}/config/{_DELETED}"
        raise CannotDecide(
            f"{path} is damaged: {error}. Messages of deleted topics may come back: copy the file"
            " from a replica"
        ) from None
