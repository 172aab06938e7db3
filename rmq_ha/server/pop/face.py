"""The interface between the processors of POP requests and the state of POP consumption.

A *pop* hands messages of a queue to a consumer. A *lease* is one handing out of one message; the
`pop_ms` of its pop names it. A lease ends by an acknowledgement, or a change that begins a new
lease. When it is due, the broker moves the message into the retry topic of group and topic.

Topics in this interface are real ones: leases of a retry topic have the name of the retry topic.

Spec: pop.md, sections 2 and 13.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.interfaces import IMessageFilter

POP_REVIVE_QUEUE = 0
"""The reviveQid of receipts: there is one journal."""
ORDERLY_REVIVE_QUEUE = 999
"""The reviveQid of receipts of orderly pops, as Java's."""


class PopQueue(NamedTuple):
    """
    A queue that a pop may take messages from.

    :ivar message_filter: None for all messages.
    """

    topic: str
    queue_id: int
    message_filter: IMessageFilter | None = None


class PopWish(NamedTuple):
    """
    What a consumer asks for.

    :ivar queues: the queues in the order in which they are looked at; each at most once.
    :ivar max_messages: most messages of all queues together; 0 hands out nothing.
    :ivar from_max: where a group begins that has no offset in a queue yet: True for initMode 1. A
        young queue is read from its first message all the same.
    :ivar is_orderly: hand out a queue's next messages only when none before them is out.
    :ivar attempt_id: names the attempt of an orderly pop; the same one gets the same messages.
    """

    group: str
    queues: Sequence[PopQueue]
    max_messages: int
    invisible_ms: int
    from_max: bool = False
    is_orderly: bool = False
    attempt_id: str = ""


class PopPart(NamedTuple):
    """
    The messages of one queue that a pop handed out.

    :ivar start: the queue offset where the look began: ckQueueOffset of the receipts.
    :ivar offsets: queue offsets of the messages, ascending.
    :ivar records: the records of the messages, as the log has them.
    :ivar counts: of an orderly pop, how often each offset was handed out before; only those that
        were.
    """

    topic: str
    queue_id: int
    start: int
    offsets: Sequence[int]
    records: Sequence[bytes]
    counts: Mapping[int, int]


class PopStatus(Enum):
    """What became of a pop."""

    FOUND = auto()
    EMPTY = auto()
    """Nothing is there. The request may be held."""
    FULL = auto()
    """Too many messages are out: `popInflightMessageThreshold` or `popMaxInflight`."""
    NOT_KEPT = auto()
    """The journal did not keep the pop in time. The messages come again after their due time."""
    NOT_LEADING = auto()
    """This broker is not the master, or does not know yet what is out."""


class PopAnswer(NamedTuple):
    """
    The result of a pop.

    :ivar parts: one for each queue with messages, each with at least one.
    :ivar rest: messages that the queues of the wish have beyond those that were handed out. A queue
        that an orderly pop may not read adds none.
    """

    status: PopStatus
    pop_ms: int = 0
    invisible_ms: int = 0
    revive_queue: int = POP_REVIVE_QUEUE
    rest: int = 0
    parts: Sequence[PopPart] = ()


class Receipt(NamedTuple):
    """
    The lease of messages of one queue, as a receipt or a batch of receipts names it.

    :ivar offsets: queue offsets of the messages.
    """

    group: str
    topic: str
    queue_id: int
    pop_ms: int
    offsets: Sequence[int]


class LeaseStatus(Enum):
    """What became of an acknowledgement or a change."""

    DONE = auto()
    """It is kept, or the message was acknowledged before."""
    UNKNOWN = auto()
    """No such lease is current, so nothing changed. Of a batch: none of its leases."""
    NOT_IN_BATCH = auto()
    """The orderly batch has no such offset."""
    NOT_KEPT = auto()
    """The journal did not keep it in time. It may count all the same; the client repeats it."""
    NOT_LEADING = auto()


class LeaseChange(NamedTuple):
    """
    The result of a change: the items of the new receipt.

    :ivar pop_ms: name of the new lease; of an orderly one the old name.
    :ivar invisible_ms: counted from `pop_ms`.
    """

    status: LeaseStatus
    pop_ms: int = 0
    invisible_ms: int = 0
    revive_queue: int = POP_REVIVE_QUEUE


class QueueInFlight(NamedTuple):
    """
    What is out of one queue for one group.

    :ivar committed: the first offset that is not consumed.
    :ivar next: the first offset that was never handed out.
    :ivar out: number of messages that are out and not acknowledged.
    :ivar oldest_pop_ms: `pop_ms` of the oldest lease; 0 without one.
    :ivar first_due_ms: when the first lease ends, by the clock of the master that gave it; 0
        without one.
    """

    group: str
    topic: str
    queue_id: int
    committed: int
    next: int
    out: int
    oldest_pop_ms: int
    first_due_ms: int
    is_orderly: bool


class LeaseView(NamedTuple):
    """
    One message that is out.

    :ivar times: how often an orderly pop handed it out before; 0 for other messages.
    """

    queue_offset: int
    pop_ms: int
    due_ms: int
    times: int


class PopCounters(NamedTuple):
    """
    What happened since the start of this process, and what is out now.

    :ivar gone: messages that retention deleted while they were out.
    :ivar stale: acknowledgements and changes of leases that were not current.
    :ivar ignored: journal records that fitted nothing.
    :ivar journal_behind: bytes of the journal that a start has to read.
    """

    out: int
    popped: int
    acked: int
    changed: int
    retried: int
    dead: int
    gone: int
    stale: int
    ignored: int
    journal_behind: int


class WakeListener(Protocol):
    """Is told that a pop may find something now."""

    def __call__(self, group: str, topic: str, queue_id: int, messages: int) -> None:
        """
        Take note of messages for a group.

        :param topic: the topic that consumers name, also if the retry topic has the messages.
        :param queue_id: -1 if the retry topic has them: any pop of the topic finds them.
        :param messages: how many; at least one.
        """


class Pops(Protocol):
    """
    Which message is out with whom. A broker has one.

    No Deferred of it fails. Each fires once: at once, when the journal kept what was done, or when
    it is sure that it does not in time. `stop` fires all.

    :ivar is_enabled: `popEnable`. If False, nothing else here may be called.
    :ivar is_leading: whether this broker hands messages out now: it is the master, and knows what
        is out. If not, held pops are to be answered.
    """

    is_enabled: bool

    @property
    def is_leading(self) -> bool: ...

    def on_wake(self, woken: WakeListener) -> None:
        """
        Have a function called when a lease is freed, or messages reach a retry topic of pops.

        Messages that arrive in other topics are not told: `store.on_arrival` tells them.
        """

    def on_lead(self, changed: Callable[[bool], None]) -> None:
        """Have a function called when `is_leading` changes, with its value."""

    def pop(self, wish: PopWish) -> "Deferred[PopAnswer]":
        """
        Hand messages out.

        The caller checked topic, queue ids, group and limits. A queue that cannot be read gives up
        its part only, and is logged.
        """

    def ack(self, receipts: Sequence[Receipt]) -> "Deferred[LeaseStatus]":
        """
        Acknowledge messages, one for a single acknowledgement.

        With several offsets or receipts, each that is current counts.
        """

    def change(self, receipt: Receipt, invisible_ms: int) -> "Deferred[LeaseChange]":
        """
        Let a lease end `invisible_ms` from now; 0 frees the message at once.

        :param receipt: with one offset.
        """

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> "Deferred[LeaseStatus]":
        """
        Let a group go on at these offsets, by queue id; its leases of the queues end unmoved.

        It also turns a group to pop: its offsets of pulls are where it begins.
        """

    def to_pull(self, group: str, topic: str) -> "Deferred[LeaseStatus]":
        """End all leases of a topic, because the group pulls it from its offsets on from now."""

    def forget_group(self, group: str) -> None:
        """Forget all of a group, because it is deleted."""

    def forget_topic(self, topic: str) -> None:
        """Forget all of a topic and of its retry topics, because it is deleted."""

    def knows(self, group: str, topic: str) -> bool:
        """
        Whether a group pops a topic, so that commits of pulls (15, 11) do not count.

        True from its first pop until `to_pull` or a deletion.
        """

    def has_something(self, group: str, queue: PopQueue, *, is_orderly: bool) -> bool:
        """Whether a pop would find a message in a queue now, as far as its units tell."""

    def next_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return where a look without taking (PEEK) begins: the first offset never handed out."""

    def in_flight(self, group: str, topic: str = "") -> Sequence[QueueInFlight]:
        """Return what is out with a group, of all topics or of one."""

    def leases(
        self, group: str, topic: str, queue_id: int, first: int, most: int
    ) -> Sequence[LeaseView]:
        """Return the messages of a queue that are out, from a queue offset on."""

    def counters(self) -> PopCounters: ...
