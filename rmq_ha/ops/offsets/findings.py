"""Findings of a job, one row for each fault or difference; and the job's exit code."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple


class Outcome(IntEnum):
    """The exit code of a job."""

    HOLDS = 0
    VIOLATED = 1
    USAGE = 2
    UNDECIDED = 3
    FAILED = 4


class Severity(StrEnum):
    """
    How bad a finding is. Only an ERROR (with `--strict` a WARN too) makes a job's answer
    "violated".
    """

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class Finding(NamedTuple):
    """
    One row of the findings. Fields that do not apply are None.

    :ivar severity: a `Severity`; plain text, so that rows can be pickled and compared anywhere.
    :ivar code: the kind of the finding, in capitals (`MISSING_ON_SLAVE`).
    :ivar physical_offset: in the commit log, bytes.
    :ivar queue_offset: in the queue, messages.
    :ivar msg_id: the message's id, as in the column `msgId` of the data source.
    :ivar detail: a sentence for the operator: the meaning and the next step.
    :ivar observed_at: ms since the epoch.
    """

    severity: str
    code: str
    detail: str
    broker: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    group: str | None = None
    physical_offset: int | None = None
    queue_offset: int | None = None
    msg_id: str | None = None
    expected: str | None = None
    actual: str | None = None
    observed_at: int | None = None


def camel_case(name: str) -> str:
    """Return a name like `queue_id` as `queueId`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


COLUMNS: Sequence[str] = tuple(map(camel_case, Finding._fields))
"""Names of the fields of a `Finding` in tables and JSON."""
