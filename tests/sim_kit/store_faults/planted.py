"""The planted faults, and the findings that must report them."""

from typing import NamedTuple

REPLICA = "verify_replica"
OFFSETS = "verify_offsets"
AUDIT = "audit_messages"


class Planted(NamedTuple):
    """
    One fault: where it is, in the terms of the healthy store that the damaged one was made from.

    :ivar kind: one of the twelve kinds of faults.
    :ivar variant: the variant of the kind.
    :ivar job: the job that has to find it.
    :ivar codes: codes of findings of the job; each of them is a right answer.
    :ivar physical_offset: physical offset in the healthy log.
    :ivar field: the field of the record that differs, by its name in the data source.
    """

    kind: str
    variant: str
    job: str
    codes: tuple[str, ...]
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    group: str | None = None
    physical_offset: int | None = None
    field: str | None = None
