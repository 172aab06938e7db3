"""The interface between the processors of POP requests and the state of POP consumption.

A *pop* hands messages of a queue to a consumer. A *lease* is one handing out of one message; its
name is the `pop_ms` of the pop, a time in ms since the epoch. A lease ends by an acknowledgement,
or by a change, which begins a new lease. When the lease is due, the broker moves the message into
the retry topic of the group and the topic.

A topic in this interface is the one whose queue has the message: for a message that came again, it
is the retry topic, and not the topic that the consumer names.

Spec: pop.md, sections 2 and 13.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.pop_topics import TopicKind
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.server.pop.tallies import GroupTopic, PopTally

POP_REVIVE_QUEUE = 0
"""The reviveQid of receipts: Java's number of a journal queue, of which rmq-ha has only one."""
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
    The request of a consumer for messages.

    :ivar queues: the queues in the order in which they are looked at; each at most once.
    :ivar max_messages: most messages of all queues together; 0 hands out nothing.
    :ivar invisible_ms: how long the leases last, ms.
    :ivar from_max: whether a group without an offset in a queue begins at the last message, as
        initMode 1 asks, and not at the first. Even then a young queue is read from its first
        message.
    :ivar is_orderly: whether a queue gives its next messages only when none before them is out.
    :ivar attempt_id: the client's name for an attempt of an orderly pop. A repeated attempt gets
        the same messages.
    :ivar client: the client's address as `ip:port`, to show it; empty if it is not known.
    """

    group: str
    queues: Sequence[PopQueue]
    max_messages: int
    invisible_ms: int
    from_max: bool = False
    is_orderly: bool = False
    attempt_id: str = ""
    client: str = ""


class PopPart(NamedTuple):
    """
    The messages of one queue that a pop handed out.

    :ivar start: the queue offset from which on messages were looked for. Receipts have it as
        ckQueueOffset.
    :ivar offsets: queue offsets of the messages, ascending.
    :ivar records: the records of the messages, as the log has them.
    :ivar counts: by queue offset, how often an orderly pop handed a message out before. Messages
        that never were have no item.
    """

    topic: str
    queue_id: int
    start: int
    offsets: Sequence[int]
    records: Sequence[bytes]
    counts: Mapping[int, int]


class PopStatus(Enum):
    """The outcome of a pop."""

    FOUND = auto()
    EMPTY = auto()
    """No queue has a message for the group. The request may wait for one."""
    FULL = auto()
    """Too many messages are out: `popInflightMessageThreshold` or `popMaxInflight`."""
    NOT_KEPT = auto()
    """The journal did not keep the pop in time. The messages come again after their due time."""
    NOT_LEADING = auto()
    """This broker is not the master, or has not loaded the leases yet."""


class PopAnswer(NamedTuple):
    """
    The result of a pop. The fields behind `status` count only if it is FOUND, but for `rest`.

    :ivar pop_ms: the lease name of all messages.
    :ivar invisible_ms: how long the leases last, ms.
    :ivar revive_queue: the reviveQid of the receipts.

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

    def receipt_of(self, part: PopPart, kind: TopicKind, broker_name: str) -> PopReceipt:
        """
        Return the receipt that all messages of one queue have in common. Each message adds its own
        queue offset.

        :param part: the messages of that queue.
        """
        return PopReceipt(
            part.start,
            self.pop_ms,
            self.invisible_ms,
            self.revive_queue,
            kind.value,
            broker_name,
            part.queue_id,
        )


class Receipt(NamedTuple):
    """
    The leases of messages of one queue that have one name, as receipts name them.

    :ivar offsets: queue offsets of the messages.
    """

    group: str
    topic: str
    queue_id: int
    pop_ms: int
    offsets: Sequence[int]


class LeaseStatus(Enum):
    """The outcome of an acknowledgement or of a change."""

    DONE = auto()
    """The log keeps the act, or the message was acknowledged before."""
    UNKNOWN = auto()
    """The lease has ended or never was, so nothing changed. In a batch, that is so for all."""
    NOT_IN_BATCH = auto()
    """The message was not handed out yet to a group that pops in order."""
    NOT_KEPT = auto()
    """The journal did not keep the act in time. It may count all the same; clients repeat it."""
    NOT_LEADING = auto()


class LeaseChange(NamedTuple):
    """
    The result of a change: the items in which the new receipt differs from the old one.

    :ivar pop_ms: the lease name from now on; a lease of an orderly pop keeps its name.
    :ivar invisible_ms: the time from `pop_ms` to the end of the lease, ms.
    :ivar revive_queue: the reviveQid of the receipt.
    """

    status: LeaseStatus
    pop_ms: int = 0
    invisible_ms: int = 0
    revive_queue: int = POP_REVIVE_QUEUE


class QueueInFlight(NamedTuple):
    """
    A summary of the leases of one queue for one group.

    :ivar committed: the first offset that is not consumed.
    :ivar next: the first offset that was never handed out.
    :ivar out: number of messages that are out and not acknowledged.
    :ivar oldest_pop_ms: `pop_ms` of the oldest lease; 0 without one.
    :ivar first_due_ms: when the first lease ends, by the clock of the master that gave it; 0
        without one.
    :ivar oldest_offset: queue offset of the first message of the oldest lease.
    :ivar times: how often orderly pops handed that message out before.
    :ivar client: address of the client that has it; empty: not known, for example because another
        broker was the master then.
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
    oldest_offset: int = 0
    times: int = 0
    client: str = ""

    @property
    def acked_ahead(self) -> int:
        """Number of messages that are consumed, although one before them is not."""
        return self.next - self.committed - self.out


class GroupOut(NamedTuple):
    """
    The messages of a topic and its retry topics that are out with a group.

    :ivar out: number of messages.
    :ivar first_pop_ms: the least lease name among the first message of each queue that is not
        consumed; 0 if none is out.
    """

    out: int
    first_pop_ms: int


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
    Numbers of messages since the start of this process, unless something else is said.

    :ivar out: messages that are out now.
    :ivar popped: messages that were handed out.
    :ivar acked: messages that were acknowledged.
    :ivar changed: changes of leases.
    :ivar retried: messages that were moved to a retry topic.
    :ivar dead: messages that were moved to a dead-letter topic.

    :ivar gone: messages that retention deleted while they were out.
    :ivar stale: requests for acknowledgements or changes whose leases had ended, or never were.
    :ivar ignored: journal records that are damaged or missing, and entries that did not fit.
    :ivar journal_behind: bytes of the journal behind the last snapshot, which a start has to read.
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
    """A function that is called when a pop may find messages that it did not find before."""

    def __call__(self, group: str, topic: str, queue_id: int, messages: int) -> None:
        """
        Take note of messages for a group.

        :param topic: the topic that consumers name, also if the retry topic has the messages.
        :param queue_id: -1 if the retry topic has them: any pop of the topic finds them.
        :param messages: how many; at least one.
        """


class Pops(Protocol):
    """
    The leases of one broker, and the requests that change them.

    No Deferred of a method fails. Each fires once: at once, when the log keeps the change,
    or when it did not keep it in time. All fire when the broker stops being the master.

    :ivar is_enabled: `popEnable`. If False, nothing else here may be called.
    :ivar is_leading: whether this broker hands messages out now: it is the master, and has loaded
        all leases. If not, pops that wait for messages have to be answered.
    """

    is_enabled: bool

    @property
    def is_leading(self) -> bool: ...

    def on_wake(self, woken: WakeListener) -> None:
        """
        Have a function called when a lease is freed, or messages reach a retry topic of pops.

        It is not called for messages in other topics: `store.on_arrival` tells of these.
        """

    def on_lead(self, changed: Callable[[bool], None]) -> None:
        """Have a function called when `is_leading` changes, with its value."""

    def pop(self, wish: PopWish) -> "Deferred[PopAnswer]":
        """
        Hand messages out.

        The caller has checked topic, queue ids, group and limits. A queue that cannot be read gives
        no messages, and a line in the log; the other queues give theirs.
        """

    def ack(self, receipts: Sequence[Receipt]) -> "Deferred[LeaseStatus]":
        """
        Acknowledge messages: end their leases, so that they never come again.

        Leases that have ended are passed over. The status is DONE if at least one message is
        acknowledged, now or earlier.
        """

    def change(self, receipt: Receipt, invisible_ms: int) -> "Deferred[LeaseChange]":
        """
        Let the lease of one message end `invisible_ms` from now; 0 ends it at once.

        :param receipt: with one offset.
        """

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> "Deferred[LeaseStatus]":
        """
        Let a group go on at other offsets. Its leases of the queues end, and nothing is moved to
        retry topics.

        A group that pulled a topic is turned to pops by this, with its offsets of pulls.

        :param offsets: the new offset by queue id.
        """

    def to_pull(self, group: str, topic: str) -> "Deferred[LeaseStatus]":
        """End a group's leases of a topic, because the group pulls the topic from now on."""

    def forget_group(self, group: str) -> None:
        """Forget all leases of a group, because the group is deleted."""

    def forget_topic(self, topic: str) -> None:
        """Forget all leases of a topic and of its retry topics, because the topic is deleted."""

    def knows(self, group: str, topic: str) -> bool:
        """
        Return whether a group pops a topic. Then offsets that pulling clients commit, by request
        codes 15 and 11, do not count.

        True from its first pop until `to_pull` or a deletion.
        """

    def has_something(self, group: str, queue: PopQueue, *, is_orderly: bool) -> bool:
        """
        Return whether a pop may find a message in a queue now.

        Only the end of the queue is looked at: a filter may still want none of the messages.
        """

    def next_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the first queue offset that was never handed out, where PEEK_MESSAGE begins."""

    def in_flight(self, group: str, topic: str = "") -> Iterator[QueueInFlight]:
        """
        Yield a summary of each queue that a group pops; of all topics if `topic` is empty.

        :param topic: the topic whose queue has the messages. The caller may take the items in
            several turns.
        """

    def out_of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return how many messages of a queue are out; None if the group does not pop it."""

    def out_by_group(self) -> Mapping[GroupTopic, GroupOut]:
        """Return what is out, by group and the topic that consumers name; only what is not 0."""

    def tallies(self) -> Mapping[GroupTopic, PopTally]:
        """Return counts since the start, by group and the topic that consumers name."""

    def leases(
        self, group: str, topic: str, queue_id: int, first: int, most: int
    ) -> Sequence[LeaseView]:
        """
        Return the leases of a queue, by ascending queue offset.

        :param first: the queue offset to begin at.
        :param most: most leases to return.
        """

    def counters(self) -> PopCounters: ...
