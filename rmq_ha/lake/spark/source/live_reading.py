"""
Reads a range of one queue from any broker that has it: all of its messages, or an error.

An answer that lacks messages has one of three reasons: the broker has deleted messages since the
read was planned, the master came back with a shorter log, or a slave that answers for its master is
behind. In the last case no message is lost, so the read fails even if `failOnDataLoss` is false.

Spec: remoting.md, section 7.4; store.md, section 2.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from rmq_ha.base.errors import CannotDecide, RemotingError, RmqHaError
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.topics import LMQ_PREFIX
from rmq_ha.base.store_format.commitlog import MESSAGE_MAGIC, RECORD_OVERHEAD
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.pulls import PulledRecords
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoNameServer
from rmq_ha.client.rules.messages import PullStatus
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.spark.source.reading import QueueRange

T = TypeVar("T")
BATCH_BYTES = 16 << 20
"""A batch ends when its records have so many bytes, however few records they are."""


class ReadOptions(NamedTuple):
    """
    The settings of a read.

    :ivar fail_on_data_loss: whether missing messages are an error; otherwise they are skipped.
    :ivar tags: only messages with one of these, which brokers select; None: all.
    :ivar patience: how many ms to wait before each retry; its length is the number of retries.
    """

    batch_rows: int = 8192
    pull_size: int = 32
    fail_on_data_loss: bool = True
    tags: frozenset[str] | None = None
    patience: tuple[int, ...] = (10, 10, 10)


class Puller(Protocol):
    """
    A source of messages, which asks one of several brokers.

    :ivar choice: the broker that is asked for each queue; if it is forgotten, any broker may be
        asked.
    """

    choice: BrokerChoice

    def pull(self, queue: MessageQueue, offset: int, count: int) -> PulledRecords:
        """
        Pull messages.

        :raises MQClientError: no broker is known, or a broker refuses.
        :raises RemotingError: no broker answers.
        """
        ...


class Reading:
    """One read of one range; `pause` waits for a number of ms."""

    def __init__(
        self, span: QueueRange, source: Puller, how: ReadOptions, pause: Callable[[int], None]
    ) -> None:
        self._span = span
        self._source = source
        self._how = how
        self._pause = pause
        self._queue = MessageQueue(*span.queue)
        self._is_light = span.queue.topic.startswith(LMQ_PREFIX)  # its records have other offsets

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """
        Yield the range as `pyarrow.RecordBatch`.

        :raises CannotDecide: the range cannot be read as a whole; the text names queue, offsets,
            and what to do.
        """
        pieces: list[Piece] = []
        rows = size = 0
        for piece in self._pieces():
            pieces.append(piece)
            rows += len(piece.positions)
            size += len(piece.data)
            if rows >= self._how.batch_rows or size >= BATCH_BYTES:
                yield from self._decode(pieces, columns)
                pieces, rows, size = [], 0, 0
        yield from self._decode(pieces, columns)

    def _decode(self, pieces: "list[Piece]", columns: Sequence[str]) -> Iterator[Any]:
        """Yield the records of some answers as Arrow batches; CannotDecide if one is damaged."""
        if not pieces:
            return
        try:
            records = records_of(pieces).tagged(self._how.tags)
            yield from records.batches(columns, self._span.queue.broker, self._how.batch_rows)
        except ValueError as error:
            raise CannotDecide(f"{self._span.queue}: an answer is damaged: {error}") from None

    def _pieces(self) -> Iterator["Piece"]:
        """
        Pull until the end of the range, and yield the records of each answer.

        An answer that lacks messages is asked for again, if another broker may have them.

        :raises CannotDecide: messages are missing; see `_deleted` and `_ends_early`.
        """
        offset, stop = self._span.start, self._span.stop
        short = 0
        while offset < stop:
            pulled = self._pull(offset)
            # Where the next pull begins; `offset` itself if the broker has nothing from there on.
            following = max(offset, min(stop, pulled.next_begin_offset))
            if pulled.status is PullStatus.OFFSET_ILLEGAL:
                following = max(offset, min(stop, pulled.min_offset))
            piece = self._piece(pulled)
            if not self._is_light:
                piece = piece.slice_offsets(offset, stop)
            gap = self._gap(piece, offset, following, pulled.status)
            if (gap is not None or following == offset) and self._may_wait(short, pulled):
                short += 1
                continue
            short = 0
            if gap is not None:
                self._deleted(gap, pulled)
            if following == offset:
                self._ends_early(offset, pulled)
                return
            if piece.positions:
                yield piece
            offset = following

    def _pull(self, offset: int) -> PulledRecords:
        count = min(self._how.pull_size, self._span.stop - offset)
        return patiently(
            lambda: self._source.pull(self._queue, offset, count),
            self._how.patience,
            self._pause,
            f"{self._range_text(offset)} cannot be read",
        )

    def _piece(self, pulled: PulledRecords) -> "Piece":
        """Find the records in an answer; raise CannotDecide if it is damaged."""
        try:
            piece = piece_of(pulled.body)
            if not self._is_light:
                piece.check_order()
            return piece
        except ValueError as error:
            raise CannotDecide(
                f"{self._span.queue}: the answer of {pulled.address} is damaged: {error}"
            ) from None

    def _gap(
        self, piece: "Piece", start: int, stop: int, status: PullStatus
    ) -> tuple[int, int] | None:
        """Return the first range in [start, stop) that the answer lacks; None: it lacks nothing."""
        has_holes = self._how.tags is not None or self._is_light
        if has_holes and status is not PullStatus.OFFSET_ILLEGAL:
            return None
        expected = start
        for offset in [*piece.queue_offsets, stop]:
            if offset > expected:
                return expected, offset
            expected = offset + 1
        return None

    def _deleted(self, gap: tuple[int, int], pulled: PulledRecords) -> None:
        """
        Return to skip messages that the broker does not have, or raise CannotDecide.

        :param gap: the missing queue offsets, [from, to).
        """
        what = f"{self._span.queue}: the messages from {gap[0]} to {gap[1] - 1} are not there"
        if pulled.broker_id != MASTER_ID:
            raise CannotDecide(
                f"{what} on the slave {pulled.address}, perhaps only there: read again when the"
                " master is back"
            )
        if self._how.fail_on_data_loss:
            raise CannotDecide(
                f"{what} any more: they were deleted (fileReservedTime of the broker) before they"
                f" were read. {_ALLOW}"
            )

    def _may_wait(self, times: int, pulled: PulledRecords) -> bool:
        """Wait and return True if another broker may have more, as a master that returns."""
        self._source.choice.forget(self._queue)
        if pulled.broker_id == MASTER_ID or times >= len(self._how.patience):
            return False
        self._pause(self._how.patience[times])
        return True

    def _ends_early(self, offset: int, pulled: PulledRecords) -> None:
        """Return to end a read behind whose range the queue ends, or raise CannotDecide."""
        what = f"{self._range_text(offset)} cannot be read: the queue ends at {pulled.max_offset}"
        if pulled.broker_id != MASTER_ID:
            raise CannotDecide(
                f"{what} on the slave {pulled.address}, which is behind its master; nothing is lost"
                " yet: read again when the master is back, or when the slave has caught up"
            )
        if self._how.fail_on_data_loss:
            raise CannotDecide(
                f"{what} on the master {pulled.address}: after a fail-over its log is shorter than"
                f" it was when the read was planned. {_ALLOW}"
            )

    def _range_text(self, offset: int) -> str:
        return f"{self._span.queue}: offsets {offset} to {self._span.stop - 1}"


_ALLOW = "With failOnDataLoss=false such messages are passed over."


def patiently(
    call: Callable[[], T], patience: Sequence[int], pause: Callable[[int], None], what: str
) -> T:
    """
    Call a function, and again after each pause while no server answers.

    :param what: text that says what could not be done, for the error.
    :raises BrokerAway: no server answers.
    :raises CannotDecide: a server refused.
    """
    for wait in (*patience, None):
        try:
            return call()
        except (RemotingError, NoNameServer) as error:
            if wait is None:
                raise BrokerAway(f"{what}: {error}") from None
            pause(wait)
        except BrokerRefused as error:
            if wait is None or error.code != ResponseCode.SYSTEM_BUSY:
                raise CannotDecide(f"{what}: {error}") from None
            pause(wait)
        except (MQClientError, RmqHaError) as error:
            raise CannotDecide(f"{what}: {error}") from None
    raise AssertionError("the last turn returns or raises")


class BrokerAway(CannotDecide):
    """Neither the master nor a slave of a broker answers, or no name server does."""


_HEAD = Struct(">II12xq")


class Piece(NamedTuple):
    """
    The records of one answer.

    :ivar positions: where the records begin in `data`.
    """

    data: bytes
    positions: list[int]
    queue_offsets: list[int]

    def check_order(self) -> None:
        """Raise ValueError if a message stands there twice, or in the wrong place."""
        for before, after in pairwise(self.queue_offsets):
            if after <= before:
                raise ValueError(f"offset {after} behind offset {before}")

    def slice_offsets(self, start: int, stop: int) -> "Piece":
        """Return only the records whose offsets are in [start, stop)."""
        offsets = self.queue_offsets
        if all(start <= offset < stop for offset in offsets):
            return self
        kept = [index for index, offset in enumerate(offsets) if start <= offset < stop]
        return Piece(
            self.data, [self.positions[index] for index in kept], [offsets[index] for index in kept]
        )


def piece_of(data: bytes) -> "Piece":
    """
    Find the records in an answer.

    :raises ValueError: the data have something other than records.
    """
    positions: list[int] = []
    offsets: list[int] = []
    position, end = 0, len(data)
    while position < end:
        if end - position < RECORD_OVERHEAD:
            raise ValueError(f"{end - position} bytes after the last record")
        size, magic, offset = _HEAD.unpack_from(data, position)
        if magic != MESSAGE_MAGIC or not RECORD_OVERHEAD <= size <= end - position:
            raise ValueError(f"no record at byte {position} of {end}")
        positions.append(position)
        offsets.append(offset)
        position += size
    return Piece(data, positions, offsets)


def records_of(pieces: Sequence[Piece]) -> Records:
    """
    Return the records of several answers together.

    :raises ValueError: the parts of a record do not add up.
    """
    positions: list[int] = []
    start = 0
    for piece in pieces:
        positions += [start + position for position in piece.positions]
        start += len(piece.data)
    records = Records(b"".join(piece.data for piece in pieces), 0, np.array(positions, np.int64))
    if not records.shape.fits.all():
        raise ValueError("the parts of a record do not add up")
    return records
