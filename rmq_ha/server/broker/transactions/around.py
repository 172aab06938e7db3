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
class CheckAround:
    """
    What a round works with.

    :ivar put: stores messages in order and together, as far as it can: none behind one that it
        refuses. Its Deferred fires when flush and replica are decided, with a result for each.
    :ivar is_storable: nothing about the message itself is against storing it.
    :ivar newest_ms: the store time of the newest record: ahead of `now_ms` where that was set back.
    :ivar steady_ms: of a clock that nobody sets.
    :ivar log_end: of the commit log.
    :ivar pause: fires in a later turn.
    :ivar is_dispatched: brings the queues up to the end of the log; whether they are.
    :ivar is_wanted: false: end the round soon.
    :ivar host: this broker's address for clients.
    :ivar fates: of half messages; whoever settles one claims it.
    :ivar make_discard_topic: makes sure that there is one.
    """

    store: HalfStore
    put: Callable[[list[Message]], "Deferred[list[PutMessageResult]]"]
    is_storable: Callable[[Message], bool]
    asker: Asker
    progress: CheckProgress
    log_end: Callable[[], int]
    now_ms: Callable[[], int]
    newest_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    pause: Callable[[], "Deferred[None]"]
    is_dispatched: Callable[[], bool]
    is_wanted: Callable[[], bool]
    host: Address
    fates: Fates
    make_discard_topic: Callable[[], object]
