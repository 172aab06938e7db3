"""One consume queue: where the messages of one queue of a topic are in the CommitLog.

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
    One queue of one topic: `queue_units` reads it, `queue_repair` recovers it, and here it grows.

    Writing fails without a trace: the same requests may be put again.

    :param extension: where store times and bit maps go; None: nowhere.
    :param restarted: called with topic, queue id and queue offset when a new life begins there.
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
        Add one unit for each record that is not there yet.

        A record behind all that the queue knows, but with a number that is taken, begins a new
        life: the topic was deleted and made again, or its master gave numbers anew. From there on
        the old units are of no use, as the master does not have them either. Numbers that are left
        out stay left out, where the log has the room in which their records were lost: every later
        message keeps its number. Where it has none the unit comes next, as with RocketMQ, and so
        it does when only one record has a strange number.

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
                continue  # built already
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
                    self._put(units, first, reached)
                    units = []
                    first = end = self._begin_anew(request, position)
                else:
                    self._complain(request, end)
                    missing = (position - end) // UNIT_SIZE
                    if missing * RECORD_OVERHEAD <= request[2] - reached:
                        units.append(FILLER * missing)
                        end = position
            try:
                code = request[4] if extension is None else extension.stage(request)
                units.append(pack(request[2], request[3], code))
            except struct_error:  # a delivery time beyond the 64 bits, as only a foe sends it
                units.append(pack(request[2], request[3], 0))
            end += UNIT_SIZE
            reached = physical_end
        self._put(units, first, reached)

    def leave_out(self, end: int) -> None:
        """
        The numbers below a queue offset were given, to messages that are lost: never again.

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

        :param first: position of the first one.
        :param reached: end of the last one's record.
        """
        if units:
            if self._extension is not None:
                self._extension.write()
            data = b"".join(units)
            self._write(data, first)
            self._end = first + len(data)
            self.max_physical_offset = reached

    def _begin_anew(self, request: Row, position: int) -> int:
        """A new life begins at this position, below the end; crash-safe, as the log has it all."""
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
        Start an empty queue in the middle, with fillers in the place of the missing history.

        Java does so in a fresh file only; a file that truncation left empty is as good.
        """
        self._empty(self.max_physical_offset)
        start = position - position % self._size
        if position > start:
            self._write(FILLER * ((position - start) // UNIT_SIZE), start)
        self._end = self._min = position
        return position


def _is_slip(requests: Sequence[Row], index: int, expected: int) -> bool:
    """Only this record has another number than the expected one: the next one goes on behind it."""
    return index + 1 < len(requests) and requests[index + 1][6] == expected + 1
