"""
Kinds of topics, codes and severities, and classes of latency.

Spec: store.md, sections 2.3, 2.4, 10 and 11.
"""

from enum import StrEnum

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column
from rmq_ha.ops.offsets.findings import Severity


class Code(StrEnum):
    """The codes of the audit's findings; docs/reference/spark-findings.md explains them."""

    LOST = "LOST"
    DELIVERED_LOST = "DELIVERED_LOST"
    GAP = "GAP"
    TAIL_LOST = "TAIL_LOST"
    DELAY_NOT_DELIVERED = "DELAY_NOT_DELIVERED"
    RETRY_LOST = "RETRY_LOST"
    TIMER_NOT_DELIVERED = "TIMER_NOT_DELIVERED"
    TIMER_DELIVERED_TWICE = "TIMER_DELIVERED_TWICE"
    TIMER_DELIVERED_EARLY = "TIMER_DELIVERED_EARLY"
    TIMER_RECALLED_DELIVERED = "TIMER_RECALLED_DELIVERED"
    COMMIT_LOST = "COMMIT_LOST"
    OFFSET_TWICE = "OFFSET_TWICE"
    SWAPPED = "SWAPPED"
    BAD_CRC = "BAD_CRC"
    BODY_CHANGED = "BODY_CHANGED"
    DELIVERED_CHANGED = "DELIVERED_CHANGED"
    KEYS_CHANGED = "KEYS_CHANGED"
    NOT_COMPRESSED = "NOT_COMPRESSED"
    ROLLBACK_VISIBLE = "ROLLBACK_VISIBLE"
    DELAY_EARLY = "DELAY_EARLY"
    DELIVERED_EARLY = "DELIVERED_EARLY"
    LOST_OR_EXPIRED = "LOST_OR_EXPIRED"
    DUPLICATE = "DUPLICATE"
    KEY_REUSED = "KEY_REUSED"
    OUT_OF_ORDER = "OUT_OF_ORDER"
    NEVER_DELIVERED = "NEVER_DELIVERED"
    DELIVERED_TWICE = "DELIVERED_TWICE"
    OPEN_HALF = "OPEN_HALF"
    CLOCK_BACK = "CLOCK_BACK"
    UNPRODUCED = "UNPRODUCED"
    QUEUE_RESTARTED = "QUEUE_RESTARTED"


# RocketMQ promises "at least once": a producer repeats a send whose answer was lost, and a consumer
# is given a message again that it did not acknowledge.
_WARNINGS = (
    Code.DUPLICATE, Code.KEY_REUSED, Code.DELIVERED_TWICE, Code.OPEN_HALF, Code.CLOCK_BACK,
    Code.LOST_OR_EXPIRED,
)  # fmt: skip
SEVERITIES: dict[Code, Severity] = {
    **dict.fromkeys(Code, Severity.ERROR),
    **dict.fromkeys(_WARNINGS, Severity.WARN),
    Code.UNPRODUCED: Severity.INFO,
    Code.QUEUE_RESTARTED: Severity.INFO,
}


def in_queue(sys_flag: Column) -> Column:
    """Return the condition for records with a place in their queue; see `are_in_queue`."""
    return sys_flag.bitwiseAND(F.lit(TRANSACTION_PREPARED)) == 0
