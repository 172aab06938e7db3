"""Values that ledger, messages and consensus of DLedger share."""

from enum import IntEnum, StrEnum
from typing import NamedTuple

ENTRY_HEADER_SIZE = 48
MAX_ENTRY_SIZE = 4 * 1024 * 1024
TERM_TOPIC = "RMQ_SYS_DLEDGER_TERM"
"""The topic of the record with which a leader begins its term. No member has a queue for it."""


class MemberRole(StrEnum):
    """The role of a member, spelled as upstream spells it."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"


class Room(IntEnum):
    """How much room a member's disk has; a higher value is better."""

    NONE = 0
    """The ledger refuses entries: its disk is full, or fails."""
    SHORT = 1
    """The disk fills up: old files will be deleted before their time."""
    FREE = 2


class Entry(NamedTuple):
    """
    One entry of the ledger. Entries are equal if COMPARE takes them as equal.

    Spec: dledger.md, sections 3.2 and 11.4

    :ivar index: the number of the entry, from 0.
    :ivar pos: the position where the entry begins, in bytes over all data files.
    :ivar body: a commit-log record.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    pos: int
    body: bytes
    magic: int = 1
    channel: int = 0

    @property
    def size(self) -> int:
        """The size of header and body on the disk, in bytes."""
        return ENTRY_HEADER_SIZE + len(self.body)


class MemberStanding(NamedTuple):
    """
    The state of a follower, as far as its leader knows it.

    :ivar watermark: index of the last entry that the follower is known to have; -1: none is known.
    :ivar begin_index: index of the first entry that it has; -1: it has none, or that is not known.
    :ivar behind_ms: for how long it has lacked entries without acknowledging any, ms.
    :ivar room: the room on its disk, as it said, or as its answer to the last entry shows.
    """

    watermark: int
    begin_index: int
    behind_ms: int
    room: Room


class TermVote(NamedTuple):
    """
    The term and the vote, which a member must never forget.

    Spec: dledger.md, section 3.1

    :ivar voted_for: the member for which this one voted in that term; None: no vote yet.
    """

    term: int = 0
    voted_for: str | None = None
