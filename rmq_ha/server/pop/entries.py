"""The entries of the POP journal; most of them change the state of one queue of one group.

A `name` is the number that stands for a group and a topic. A *lease name* is the `pop_ms` of the
pop that began the lease. All times are ms since the epoch; `invisible_ms` is a duration in ms.

Spec: pop.md, section 13.3.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple


class MoveReason(IntEnum):
    """Where a message went when its lease had ended without an acknowledgement."""

    RETRY = 0
    """To a retry topic of group and topic."""
    DEAD = 1
    """To the dead-letter topic of the group."""
    GONE = 2
    """Nowhere: retention had deleted the message from the log."""


class NameEntry(NamedTuple):
    """A number stands for a group and a topic from now on."""

    name: int
    group: str
    topic: str


class PopEntry(NamedTuple):
    """
    Messages of a queue are handed out.

    :ivar start: the queue offset from which on the broker looked for messages.
    :ivar end: the queue offset behind the last message that the broker looked at. Messages from
        `start` to `end` that are not out then count as consumed.
    :ivar offsets: queue offsets of the messages, ascending.
    :ivar is_orderly: whether the group gets the next messages only when it has acknowledged these.
    :ivar is_again: whether an orderly attempt is repeated, so that the messages are not counted
        again.
    :ivar attempt_id: the client's name for an orderly attempt; empty for other pops.
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
    """
    Messages are acknowledged by receipts with one lease name.

    :ivar pop_ms: that lease name.
    :ivar offsets: queue offsets of the messages, ascending.
    """

    name: int
    queue_id: int
    pop_ms: int
    offsets: Sequence[int]


class ChangeEntry(NamedTuple):
    """
    The lease of one message ends at another time.

    :ivar old_pop_ms: the lease name before the change.
    :ivar pop_ms: the lease name from now on; that of an orderly pop stays as it was.
    :ivar due_ms: when the lease ends from now on.
    """

    name: int
    queue_id: int
    offset: int
    old_pop_ms: int
    pop_ms: int
    due_ms: int


class MoveEntry(NamedTuple):
    """
    Messages whose leases had ended are not out any more, because they were moved or are gone.

    :ivar leases: queue offset and lease name of each message.
    """

    name: int
    queue_id: int
    reason: MoveReason
    leases: Sequence[tuple[int, int]]


class SkipEntry(NamedTuple):
    """
    A pop found no message that the group's filter wants, so the group passes these messages.

    :ivar start: queue offset of the first message that is passed.
    :ivar end: queue offset behind the last one.
    """

    name: int
    queue_id: int
    start: int
    end: int


class ResetEntry(NamedTuple):
    """The group begins a queue, or goes on in it, at an offset; all its leases of the queue end."""

    name: int
    queue_id: int
    offset: int


class DropEntry(NamedTuple):
    """
    A number stands for no group and topic any more, and its leases end.

    The topic or the group was deleted, a queue began anew, or the group changed from pops to pulls.
    """

    name: int


class ImageRun(NamedTuple):
    """
    Messages with consecutive queue offsets whose leases have the same name and end.

    :ivar length: number of messages.
    :ivar pop_ms: their lease name; 0 if they are not out any more.
    :ivar due_ms: when their leases end; 0 if they are not out any more.
    """

    length: int
    pop_ms: int
    due_ms: int


class ImageEntry(NamedTuple):
    """
    The whole state of one queue of one group; it replaces the state that was known before.

    :ivar committed: queue offset of the first message that is not consumed.
    :ivar last_pop_ms: the greatest lease name that the queue ever gave to the group.
    :ivar is_orderly: whether the last pop was an orderly one.
    :ivar batch_pop_ms: lease name of the last orderly pop.
    :ivar attempt_id: the client's name for the attempt of the last orderly pop.
    :ivar earlier: lease names that repetitions of that attempt replaced; receipts with them count.
    :ivar counts: by queue offset, how often an orderly pop handed a message out before its present
        lease.
    :ivar moved: queue offsets of the latest messages that were moved.
    :ivar moved_floor: messages below this queue offset may have been moved, too.
    :ivar runs: the leases of the messages from `committed` up to the last one handed out.
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
    The numbers from which the state goes on.

    When the journal gets images of all queues, one such entry is before them and one behind them.
    A master also writes one to learn whether its last journal record was kept.

    :ivar next_name: the number that the next new group and topic gets.
    :ivar least_pop_ms: new queues give only lease names above this one.
    :ivar java_end: physical offset behind the last record of a Java broker's pops that is taken
        over; 0 if none is.
    :ivar java_born_ms: the greatest time of birth of these records.
    """

    next_name: int
    least_pop_ms: int
    java_end: int = 0
    java_born_ms: int = 0


class ImagesEntry(NamedTuple):
    """
    The journal has images of all queues, so a broker needs no older record to know all leases.

    :ivar begin: queue offset of the journal record where the images begin. A broker that applies
        all records from there on has the whole state.
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
