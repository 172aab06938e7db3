"""Checks the ends of queues: records that a consume queue points to must be in the log."""

from collections.abc import Collection, Mapping, Sequence

from rmq_ha.lake.spark.audit.rules import SEVERITIES, Code
from rmq_ha.lake.spark.audit.stored_rows import queues_of_stores
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.ops.offsets.places import Place

Ends = Mapping[tuple[str, str, int], int]
"""By broker, topic and queue: the offset after the last entry of the consume queue."""


def written_ends(places: Sequence[Place], topics: Collection[str]) -> Ends:
    """
    Return the ends of the consume queues of stores. Brokers over the wire only tell ends that can
    be read.

    Call this before the log is read, because brokers write the log first.

    :param topics: topics to look at; empty: all.
    :raises CannotDecide: a store cannot be read.
    """
    return {
        (label, topic, queue_id): queue.written_offset
        for label, topic, queue_id, queue in queues_of_stores(places)
        if not topics or topic in topics
    }


def tail_findings(written: Ends, stored: Ends, now_ms: int) -> list[Finding]:
    """
    Return findings for entries at the end of queues whose records the log does not have.

    A queue of which the log has no record is left out: retention may have deleted all of them.

    :param written: result of `written_ends`.
    :param stored: the ends of the queues in the log.
    """
    return [
        Finding(
            SEVERITIES[Code.TAIL_LOST],
            Code.TAIL_LOST,
            f"the consume queue has {end - stored[place]} entries behind the last record of the"
            " log: the log's end was torn or cut. Do not start this broker before its end was"
            " compared with a replica (verify-replica): a start cuts the queue",
            place[0] or None,
            place[1],
            place[2],
            queue_offset=stored[place],
            expected=f"offsets up to {end - 1}",
            actual=f"up to {stored[place] - 1}",
            observed_at=now_ms,
        )
        for place, end in sorted(written.items())
        if place in stored and end > stored[place]
    ]
