"""Which messages are next: of each queue, what is cold and not archived yet."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.offsets.findings import Finding, Severity
from rmq_ha.scan.reducing import INTERNAL
from rmq_ha.spark.archive.manifest import Manifest
from rmq_ha.spark.source.reading import QueueId, QueueRange, Queues, Subscription

IDENTITY = ("msgId", "storeTimestamp")
"""Columns of `identity`."""


class Plan(NamedTuple):
    """
    What a job archives.

    :ivar findings: what it cannot archive, and why.
    """

    ranges: Sequence[QueueRange]
    findings: Sequence[Finding]


def plan(
    queues: Queues, wanted: Subscription, manifest: Manifest, before_ms: int | None, now_ms: int
) -> Plan:
    """
    Look where the queues begin and end now.

    :param wanted: everything means: every topic but those in which brokers keep messages on their
        way.
    :param before_ms: only messages that were stored before; None: all.
    :raises WrongUsage: the archive knows its broker by another name.
    :raises CannotDecide: nobody can be asked.
    """
    there = queues.queues(wanted)
    if wanted.is_everything:
        there = [queue for queue in there if queue.topic not in INTERNAL]
    check_names(manifest.brokers(), {queue.broker for queue in there})
    ends, lasts = manifest.ends(), manifest.lasts()
    ranges: list[QueueRange] = []
    findings: list[Finding] = []
    for queue in there:
        first, end = queues.bounds(queue)
        start = ends.get(queue, first)
        wrong = _fault(queue, start, first, end, now_ms)
        if wrong is not None:
            findings.append(wrong)
        elif was_replaced(queues, queue, start, first, lasts.get(queue, "")):
            findings.append(_replaced(queue, start, now_ms))
            continue
        stop = end
        if before_ms is not None and end > max(start, first):
            cold = queues.offset_at(queue, before_ms)
            stop = end if cold is None else min(cold, end)
        start = max(start, first)
        if start < stop:
            ranges.append(QueueRange(queue, start, stop))
    return Plan(ranges, findings)


def was_replaced(queues: Queues, queue: QueueId, end: int, first: int, last: str) -> bool:
    """
    The queue's message before the archive's end is another one than the archive's last: offsets
    were used again, after a fail-over to a replica that lacked them, or in a topic made anew.

    :param end: the archive's; `first`: where the queue begins now.
    :param last: of `Kept`.
    """
    if not last or first >= end:
        return False
    try:
        for batch in queues.read(QueueRange(queue, end - 1, end), IDENTITY):
            for row in batch.to_pylist():
                return identity(row["msgId"], row["storeTimestamp"]) != last
    except CannotDecide:
        pass  # deleted meanwhile, or damaged: who reads on from there is told
    return False


def identity(msg_id: str, stored_at: datetime) -> str:
    """What is the same on all replicas, and of no other message; `Kept.last`."""
    return f"{msg_id}@{round(stored_at.timestamp() * 1000)}"


def _replaced(queue: QueueId, start: int, now_ms: int) -> Finding:
    return Finding(
        Severity.ERROR,
        "REPLACED",
        f"offset {start - 1}, the last that is archived, holds another message now: offsets were"
        " used again, as after a fail-over to a replica that lacked the end, or in a topic that was"
        " made anew. Nothing more of this queue is archived here, as nobody could tell which is"
        " which: begin another archive (--to) for what is there now",
        queue.broker or None,
        queue.topic,
        queue.queue_id,
        queue_offset=start - 1,
        expected="the message that is archived",
        actual="another one",
        observed_at=now_ms,
    )


def check_names(archived: Collection[str], there: Collection[str]) -> None:
    """
    A queue must have one name for ever: with two of them it would be archived twice.

    :raises WrongUsage: one side has brokers without a name, the other has names.
    """
    if not archived or not there or ("" in archived) == ("" in there):
        return
    if "" in archived:
        raise WrongUsage(
            "this archive was made of a store whose broker was not named, so its queues would be"
            " archived again under their broker's name: give the store, or begin another archive"
        )
    names = ", ".join(sorted(archived))
    raise WrongUsage(f"the archive has messages of {names}: name the store's broker, --broker-name")


def _fault(queue: QueueId, start: int, first: int, end: int, now_ms: int) -> Finding | None:
    if start < first:
        return Finding(
            Severity.ERROR,
            "EXPIRED",
            f"{first - start} messages were deleted before they were archived: the broker keeps"
            " them too short a time (fileReservedTime), or the archive job ran too seldom",
            queue.broker or None,
            queue.topic,
            queue.queue_id,
            queue_offset=start,
            expected=f"offset {start}",
            actual=f"begins at {first}",
            observed_at=now_ms,
        )
    if start > end:
        return Finding(
            Severity.ERROR,
            "ARCHIVE_AHEAD",
            f"the archive has {start - end} messages that the queue does not have: its end was"
            " lost, as in a fail-over to a replica that lacked it, or it is another queue. What is"
            " written there until it has grown again will not be archived",
            queue.broker or None,
            queue.topic,
            queue.queue_id,
            queue_offset=end,
            expected=f"at least {start} messages",
            actual=f"ends at {end}",
            observed_at=now_ms,
        )
    return None


class Took(NamedTuple):
    """
    What was read back of a queue: how many rows, how many offsets, the least and greatest.

    :ivar last: `identity` of the greatest.
    """

    rows: int
    offsets: int
    least: int
    most: int
    last: str = ""


def verify(
    ranges: Sequence[QueueRange], took: Mapping[QueueId, Took], now_ms: int
) -> list[Finding]:
    """
    Compare what was written with what was asked for.

    :return: ERROR: it must not be committed. WARN: the source has holes there.
    """
    findings: list[Finding] = []

    def tell(severity: Severity, code: str, queue: QueueId, at: int, *texts: str) -> None:
        detail, expected, actual = texts
        findings.append(
            Finding(
                severity, code, detail, queue.broker or None, queue.topic, queue.queue_id,
                queue_offset=at, expected=expected, actual=actual, observed_at=now_ms,
            )
        )  # fmt: skip

    asked = {each.queue: each for each in ranges}
    for queue, got in took.items():
        wanted = asked.get(queue)
        if wanted is None or got.least < wanted.start or got.most >= wanted.stop:
            tell(
                Severity.ERROR, "VERIFY_FAILED", queue, got.least,
                "written although it was not asked for; nothing of the run counts. Run it again",
                "nothing" if wanted is None else f"[{wanted.start}, {wanted.stop})",
                f"[{got.least}, {got.most}]",
            )  # fmt: skip
        elif got.rows != got.offsets:
            tell(
                Severity.ERROR, "VERIFY_FAILED", queue, got.least,
                "offsets were written twice: the log has two records for one offset. Nothing of"
                " the run counts; audit-messages finds them",
                f"{got.offsets} rows", f"{got.rows} rows",
            )  # fmt: skip
    for queue, wanted in asked.items():
        got_rows = took[queue].offsets if queue in took else 0
        missing = wanted.stop - wanted.start - got_rows
        if missing > 0:
            tell(
                Severity.WARN, "HOLE", queue, wanted.start,
                f"{missing} offsets from here on have no message that can be read in the source;"
                " the archive has none for them either. audit-messages says which",
                f"{wanted.stop - wanted.start} messages", f"{got_rows}",
            )  # fmt: skip
    return findings
