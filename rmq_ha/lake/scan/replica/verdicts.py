"""Rules that judge the sums over all stretches: they make findings and the verdict of them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.lake.scan.replica.codes import finding
from rmq_ha.ops.offline.log_files import Hole
from rmq_ha.ops.offsets.findings import Finding, Severity

PARTED = ("DIVERGED", "NOT_ITS_SLAVE")
LOG_CODES = (
    *PARTED,
    "LOG_HOLE",
    "LOG_DIFFERS",
    "RECORD_LOST",
    "RECORD_EXTRA",
    "RECORD_DUPLICATED",
    "RECORD_MOVED",
)
"""Codes of findings that say that the slave's log is not the master's."""


class QueueSum(NamedTuple):
    """
    The sums of one queue of one side, over the whole log.

    :ivar entries: number of entries that the queue has.
    :ivar first: queue offset of the first entry; -1: there is none.
    :ivar matched: number of records whose entry was found; for `wrong` to `old` see `queues.Tally`.
    """

    side: str
    topic: str
    queue_id: int
    entries: int
    matched: int
    wrong: int
    missing: int
    pending: int
    old: int
    first: int = -1

    @property
    def surplus(self) -> int:
        """Number of entries to which no record belongs."""
        return self.entries - self.matched - self.wrong


class DelaySum(NamedTuple):
    """
    Delayed messages of one level and one delay in ms on one side, and the first and last of them.
    """

    side: str
    level: int
    delay: int
    messages: int
    first: int
    last: int
    queue_id: int
    queue_offset: int


class TailState(NamedTuple):
    """
    The end of one side's log.

    :ivar known: physical offset of the end of the last record that the store's queues have an entry
        for; `topic` to `queue_offset` name that record.
    :ivar abort: whether the file `abort` exists: a broker has the store open, or was killed.
    :ivar residue: whether there are bytes after the end of the log.
    """

    side: str
    end: int
    known: int
    topic: str
    queue_id: int
    queue_offset: int
    abort: bool
    residue: bool


def judge_queues(
    sums: Sequence[QueueSum], deleted: Collection[tuple[str, str]] = ()
) -> Iterator[Finding]:
    """
    Yield findings about whole queues, few for many entries.

    :param deleted: pairs of a side and a topic that was deleted on that side.
    """
    pending: dict[str, int] = defaultdict(int)
    filled: dict[tuple[str, int], int] = {}
    for queue in sums:
        if queue.entries:
            name = queue.topic, queue.queue_id
            filled[name] = min(queue.first, filled.get(name, queue.first))
    for queue in sums:
        pending[queue.side] += queue.pending
        where: dict[str, Any] = {
            "broker": queue.side,
            "topic": queue.topic,
            "queue_id": queue.queue_id,
        }
        least = filled.get((queue.topic, queue.queue_id), queue.first)
        if queue.old and not queue.entries and (queue.side, queue.topic) in deleted:
            yield finding("CQ_DELETED", f"{queue.old} messages.", **where)
        elif queue.old and not queue.entries and (queue.topic, queue.queue_id) in filled:
            yield finding(
                "CQ_MISSING",
                f"{queue.old} messages: the whole queue is empty here, and not on the other side.",
                **where,
            )
        elif queue.old and least < queue.first:
            note = f"{queue.old} messages: begins at {queue.first}, on the other side at {least}."
            yield finding("CQ_FORGOTTEN", note, severity=Severity.ERROR, **where)
        elif queue.old:
            yield finding("CQ_FORGOTTEN", f"{queue.old} messages.", **where)
    for side, count in pending.items():
        if count:
            yield finding("CQ_NOT_DISPATCHED", f"{count} messages.", broker=side)


def judge_delays(sums: Sequence[DelaySum]) -> Iterator[Finding]:
    """
    Yield findings for levels with several delays: each level has one, unless its setting was
    changed.
    """
    levels: dict[tuple[str, int], list[DelaySum]] = defaultdict(list)
    for delay in sums:
        levels[delay.side, delay.level].append(delay)
    usual: dict[int, DelaySum] = {}
    for (_, level), row in levels.items():
        main = max(row, key=lambda delay: delay.messages)
        for delay in row:
            if delay is not main:
                yield _odd_delay(delay, main, delay.first > main.last or delay.last < main.first)
        other = usual.setdefault(level, main)
        if other.delay != main.delay:
            yield _odd_delay(main, other, True)


def _odd_delay(odd: DelaySum, main: DelaySum, changed: bool) -> Finding:
    return finding(
        "CQ_LEVELS_CHANGED" if changed else "CQ_DELIVERY_TIME",
        f"{odd.messages} messages of level {odd.level}.",
        broker=odd.side,
        topic=SCHEDULE_TOPIC,
        queue_id=odd.queue_id,
        queue_offset=odd.queue_offset,
        physical_offset=odd.first,
        expected=f"{main.delay} ms after it was stored",
        actual=f"{odd.delay} ms",
    )


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


def judge_bounds(
    names: Sequence[str], ranges: Sequence[tuple[int, int]], is_quorum: bool
) -> Iterator[Finding]:
    """Yield findings for the beginning and the end of a log that the other log lacks."""
    (begin, end), (slave_begin, slave_end) = ranges
    if slave_begin > begin:
        yield finding(
            "SLAVE_STARTS_LATER",
            f"{slave_begin - begin} bytes.",
            broker=names[1],
            physical_offset=slave_begin,
        )
    if end > slave_end:
        yield finding(
            "MASTER_AHEAD", f"{end - slave_end} bytes.", broker=names[1], physical_offset=slave_end
        )
    if slave_end > end:
        # A member of a DLedger group may hold entries that were never committed; the leader will
        # cut them.
        yield finding(
            "SLAVE_AHEAD",
            f"{slave_end - end} bytes.",
            severity=Severity.WARN if is_quorum else None,
            broker=names[1],
            physical_offset=end,
        )


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


class IndexState(NamedTuple):
    """
    The index files of one side.

    :ivar faults: faults of files that cannot be read.
    :ivar spans: first and last physical offset of each other file that has items.
    :ivar low: physical offset at which the log begins.
    :ivar known: physical offset up to which the log was dispatched.
    """

    side: str
    faults: Sequence[str]
    spans: Sequence[tuple[int, int]]
    low: int
    known: int


def judge_index(states: Sequence[IndexState]) -> Iterator[Finding]:
    """Yield findings for damaged files, and for an index that only one side has."""
    for at, state in enumerate(states):
        for fault in state.faults:
            yield finding("INDEX_UNREADABLE", f"{fault}.", broker=state.side)
        mine = [
            span for span in states[at - 1].spans if span[1] >= state.low and span[0] < state.known
        ]
        if not state.faults and not state.spans and mine:
            yield finding(
                "INDEX_MISSING",
                broker=state.side,
                physical_offset=min(mine)[0],
                expected=f"as on the other side, from {min(mine)[0]} on",
                actual="no index file",
            )


def judge_checkpoint(name: str, times: CheckpointTimes | None, newest: int) -> Iterator[Finding]:
    """
    Yield findings for a checkpoint that is missing, damaged, or ahead of the log.

    :param newest: store time of the newest message.
    """
    if times is None:
        yield finding("CHECKPOINT_MISSING", broker=name)
    elif min(times) < 0:
        yield finding("CHECKPOINT_DAMAGED", broker=name, actual=str(min(times)))
    elif max(times[:3]) > newest:
        yield finding(
            "CHECKPOINT_AHEAD",
            broker=name,
            expected=f"at most {newest}",
            actual=str(max(times[:3])),
        )


def judge_keys(sums: Iterable[tuple[str, int]]) -> Iterator[Finding]:
    """
    Yield a finding for each side whose index does not have all keys of its log yet.

    :param sums: for each side the number of keys that its index lacks.
    """
    for side, pending in sums:
        if pending:
            yield finding("INDEX_NOT_DISPATCHED", f"{pending} keys.", broker=side)


def verdict(
    common: tuple[int, int],
    messages: int | None,
    first: Finding | None,
    errors: int,
    *,
    is_alone: bool = False,
) -> str:
    """
    Return the last line of the output.

    :param messages: number of messages that were compared; None: they were not counted.
    :param first: the first difference between the logs.
    :param errors: number of findings of severity ERROR.
    :param is_alone: one store was compared with itself.
    """
    stretch = f"[{common[0]}, {common[1]})"
    error_count = "1 error" if errors == 1 else f"{errors} errors"
    if first is not None and first.code in PARTED:
        return f"replica differs over {stretch}: {first.detail.partition('. ')[0]}; {error_count}"
    if first is not None:
        who = f"message {first.msg_id} (" if first.msg_id else "("
        if first.topic is not None:
            who += f"topic {first.topic}, queue {first.queue_id}, offset {first.queue_offset}, "
        return (
            f"replica differs over {stretch}: first at {first.physical_offset}, "
            f"{who}{first.code}): master {first.expected}, slave {first.actual}; {error_count}"
        )
    count = f"{common[1] - common[0]} bytes" if messages is None else f"{messages} messages"
    same = f"{'store read' if is_alone else 'replica identical'} over {stretch}: {count}"
    where = "it" if is_alone else "the stores"
    return f"{same}; but {error_count} within {where}: see the findings" if errors else same
