"""Finds a record that was changed in both logs: queues and index have its former values."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding

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
