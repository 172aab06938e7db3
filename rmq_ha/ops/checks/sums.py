"""
Rules about sums over a whole store: its queues, its delays, and the keys in its index.

The rules take the sums of one store or of a pair. With a pair they also compare the two; a store is
then called a side.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.topics import LMQ_PREFIX, SCHEDULE_TOPIC, is_system
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offsets.findings import Finding, Severity


class QueueSum(NamedTuple):
    """
    The numbers of entries and records of one queue in one store, over the whole log.

    :ivar first: queue offset of the first entry; -1 if there is none.
    :ivar matched: number of records whose entry was found; for `wrong` to `old` see
        `rmq_ha.ops.checks.units.UnitCheck`.
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
    The delayed messages of one level in one store that have the same delay.

    :ivar delay: time from store to delivery, ms.
    :ivar first: physical offset of the first message; `queue_id` and `queue_offset` name it.
    :ivar last: physical offset of the last message.
    """

    side: str
    level: int
    delay: int
    messages: int
    first: int
    last: int
    queue_id: int
    queue_offset: int


class IndexState(NamedTuple):
    """
    The index files of one store.

    :ivar spans: first and last physical offset of the items of each readable file that has some.
    :ivar low: physical offset at which the log begins.
    :ivar known: physical offset up to which the log was dispatched.
    """

    side: str
    faults: Sequence[str]
    spans: Sequence[tuple[int, int]]
    low: int
    known: int


def judge_sums(
    queues: Sequence[QueueSum],
    delays: Sequence[DelaySum],
    keys: Iterable[tuple[str, int]],
    indexes: Sequence[IndexState],
    tables: Mapping[str, Collection[str] | None],
    *,
    is_pair: bool,
) -> Iterator[Finding]:
    """
    Yield findings about the sums of one store, or of a master and its slave.

    :param keys: for each side the number of keys that its index lacks.
    :param tables: by side, the master first, the topics that its table has; None: it cannot be
        read. A slave takes its table from its master, so a topic that only the slave's table lacks
        was not deleted. In a pair the other side shows that a queue is gone; in one store its table
        of topics shows it.
    """
    names = list(tables)
    topics = {
        (queue.side, queue.topic) for queue in queues if not queue.topic.startswith(LMQ_PREFIX)
    }
    deleted = {
        (side, topic)
        for side, topic in topics
        if all(_is_deleted(topic, tables[name]) for name in names[: names.index(side) + 1])
    }
    present = {
        (side, topic)
        for side, topic in topics
        if not is_pair and (table := tables[side]) is not None
        if topic in table or is_system(topic)
    }
    yield from judge_queues(queues, deleted, present)
    yield from judge_delays(delays)
    yield from judge_keys(keys)
    yield from judge_index(indexes)


def _is_deleted(topic: str, table: Collection[str] | None) -> bool:
    return table is not None and topic not in table and not is_system(topic)


def topics_of(store: StoreFiles) -> Collection[str] | None:
    """Return the topics in a store's table; None if the table is missing or damaged."""
    try:
        table = store.topics()
    except CannotDecide:
        return None
    return None if table is None else table.topics


def judge_queues(
    sums: Sequence[QueueSum],
    deleted: Collection[tuple[str, str]] = (),
    present: Collection[tuple[str, str]] = (),
) -> Iterator[Finding]:
    """
    Yield findings about whole queues: at most one for a queue, and one for each side.

    :param deleted: pairs of a side and a topic that was deleted on that side.
    :param present: pairs of a side and a topic that exists there; empty where two stores are
        compared.
    """
    pending: dict[str, int] = defaultdict(int)
    # The least first offset of each queue on any side: a side that begins later lost entries.
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
        elif queue.old and not queue.entries and (queue.side, queue.topic) in present:
            note = f"{queue.old} messages: the whole queue is empty, and its topic exists."
            yield finding("CQ_FORGOTTEN", note, severity=Severity.ERROR, **where)
        elif queue.old:
            yield finding("CQ_FORGOTTEN", f"{queue.old} messages.", **where)
    for side, count in pending.items():
        if count:
            yield finding("CQ_NOT_DISPATCHED", f"{count} messages.", broker=side)


def judge_delays(sums: Sequence[DelaySum]) -> Iterator[Finding]:
    """Yield findings for levels with several delays: a level has one, unless it was changed."""
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


def judge_keys(sums: Iterable[tuple[str, int]]) -> Iterator[Finding]:
    """Yield a finding for each side whose index lacks so many keys of its log."""
    for side, pending in sums:
        if pending:
            yield finding("INDEX_NOT_DISPATCHED", f"{pending} keys.", broker=side)
