"""What a round of the transaction check works with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    GetMessageResult,
    Message,
    PutMessageResult,
)
from rmq_ha.base.seams import Times
from rmq_ha.server.broker.transactions.fates import Fates
from rmq_ha.server.broker.transactions.progress import CheckProgress


class HalfStore(Protocol):
    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult | None:
        """Messages from a queue offset on; None while the store cannot be read."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The first queue offset that can be read."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next message gets."""


class Asker(Protocol):
    def is_overloaded(self, group: str) -> bool:
        """There are producers, and none of them reads what it is sent."""

    def ask(self, group: str, copy: Message, append: AppendResult, stored_ms: int) -> None:
        """Ask one producer of the group about a half message; harmless without any."""


@dataclass(frozen=True)
class HalfLog:
    """
    Where half messages are read.

    :ivar log_end: of the commit log.
    :ivar newest_ms: the store time of the newest record: ahead of the time where that was set back.
    :ivar is_dispatched: brings the queues up to the end of the log; whether they are.
    """

    store: HalfStore
    log_end: Callable[[], int]
    newest_ms: Callable[[], int]
    is_dispatched: Callable[[], bool]


@dataclass(frozen=True)
class HalfCopies:
    """
    Where copies of half messages, marks and discarded messages are put.

    :ivar put: stores messages in order and together, as far as it can: none behind one that it
        refuses. Its Deferred fires when flush and replica are decided, with a result for each.
    :ivar is_storable: whether the message itself could be stored.
    :ivar host: this broker's address for clients.
    :ivar make_discard_topic: makes sure that there is one.
    """

    put: Callable[[list[Message]], "Deferred[list[PutMessageResult]]"]
    is_storable: Callable[[Message], bool]
    host: Address
    make_discard_topic: Callable[[], object]


@dataclass(frozen=True)
class RoundPace:
    """
    How fast a round goes, and until when.

    :ivar pause: fires in a later turn.
    :ivar is_wanted: false: end the round soon.
    """

    pause: Callable[[], "Deferred[None]"]
    is_wanted: Callable[[], bool]


@dataclass(frozen=True)
class CheckContext:
    """
    What a round works with.

    :ivar fates: of half messages; whoever settles one claims it.
    """

    halves: HalfLog
    copies: HalfCopies
    asker: Asker
    progress: CheckProgress
    fates: Fates
    times: Times
    pace: RoundPace
