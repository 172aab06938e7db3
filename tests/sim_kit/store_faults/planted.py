"""What was planted, and where whoever looks for it has to find it."""

from typing import NamedTuple

REPLICA = "verify_replica"
OFFSETS = "verify_offsets"
AUDIT = "audit_messages"


class Planted(NamedTuple):
    """
    One fault: where it is, in the terms of the healthy store that the damaged one was made from.

    :ivar kind: one of the twelve.
    :ivar variant: how it was done.
    :ivar job: which job has to find it.
    :ivar codes: of the findings of that job that name it; each is right.
    :ivar physical_offset: in the healthy log.
    :ivar field: of the record that differs, as the data source calls it.
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
