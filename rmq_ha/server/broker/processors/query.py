"""Answers with messages by key and by commit log offset: codes 12 and 33.

Spec: remoting.md, section 7.8.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.model.message import place_of
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.timing.slices import Lane
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.batches import hold
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.store.reading.reads import QueryResult

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class RecordReader(Protocol):
    """The parts of a store that queries use."""

    def record_starting_at(self, physical_offset: int) -> bytes | None:
        """Return the record at an offset that a client names; None if none starts there."""

    def unqueued_record_at(self, physical_offset: int) -> bytes | None:
        """
        Return the bytes of a prepared or rolled back record, which no queue has; None if they are
        not one.
        """

    def query_in_slices(
        self,
        topic: str,
        key: str,
        max_nums: int,
        begin_ms: int,
        end_ms: int,
        take: Callable[[QueryResult], None],
    ) -> Iterator[None]: ...


class QueryProcessor:
    """
    Finds messages for operators and their tools.

    A query that takes longer than one slice of work goes on in later turns of the reactor. Such
    queries are worked on one at a time, and later requests of the connection wait for its query.
    """

    def __init__(
        self, *, store: RecordReader, config: MessageStoreConfig, clock: IReactorTime
    ) -> None:
        self._store = store
        self._config = config
        self._lane = Lane(clock)

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message_by_id,
        }

    def query_message(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer QUERY_MESSAGE (12) with records whose key's hash is in the index; the client compares
        keys.
        """
        header = fields.header(request)
        max_nums = fields.int32(header, "maxNum")
        if fields.flag(header, UNIQUE_KEY_QUERY):
            max_nums = self._config.default_query_max_num
        results: list[QueryResult] = []
        slices = self._store.query_in_slices(
            fields.text(header, "topic"),
            fields.text(header, "key"),
            max_nums,
            fields.int64(header, "beginTimestamp"),
            fields.int64(header, "endTimestamp"),
            results.append,
        )
        return answer_over_turns(
            self._lane, channel, request, slices, lambda: self._answer(request, results[0])
        )

    def _answer(self, request: RemotingCommand, result: QueryResult) -> RemotingCommand:
        if not result.records:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"},
            )
        ext = {
            "indexLastUpdatePhyoffset": str(result.index_last_update_offset),
            "indexLastUpdateTimestamp": str(result.index_last_update_timestamp),
        }
        return request.response(ext=ext, body=b"".join(result.records))

    def view_message_by_id(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer VIEW_MESSAGE_BY_ID (33) with the record that starts at this commit log offset."""
        offset = fields.int64(fields.header(request), "offset")
        record = self._store.record_starting_at(offset) or self._store.unqueued_record_at(offset)
        if record is None:
            return request.response(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return request.response(body=record)


def answer_over_turns(
    lane: Lane,
    channel: Channel,
    request: RemotingCommand,
    slices: Iterator[None],
    answer: Callable[[], RemotingCommand],
) -> Answer:
    """
    Answer at once if the work is one slice. Otherwise do one slice in each turn of the reactor, and
    answer when all are done; later requests of the connection wait until then.

    :param slices: does the work; yields after each slice.
    :param answer: makes the answer when all slices are done.
    """
    for _ in slices:
        later: Deferred[Any] = lane.run(channel.host, slices)
        release = hold(channel, len(request.body or b""), later)
        later.addCallback(lambda _: answer())
        return later.addErrback(_ignore_cancelled).addBoth(release)
    return answer()


def _ignore_cancelled(failure: Failure) -> None:
    """Ignore that a query was cancelled, as its connection was closed."""
    failure.trap(CancelledError)  # type: ignore[no-untyped-call]


def record_by_id(store: RecordReader, message_id: str) -> bytes | None:
    """Return the record that an offsetMsgId names; None if there is none."""
    offset = place_of(message_id)
    return None if offset is None else store.record_starting_at(offset)
