"""The bounds of two logs, and the verdict on them."""

from collections.abc import Iterator, Sequence

from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding, Severity

PARTED = ("DIVERGED", "NOT_ITS_SLAVE")
LOG_CODES = (
    *PARTED,
    "LOG_HOLE",
    "LOG_CUT",
    "LOG_DIFFERS",
    "RECORD_LOST",
    "RECORD_EXTRA",
    "RECORD_DUPLICATED",
    "RECORD_MOVED",
)
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
