"""What counts as what: kinds of topics, codes and severities, latency classes.

Spec: store.md, sections 2.3, 2.4, 10 and 11.
"""

from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F

from rmq_ha.model.flags import TRANSACTION_PREPARED
from rmq_ha.model.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
)
from rmq_ha.offsets.findings import Severity
from rmq_ha.scan.reducing import INTERNAL, STEPS, WIDEST


class Code(StrEnum):
    """The vocabulary of the findings."""

    LOST = "LOST"
    DELIVERED_LOST = "DELIVERED_LOST"
    GAP = "GAP"
    TAIL_LOST = "TAIL_LOST"
    DELAY_NOT_DELIVERED = "DELAY_NOT_DELIVERED"
    RETRY_LOST = "RETRY_LOST"
    COMMIT_LOST = "COMMIT_LOST"
    OFFSET_TWICE = "OFFSET_TWICE"
    SWAPPED = "SWAPPED"
    BAD_CRC = "BAD_CRC"
    DUPLICATE = "DUPLICATE"
    KEY_REUSED = "KEY_REUSED"
    OUT_OF_ORDER = "OUT_OF_ORDER"
    NEVER_DELIVERED = "NEVER_DELIVERED"
    DELIVERED_TWICE = "DELIVERED_TWICE"
    OPEN_HALF = "OPEN_HALF"
    CLOCK_BACK = "CLOCK_BACK"
    UNPRODUCED = "UNPRODUCED"
    QUEUE_RESTARTED = "QUEUE_RESTARTED"


SEVERITIES: dict[Code, Severity] = {
    Code.LOST: Severity.ERROR,
    Code.DELIVERED_LOST: Severity.ERROR,
    Code.GAP: Severity.ERROR,
    Code.TAIL_LOST: Severity.ERROR,
    Code.DELAY_NOT_DELIVERED: Severity.ERROR,
    Code.RETRY_LOST: Severity.ERROR,
    Code.COMMIT_LOST: Severity.ERROR,
    Code.OFFSET_TWICE: Severity.ERROR,
    Code.SWAPPED: Severity.ERROR,
    Code.BAD_CRC: Severity.ERROR,
    Code.OUT_OF_ORDER: Severity.ERROR,
    Code.NEVER_DELIVERED: Severity.ERROR,
    # RocketMQ promises "at least once": a producer repeats a send whose answer was lost, a consumer
    # is given again what it did not acknowledge.
    Code.DUPLICATE: Severity.WARN,
    Code.KEY_REUSED: Severity.WARN,
    Code.DELIVERED_TWICE: Severity.WARN,
    Code.OPEN_HALF: Severity.WARN,
    Code.CLOCK_BACK: Severity.WARN,
    Code.UNPRODUCED: Severity.INFO,
    Code.QUEUE_RESTARTED: Severity.INFO,
}


def ordinary(topic: Column) -> Column:
    """`is_ordinary` of a column."""
    return ~(topic.isin(*INTERNAL) | topic.startswith(RETRY_PREFIX) | topic.startswith(DLQ_PREFIX))


def in_queue(sys_flag: Column) -> Column:
    """
    The record has a place in its queue; records of the types prepared and rollback have none, and 0
    as their offset.
    """
    return sys_flag.bitwiseAND(F.lit(TRANSACTION_PREPARED)) == 0


def latency_column(ms: Column) -> Column:
    """`reducing.latency_floors` of a column."""
    found = F.when(ms < 0, F.lit(-1).cast("long"))
    for below, step in STEPS:
        found = found.when(ms < below, ms - ms % step)
    return found.otherwise(ms - ms % WIDEST)
