"""The few values that ledger, messages and consensus share."""

from enum import IntEnum, StrEnum
from typing import NamedTuple

ENTRY_HEADER_SIZE = 48
MAX_ENTRY_SIZE = 4 * 1024 * 1024
TERM_TOPIC = "RMQ_SYS_DLEDGER_TERM"
"""Of the record with which a leader begins its term; no member has a queue for it."""


class Role(StrEnum):
    """What a member is; spelled as upstream."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"


class Room(IntEnum):
    """How much a member's disk still takes; more is better."""

    NONE = 0
    """The ledger refuses entries: its disk is full, or fails."""
    SHORT = 1
    """The disk fills up: old files will be deleted before their time."""
    FREE = 2


class Entry(NamedTuple):
    """
    One entry of the ledger; equal entries are those that COMPARE takes as equal.

    Spec: dledger.md, sections 3.2 and 11.4

    :ivar index: its number, from 0.
    :ivar pos: where it begins, in bytes over all data files.
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
        """Bytes on the disk: header and body."""
        return ENTRY_HEADER_SIZE + len(self.body)


class MemberStanding(NamedTuple):
    """
    A follower, as its leader knows it.

    :ivar watermark: the last entry that it is known to have; -1: none is known.
    :ivar begin_index: the first entry that it has; -1: none, or not known.
    :ivar behind_ms: for how long it has lacked entries, and has acknowledged none.
    :ivar room: as it said itself, or as it answered the last entry.
    """

    watermark: int
    begin_index: int
    behind_ms: int
    room: Room


class TermVote(NamedTuple):
    """
    What a member must never forget.

    Spec: dledger.md, section 3.1

    :ivar voted_for: whom this member voted for in that term; None: nobody yet.
    """

    term: int = 0
    voted_for: str | None = None
