"""The bounds of two logs, changes that both have, and the verdict."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding, Severity

PARTED = ("DIVERGED", "NOT_ITS_SLAVE")
LOG_CODES = (
    *PARTED, "LOG_HOLE", "LOG_CUT", "LOG_DIFFERS", "RECORD_LOST", "RECORD_EXTRA",
    "RECORD_DUPLICATED", "RECORD_MOVED",
)  # fmt: skip
"""Codes of findings that say that the slave's log is not the master's."""


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


_FILED = ("CQ_TAGS", "CQ_MISSING", "CQ_OFFSET", "CQ_DANGLING", "INDEX_HOLE", "INDEX_WRONG")
"""Codes of findings about the entries that queues and index have for a record."""
Sides = dict[str | None, list[Finding]]


def blamed_on_the_log(findings: Iterable[Finding], names: Sequence[str]) -> list[Finding]:
    """
    Replace the findings of a record's entries by one finding of the record, if both sides have
    equal entries that do not fit it: two brokers do not damage entries in the same way.
    """
    every = list(findings)
    by_place: dict[int, Sides] = defaultdict(lambda: defaultdict(list))
    for fault in every:
        if fault.code in _FILED and fault.physical_offset is not None:
            by_place[fault.physical_offset][fault.broker].append(fault)
    changed = {at: sides for at, sides in by_place.items() if _is_in_both(sides, names)}
    rest = [
        fault for fault in every if fault.code not in _FILED or fault.physical_offset not in changed
    ]
    return rest + [_changed_record_finding(sides[names[0]]) for sides in changed.values()]


def _is_in_both(sides: Sides, names: Sequence[str]) -> bool:
    """Return whether the findings of both sides are equal, and show a changed tag or key."""
    mine, theirs = (
        {(fault.code, fault.expected, fault.actual) for fault in sides.get(name, ())}
        for name in names
    )
    codes = {code for code, *_ in mine}
    return mine == theirs and ("CQ_TAGS" in codes or {"INDEX_HOLE", "INDEX_WRONG"} <= codes)


def _changed_record_finding(findings: Sequence[Finding]) -> Finding:
    """Return one finding for a record in place of the findings of its entries on one side."""
    named = max(
        findings, key=lambda fault: (fault.msg_id is not None, fault.queue_offset is not None)
    )
    told = "; ".join(
        sorted({f"{fault.code} {fault.expected} / {fault.actual}" for fault in findings})
    )
    place = named._asdict()
    return finding(
        "RECORD_CHANGED",
        f"Queue and index of both sides, which are alike, do not fit the record ({told}).",
        broker="both",
        **{
            name: place[name]
            for name in ("topic", "queue_id", "queue_offset", "physical_offset", "msg_id")
        },
    )
