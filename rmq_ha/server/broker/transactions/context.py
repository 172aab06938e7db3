"""The objects with which a round of the transaction check works."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import (
    Address,
    AppendResult,
    BrokerMessage,
    GetMessageResult,
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
        """Return messages from a queue offset on; None while the store cannot be read."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be read."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next message gets."""


class TransactionAsker(Protocol):
    def is_overloaded(self, group: str) -> bool:
        """Return whether the group has producers, and the connection of each of them is full."""

    def ask(self, group: str, copy: BrokerMessage, append: AppendResult, stored_ms: int) -> None:
        """Ask one producer of the group about a half message; harmless if there is none."""


@dataclass(frozen=True)
class HalfLog:
    """
    Access to half messages for reading.

    :ivar log_end: returns the end of the commit log.
    :ivar newest_ms: returns the store time of the newest record; it is ahead of the clock if the
        clock was set back.
    :ivar is_dispatched: brings the queues up to the end of the log; returns whether they are.
    """

    store: HalfStore
    log_end: Callable[[], int]
    newest_ms: Callable[[], int]
    is_dispatched: Callable[[], bool]


@dataclass(frozen=True)
class HalfCopies:
    """
    Stores copies of half messages, op messages and discarded messages.

    :ivar put: stores messages in order and together if possible, and none after one that it
        refuses. Its Deferred fires when flush and replication are decided, with a result for each.
    :ivar is_storable: returns whether a message could be stored.
    :ivar host: this broker's address for clients.
    :ivar make_discard_topic: creates the topic for discarded messages if it is missing.
    """

    put: Callable[[list[BrokerMessage]], "Deferred[list[PutMessageResult]]"]
    is_storable: Callable[[BrokerMessage], bool]
    host: Address
    make_discard_topic: Callable[[], object]


@dataclass(frozen=True)
class RoundPace:
    """
    The speed of a round of checks, and its end.

    :ivar pause: returns a Deferred that fires in a later turn of the reactor.
    :ivar is_wanted: returns False when the round has to end soon.
    """

    pause: Callable[[], "Deferred[None]"]
    is_wanted: Callable[[], bool]


@dataclass(frozen=True)
class CheckContext:
    """
    The objects with which a round works.

    :ivar fates: the fates of half messages; a half message is claimed before it is settled.
    """

    halves: HalfLog
    copies: HalfCopies
    asker: TransactionAsker
    progress: CheckProgress
    fates: Fates
    times: Times
    pace: RoundPace
