"""What records of the POP journal say: each entry changes the state of one queue of one group.

A `name` is the number that stands for a group and a topic. All times are ms since the epoch.

Spec: pop.md, section 13.3.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple


class MoveReason(IntEnum):
    """Where a message went that was due."""

    RETRY = 0
    DEAD = 1
    """To the dead-letter topic of the group."""
    GONE = 2
    """Nowhere: retention had deleted it."""


class NameEntry(NamedTuple):
    """A number stands for a group and a topic from now on."""

    name: int
    group: str
    topic: str


class PopEntry(NamedTuple):
    """
    Messages are handed out.

    :ivar start: the queue offset where the look began.
    :ivar end: the queue offset behind the look; what it passed and did not hand out is done.
    :ivar offsets: of the messages, ascending.
    :ivar is_again: an orderly attempt is repeated, so the messages are not counted again.
    """

    name: int
    queue_id: int
    start: int
    end: int
    offsets: Sequence[int]
    pop_ms: int
    invisible_ms: int
    is_orderly: bool = False
    is_again: bool = False
    attempt_id: str = ""


class AckEntry(NamedTuple):
    """Messages of one lease name are acknowledged; offsets ascend."""

    name: int
    queue_id: int
    pop_ms: int
    offsets: Sequence[int]


class ChangeEntry(NamedTuple):
    """A lease ends at another time, and has another name unless it is orderly."""

    name: int
    queue_id: int
    offset: int
    old_pop_ms: int
    pop_ms: int
    due_ms: int


class MoveEntry(NamedTuple):
    """Messages that were due left their queue; offset and lease name of each."""

    name: int
    queue_id: int
    reason: MoveReason
    leases: Sequence[tuple[int, int]]


class SkipEntry(NamedTuple):
    """A look passed messages that the group's filter does not want, and handed none out."""

    name: int
    queue_id: int
    start: int
    end: int


class ResetEntry(NamedTuple):
    """The group goes on at an offset, and its leases of the queue end."""

    name: int
    queue_id: int
    offset: int


class DropEntry(NamedTuple):
    """
    A name stands for nothing any more, because topic or group were deleted, or the group pulls.
    """

    name: int


class ImageRun(NamedTuple):
    """
    Messages that follow each other and are alike.

    :ivar length: how many.
    :ivar length: how many.
    :ivar pop_ms: name of their lease; 0 if they are done.
    :ivar due_ms: when the lease ends; 0 if they are done.
    """

    length: int
    pop_ms: int
    due_ms: int


class ImageEntry(NamedTuple):
    """
    The whole state of one queue of one group; it replaces what was known before.

    :ivar last_pop_ms: the greatest lease name that was ever given.
    :ivar earlier: names of leases that the present attempt of an orderly pop had before.
    :ivar counts: how often messages of orderly pops were handed out before their present lease.
    :ivar moved: offsets of the latest messages that were moved.
    :ivar moved_floor: offsets below may have been moved, too.
    :ivar runs: the messages from `committed` to `next`.
    """

    name: int
    queue_id: int
    group: str
    topic: str
    committed: int
    last_pop_ms: int
    is_orderly: bool
    batch_pop_ms: int
    attempt_id: str
    earlier: Sequence[int]
    counts: Mapping[int, int]
    moved: Sequence[int]
    moved_floor: int
    runs: Sequence[ImageRun]


class NumbersEntry(NamedTuple):
    """
    The numbers that are given from now on. One is in front of the images of all queues, and one
    behind them.

    :ivar next_name: no name so great was given yet.
    :ivar least_pop_ms: new queues give no lease name below.
    """

    next_name: int
    least_pop_ms: int


class ImagesEntry(NamedTuple):
    """
    The journal has images of all queues.

    :ivar begin: queue offset of the journal record where they begin: who applies the journal from
        there on has the whole state.
    """

    begin: int


Entry = (
    NameEntry
    | PopEntry
    | AckEntry
    | ChangeEntry
    | MoveEntry
    | SkipEntry
    | ResetEntry
    | DropEntry
    | ImageEntry
    | NumbersEntry
    | ImagesEntry
)
