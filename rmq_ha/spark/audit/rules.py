"""What counts as what: kinds of topics, codes and severities, latency classes.

Spec: store.md, sections 2.3, 2.4, 10 and 11.
"""

from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F

from rmq_ha.model.flags import TRANSACTION_PREPARED
from rmq_ha.model.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OFFSET_MOVED_EVENT,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from rmq_ha.offsets.findings import Severity

INTERNAL = (
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    OFFSET_MOVED_EVENT,
)
"""Where brokers keep messages on their way: the same message may lie here several times."""

STEPS = ((64, 1), (512, 4), (4_096, 32), (32_768, 256), (262_144, 2_048), (2_097_152, 16_384))
WIDEST = 131_072
"""Classes of latency: below so many ms, so wide; and how wide above."""


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


def is_ordinary(topic: str) -> bool:
    """A topic that producers send to, in which a message belongs once."""
    return topic not in INTERNAL and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def ordinary(topic: Column) -> Column:
    """`is_ordinary` of a column."""
    return ~(topic.isin(*INTERNAL) | topic.startswith(RETRY_PREFIX) | topic.startswith(DLQ_PREFIX))


def in_queue(sys_flag: Column) -> Column:
    """
    The record has a place in its queue; records of the types prepared and rollback have none, and 0
    as their offset.
    """
    return sys_flag.bitwiseAND(F.lit(TRANSACTION_PREPARED)) == 0


def latency_floor(ms: int) -> int:
    """What stands for a latency: exact below 64 ms, up to 6 % less above; -1: clocks disagree."""
    if ms < 0:
        return -1
    return next((ms - ms % step for below, step in STEPS if ms < below), ms - ms % WIDEST)


def latency_column(ms: Column) -> Column:
    """`latency_floor` of a column."""
    found = F.when(ms < 0, F.lit(-1).cast("long"))
    for below, step in STEPS:
        found = found.when(ms < below, ms - ms % step)
    return found.otherwise(ms - ms % WIDEST)
