"""Tells operators which messages of a group are out: GET_CONSUME_STATS (208) with a field of ours.

Spec: pop.md, section 13.2.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.pop_topics import original_topic
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.timing.slices import Lane
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_reports import InFlightReport, QueueOut, TopicMoves
from rmq_ha.server.broker.processors.fields import Answer
from rmq_ha.server.broker.processors.query import answer_over_turns
from rmq_ha.server.pop.face import Pops, QueueInFlight
from rmq_ha.server.pop.journal import PopStore, message_at

MOST_QUEUES = 1024
"""Most queues in one report; those with the oldest messages come first."""
_QUEUES_A_SLICE = 20


class ReportedStore(PopStore, Protocol):
    """The store's answers about queues and the times of their messages."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int: ...

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int: ...


class PopReports:
    """
    Makes the reports of the popped messages of groups, a few queues a turn.

    :param now_ms: returns ms since the epoch.
    """

    def __init__(
        self, pops: Pops, store: ReportedStore, clock: IReactorTime, now_ms: Callable[[], int]
    ) -> None:
        self._pops = pops
        self._store = store
        self._lane = Lane(clock)
        self._now_ms = now_ms

    def answer(self, channel: Channel, request: RemotingCommand, group: str, topic: str) -> Answer:
        """
        Answer with the report of a group.

        :param topic: only this topic and its retry topics; empty for all topics.
        """
        rows: list[QueueOut] = []

        def report() -> RemotingCommand:
            kept = sorted(rows, key=_rank)[:MOST_QUEUES]
            body = InFlightReport(
                self._state(),
                self._now_ms(),
                kept,
                self._moves(group, topic),
                len(rows) - len(kept),
            )
            return request.response(body=body.encode())

        return answer_over_turns(
            self._lane, channel, request, self.rows(group, topic, rows), report
        )

    def rows(self, group: str, topic: str, rows: list[QueueOut]) -> Iterator[None]:
        """Append the queues that the group pops, a few for each item that is taken."""
        if not self._pops.is_enabled:
            return
        for number, item in enumerate(self._pops.in_flight(group)):
            if topic in ("", item.topic, original_topic(group, item.topic)):
                rows.append(self._row(item))
            if number % _QUEUES_A_SLICE == _QUEUES_A_SLICE - 1:
                yield

    def _row(self, item: QueueInFlight) -> QueueOut:
        place = item.topic, item.queue_id
        since_ms = self._store.store_timestamp_at(*place, item.committed) if item.out else 0
        return QueueOut(
            topic=item.topic,
            queue_id=item.queue_id,
            in_flight=item.out,
            committed=item.committed,
            next=item.next,
            end=self._store.max_offset_in_queue(*place),
            oldest_ms=item.oldest_pop_ms,
            due_ms=item.first_due_ms,
            waits_since_ms=max(0, since_ms),
            attempts=self._attempts(item) if item.out else 0,
            client=item.client,
            is_orderly=item.is_orderly,
        )

    def _attempts(self, item: QueueInFlight) -> int:
        """Return how often the oldest message was handed out; 0 if the log lacks the message."""
        if original_topic(item.group, item.topic) == item.topic:
            return item.times + 1
        try:
            stored = message_at(self._store, item.topic, item.queue_id, item.oldest_offset)
        except (StoreError, OSError):
            return 0
        return 0 if stored is None else stored[1].reconsume_times + item.times + 1

    def _moves(self, group: str, topic: str) -> list[TopicMoves]:
        if not self._pops.is_enabled:
            return []
        return [
            TopicMoves(
                topic=known[1],
                again=tally.again,
                retried=tally.retried,
                dead=tally.dead,
                gone=tally.gone,
            )
            for known, tally in sorted(self._pops.tallies().items())
            if known[0] == group and (not topic or known[1] == original_topic(group, topic))
        ]

    def _state(self) -> str:
        if not self._pops.is_enabled:
            return "off"
        return "leading" if self._pops.is_leading else "following"


def _rank(row: QueueOut) -> tuple[int, str, int]:
    """Sort the queue whose oldest lease began first to the top, and queues without any last."""
    return row.oldest_ms or 1 << 62, row.topic, row.queue_id
