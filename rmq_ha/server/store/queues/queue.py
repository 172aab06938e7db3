"""One consume queue: the places in the CommitLog of the messages of one queue of a topic.

Spec: store.md, section 3.
"""

from collections.abc import Callable, Sequence
from struct import error as struct_error

from twisted.logger import Logger

from rmq_ha.base.model.message import Row
from rmq_ha.base.store_format.commitlog import RECORD_OVERHEAD
from rmq_ha.base.store_format.consumequeue import FILLER, UNIT, UNIT_SIZE
from rmq_ha.server.store.queues.ext import QueueExtension
from rmq_ha.server.store.queues.files import QueueFiles
from rmq_ha.server.store.queues.repair import QueueRepair
from rmq_ha.server.store.queues.units import MAX_POSITION

Restarted = Callable[[str, int, int], object]


class ConsumeQueue(QueueRepair):
    """
    One queue of one topic.

    `units` reads it, `repair` recovers it, and this class appends to it.

    A write that fails changes nothing, so the same requests may be put again.

    :param extension: stores store times and bit maps; None: they are not stored.
    :param restarted: called with topic, queue id and queue offset when a new life of the queue
        begins.
    """

    log = Logger()

    __slots__ = ("_restarted",)

    def __init__(
        self,
        files: QueueFiles,
        directory: str,
        topic: str,
        queue_id: int,
        extension: QueueExtension | None = None,
        restarted: Restarted = lambda topic, queue_id, queue_offset: None,
    ) -> None:
        super().__init__(files, directory, topic, queue_id, extension)
        self._restarted = restarted

    def append(self, requests: Sequence[Row]) -> None:
        """
        Add one unit for each record that the queue does not have.

        A record may lie behind all known records in the log, but have a queue offset that one of
        them has. Then a new life of the queue begins: the topic was deleted and created again,
        or the master gave out queue offsets anew.
        From there on the old units are dropped, as the master does not have them either. If only
        one record has such a wrong number, its unit just comes next.

        Queue offsets may also be missing. If the log has enough bytes for the lost records, their
        offsets stay unused, so every later message keeps its own offset. Else the unit comes next,
        as in RocketMQ.

        :param requests: of this queue, in log order.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.2.
        """
        units: list[bytes] = []
        first = end = self._end
        reached = self.max_physical_offset
        pack = UNIT.pack
        extension = self._extension
        if extension is not None:
            extension.begin()
        for index, request in enumerate(requests):
            physical_end = request[2] + request[3]
            if physical_end <= reached:
                continue  # the queue has it
            position = request[6] * UNIT_SIZE
            if position != end:
                is_new = not units and self._is_empty()
                if not is_new and _is_slip(requests, index, end // UNIT_SIZE):
                    self._complain(request, end)
                elif not 0 <= position < MAX_POSITION:
                    self._complain(request, end)
                    continue
                elif is_new:
                    first = end = self._begin_at(position)
                elif position < end:
                    # These units belong to the old life. `_begin_anew` cuts the queue at
                    # `position`, perhaps through them, so they have to stand there first.
                    self._put(units, first, reached)
                    units = []
                    first = end = self._begin_anew(request, position)
                else:
                    self._complain(request, end)
                    # A lost record took at least RECORD_OVERHEAD bytes. If fewer bytes lie between,
                    # no record is missing but this one's number is wrong, and its unit comes next.
                    missing = (position - end) // UNIT_SIZE
                    if missing * RECORD_OVERHEAD <= request[2] - reached:
                        units.append(FILLER * missing)
                        end = position
            try:
                code = request[4] if extension is None else extension.stage(request)
                units.append(pack(request[2], request[3], code))
            except struct_error:  # a delivery time beyond 64 bits, which only an attacker sends
                units.append(pack(request[2], request[3], 0))
            end += UNIT_SIZE
            reached = physical_end
        self._put(units, first, reached)

    def extend(self, first: int, units: bytes, start: int, end: int) -> bool:
        """
        Add units whose queue offsets follow the last one, of records that the queue does not have.

        :param first: queue offset of the first unit.
        :param start: physical offset of the first record.
        :param end: physical offset after the last record.
        :returns: whether they were added. If not, `append` has to decide about each record.
        :raises StoreError: the disk refuses.
        """
        position = first * UNIT_SIZE
        is_next = position == self._end and start >= self.max_physical_offset
        if not is_next or self._extension is not None:
            return False
        self._end = self._write(units, position)
        self.max_physical_offset = end
        return True

    def leave_out(self, end: int) -> None:
        """
        Move the queue's end up to `end`, so that the queue offsets of lost messages are not used
        again.

        :raises StoreError: the disk refuses.
        """
        position = end * UNIT_SIZE
        if position <= self._end:
            return
        if self._is_empty():
            self._begin_at(position)
        else:
            self._write(FILLER * (end - self._end // UNIT_SIZE), self._end)
            self._end = position

    def _put(self, units: list[bytes], first: int, reached: int) -> None:
        """
        Write units at the end of the queue.

        :param first: position of the first unit, bytes.
        :param reached: physical offset after the record of the last unit.
        """
        if units:
            if self._extension is not None:
                self._extension.write()
            data = b"".join(units)
            self._write(data, first)
            self._end = first + len(data)
            self.max_physical_offset = reached

    def _begin_anew(self, request: Row, position: int) -> int:
        """
        Start the queue again at a position below its end, because its topic was deleted and created
        again.

        A crash meanwhile does no harm, because the log has all records, from which the queue is
        built again.
        """
        self.log.warn(
            "{topic} {queue_id} begins anew at queue offset {found}: the record at "
            "{physical_offset} has that number, although the queue, built up to {reached} of the "
            "log, ends at {end}; the topic was deleted and made again, and the old messages from "
            "that number on are not served any more",
            topic=self.topic,
            queue_id=self.queue_id,
            found=request[6],
            physical_offset=request[2],
            reached=self.max_physical_offset,
            end=self._end // UNIT_SIZE,
        )
        if position <= self._min:
            self._begin_at(position)
        else:
            self._cut(position)
        self._restarted(self.topic, self.queue_id, request[6])
        return position

    def _complain(self, request: Row, end: int) -> None:
        self.log.warn(
            "the record at {physical_offset} of {topic} {queue_id} has queue offset {found}, but "
            "{expected} comes next",
            topic=self.topic,
            queue_id=self.queue_id,
            physical_offset=request[2],
            found=request[6],
            expected=end // UNIT_SIZE,
        )

    def _is_empty(self) -> bool:
        return not self._starts or (len(self._starts) == 1 and self._starts[0] == self._end)

    def _begin_at(self, position: int) -> int:
        """
        Start an empty queue in the middle, with fillers in place of the missing messages.

        Java does so only in a new file; here also in a file that truncation left empty.
        """
        self._empty(self.max_physical_offset)
        start = position - position % self._size
        if position > start:
            self._write(FILLER * ((position - start) // UNIT_SIZE), start)
        self._end = self._min = position
        return position


def _is_slip(requests: Sequence[Row], index: int, expected: int) -> bool:
    """
    Return whether only this record has an unexpected queue offset, because the next record has the
    offset after the expected one.
    """
    return index + 1 < len(requests) and requests[index + 1][6] == expected + 1
